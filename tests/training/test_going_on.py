"""A training that stops, is saved and goes on is one that never stopped: to the bit. What does not fit is refused."""

import errno
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from refusals import refuses

import transformer_np as tnp
from transformer_np.data import Batches
from transformer_np.training import History, LossScaler, fit, read_checkpoint, save_checkpoint

OPTIMIZERS = {
    "Adam": lambda parameters: tnp.Adam(parameters, tnp.NoamSchedule(16, 6)),
    "AdamW": lambda parameters: tnp.AdamW(parameters, 0.01, weight_decay=0.1),
    "SGD": lambda parameters: tnp.SGD(parameters, tnp.LinearSchedule(0.2, 5, 20), momentum=0.9),
}


def few_batches():
    """Seven batches an epoch, the last of one pair, so that ten steps end in the middle of the second."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(4, 11, rng.integers(1, 7)).tolist() for _ in range(37)]
    return Batches(texts, texts[::-1], 6, seed=1)


def new_step(optimizer="Adam", threads=None, precision=None, dtype="float32", dropout=0.2, d_model=16):
    """All that a training has, made anew, as another process would."""
    model = tnp.Transformer(11, 11, d_model, 2, 1, 1, 32, dropout, 9, seed=3, dtype=dtype)
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
    step = tnp.TrainStep(model, loss_fn, OPTIMIZERS[optimizer](model.parameters()), threads, 0.5, precision=precision)
    if step.scaler is not None:  # it is too high at first, and grows too high again and again
        step.scaler = LossScaler(2.0**20, growth_interval=3)
    return step


def trained(n_steps=20, **options):
    """Train without a stop; return the step and its history."""
    step = new_step(**options)
    return step, fit(step, few_batches(), n_steps, progress=False)


def saved_and_taken_up(path, step, history, **options):
    """Save what there is; return a new step that has it, and the history."""
    save_checkpoint(path, step, history)
    state, history, _ = read_checkpoint(path)
    other = new_step(**options)
    other.load_state_dict(state)
    return other, history


def assert_same(one, other):
    """The same bits in parameters, buffers, scaler and random streams, and the same losses."""
    (step, history), (other_step, other_history) = one, other
    state, other_state = step.state_dict(), other_step.state_dict()
    assert state.keys() == other_state.keys()
    for name, value in state.items():
        assert value.dtype == other_state[name].dtype, name
        assert value.tobytes() == other_state[name].tobytes(), name
    assert history.losses == other_history.losses
    assert history.learning_rates == other_history.learning_rates
    assert history.tokens == other_history.tokens


def assert_goes_on(path, **options):
    """Ten steps, a file, and ten more by new objects are twenty; and so are the old objects that went on."""
    whole = trained(**options)
    step, history = trained(10, **options)
    after = saved_and_taken_up(path, step, history, **options)
    assert_same(after, (step, history))
    for each in (after, (step, history)):
        each[1].seconds = 0.0
        assert fit(each[0], few_batches(), 20, progress=False, history=each[1]) is each[1]
        assert_same(each, whole)
    assert len(set(whole[1].losses)) == 20
    return whole


@pytest.mark.parametrize("threads", [None, 1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps_a_file_and_ten_more_are_twenty(tmp_path, optimizer, dtype, threads):
    assert_goes_on(tmp_path / "x.safetensors", optimizer=optimizer, dtype=dtype, threads=threads)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_mixed_precision_in_float16(tmp_path, optimizer):
    """What is saved are the parameters in float32, and the scaler, which leaves out steps before and after the stop."""
    step, history = assert_goes_on(tmp_path / "x.safetensors", optimizer=optimizer, precision="float16")
    assert 0 < step.scaler.n_skipped == history.steps - step.optimizer.t
    half = trained(10, optimizer=optimizer, precision="float16")[0]
    assert 0 < half.scaler.n_skipped < step.scaler.n_skipped
    weight = half.state_dict()["model.output.weight"]
    assert weight.dtype == np.float32
    assert np.any(weight != weight.astype("float16"))


def test_mixed_precision_in_bfloat16(tmp_path):
    pytest.importorskip("ml_dtypes")
    assert_goes_on(tmp_path / "x.safetensors", precision="bfloat16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_of_half_precision(tmp_path, dtype):
    """The parameters are of 16 bits, the optimiser's means of 32."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    step, _ = assert_goes_on(tmp_path / "x.safetensors", dtype=dtype)
    state = step.state_dict()
    assert state["model.output.weight"].dtype.name == dtype
    assert state["optimizer.Adam.m.0"].dtype == np.float32


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from test_going_on import few_batches, fit, new_step, read_checkpoint, save_checkpoint
path, n_steps, options = {path!r}, {n_steps}, {options!r}
step, history = new_step(**options), None
if n_steps > 10:
    state, history, about = read_checkpoint(path)
    assert about == {{"from": "another process"}}
    step.load_state_dict(state)
history = fit(step, few_batches(), n_steps, progress=False, history=history)
save_checkpoint(path, step, history, {{"from": "another process"}})
"""


def test_in_another_process(tmp_path):
    options, path = {"threads": 2, "dtype": "float32"}, tmp_path / "x.safetensors"
    here = pathlib.Path(__file__).parent
    paths = os.pathsep.join([str(here.parents[1]), str(here.parent), os.environ.get("PYTHONPATH", "")])
    for n_steps in (10, 20):
        program = PROGRAM.format(folder=str(here), path=str(path), n_steps=n_steps, options=options)
        environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    state, history, _ = read_checkpoint(path)
    after = new_step(**options)
    after.load_state_dict(state)
    assert_same((after, history), trained(**options))


def test_without_the_state_it_is_another_training():
    """What the test above would say if the optimiser, the streams or the place among the batches were forgotten."""
    whole = trained()[1]
    step, history = trained(10)
    state = step.state_dict()
    for forgotten in ("optimizer", "random"):
        other = new_step()
        fresh = other.state_dict()
        other.load_state_dict({n: (fresh if n.startswith(forgotten) else state)[n] for n in state})
        copy = History(list(history.losses), list(history.learning_rates))
        assert fit(other, few_batches(), 20, progress=False, history=copy).losses[10:] != whole.losses[10:]
    other = new_step()
    other.load_state_dict(state)
    assert fit(other, few_batches(), 10, progress=False).losses != whole.losses[10:]


@pytest.mark.parametrize("make", [tnp.GPT, tnp.Llama], ids=["GPT", "Llama"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_other_models_and_gradient_checkpointing(make, checkpoint):
    ids = np.random.default_rng(0).integers(0, 9, (4, 7))

    def new():
        model = make(9, 8, 2, 2, dropout=0.3, max_len=8, seed=1, checkpoint=checkpoint)
        return tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters(), 0.01), threads=2)

    whole, other = new(), new()
    for _ in range(3):
        whole(ids, ids)
    other.load_state_dict(whole.state_dict())
    assert [whole(ids, ids) for _ in range(3)] == [other(ids, ids) for _ in range(3)]


def test_a_layer_of_ones_own_that_draws_numbers():
    class Noise(tnp.layers.Linear):
        def mark(self):
            return self.rng.bit_generator.state

        def rewind(self, mark):
            self.rng.bit_generator.state = mark

        def forward(self, x):
            return super().forward(x + self.rng.standard_normal(x.shape))

    x, targets = np.ones((4, 3)), np.array([0, 1, 0, 1])

    def new():
        layer = Noise(3, 2, seed=0, dtype="float64")
        return tnp.TrainStep(layer, tnp.CrossEntropy(), tnp.SGD(layer.parameters(), lr=0.1))

    whole, other = new(), new()
    assert type(whole.model.rng.bit_generator).__name__ == "PCG64"  # which counts with integers of 128 bits
    for _ in range(3):
        whole(x, targets)
    other.load_state_dict(whole.state_dict())
    assert [whole(x, targets) for _ in range(3)] == [other(x, targets) for _ in range(3)]


def test_from_a_gpu_to_a_file_and_back(tmp_path, xp):
    """On the device the masks follow from the streams alone, so there too it is as if it had never stopped."""
    ids, path = xp.asarray(np.random.default_rng(0).integers(0, 9, (2, 5))), tmp_path / "x.safetensors"

    def new(device):
        model = tnp.GPT(9, 8, 2, 1, dropout=0.2, max_len=5, seed=1).to(device)
        return tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters(), 0.01))

    whole, second, on_cpu = new("cupy"), new("cupy"), new("cpu")
    whole(ids, ids)
    save_checkpoint(path, whole)
    state, _, _ = read_checkpoint(path)
    for step in (second, on_cpu):
        step.load_state_dict(state)
    assert isinstance(second.model.embedding.weight.data, xp.ndarray)
    # CuPy's scatter-add does not add in the same order every time.
    assert [second(ids, ids) for _ in range(2)] == pytest.approx([whole(ids, ids) for _ in range(2)], rel=1e-5)
    assert math.isfinite(on_cpu(ids.get(), ids.get()))


def altered(state, **changes):
    """The state with other values; None takes a name out."""
    changed = {**state, **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: value for name, value in changed.items() if value is not None}


def test_states_that_do_not_fit():
    step, _ = trained(3, precision="float16")
    state = new_step(precision="float16").state_dict()
    stream = next(name for name in state if name.startswith("random.half."))
    for wrong, message in (
        (altered(state, model__output__bias=None), "Transformer.load_state_dict: missing ['output.bias'], unexpected"),
        (altered(state, model__output__bias=np.zeros(3, "float32")), "output.bias must be float32 of shape (11,)"),
        (altered(state, optimizer__Adam__t=None), "Adam.load_state_dict: missing ['Adam.t'], unexpected nothing"),
        (altered(state, scaler__scale=None), "LossScaler.load_state_dict: missing ['scale'], unexpected nothing"),
        (
            altered(state, scaler__scale=-1.0),
            "LossScaler.load_state_dict: scale must be a number above 0, got float -1",
        ),
        (
            altered(state, scaler__n_good=np.ones(2)),
            "n_good must be a whole number of at least 0, got float64 of shape",
        ),
        (altered(state, epoch=3), "TrainStep.load_state_dict: unexpected 'epoch', expected model.*, optimizer.*, scal"),
        ({}, "Adam.load_state_dict: missing ['Adam.m.0', "),
        (
            {**state, stream: np.zeros(9, np.uint8)},
            "half.src_dropout must tell where a SFC64 stands, got uint8 of shape",
        ),
        ({**state, stream: 3}, "half.src_dropout must tell where a SFC64 stands, got int 3"),
        (
            {n: v for n, v in state.items() if n != stream},
            "RandomStreams.load_state_dict: missing ['half.src_dropout']",
        ),
        (new_step().state_dict(), "LossScaler.load_state_dict: missing ['n_good', 'n_skipped', 'scale'], unexpected"),
        (new_step("AdamW", precision="float16").state_dict(), "the state is that of AdamW, expected that of Adam"),
    ):
        check_refused(step, ValueError, message, wrong)
    check_refused(
        step, TypeError, "TrainStep.load_state_dict: state must be a dict as from state_dict(), got Non", None
    )
    step.load_state_dict(state)


def check_refused(step, error, message, state):
    before = step.state_dict()
    refuses(error, message, lambda: step.load_state_dict(state), step.model)
    assert all(value.tobytes() == before[name].tobytes() for name, value in step.state_dict().items())


def test_other_threads_and_sizes():
    state = new_step(threads=2).state_dict()
    message = "the state has the streams of model, shard0, shard1, expected those of model, shard0: make TrainStep with"
    check_refused(new_step(threads=1), ValueError, message, state)
    check_refused(new_step(), ValueError, "expected those of model: make TrainStep with the same threads", state)
    message = "Adam.m.0 must be float32 of shape (11, 8), got float32 of shape (11, 16)"
    check_refused(new_step(threads=2, d_model=8), ValueError, message, state)


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    step, history = trained(3)
    save_checkpoint(path, step, history)
    before, write = path.read_bytes(), pathlib.Path.write_bytes

    def write_half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_half)
    fit(step, few_batches(), 4, progress=False, history=history)
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint(path, step, history)
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]
    assert path.read_bytes() == before
    assert read_checkpoint(path)[1].losses == history.losses[:3]


def test_files_that_are_no_checkpoint(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*x\.safetensors"):
        read_checkpoint(path)
    step, history = trained(1)
    save_checkpoint(path, step, history, {"anything": [1, None, "가"]})
    content = path.read_bytes()
    assert read_checkpoint(path)[2] == {"anything": [1, None, "가"]}
    step.model.save(tmp_path / "model.safetensors")
    for wrong in (b"", content[:-5], b"not what it was", (tmp_path / "model.safetensors").read_bytes()):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"x\.safetensors is damaged or is no checkpoint of transformer_np"):
            read_checkpoint(path)


def test_a_checkpoint_is_readable_without_this_package(tmp_path):
    """Arrays by name, JSON in the header, and nothing that could run."""
    from safetensors import safe_open

    step, history = trained(2)
    save_checkpoint(tmp_path / "x.safetensors", step, history)
    with safe_open(tmp_path / "x.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["transformer_np"])["checkpoint"]
        assert header["history"]["tokens"] == history.tokens
        np.testing.assert_array_equal(file.get_tensor("history.losses"), history.losses)
        assert file.get_tensor("step.optimizer.Adam.t") == 2
