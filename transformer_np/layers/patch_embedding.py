"""Patch embedding: cut an image into squares, and turn each into a vector, so that a Transformer can read it."""

from ..checks import check_floats, check_positive
from ..module import Module
from .linear import Linear


class PatchEmbedding(Module):
    """y_n = flatten(patch n) W + b, the patches taken row by row.

    Shapes: x (B, C, height, width), patches of (C, P, P) numbers flattened in that order, W (C P², D), y (B, N, D) with
    N = (height / P) (width / P). The same as a convolution with kernel and stride P whose kernels (D, C, P, P) are the
    rows of Wᵀ.
    Backward: the linear map's, with the pixels put back where they came from.
    Raises ValueError where the patches do not tile the image, and for other shapes and dtypes that do not fit.
    Source: Dosovitskiy et al. 2020, equation 1.
    """

    def __init__(self, patch_size, n_channels, d_model, *, bias=True, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, patch_size=patch_size, n_channels=n_channels)
        self.patch_size, self.n_channels = patch_size, n_channels
        self.projection = Linear(n_channels * patch_size**2, d_model, bias, seed=self.rng, dtype=dtype)

    def forward(self, x):
        """x (B, C, height, width) -> y (B, N, D)."""
        check_floats(self, "x", x, shape=(None, self.n_channels, None, None), dtype=self.dtype)
        p, (b, c, height, width) = self.patch_size, x.shape
        if height % p or width % p:
            raise ValueError(
                f"PatchEmbedding: patches of {p} by {p} do not tile an image of {height} by {width}: resize or pad it"
            )
        patches = x.reshape(b, c, height // p, p, width // p, p)
        patches = patches.transpose(0, 2, 4, 1, 3, 5)  # (B, height/P, width/P, C, P, P)
        y = self.projection(patches.reshape(b, -1, c * p * p))  # (B, N, D)
        self.save_for_backward(x.shape, output=y)
        return y

    def backward(self, dy):
        """dy (B, N, D) -> dx (B, C, height, width)."""
        ((b, c, height, width),) = self.saved(dy)
        p = self.patch_size
        dpatches = self.projection.backward(dy).reshape(b, height // p, width // p, c, p, p)
        return dpatches.transpose(0, 3, 1, 4, 2, 5).reshape(b, c, height, width)
