"""CTranslate2's names and types, and which parameter of our Transformer is which of its variables."""

TYPES = ("float32", "int8", "int16", "int32", "float16")  # from version 4 on; a fifth, bfloat16, NumPy does not know
TYPE_OF_SIZE = {1: "int8", 2: "int16", 4: "float32"}  # before
HEADS = {"TransformerBase": 8, "TransformerBig": 16}  # the names of old files stand for a number of heads
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 6: "sigmoid"}

TABLES = {
    "encoder/embeddings": "src_embedding",
    "decoder/embeddings": "tgt_embedding",
    "decoder/projection": "output",
}


def layout(config):
    """Return {CTranslate2's name: (our names, its shape, whether it is a linear map's matrix)}.

    CTranslate2 stacks matrices that are multiplied with the same input, and keeps them as (d_out, d_in).
    """
    d, f = config["d_model"], config["d_ff"]
    entries = {}

    def linear(theirs, ours, d_in, d_out):
        entries[f"{theirs}/weight"] = [f"{name}.weight" for name in ours], (d_out, d_in), True
        entries[f"{theirs}/bias"] = [f"{name}.bias" for name in ours], (d_out,), False

    def norm(theirs, ours):
        entries[f"{theirs}/gamma"] = [f"{ours}.gamma"], (d,), False
        entries[f"{theirs}/beta"] = [f"{ours}.beta"], (d,), False

    for (theirs, ours), size in zip(TABLES.items(), ("src", "tgt", "tgt"), strict=True):
        entries[f"{theirs}/weight"] = [f"{ours}.weight"], (config[f"{size}_vocab_size"], d), False
    if config["positions"] == "learned":
        for side, ours in (("encoder", "src"), ("decoder", "tgt")):
            name = f"{side}/position_encodings/encodings"
            entries[name] = [f"{ours}_positions.weight"], (config["max_len"], d), False
    entries["decoder/projection/bias"] = ["output.bias"], (config["tgt_vocab_size"],), False
    for side in ("encoder", "decoder"):
        for i in range(config[f"n_{side}_layers"]):
            theirs, ours = f"{side}/layer_{i}", f"{side}.layers.{i}"
            attention = f"{ours}.self_attention"
            linear(f"{theirs}/self_attention/linear_0", [f"{attention}.w_{x}" for x in "qkv"], d, 3 * d)
            linear(f"{theirs}/self_attention/linear_1", [f"{attention}.w_o"], d, d)
            norm(f"{theirs}/self_attention/layer_norm", f"{ours}.norm1")
            if side == "decoder":
                attention = f"{ours}.cross_attention"
                linear(f"{theirs}/attention/linear_0", [f"{attention}.w_q"], d, d)
                linear(f"{theirs}/attention/linear_1", [f"{attention}.w_{x}" for x in "kv"], d, 2 * d)
                linear(f"{theirs}/attention/linear_2", [f"{attention}.w_o"], d, d)
                norm(f"{theirs}/attention/layer_norm", f"{ours}.norm2")
            linear(f"{theirs}/ffn/linear_0", [f"{ours}.feed_forward.linear1"], d, f)
            linear(f"{theirs}/ffn/linear_1", [f"{ours}.feed_forward.linear2"], f, d)
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.norm{2 if side == 'encoder' else 3}")
        if config["final_norm"]:
            norm(f"{side}/layer_norm", f"{side}.final_norm")
    return entries
