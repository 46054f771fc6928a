"""BERT: an encoder that sees the words on both sides, trained by filling in the ones that were masked."""

from ..checks import check_choice, check_ids, check_positive
from ..layers import Dropout, Embedding, Encoder, LayerNorm, LearnedPositions, Linear, OutputProjection, Pooler
from ..layers.feed_forward import ACTIVATIONS
from ..layers.positions import check_length
from ..masks import check_pad_id, real_tokens
from ..module import Module
from .files import save


class MaskedWordHead(Module):
    """logits = norm(act(x W + b)) Eᵀ + c: for every position a logit for each token it may have been.

    Shapes: x (..., D), W (D, D), E (V, D) the token embedding's own matrix, c (V,), logits (..., V).
    Backward: the parts' backwards in reverse order. Source: Devlin et al. 2018, section 3.1, and their code
    (run_pretraining.py).
    """

    def __init__(self, embedding, activation="gelu", *, eps=1e-12, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        d_model, options = embedding.d_model, {"seed": self.rng, "dtype": dtype}
        self.linear = Linear(d_model, d_model, **options)
        self.activation = ACTIVATIONS[activation](**options)
        self.norm = LayerNorm(d_model, eps, **options)
        self.output = OutputProjection(d_model, embedding.vocab_size, embedding.weight, **options)

    def forward(self, x):
        """x (..., D) -> logits (..., V)."""
        return self.output(self.norm(self.activation(self.linear(x))))

    def backward(self, dlogits):
        """dlogits (..., V) -> dx (..., D)."""
        dx = self.norm.backward(self.output.backward(dlogits))
        return self.linear.backward(self.activation.backward(dx))


class BERT(Module):
    """Token, segment and position embeddings, their layer norm, a post-norm encoder, and the heads of its training.

    Shapes: ids (B, S) integers; segments (B, S) integers, 0 for the first sentence and 1 for the second; mask (B, S)
    boolean, True at real tokens. What comes out depends on `heads`:
    "pretraining"  (word_logits (B, S, V), next_logits (B, 2)): which token stood there, at every position, and whether
                   the second sentence follows the first (0) or not (1). backward takes such a pair.
    "words"        word_logits (B, S, V) alone, as RoBERTa is trained.
    None           the encoder's vectors (B, S, D), for whatever is to be put on top.
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Two heads are trained by the sum of two losses; targets of -100 are the words that were not masked:
        loss_fn = tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy())
        step = tnp.TrainStep(model, loss_fn, optimizer)
        loss = step(ids, segments, (words, is_next))
    Backward: the heads' gradients meet in the encoder's output and add up. The token embedding has two uses, below and,
    as the tied matrix of the words' logits, on top; its gradient is the sum. Returns None: ids have no gradient.
    Raises ValueError or IndexError for ids, segments, lengths, masks and options that do not fit.
    Source: Devlin et al. 2018; eps = 1e-12, GELU by erf, the pooler and the order of norm and dropout are those of
    their code (modeling.py). As there, no dropout inside the feed-forward network.
    """

    def __init__(
        self,
        vocab_size,
        d_model=768,
        n_heads=12,
        n_layers=12,
        d_ff=3072,
        dropout=0.1,
        max_len=512,
        n_segments=2,
        pad_id=0,
        seed=0,
        dtype="float32",
        *,
        heads="pretraining",
        activation="gelu",
        eps=1e-12,
        checkpoint=False,
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        check_positive(self, vocab_size=vocab_size, n_segments=n_segments)
        check_pad_id(self, pad_id, vocab_size)
        check_choice(self, "heads", heads, ("pretraining", "words", None))
        check_choice(self, "activation", activation, ACTIVATIONS)
        self.pad_id, self.heads = pad_id, heads
        options = {"seed": self.rng, "dtype": dtype}
        self.embedding = Embedding(vocab_size, d_model, scaled=False, **options)
        self.segment_embedding = Embedding(n_segments, d_model, scaled=False, **options)
        self.positions = LearnedPositions(d_model, max_len, **options)
        self.embedding_norm = LayerNorm(d_model, eps, **options)
        self.embedding_dropout = Dropout(dropout, **options)
        stack = {"feed_forward_dropout": 0.0, "eps": eps, "checkpoint": checkpoint, **options}
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, dropout, "post", activation, **stack)
        if heads is not None:
            self.word_head = MaskedWordHead(self.embedding, activation, eps=eps, **options)
        if heads == "pretraining":
            self.pooler = Pooler(d_model, **options)
            self.next_head = Linear(d_model, 2, **options)

    def forward(self, ids, segments=None, mask=None):
        """ids (B, S), segments (B, S) or None for zeros, mask (B, S) -> see the class."""
        x = self.encode(ids, segments, mask)  # (B, S, D)
        if self.heads is None:
            return x
        word_logits = self.word_head(x)  # (B, S, V)
        return word_logits if self.heads == "words" else (word_logits, self.next_head(self.pooler(x)))

    def encode(self, ids, segments=None, mask=None):
        """ids (B, S), segments (B, S), mask (B, S) -> the encoder's vectors (B, S, D), without the heads."""
        check_ids(self, "ids", ids, self.embedding.vocab_size, ndim=2)
        segments = ids * 0 if segments is None else segments
        check_ids(self, "segments", segments, self.segment_embedding.vocab_size, ndim=2)
        if segments.shape != ids.shape:
            raise ValueError(f"BERT: segments must have the shape of ids, {ids.shape}, got {segments.shape}")
        check_length(self.positions, ids.shape[1], 0)
        mask = real_tokens(self, "mask", ids, mask, self.pad_id)
        vectors = self.embedding(ids) + self.segment_embedding(segments)  # (B, S, D)
        x = self.positions(vectors)
        return self.encoder(self.embedding_dropout(self.embedding_norm(x)), mask[:, None, None, :])

    def backward(self, dlogits):
        """dlogits, shaped as what forward returned -> None; adds every parameter's gradient."""
        if self.heads == "pretraining":
            dword_logits, dnext_logits = dlogits
            dx = self.pooler.backward(self.next_head.backward(dnext_logits))  # (B, S, D)
            dx += self.word_head.backward(dword_logits)
        else:
            dx = dlogits if self.heads is None else self.word_head.backward(dlogits)
        dx = self.embedding_norm.backward(self.embedding_dropout.backward(self.encoder.backward(dx)))
        dvectors = self.positions.backward(dx)
        self.segment_embedding.backward(dvectors)
        self.embedding.backward(dvectors)
        return None

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)
