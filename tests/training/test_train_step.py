"""The training step: what it composes, and that threads change nothing but the time it takes."""

import math
import threading

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.training.replica import replicate
from transformer_np.training.sharing import deal, threads_for

LAYOUTS = {
    "post": {"norm": "post"},
    "pre": {"norm": "pre"},
    "tied": {"tie_embeddings": True},
    "tied target, learned positions": {"tie_embeddings": "target", "positions": "learned"},
}


def small_model(dropout=0.0, dtype="float64", **options):
    return tnp.Transformer(11, 11, 12, 3, 1, 1, 20, dropout=dropout, max_len=9, seed=5, dtype=dtype, **options)


def batch_of(n, seed=0):
    """n sentence pairs of very unequal lengths, padded with 0: some shards hold many more tokens than others."""
    rng = np.random.default_rng(seed)
    src, tgt = rng.integers(3, 11, (n, 7)), rng.integers(3, 11, (n, 6))
    for i in range(n):
        src[i, 1 + i * 6 // n :] = 0
        tgt[i, 2 + i * 4 // n :] = 0
    return src, tgt[:, :-1], tgt[:, 1:]


def trained(threads, batch, n_steps=2, clip=None, dropout=0.0, **options):
    model = small_model(dropout, **options)
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
    step = tnp.TrainStep(model, loss_fn, tnp.SGD(model.parameters(), lr=0.3, momentum=0.5), threads, clip)
    return [step(*batch) for _ in range(n_steps)], model.state_dict()


def assert_close(one, other, atol=1e-12):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_one_step_is_forward_loss_backward_clip_update(clip):
    batch = batch_of(4)
    losses, state = trained(None, batch, n_steps=1, clip=clip)

    model, loss_fn = small_model(), tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
    loss = loss_fn.forward(model.forward(*batch[:2]), batch[2])
    model.backward(loss_fn.backward())
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
    scale = 1.0 if clip is None else clip / norm
    assert norm > 0.05  # so that clipping clips
    assert losses == [loss]
    expected = {name: p.data - 0.3 * scale * p.grad for name, p in model.named_parameters()}
    assert_close(state, expected, atol=1e-15)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing_but_rounding(layout, threads):
    batch = batch_of(7)  # 7 in 3 shards: 3, 2 and 2 sentences
    losses, state = trained(None, batch, clip=1.0, **LAYOUTS[layout])
    shared, shared_state = trained(threads, batch, clip=1.0, **LAYOUTS[layout])
    assert shared == pytest.approx(losses, rel=1e-12)
    assert_close(shared_state, state)


@pytest.mark.parametrize("n", [1, 2])
def test_a_batch_smaller_than_the_threads(n):
    losses, state = trained(None, batch_of(n))
    shared, shared_state = trained(3, batch_of(n))
    assert shared == pytest.approx(losses, rel=1e-12)
    assert_close(shared_state, state)


def test_bp23_shards_with_unequal_token_counts():
    """A shard of 1 token and one of 5: the mean is over the 6 tokens, not of the two means."""
    src = np.array([[3, 4, 5], [6, 7, 8]])
    tgt_in, tgt_out = np.array([[1, 0, 0, 0, 0], [1, 3, 4, 5, 6]]), np.array([[2, 0, 0, 0, 0], [3, 4, 5, 6, 2]])
    losses, state = trained(None, (src, tgt_in, tgt_out), n_steps=1)
    shared, shared_state = trained(2, (src, tgt_in, tgt_out), n_steps=1)
    assert shared == pytest.approx(losses, rel=1e-12)
    assert_close(shared_state, state)
    model, loss_fn = small_model(), tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
    alone = [loss_fn(model.forward(src[i : i + 1], tgt_in[i : i + 1]), tgt_out[i : i + 1]) for i in (0, 1)]
    assert losses[0] == pytest.approx((1 * alone[0] + 5 * alone[1]) / 6, rel=1e-12)
    assert abs(losses[0] - (alone[0] + alone[1]) / 2) > 1e-3  # here the mean of means is something else


def test_a_shard_where_no_token_counts():
    src, tgt_in, tgt_out = batch_of(4)
    tgt_out[2:] = 0
    losses, state = trained(None, (src, tgt_in, tgt_out))
    shared, shared_state = trained(2, (src, tgt_in, tgt_out))
    assert shared == pytest.approx(losses, rel=1e-12)
    assert_close(shared_state, state)


@pytest.mark.parametrize("threads", [None, 2, 3])
def test_dropout_is_reproducible_bit_for_bit(threads):
    one, other = (trained(threads, batch_of(6), n_steps=3, dropout=0.3, dtype="float32") for _ in range(2))
    assert one[0] == other[0]
    assert all(one[1][name].tobytes() == other[1][name].tobytes() for name in one[1])


def test_replicas_drop_out_different_places():
    model = small_model(dropout=0.5)
    replicas = [replicate(model) for _ in range(3)]
    x = np.ones((4, 5, 12))
    dropped = [m.src_dropout(x) == 0 for m in (model, *replicas)]
    for i in range(len(dropped)):
        for j in range(i):
            assert (dropped[i] != dropped[j]).mean() > 0.25  # independent masks differ in half of the places


def test_replicas_share_values_and_ties_but_not_gradients():
    model = small_model(tie_embeddings=True)
    replica = replicate(model)
    for mine, original in zip(replica.parameters(), model.parameters(), strict=True):
        assert mine is not original
        assert mine.data is original.data
    assert replica.output.weight is replica.src_embedding.weight is replica.tgt_embedding.weight


@pytest.mark.parametrize("threads", [None, 2])
def test_a_loss_that_is_not_finite_changes_nothing(threads):
    model = small_model()
    optimizer = tnp.Adam(model.parameters(), lr=0.1)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), optimizer, threads)
    step(*batch_of(4))
    model.output.bias.data[3] = np.nan
    model.output.weight.data[4] = 7.0
    before, moments = model.state_dict(), optimizer.state_dict()
    with pytest.raises(FloatingPointError, match="the loss is nan at step 2: try a smaller learning rate"):
        step(*batch_of(4))
    assert all(before[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())
    assert all(moments[name].tobytes() == value.tobytes() for name, value in optimizer.state_dict().items())
    assert optimizer.t == 1
    model.output.bias.data[3] = 0.0
    assert math.isfinite(step(*batch_of(4)))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's own word on infinity times zero
@pytest.mark.parametrize("threads", [None, 2])
def test_a_gradient_that_is_not_finite_changes_nothing(threads):
    class Broken(tnp.CrossEntropy):
        def backward(self, dloss=1.0):
            return super().backward(dloss) * np.inf

    model = small_model()
    step = tnp.TrainStep(model, Broken(label_smoothing=0.1), tnp.Adam(model.parameters()), threads, clip=1.0)
    before = model.state_dict()
    with pytest.raises(FloatingPointError, match="holds infinity or NaN"):
        step(*batch_of(4))
    assert all(before[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())


def test_threads_see_a_model_that_was_changed_after_the_first_step():
    batch = batch_of(5)
    sizes = {"dropout": 0.5, "dtype": "float32"}
    model, twin = small_model(**sizes), small_model(**sizes)
    steps = [
        tnp.TrainStep(m, tnp.CrossEntropy(ignore_index=0), tnp.SGD(m.parameters(), lr=0.1), threads)
        for m, threads in ((model, 2), (twin, None))
    ]
    for step in steps:
        step(*batch)
    other = tnp.Transformer(11, 11, 12, 3, 1, 1, 20, max_len=9, seed=77, dtype="float64").state_dict()
    for m in (model, twin):
        m.astype("float64").load_state_dict(other)
        m.eval()  # with dropout still on, the two would differ
    losses = [step(*batch) for step in steps]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert model.output.weight.data.dtype == np.float64
    assert_close(model.state_dict(), twin.state_dict())
    model.train()
    assert steps[0](*batch) != steps[0](*batch)  # dropout is on again, in the replicas too


def test_threads_see_a_loss_that_was_changed_after_the_first_step():
    batch, losses = batch_of(4), []
    for threads in (None, 2):
        model, loss_fn = small_model(), tnp.CrossEntropy(ignore_index=0)
        step = tnp.TrainStep(model, loss_fn, tnp.SGD(model.parameters(), lr=0.1), threads)
        step(*batch)
        loss_fn.label_smoothing = 0.4
        losses.append(step(*batch))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_an_error_in_one_shard_waits_for_the_others():
    """Otherwise the next step would begin while a shard of this one still computes on a replica."""
    model = small_model()
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.SGD(model.parameters(), lr=0.1), threads=2)
    src, tgt_in, tgt_out = batch_of(4)
    step(src, tgt_in, tgt_out)
    slow, release, ended = step._shards._replicas[1], threading.Event(), threading.Event()
    forward = slow.forward

    def slow_forward(*inputs):
        release.wait(10)
        try:
            return forward(*inputs)
        finally:
            ended.set()

    slow.forward = slow_forward
    threading.Timer(0.05, release.set).start()
    bad = src.copy()
    bad[0, 0] = 99
    with pytest.raises(IndexError, match=r"src: id 99 is outside 0\.\.10"):
        step(bad, tgt_in, tgt_out)
    assert ended.is_set()
    slow.forward = forward
    assert math.isfinite(step(src, tgt_in, tgt_out))


def test_bad_thread_counts():
    model = small_model()
    for threads in (0, -1, "many"):
        with pytest.raises(ValueError, match=f'threads must be at least 1, "auto" or None, got {threads!r}'):
            tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters()), threads)


def test_any_model_of_one_input_trains():
    """The step asks a model for forward, backward and parameters, nothing else."""
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(9, 4)), rng.integers(0, 3, 9)
    states = []
    for threads in (None, 2):
        layer = tnp.layers.Linear(4, 3, seed=0, dtype="float64")
        step = tnp.TrainStep(layer, tnp.CrossEntropy(), tnp.SGD(layer.parameters(), lr=0.5), threads)
        losses = [step(x, targets) for _ in range(20)]
        assert losses[-1] < losses[0]
        states.append(layer.state_dict())
    assert_close(*states)


def test_bp78_re_running_cells():
    """A cell that builds its model and trains it starts from the same loss each time it is run."""

    def cell():
        model = small_model(dropout=0.2)
        step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.Adam(model.parameters()))
        return [step(*batch_of(4)) for _ in range(3)]

    assert cell() == cell()


@pytest.mark.parametrize("clip", [None, 1e9])
def test_an_optimizer_with_a_step_of_its_own_sees_the_whole_gradient(clip):
    """The replicas' gradients are summed by the map that the update runs in; one that does not use it sees them too."""

    class Watching(tnp.SGD):
        def step(self, map=None):
            self.seen = [p.grad.copy() for p in self.parameters]

    seen = []
    for threads in (None, 3):
        model = small_model()
        optimizer = Watching(model.parameters(), lr=0.1)
        tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), optimizer, threads, clip)(*batch_of(5))
        seen.append(optimizer.seen)
    for one, other in zip(*seen, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [None, 1e9])
def test_gradients_of_parameters_that_are_not_trained_are_whole_too(clip):
    gradients = []
    for threads in (None, 3):
        model = small_model()
        trained = [p for name, p in model.named_parameters() if name.startswith("encoder")]
        tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.SGD(trained, lr=0.1), threads, clip)(*batch_of(5))
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert_close(*gradients)


def test_large_parameters_are_dealt_out_first():
    assert deal([5, 1, 9, 1, 4, 4], 2) == [[2, 5], [0, 4, 1, 3]]  # 13 and 11 numbers
    assert deal([3], 2) == [[0], []]


def test_wide_models_share_their_batch():
    """A model of width 128 does, one of 96 does not, however large its vocabulary; and alone nobody shares."""
    wide, narrow = (tnp.Transformer(300, 300, d_model, 2, 1, 1, 256) for d_model in (128, 96))
    assert threads_for(wide, 2) == 2
    assert threads_for(wide, 64) == 8
    assert threads_for(wide, 1) is None
    assert threads_for(narrow, 2) is None
    assert threads_for(tnp.layers.LayerNorm(512), 2) is None  # no matrix at all
    step = tnp.TrainStep(narrow, tnp.CrossEntropy(), tnp.Adam(narrow.parameters()), threads="auto")
    assert step.threads is None
