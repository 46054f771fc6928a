"""The loss: cross-entropy with label smoothing, averaged over the tokens that count; and sums of losses."""

import copy
import functools
import warnings

from . import kernels
from .backend import array_module, is_reading_late, read, widen
from .checks import check_choice, check_floats, check_ids, check_real
from .kernels import on_gpu
from .module import Module, is_inference


class CrossEntropy(Module):
    """L = -(1/n) sum over the n tokens that count of sum_v q_v log p_v,  p = softmax(logits).

    The target distribution q holds 1 - label_smoothing at the true token, and label_smoothing spread evenly: over all V
    tokens (spread="all", as Szegedy et al. 2016 and PyTorch have it), or over the tokens other than the true and the
    ignored one (spread="others", as the Annotated Transformer has it). Targets equal to `ignore_index` do not count.
    Shapes: logits (..., V), targets (...) integers, L a Python float.
    Backward: dlogits = (p - q) / n, and 0 for tokens that do not count.
    Where no token counts the loss is 0, with a warning, and so is the gradient.
    Raises ValueError and IndexError for shapes, dtypes and ids that do not fit.
    Source: section 5.4; Szegedy et al. 2016, section 7. Derivation: docs/derivations/cross-entropy.md.
    """

    def __init__(self, label_smoothing=0.0, ignore_index=None, spread="all", *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_real(self, label_smoothing=label_smoothing)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"CrossEntropy: label_smoothing must be at least 0 and less than 1, got {label_smoothing!r}"
            )
        check_choice(self, "spread", spread, ("all", "others"))
        self.label_smoothing, self.ignore_index, self.spread = label_smoothing, ignore_index, spread

    def count(self, targets):
        """Return n, how many tokens count: those that are not `ignore_index`."""
        return targets.size if self.ignore_index is None else int((targets != self.ignore_index).sum())

    def forward(self, logits, targets, n_tokens=None):
        """logits (..., V), targets (...) -> the loss, a float.

        `n_tokens` replaces n, the number of tokens that count: give the count of the whole batch when it comes in
        parts, and the parts' losses and gradients add up to those of the whole.
        """
        check_floats(self, "logits", logits)
        xp = array_module(logits)
        vocab_size = logits.shape[-1]
        if getattr(targets, "shape", None) != logits.shape[:-1]:
            raise ValueError(
                f"CrossEntropy: targets must have shape {logits.shape[:-1]}, got {getattr(targets, 'shape', targets)!r}"
            )
        counts = xp.ones(targets.shape, bool) if self.ignore_index is None else targets != self.ignore_index
        check_ids(self, "targets", xp.where(counts, targets, targets.dtype.type(0)), vocab_size)
        counts, targets = counts.reshape(-1), xp.where(counts, targets, 0).reshape(-1)  # (N,), (N,)
        here = counts.sum()
        read(functools.partial(self._check_count, n_tokens), here)

        rows = logits.reshape(-1, vocab_size)  # (N, V)
        n = xp.maximum(here if n_tokens is None else xp.asarray(n_tokens), 1)
        scale = counts / n.astype(widen(rows[:0]).dtype)  # (N,): 1/n where the token counts, else 0
        q = self._target_distribution(vocab_size)
        kept, total, score = scores_of(rows, targets, q, self.ignore_index)
        loss = xp.log(total) - score  # (N,): -sum_v q_v log p_v, since the q_v add up to 1
        self._saved = None if is_inference() else (kept, total, targets, scale, logits.shape, logits.dtype)
        loss = loss @ scale
        return loss if is_reading_late() else float(loss)

    def backward(self, dloss=1.0):
        """Return dlogits (..., V), times `dloss`, the gradient of whatever follows with respect to this loss."""
        if self._saved is None:
            raise RuntimeError("CrossEntropy.backward: call forward first; each backward uses up one forward")
        (kept, total, targets, scale, shape, dtype), self._saved = self._saved, None
        q = self._target_distribution(shape[-1])
        dlogits = gradient_of(kept, total, targets, scale * dloss, q, self.ignore_index)
        return dlogits.reshape(shape).astype(dtype, copy=False)

    def _check_count(self, n_tokens, here):
        if n_tokens is not None and n_tokens < here:
            raise ValueError(f"CrossEntropy: n_tokens {n_tokens} is less than the {here} tokens that count here")
        if not (here if n_tokens is None else n_tokens):
            warnings.warn("CrossEntropy: no token counts in this batch, so the loss is 0", stacklevel=4)

    def _target_distribution(self, vocab_size):
        """Return q at the true token, at any other, and at the ignored one."""
        if self.spread == "all":
            q_other = self.label_smoothing / vocab_size
            return 1 - self.label_smoothing + q_other, q_other, q_other
        skipped = self.ignore_index is not None and 0 <= self.ignore_index < vocab_size
        q_other = self.label_smoothing / max(vocab_size - 1 - skipped, 1)
        return 1 - self.label_smoothing, q_other, 0.0 if skipped else q_other


@on_gpu(kernels.scores_of)
def scores_of(rows, targets, q, ignored):
    """Return what `gradient_of` needs, and for each row sum_v exp(x_v) and sum_v q_v x_v, x being logits - max.

    Shapes: logits `rows` (N, V), targets (N,), the sums (N,). q holds the target distribution at the true token, at any
    other, and at the ignored one.
    """
    rows, (q_true, q_other, q_ignored) = widen(rows), q
    xp = array_module(rows)
    exps = xp.empty_like(rows)  # (N, V): exp(logit - max), which is p times its row's total
    total, score = xp.empty_like(rows[:, 0]), xp.empty_like(rows[:, 0])  # (N,), (N,)
    for i in _row_blocks(rows):
        x = xp.subtract(rows[i], rows[i].max(-1, keepdims=True), out=exps[i])
        score[i] = (q_true - q_other) * xp.take_along_axis(x, targets[i, None], 1)[:, 0]
        if q_other:
            score[i] += q_other * x.sum(-1)
        if q_ignored != q_other:
            score[i] += (q_ignored - q_other) * x[:, ignored]
        xp.exp(x, out=x)
        total[i] = x.sum(-1)
    return exps, total, score


@on_gpu(kernels.gradient_of)
def gradient_of(exps, total, targets, scale, q, ignored):
    """Return dlogits = (p - q) * scale, (N, V), written over `exps`; `scale` (N,) is 1/n where a token counts."""
    q_true, q_other, q_ignored = q
    for i in _row_blocks(exps):
        d = exps[i]
        d *= (scale[i] / total[i])[:, None]  # p / n
        if q_other:
            d -= (q_other * scale[i])[:, None]
        if q_ignored != q_other:
            d[:, ignored] -= (q_ignored - q_other) * scale[i]
        d[array_module(d).arange(len(d)), targets[i]] -= (q_true - q_other) * scale[i]
    return exps


class SumOfLosses(Module):
    """L = L_1 + L_2 + .., one loss for each head of a model whose forward returns several outputs.

    `outputs` and `targets` are tuples, in the order of the losses; so is what backward returns: it goes to the model's
    backward as it is. BERT, for example, has masked words and the next sentence:
        tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy())
    Backward: a sum hands its gradient to every term.
    Raises ValueError where there are not as many outputs and targets as losses.
    """

    def __init__(self, *losses):
        super().__init__()
        self.losses = losses

    def __copy__(self):
        return SumOfLosses(*map(copy.copy, self.losses))

    def count(self, targets):
        """Return how many targets count, for each loss."""
        return tuple(loss.count(t) for loss, t in zip(self.losses, targets, strict=True))

    def forward(self, outputs, targets, n_tokens=None):
        """Outputs (one for each loss), targets (one for each) -> the loss, a float."""
        for name, given in (("outputs", outputs), ("targets", targets)):
            if not isinstance(given, (tuple, list)) or len(given) != len(self.losses):
                raise ValueError(f"SumOfLosses: {name} must be a tuple of {len(self.losses)}, one for each loss")
        n_tokens = (None,) * len(self.losses) if n_tokens is None else n_tokens
        parts = zip(self.losses, outputs, targets, n_tokens, strict=True)
        return sum(loss.forward(output, target, n_tokens=n) for loss, output, target, n in parts)

    def backward(self, dloss=1.0):
        """Return the gradients of the outputs, a tuple, times `dloss`."""
        return tuple(loss.backward(dloss) for loss in self.losses)


def _row_blocks(rows, size=1 << 18):
    """Yield slices of rows, about `size` entries each: several passes over one block then find it in the cache."""
    if array_module(rows).__name__ == "cupy":  # there fewer, larger kernels are faster
        yield slice(None)
        return
    step = max(1, size // rows.shape[-1])
    for start in range(0, len(rows), step):
        yield slice(start, start + step)
