"""`transformer-np bench` and what it measures with: the figures must be of what they say. No time is asserted."""

import importlib.util
import json
import math
import time

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np import benchmark
from transformer_np.benchmark import Side, StepSize, alternate, sizes
from transformer_np.benchmark.contenders import NoUpdate, draw_batch, numpy_step, torch_step
from transformer_np.benchmark.machine import memory_in_use
from transformer_np.plot.growth import growth as draw_growth

TINY = StepSize(batch=3, src_len=5, tgt_len=4, d_model=8, n_heads=2, n_layers=1, d_ff=12, vocab_size=9)


@pytest.fixture
def command(command, tmp_path, monkeypatch):
    """The same on tiny sizes, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark, "SIZES", {"dates": TINY, "small": TINY})
    monkeypatch.setattr(benchmark.steps, "gemm_rate", lambda threads, repeats: 1e9)
    monkeypatch.setattr(benchmark.growth, "__defaults__", (True, TINY, ("length", "batch"), (1, 2), None))
    return command


@pytest.mark.slow
def test_the_whole_command(command, tmp_path):
    done = command("bench", "--repeats", 1, "--threads", 1, "--no-torch", "--sizes", "dates", "--json", "bench.json")
    assert done.code == 0
    assert "| dates: B3 S5 T4 d8 h2 1+1 ff12 V9" in done.out
    assert "| length x 2" in done.out
    assert "| batch x 2" in done.out
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert written["machine"]["numpy"] == np.__version__
    assert [row["factor"] for row in written["growth"]["batch"]] == [1, 2]
    assert written["growth"]["batch"][1]["size"]["batch"] == 6
    assert written["growth"]["batch"][0] == written["growth"]["length"][0]  # the base was measured once
    (row,) = written["steps"]
    assert row["step"] > 0
    assert row["gemm_rate"] == pytest.approx(1e9)
    assert row["share"] == pytest.approx(TINY.flops() / row["forward_backward"] / 1e9)


def test_one_size_beside_torch(command):
    pytest.importorskip("torch")
    done = command("bench", "--repeats", 1, "--threads", 1, "--sizes", "dates", "--no-growth", "--quiet")
    assert done.code == 0
    head, _, row = (line for line in done.out.splitlines() if line.startswith("|"))
    cells = dict(zip(head.split("|"), row.split("|"), strict=True))
    ours, theirs = (float(next(v for k, v in cells.items() if k.strip() == name)) for name in ("step ms", "PyTorch ms"))
    assert ours > 0
    assert theirs > 0
    assert "geometric mean of the time ratios" in done.out


def test_bad_usage(command):
    assert command("bench", "--threads", "0").code == 2
    assert command("bench", "--sizes", "enormous").code == 2
    assert "examples:" in command("bench", "--help").out


def doubles_and_naps(n_bytes):
    """A contender: one function fills n_bytes and lets them go, one sleeps for 30 ms."""
    return {
        "fill": lambda: np.ones(n_bytes, "uint8").sum(),
        "nap": lambda: time.sleep(0.03),
    }


def broken(n_bytes):
    """A contender that fails at the real size only."""
    if n_bytes > 1:
        raise ValueError(f"no {n_bytes} bytes here")
    return {}


def test_a_side_measures_time_and_memory_of_its_own_process():
    if memory_in_use()[0] is None:
        pytest.skip("this system does not tell how much memory a process holds")
    with Side(doubles_and_naps, 50_000_000, warm_up=(1,)) as side:
        assert side.peak_memory() < 10e6
        assert side.run("nap") >= 0.03
        side.run("fill")
        ballast = np.ones(100_000_000, "uint8")  # of this process: no business of the other
        assert 45e6 < side.peak_memory() < 70e6
        side.run("nap")
        assert 45e6 < side.peak_memory() < 70e6  # a peak stays
        del ballast


def test_an_error_on_the_other_side_is_said_here():
    with pytest.raises(RuntimeError, match="in a measured process: ValueError: no 5 bytes here"):
        Side(broken, 5, warm_up=(1,))


def test_sides_take_turns():
    order = []
    calls = [lambda i=i: order.append(i) or float(len(order)) for i in range(3)]
    seconds = alternate(calls, repeats=2, warm_up=1, pause=0)
    assert order == [0, 1, 2] * 3
    assert seconds == [[4.0, 7.0], [5.0, 8.0], [6.0, 9.0]]


@pytest.mark.parametrize("size", [TINY, StepSize(2, 4, 7, 12, 3, 2, 20, 11)])
def test_flops_count_every_matrix_product(size, monkeypatch):
    """Count in forward what NumPy multiplies, with arrays that keep the count; backward takes twice as much."""
    count = 0

    class Counting(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
            nonlocal count
            plain = [np.asarray(a) if isinstance(a, np.ndarray) else a for a in inputs]
            options |= {"out": tuple(np.asarray(a) for a in out)} if out else {}
            if ufunc is np.matmul:
                shape = np.broadcast_shapes(plain[0].shape[:-2], plain[1].shape[:-2])
                count += 2 * math.prod(shape) * plain[0].shape[-2] * plain[0].shape[-1] * plain[1].shape[-1]
            result = getattr(ufunc, method)(*plain, **options)
            return out[0] if out else np.asarray(result).view(Counting)

    model = tnp.Transformer(
        *(size.vocab_size, size.vocab_size, size.d_model, size.n_heads, size.n_layers, size.n_layers, size.d_ff),
        dropout=0.0,
    )
    for p in model.parameters():
        p.data = p.data.view(Counting)
    src, tgt, _ = draw_batch(size)
    model.forward(src, tgt)
    assert 3 * count == size.flops()


def test_growing():
    base = StepSize(1, 2, 3, 4, 2, 6, 7, 8)
    assert base.grown("length", 3) == StepSize(1, 6, 9, 4, 2, 6, 7, 8)
    assert base.grown("width", 2) == StepSize(1, 2, 3, 8, 4, 6, 14, 8)
    assert base.grown("vocabulary", 5) == StepSize(1, 2, 3, 4, 2, 6, 7, 40)
    assert base.grown("batch", 4) == StepSize(4, 2, 3, 4, 2, 6, 7, 8)
    assert set(sizes.AXES) == {"length", "width", "vocabulary", "batch"}


def test_both_contenders_train():
    """The same token ids go in, the loss starts near log V and falls; forward_backward changes nothing."""
    contenders = {"ours": numpy_step(TINY, 1)}
    if importlib.util.find_spec("torch"):
        contenders["torch"] = torch_step(TINY, 1)
    for name, functions in contenders.items():
        before = functions["forward_backward"]()
        assert abs(before - math.log(TINY.vocab_size)) < 1, name
        losses = [functions["step"]() for _ in range(30)]
        assert np.mean(losses[-5:]) < np.mean(losses[:5]), name


def test_no_update_is_no_update():
    model = tnp.Transformer(9, 9, 8, 2, 1, 1, 12)
    step = tnp.TrainStep(model, tnp.CrossEntropy(), NoUpdate(model.parameters()), threads=2)
    before = model.state_dict()
    losses = [step(*draw_batch(TINY)) for _ in range(2)]
    assert all(math.isfinite(loss) for loss in losses)
    assert all(p.has_grad for p in model.parameters())
    assert all(before[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())


def test_gemm_rate_is_of_the_right_order():
    rate = benchmark.gemm_rate(1, size=64, repeats=3)
    assert 1e7 < rate < 1e14  # between a pocket calculator and a data centre


def test_tables_line_up():
    lines = benchmark.table(["a", "long head"], [["longer", "1"], ["x", "22"]]).splitlines()
    assert lines == [
        "| a      | long head |",
        "| ------ | --------- |",
        "| longer | 1         |",
        "| x      | 22        |",
    ]
    row = {"factor": 1, "step": 0.01, "peak_memory": None}
    text = benchmark.growth_table({"batch": [row, {**row, "factor": 2, "step": 0.025}]})
    assert "| batch x 2 | 25.0    | -       | x 2.50        | -         |" in text
    assert benchmark.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert [benchmark.megabytes(n) for n in (None, 1_240_000, 12_400_000)] == ["-", "1.2", "12"]


def test_the_picture():
    rows = [{"factor": f, "step": 0.01 * f, "torch_step": 0.02 * f, "peak_memory": 1e6 * f} for f in (1, 2, 4)]
    fig = draw_growth({"length": rows, "batch": rows})
    assert [ax.get_title() for ax in fig.axes] == ["length", "batch", "", ""]
    assert [line.get_label() for line in fig.axes[0].get_lines()][::2] == ["transformer_np", "PyTorch"]
    np.testing.assert_allclose(fig.axes[0].get_lines()[0].get_ydata(), [10, 20, 40])
    assert len(fig.axes[2].get_lines()) == 2  # PyTorch's memory is not known: its curve is left out
    with pytest.raises(ValueError, match="got no measurements to draw"):
        draw_growth({})
