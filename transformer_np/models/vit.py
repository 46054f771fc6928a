"""ViT: an image is cut into patches, and an encoder reads them like the words of a sentence."""

import numpy as np

from ..backend import array_module
from ..checks import check_floats, check_positive
from ..layers import Dropout, Encoder, LearnedPositions, Linear, PatchEmbedding
from ..layers.linear import column_sums
from ..module import Module, Parameter
from .files import save


class ViT(Module):
    """Patches and a learned class token in front, learned positions, a pre-norm encoder; the class token's vector says
    which class.

    Shapes: images (B, C, height, width) float, cut into N = (height / P) (width / P) patches; logits (B, n_classes).
    image_size is a number, or (height, width).
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Backward returns dimages: the class token is the same in every image, so its gradient is the sum over the batch; of
    the encoder's output only position 0 was used, so the rest has gradient 0.
    Raises ValueError for images and sizes that do not fit.
    Source: Dosovitskiy et al. 2020, equations 1 to 4; eps = 1e-12 as in Hugging Face's ViT.
    """

    def __init__(
        self,
        image_size=224,
        patch_size=16,
        n_channels=3,
        n_classes=1000,
        d_model=768,
        n_heads=12,
        n_layers=12,
        d_ff=3072,
        dropout=0.1,
        seed=0,
        dtype="float32",
        *,
        activation="gelu",
        eps=1e-12,
        checkpoint=False,
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        height, width = image_size if isinstance(image_size, (tuple, list)) else (image_size, image_size)
        check_positive(self, height=height, width=width, patch_size=patch_size, n_classes=n_classes)
        if height % patch_size or width % patch_size:
            raise ValueError(f"ViT: patches of {patch_size} by {patch_size} do not tile images of {height} by {width}")
        self.image_shape, self.d_model = (n_channels, height, width), d_model
        options = {"seed": self.rng, "dtype": dtype}
        self.patches = PatchEmbedding(patch_size, n_channels, d_model, **options)
        self.class_token = Parameter(np.zeros(d_model, self.dtype))
        n_patches = (height // patch_size) * (width // patch_size)
        self.positions = LearnedPositions(d_model, n_patches + 1, **options)
        self.dropout = Dropout(dropout, **options)
        stack = {"eps": eps, "checkpoint": checkpoint, **options}
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, dropout, "pre", activation, **stack)
        self.head = Linear(d_model, n_classes, **options)

    def forward(self, images):
        """images (B, C, height, width) -> logits (B, n_classes)."""
        check_floats(self, "images", images, shape=(None, *self.image_shape), dtype=self.dtype)
        patches = self.patches(images)  # (B, N, D)
        xp, first = array_module(images), (len(images), 1, self.d_model)
        x = xp.concatenate([xp.broadcast_to(self.class_token.data, first), patches], axis=1)  # (B, 1 + N, D)
        y = self.encoder(self.dropout(self.positions(x)))
        logits = self.head(y[:, 0])  # (B, n_classes)
        self.save_for_backward(y.shape, output=logits)
        return logits

    def backward(self, dlogits):
        """dlogits (B, n_classes) -> dimages (B, C, height, width); adds every parameter's gradient."""
        (shape,) = self.saved(dlogits)
        dy = array_module(dlogits).zeros(shape, dlogits.dtype)  # (B, 1 + N, D)
        dy[:, 0] = self.head.backward(dlogits)
        dx = self.positions.backward(self.dropout.backward(self.encoder.backward(dy)))
        self.class_token.accumulate(column_sums(dx[:, 0]))
        return self.patches.backward(dx[:, 1:])

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)
