"""The training step that is measured: this package's, and PyTorch's own Transformer as fast as eager mode runs it.

Each function returns {"step": ..., "forward_backward": ...}, functions of no arguments; the second leaves out the
update. Both sides: dropout 0.1, label smoothing 0.1, Adam, embeddings, output layer, look-ahead mask, no padding.
"""

import time

import numpy as np


def draw_batch(size):
    """Return source ids, target ids and what to predict, all of them real tokens."""
    rng = np.random.default_rng(0)
    lengths = (size.src_len, size.tgt_len, size.tgt_len)
    return [rng.integers(1, size.vocab_size, (size.batch, length)) for length in lengths]


class NoUpdate:
    """An optimizer that leaves the parameters alone."""

    def __init__(self, parameters):
        self.parameters, self.t = parameters, 0

    def zero_grad(self):
        """Empty every gradient."""
        for p in self.parameters:
            p.zero_grad()

    def step(self, map=None):
        """Change nothing."""


def numpy_step(size, threads, **options):
    """This package; `options` go to the Transformer.

    The same cores either way: for threads that share the batch, or for the matrix library's own, as threads="auto" of
    TrainStep chooses.
    """
    from threadpoolctl import threadpool_limits

    from ..losses import CrossEntropy
    from ..models import Transformer
    from ..optim import Adam
    from ..training import TrainStep, keep_freed_memory
    from ..training.sharing import threads_for

    keep_freed_memory()  # as `train` does
    model = Transformer(
        size.vocab_size,
        size.vocab_size,
        size.d_model,
        size.n_heads,
        size.n_layers,
        size.n_layers,
        size.d_ff,
        dropout=0.1,
        max_len=max(size.src_len, size.tgt_len),
        **options,
    )
    adam, no_update = Adam(model.parameters(), lr=1e-4), NoUpdate(model.parameters())
    threadpool_limits(threads, user_api="blas")  # for this process, which the contender has to itself
    loss_fn = CrossEntropy(label_smoothing=0.1, ignore_index=0)
    train = TrainStep(model, loss_fn, adam, threads_for(model, threads))
    batch = draw_batch(size)

    def step():
        train.optimizer = adam
        return train(*batch)

    def forward_backward():
        train.optimizer = no_update
        return train(*batch)

    return {"step": step, "forward_backward": forward_backward}


def torch_step(size, threads):
    """`torch.nn.Transformer` with whichever of the fused and the foreach Adam is faster here."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        """PyTorch's Transformer between embeddings and an output layer: src (B, S), tgt (B, T) -> logits (B, T, V)."""

        def __init__(self):
            super().__init__()
            self.src_embedding = torch.nn.Embedding(size.vocab_size, size.d_model)
            self.tgt_embedding = torch.nn.Embedding(size.vocab_size, size.d_model)
            layers = (size.n_heads, size.n_layers, size.n_layers, size.d_ff)
            self.transformer = torch.nn.Transformer(size.d_model, *layers, dropout=0.1, batch_first=True)
            self.output = torch.nn.Linear(size.d_model, size.vocab_size)
            self.mask = torch.nn.Transformer.generate_square_subsequent_mask(size.tgt_len)

        def forward(self, src, tgt):
            x, y = self.src_embedding(src), self.tgt_embedding(tgt)
            return self.output(self.transformer(x, y, tgt_mask=self.mask, tgt_is_causal=True))

    model, loss_fn = Model(), torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)
    src, tgt, targets = (torch.tensor(a) for a in draw_batch(size))

    def forward_backward():
        model.zero_grad(set_to_none=True)
        loss = loss_fn(model(src, tgt).flatten(0, 1), targets.flatten())
        loss.backward()
        return loss.item()

    def steps_with(adam):
        def step():
            loss = forward_backward()
            adam.step()
            return loss

        return step

    def adam(kind):
        return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, **{kind: True})

    forward_backward()
    fastest = min(("fused", "foreach"), key=lambda kind: _seconds_a_call(adam(kind).step))
    return {"step": steps_with(adam(fastest)), "forward_backward": forward_backward}


def _seconds_a_call(function, repeats=3):
    function()  # the first call makes the buffers
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats
