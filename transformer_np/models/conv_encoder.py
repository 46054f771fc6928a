"""An encoder of convolutions, as in ConvS2S: every layer sees a few neighbours, all positions at once."""

import math

from ..backend import array_module, constant
from ..checks import check_ids, check_positive
from ..layers import Conv1D, Dropout, Embedding, LearnedPositions, OutputProjection, Sigmoid
from ..layers.checkpoint import checkpointed
from ..layers.positions import check_length
from ..masks import check_pad_id, real_tokens
from ..module import Module
from .files import save


class ConvBlock(Module):
    """y = (x + a * sigmoid(g)) / sqrt(2), where [a, g] = Conv(dropout(x)) of width 2D: a gated linear unit, residual.

    Half of the convolution's outputs decides how much of the other half passes. 1 / sqrt(2) keeps the variance of the
    sum. padding: "same" or "causal".
    Shapes: x (B, T, D), mask (B, T), True at real tokens, y (B, T, D).
    Backward, with dh = dy / sqrt(2): da = dh * sigmoid(g),  dg = (dh * a) through the sigmoid,  then [da, dg] through
    the convolution and the dropout, plus dh for the residual path.
    Source: Gehring et al. 2017, section 3.2 and 3.5; Dauphin et al. 2016.
    """

    def __init__(self, d_model, kernel_size=3, padding="same", dropout=0.1, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        options = {"seed": self.rng, "dtype": dtype}
        self.d_model = d_model
        self.dropout = Dropout(dropout, **options)
        self.conv = Conv1D(d_model, 2 * d_model, kernel_size, padding, **options)
        self.sigmoid = Sigmoid(**options)

    def forward(self, x, mask=None):
        """x (B, T, D) -> y (B, T, D)."""
        both = self.conv(self.dropout(x), mask)  # (B, T, 2D)
        a, gate = both[..., : self.d_model], self.sigmoid(both[..., self.d_model :])
        h = x + a * gate
        y = h * constant(math.sqrt(0.5), h)
        self.save_for_backward(a, gate, output=y)
        return y

    def backward(self, dy):
        """dy (B, T, D) -> dx (B, T, D)."""
        a, gate = self.saved(dy)
        dh = dy * constant(math.sqrt(0.5), dy)
        dboth = array_module(dy).concatenate([dh * gate, self.sigmoid.backward(dh * a)], axis=-1)  # (B, T, 2D)
        return dh + self.dropout.backward(self.conv.backward(dboth))


class ConvEncoder(Module):
    """Token and position embeddings, N gated convolutions with residual paths, and a logit for every output.

    A position sees (kernel_size - 1) N + 1 neighbours, itself included: where self-attention joins any two positions in
    one step, this needs a number of layers that grows with their distance.
    padding="same" looks to both sides, and labels each token, for example; "causal" sees nothing ahead, so that
    logits[:, t] may predict ids[:, t + 1]: a language model of convolutions.
    Shapes: ids (B, T) integers, mask (B, T), True at real tokens, by default those that are not `pad_id`, logits
    (B, T, V) with V = n_outputs, by default vocab_size. `encode` gives the vectors (B, T, D) alone.
    checkpoint=True: keep less for backward, and compute each block's forward once more there (see Checkpoint).
    Backward: the parts' backwards in reverse order. Returns None: ids have no gradient.
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: Gehring et al. 2017, sections 3.1 to 3.3.
    """

    def __init__(
        self,
        vocab_size,
        n_outputs=None,
        d_model=256,
        n_layers=4,
        kernel_size=3,
        padding="same",
        dropout=0.1,
        max_len=512,
        pad_id=0,
        seed=0,
        dtype="float32",
        *,
        checkpoint=False,
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        check_positive(self, vocab_size=vocab_size, d_model=d_model, n_layers=n_layers)
        check_pad_id(self, pad_id, vocab_size)
        self.pad_id = pad_id
        options = {"seed": self.rng, "dtype": dtype}
        self.embedding = Embedding(vocab_size, d_model, **options)
        self.positions = LearnedPositions(d_model, max_len, **options)
        self.dropout = Dropout(dropout, **options)
        self.blocks = [ConvBlock(d_model, kernel_size, padding, dropout, **options) for _ in range(n_layers)]
        if checkpoint:
            self.blocks = checkpointed(self.blocks)
        self.output = OutputProjection(d_model, vocab_size if n_outputs is None else n_outputs, **options)

    def forward(self, ids, mask=None):
        """ids (B, T) -> logits (B, T, V)."""
        return self.output(self.encode(ids, mask))

    def encode(self, ids, mask=None):
        """ids (B, T) -> vectors (B, T, D)."""
        check_ids(self, "ids", ids, self.embedding.vocab_size, ndim=2)
        check_length(self.positions, ids.shape[1], 0)
        mask = real_tokens(self, "mask", ids, mask, self.pad_id)
        x = self.dropout(self.positions(self.embedding(ids)))  # (B, T, D)
        for block in self.blocks:
            x = block(x, mask)
        return x

    def backward(self, dlogits):
        """dlogits (B, T, V) -> None; adds every parameter's gradient."""
        dx = self.output.backward(dlogits)
        for block in reversed(self.blocks):
            dx = block.backward(dx)
        return self.embedding.backward(self.positions.backward(self.dropout.backward(dx)))

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)
