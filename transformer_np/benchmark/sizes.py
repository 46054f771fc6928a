"""Sizes of the training steps that are measured, and how much arithmetic a step of that size is."""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class StepSize:
    """A batch of B sentence pairs of S and T tokens, and a Transformer of N + N layers."""

    batch: int
    src_len: int
    tgt_len: int
    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    vocab_size: int

    def __str__(self):
        return (
            f"B{self.batch} S{self.src_len} T{self.tgt_len} d{self.d_model} h{self.n_heads} "
            f"{self.n_layers}+{self.n_layers} ff{self.d_ff} V{self.vocab_size}"
        )

    def as_dict(self):
        """Return {name: value}, for JSON."""
        return asdict(self)

    def flops(self):
        """Return the floating-point operations of all matrix products in a step, forward and backward.

        A product with a matrix costs 2 operations a weight and token, and twice as many once more in backward: 6.
        """
        s, t, d = self.src_len, self.tgt_len, self.d_model
        feed_forward = 2 * d * self.d_ff
        encoder = s * (4 * d * d + feed_forward) + 2 * s * s * d  # W_Q, W_K, W_V, W_O; then q kᵀ and P v
        crossing = t * 2 * d * d + s * 2 * d * d + 2 * t * s * d  # W_Q and W_O see targets, W_K and W_V the memory
        decoder = t * (4 * d * d + feed_forward) + 2 * t * t * d + crossing
        return 6 * self.batch * (self.n_layers * (encoder + decoder) + t * d * self.vocab_size)

    def grown(self, axis, factor):
        """Return the size with "length", "width", "vocabulary" or "batch" times `factor`; d_ff grows with the width."""
        names = {
            "length": ("src_len", "tgt_len"),
            "width": ("d_model", "d_ff", "n_heads"),
            "vocabulary": ("vocab_size",),
            "batch": ("batch",),
        }[axis]
        return replace(self, **{name: getattr(self, name) * factor for name in names})


SIZES = {
    "dates": StepSize(64, 12, 12, 64, 4, 2, 256, 300),
    "small": StepSize(32, 16, 16, 256, 8, 3, 512, 6000),
    "multi30k": StepSize(128, 14, 14, 256, 4, 3, 1024, 10000),
    "base": StepSize(16, 32, 32, 512, 8, 6, 2048, 8000),
}
TINY = StepSize(2, 3, 4, 8, 2, 1, 8, 9)  # enough to load and wake all that computes
GROWTH = StepSize(16, 32, 32, 64, 2, 2, 256, 1000)
AXES = ("length", "width", "vocabulary", "batch")
