"""What the Transformer replaced: a recurrent encoder and decoder, with attention between them or without."""

from ..backend import array_module
from ..checks import check_choice, check_ids, check_positive
from ..layers import GRU, LSTM, RNN, AdditiveAttention, Dropout, Embedding, Linear, OutputProjection, Tanh
from ..layers.positions import check_length
from ..masks import check_pad_id, real_tokens
from ..module import Module, is_inference
from .files import save

CELLS = {"lstm": (LSTM, 2), "gru": (GRU, 1), "rnn": (RNN, 1)}  # the layer, and how many states it hands on


class RecurrentStack(Module):
    """N recurrent layers one on top of the other, dropout between them; each reads what the one below wrote.

    bidirectional: every layer is two, of half the width; one reads from the end, and both outputs stand side by side.
    Shapes: x (B, T, D), states (B, n_states, D) in the order of the layers (h, and c after it for an LSTM), y (B, T,
    D), mask (B, T), True at real tokens.
    Backward: the parts' backwards in reverse order; the gradients of both directions add up.
    """

    def __init__(self, cell, n_layers, d_model, dropout=0.1, bidirectional=False, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        layer, self.n_states = CELLS[cell][0], CELLS[cell][1] * n_layers
        options = {"seed": self.rng, "dtype": dtype}
        n_directions = 2 if bidirectional else 1
        self.d_model, self.width = d_model, d_model // n_directions
        self.layers = [
            [layer(d_model, self.width, reverse=bool(i), **options) for i in range(n_directions)]
            for _ in range(n_layers)
        ]
        self.dropouts = [Dropout(dropout, **options) for _ in range(n_layers - 1)]

    def forward(self, x, states=None, mask=None):
        """x (B, T, D), states (B, n_states, D) or None for zeros -> y (B, T, D), the last states (B, n_states, D)."""
        xp, y, ends = array_module(x), x, []
        for i, layer in enumerate(self.layers):
            inner = y if i == 0 else self.dropouts[i - 1](y)
            # Of each direction y, and its last states.
            results = [direction(inner, *self._first(states, i, j), mask=mask) for j, direction in enumerate(layer)]
            y, *after = (xp.concatenate(parts, axis=-1) for parts in zip(*results, strict=True))
            ends += after
        last = xp.stack(ends, axis=1)  # (B, n_states, D)
        self.save_for_backward(output=y)
        return y, last

    def backward(self, dy, dlast=None):
        """dy (B, T, D), dlast (B, n_states, D) or None for zeros -> dx (B, T, D), dstates (B, n_states, D)."""
        self.saved(dy)
        xp, starts = array_module(dy), []
        for i in reversed(range(len(self.layers))):
            results = []
            for j, direction in enumerate(self.layers[i]):
                half = slice(j * self.width, (j + 1) * self.width)
                results.append(direction.backward(dy[..., half], *self._first(dlast, i, j)))
            of_inner, *before = zip(*results, strict=True)  # of each direction dinner, and its first states' gradients
            dinner = sum(of_inner)
            starts = [xp.concatenate(parts, axis=-1) for parts in before] + starts
            dy = self.dropouts[i - 1].backward(dinner) if i > 0 else dinner
        return dy, xp.stack(starts, axis=1)

    def _first(self, states, i, j):
        """The states of layer i that belong to direction j: a list of (B, width); none where `states` is None."""
        if states is None:
            return []
        n = self.n_states // len(self.layers)
        half = slice(j * self.width, (j + 1) * self.width)
        return [states[:, k, half] for k in range(i * n, (i + 1) * n)]


class Seq2SeqRNN(Module):
    """A recurrent encoder reads the source; a recurrent decoder starts from its last states and writes the target.

    Without attention those states are all that the decoder gets to know of the source, however long it was. With
    attention (additive, Bahdanau's), every state h_t of the decoder also looks back at the states of the encoder, and
    what it found, c_t, joins it: tanh([h_t, c_t] W + b) goes to the output. As in Luong et al. the context is not fed
    to the next step, so that all steps' attention is one product.
    Shapes: src (B, S) and tgt (B, T) integer ids, logits (B, T, V) with V = tgt_vocab_size. Tokens equal to `pad_id`
    change no state and are not looked at. cell: "lstm", "gru" or "rnn". bidirectional: the encoder reads both ways,
    each with half the width.
    `encode` returns memory (B, n_states + S, D): the last states of the encoder, then, where there is attention, its
    outputs; one array, so that generation can treat it as any model's.
    Backward: the parts' backwards in reverse order; the encoder's outputs get a gradient from the attention, its last
    states one from the decoder's first. Returns (None, None): ids have no gradient.
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: Sutskever et al. 2014; attention: Bahdanau et al. 2014, its place: Luong et al. 2015, section 3.
    """

    recurrent = True  # what has been written so far is in the states: generation need keep nothing else

    def __init__(
        self,
        src_vocab_size,
        tgt_vocab_size,
        d_model=256,
        n_layers=1,
        cell="lstm",
        attention=True,
        bidirectional=False,
        dropout=0.1,
        max_len=512,
        pad_id=0,
        seed=0,
        dtype="float32",
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        check_positive(self, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
        check_positive(self, d_model=d_model, n_layers=n_layers, max_len=1 if max_len is None else max_len)
        check_choice(self, "cell", cell, CELLS)
        check_pad_id(self, pad_id, min(src_vocab_size, tgt_vocab_size))
        if bidirectional and d_model % 2:
            raise ValueError(f"Seq2SeqRNN: d_model must be even for two directions of half the width, got {d_model}")
        self.pad_id, self.max_len, self.d_model = pad_id, max_len, d_model
        options = {"seed": self.rng, "dtype": dtype}
        self.src_embedding = Embedding(src_vocab_size, d_model, **options)
        self.src_dropout = Dropout(dropout, **options)
        self.encoder = RecurrentStack(cell, n_layers, d_model, dropout, bidirectional, **options)
        self.tgt_embedding = Embedding(tgt_vocab_size, d_model, **options)
        self.tgt_dropout = Dropout(dropout, **options)
        self.decoder = RecurrentStack(cell, n_layers, d_model, dropout, **options)
        self.attention = None
        if attention:
            self.attention = AdditiveAttention(d_model, d_model, d_model, **options)
            self.combine = Linear(2 * d_model, d_model, **options)
            self.tanh = Tanh(**options)
        self.output_dropout = Dropout(dropout, **options)
        self.output = OutputProjection(d_model, tgt_vocab_size, **options)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        """src (B, S), tgt (B, T) -> logits (B, T, V).

        `src_mask` (B, S) and `tgt_mask` (B, T) are True at real tokens; by default those that are not `pad_id`.
        """
        check_ids(self, "src", src, self.src_embedding.vocab_size, ndim=2)
        check_ids(self, "tgt", tgt, self.tgt_embedding.vocab_size, ndim=2)
        if len(src) != len(tgt):
            raise ValueError(f"Seq2SeqRNN: src and tgt must have the same batch size, got {src.shape} and {tgt.shape}")
        check_length(self, src.shape[1], 0)
        check_length(self, tgt.shape[1], 0)
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        tgt_mask = real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)
        memory, src_mask = self.encode(src, src_mask)
        logits = self.output(self.decode(tgt, memory, src_mask, tgt_mask))
        self.save_for_backward(src.shape, output=logits)
        return logits

    def encode(self, src, src_mask=None):
        """src (B, S) -> memory (B, n_states + S, D), or without attention (B, n_states, D); and src_mask (B, S)."""
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        embedded = self.src_dropout(self.src_embedding(src))  # (B, S, D)
        vectors, states = self.encoder(embedded, mask=src_mask)
        if self.attention is None:
            return states, src_mask
        return array_module(src).concatenate([states, vectors], axis=1), src_mask

    def decode(self, tgt, memory, src_mask, tgt_mask=None, cache=None):
        """tgt (B, T), memory and src_mask as `encode` gave them -> what the output projection takes (B, T, D).

        With a StateCache, tgt are the T tokens that follow those the cache has seen, all of them real; after the first
        ones memory may be None.
        """
        if cache is not None and not is_inference():
            raise RuntimeError("Seq2SeqRNN: a cache has no backward, so use it within tnp.inference()")
        if cache is not None and cache.length:
            states, vectors = cache.states, cache.vectors
        else:
            states, vectors = memory[:, : self.decoder.n_states], memory[:, self.decoder.n_states :]
        if cache is None:
            tgt_mask = real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)
        embedded = self.tgt_dropout(self.tgt_embedding(tgt))  # (B, T, D)
        decoded, states = self.decoder(embedded, states, tgt_mask)  # (B, T, D)
        if cache is not None:
            cache.states, cache.vectors, cache.length = states, vectors, cache.length + tgt.shape[1]
        if self.attention is None:
            return self.output_dropout(decoded)
        context = self.attention(decoded, vectors, vectors, src_mask[:, None, None, :])  # (B, T, D)
        both = array_module(decoded).concatenate([decoded, context], axis=-1)  # (B, T, 2D)
        return self.output_dropout(self.tanh(self.combine(both)))

    def backward(self, dlogits):
        """dlogits (B, T, V) -> (None, None); adds every parameter's gradient."""
        (src_shape,) = self.saved(dlogits)
        d = self.output_dropout.backward(self.output.backward(dlogits))  # (B, T, D)
        if self.attention is None:
            ddecoded = d
            dvectors = array_module(d).zeros((*src_shape, self.d_model), d.dtype)  # (B, S, D)
        else:
            dboth = self.combine.backward(self.tanh.backward(d))  # (B, T, 2D)
            dcontext = dboth[..., self.d_model :].copy()
            dquery, dkey, dvalue = self.attention.backward(dcontext)
            ddecoded, dvectors = dboth[..., : self.d_model] + dquery, dkey + dvalue
        dembedded, dstates = self.decoder.backward(ddecoded)
        self.tgt_embedding.backward(self.tgt_dropout.backward(dembedded))
        dembedded, _ = self.encoder.backward(dvectors, dstates)
        self.src_embedding.backward(self.src_dropout.backward(dembedded))
        return None, None

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)
