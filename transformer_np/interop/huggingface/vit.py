"""ViT for classification. Its patches are embedded by a convolution whose kernels are the rows of our matrix."""

from ...models import ViT
from .entries import Entry, activation_name, linear, norm

MODEL, TYPES = ViT, ("vit",)
PREFIX = "vit."
DEFAULTS = ALIASES = {}
IGNORED = ()


def read_config(config, tensors):
    """Return the arguments of our ViT."""
    config.must_be(qkv_bias=True)
    labels, image = config.get("id2label"), config.get("image_size", 224)
    if isinstance(image, list):
        if len(image) != 2 or not all(isinstance(n, int) and n > 0 for n in image):
            raise ValueError(f"config.json: image_size must be a size or two, got {image!r:.60}")
    else:
        image = config.size("image_size", 224)
    return {
        "image_size": image,
        "patch_size": config.size("patch_size", 16),
        "n_channels": config.size("num_channels", 3),
        "n_classes": len(labels) if isinstance(labels, dict) and labels else config.size("num_labels", 2),
        "d_model": config.size("hidden_size", 768),
        "n_heads": config.size("num_attention_heads", 12),
        "n_layers": config.size("num_hidden_layers", 12),
        "d_ff": config.size("intermediate_size", 3072),
        "dropout": config.number("hidden_dropout_prob", 0.0),
        "activation": config.activation("hidden_act", "gelu"),
        "eps": config.number("layer_norm_eps", 1e-12),
    }


def arguments(model):
    """Return what the model was made with."""
    return model.config


def write_config(config):
    """Return their config."""
    image = config["image_size"]
    labels = {str(i): f"LABEL_{i}" for i in range(config["n_classes"])}
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": list(image) if isinstance(image, (list, tuple)) else image,
        "patch_size": config["patch_size"],
        "num_channels": config["n_channels"],
        "hidden_size": config["d_model"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "intermediate_size": config["d_ff"],
        "hidden_act": activation_name(config["activation"]),
        "hidden_dropout_prob": config["dropout"],
        "attention_probs_dropout_prob": config["dropout"],
        "layer_norm_eps": config["eps"],
        "qkv_bias": True,
        "id2label": labels,
        "label2id": {label: int(i) for i, label in labels.items()},
    }


def layout(config):
    """Return {their name: Entry}."""
    d, f, channels, patch = (config[name] for name in ("d_model", "d_ff", "n_channels", "patch_size"))
    image = config["image_size"]
    height, width = image if isinstance(image, (list, tuple)) else (image, image)
    n_places = (height // patch) * (width // patch) + 1
    kernels = "vit.embeddings.patch_embeddings.projection"
    entries = {
        "vit.embeddings.cls_token": Entry(("class_token",), (1, 1, d)),
        "vit.embeddings.position_embeddings": Entry(("positions.weight",), (1, n_places, d)),
        f"{kernels}.weight": Entry(("patches.projection.weight",), (d, channels, patch, patch), True),
        f"{kernels}.bias": Entry(("patches.projection.bias",), (d,)),
    }
    for i in range(config["n_layers"]):
        theirs, ours = f"vit.encoder.layer.{i}", f"encoder.layers.{i}"
        for name in ("query", "key", "value"):
            entries |= linear(f"{theirs}.attention.attention.{name}", f"{ours}.self_attention.w_{name[0]}", d, d)
        entries |= linear(f"{theirs}.attention.output.dense", f"{ours}.self_attention.w_o", d, d)
        entries |= linear(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.linear1", d, f)
        entries |= linear(f"{theirs}.output.dense", f"{ours}.feed_forward.linear2", f, d)
        entries |= norm(f"{theirs}.layernorm_before", f"{ours}.norm1", d)
        entries |= norm(f"{theirs}.layernorm_after", f"{ours}.norm2", d)
    entries |= norm("vit.layernorm", "encoder.final_norm", d)
    return entries | linear("classifier", "head", d, config["n_classes"])


def duplicates(config):
    """Nothing is tied."""
    return {}
