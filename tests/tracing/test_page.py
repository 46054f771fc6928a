"""The page of a trace without a browser: what is in it, how large it is, and that its texts fit the source."""

import ast
import base64
import inspect
import json
import re
import textwrap
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_layers import MODELS

import transformer_np as tnp
from transformer_np.layers import recurrent
from transformer_np.models import conv_encoder, decoder_only, seq2seq_rnn
from transformer_np.tracing.page import formulas, notebook_view, page_of, provenance, write_page
from transformer_np.tracing.page.axes import Axes
from transformer_np.tracing.page.badges import badges_of
from transformer_np.tracing.page.outline import Outline
from transformer_np.tracing.page.packing import Pack, digits
from transformer_np.tracing.page.scenes import scenes_of


def part(page, name):
    """What is packed under one name of the page."""
    text = re.search(rf'<script type="text/plain" id="{name}" data-size="\d+">(.*?)</script>', page, re.DOTALL)[1]
    return zlib.decompress(base64.b64decode(text))


def document(page):
    """The page's description of itself."""
    return json.loads(part(page, "document"))


def unpacked(planes, size):
    """The numbers of a page, by the description in packing.py: sign, five digits, exponent."""
    low, middle, high, small, large = np.frombuffer(planes, np.uint8).reshape(5, size).astype(np.int64)
    mantissa = low | middle << 8 | (high & 127) << 16
    exponent = (small | large << 8).astype(np.uint16).view(np.int16) if size else small
    return np.where(high > 127, -1, 1) * np.where(mantissa > 2, mantissa, 0) * 10.0 ** (exponent - 4.0)


@pytest.fixture(scope="module")
def quickstart():
    """A model of the sizes that `transformer-np train` makes, untrained, on a date."""
    model = tnp.Transformer(55, 33, 64, 4, 2, 2, 256, dropout=0.0, norm="pre", max_len=64, seed=0).eval()
    rng = np.random.default_rng(0)
    for p in model.parameters():  # as training would, so that no bias is zero and no two steps are alike
        p.data += 0.1 * rng.standard_normal(p.shape).astype(np.float32)
    src, tgt, out = (rng.integers(4, 33, (1, n)) for n in (12, 14, 14))
    return tnp.trace(model, tnp.CrossEntropy(ignore_index=0), out)(src, tgt)


@pytest.fixture(scope="module")
def quickstart_page(quickstart):
    return page_of(quickstart, check=False)


def test_one_small_file(quickstart_page):
    """At most 3 MB, nothing left out, and nothing that is asked of anybody."""
    assert len(quickstart_page.encode()) <= 3_000_000
    assert not any("kept" in view for view in document(quickstart_page)["views"])
    shell = re.sub(r'<script type="text/plain".*?</script>', "", quickstart_page, flags=re.DOTALL)
    assert not re.search(r"https?://|\bimport\b|\bfetch\(|XMLHttpRequest|@import|url\((?!#)", shell)


def test_every_step_and_every_number(quickstart, quickstart_page):
    """Each step of the trace is in just one scene, in order, with its own numbers to five digits."""
    page = document(quickstart_page)
    outputs = [o for scene in page["scenes"] for o in scene["outputs"]]
    assert [o["name"] for o in outputs] == [s.name for s in quickstart.steps]
    numbers = unpacked(part(quickstart_page, "arrays"), page["size"])
    for output, step in zip(outputs, quickstart.steps, strict=True):
        view = page["views"][output["view"]]
        assert tuple(view["shape"]) == step.value.shape
        shown = numbers[view["at"] : view["at"] + step.value.size].reshape(step.value.shape)
        # Half a unit of the fifth digit, or one and a half where the fifth gives way to the fourth.
        np.testing.assert_allclose(shown, step.value, rtol=1.5e-4, atol=0)


def test_the_numbers_are_those_of_an_untraced_run(quickstart, quickstart_page):
    """The same model, run and differentiated without a trace: attention, logits, loss and all gradients."""
    model, loss_fn, page = quickstart.model, tnp.CrossEntropy(ignore_index=0), document(quickstart_page)
    model.zero_grad()
    logits = model.forward(quickstart["src"], quickstart["tgt"])
    loss = loss_fn.forward(logits, quickstart["loss.targets"].reshape(logits.shape[:-1]))
    attention = model.decoder.layers[1].cross_attention.weights
    model.backward(loss_fn.backward())
    expected = {f"{name.rpartition('.')[0]}.d{name.rpartition('.')[2]}": p.grad for name, p in model.named_parameters()}
    expected |= {"output.logits": logits, "decoder.layers.1.cross_attention.attention.weights": attention}
    expected["loss.loss"] = np.array(loss)
    numbers = unpacked(part(quickstart_page, "arrays"), page["size"])
    views = {o["name"]: page["views"][o["view"]] for scene in page["scenes"] for o in scene["outputs"]}
    for name, array in expected.items():
        np.testing.assert_array_equal(quickstart[name], array)
        shown = numbers[views[name]["at"] :][: array.size].reshape(array.shape)
        np.testing.assert_allclose(shown, array, rtol=1.5e-4, atol=0)
    model.zero_grad()


@given(st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_four_digits_are_exact(values):
    """What the page makes of the five digits, rounding half up, is Python's own rounding of the number itself."""
    sign, mantissa, exponent = digits(np.array(values))
    for value, minus, m, e in zip(values, sign, mantissa, exponent, strict=True):
        four = (int(m) + 5) // 10
        assert float(f"{'-' if minus else ''}{four}e{int(e) - 3}") == float(f"{value:.3e}")


@pytest.mark.parametrize("value", [0.15625, 1.0625, 1.1875, 9999.5, 99995.0, 0.99995, 5e-324, 1e22, 123456789.0])
def test_digits_of_ties_and_ends(value):
    """Numbers that lie just between two roundings, or at the ends of what a float can be."""
    _, (m,), (e,) = digits(np.array([value]))
    assert float(f"{(int(m) + 5) // 10}e{int(e) - 3}") == float(f"{value:.3e}")


def test_no_numbers():
    """NaN, infinities and zero have codes of their own."""
    sign, mantissa, _ = digits(np.array([0.0, np.nan, np.inf, -np.inf]))
    assert mantissa.tolist() == [0, 1, 2, 2]
    assert sign.tolist() == [0, 0, 0, 1]


def test_equal_arrays_are_packed_once():
    """A value that many steps hand on costs nothing after the first."""
    pack, x = Pack(), np.arange(6, dtype=np.float32)
    first = pack.add(x.reshape(2, 3))
    assert pack.add(x.copy()) == first
    assert pack.add(x + 1) == 6
    assert pack.size == 12


def statements(function):
    """The statements of a function and their beginnings, as the table of formulas names them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    simple = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr, ast.For)
    nodes = [node for node in ast.walk(tree) if isinstance(node, simple)]
    return {formulas.beginning(node) for node in nodes} | {ast.unparse(node) for node in nodes}


ROOMS = (tnp.layers, tnp, recurrent, conv_encoder, decoder_only, seq2seq_rnn)  # where the classes are


@pytest.mark.parametrize(("kind", "method"), [(k, m) for k, table in formulas.FORMULAS.items() for m in table])
def test_formulas_fit_the_source(kind, method):
    """Every formula stands for a statement that its layer has."""
    layer = next(getattr(room, kind) for room in ROOMS if hasattr(room, kind))
    assert set(formulas.FORMULAS[kind][method]) <= statements(getattr(layer, method))


def test_what_is_read_is_known(quickstart):
    """Of the statements of the model, all but masks, sizes and calls into itself tell where each number comes from."""
    unread = {
        step.source
        for scene in scenes_of(quickstart)
        if not scene.enters and scene.first.module != "loss"
        for step, tree in zip(scene.outputs, scene.trees, strict=True)
        if tree is None
    }
    assert all(re.search(r"real_tokens|look_ahead_mask|scale = ", source) for source in unread)


def test_the_gradient_stands_beside_its_value(quickstart):
    """A gradient's partner is the value whose name it has, in its shape."""
    found = {s.name: p for scene in scenes_of(quickstart) for s, p in zip(scene.outputs, scene.partners, strict=True)}
    name = "decoder.layers.1.cross_attention.attention.dq"
    assert found[name][0] == "decoder.layers.1.cross_attention.attention.q"
    np.testing.assert_array_equal(found[name][1], quickstart["decoder.layers.1.cross_attention.attention.q"])
    weight = found["output.dweight"]
    assert weight[0] == "output.weight"
    np.testing.assert_array_equal(weight[1], quickstart.parameters["output.weight"])


def labels(trace):
    """The labels of the boxes of each column, from the bottom up."""

    def inner(box):
        return [box.label] if box.shape != "stack" else [f"{box.n}x", *[x for b in box.parts for x in inner(b)]]

    return [[x for box in column for x in inner(box)] for column in Outline(trace.steps).columns()]


def test_the_picture_is_the_papers():
    """Figure 1: post-norm, encoder left, decoder right."""
    model = tnp.Transformer(9, 9, 8, 2, 3, 2, 8)
    ids = np.ones((1, 3), int)
    left, right = labels(tnp.trace(model)(ids, ids))
    sub_layers = ["Multi-Head Attention", "Add & Norm", "Feed Forward", "Add & Norm"]
    assert left == ["Inputs", "Input Embedding", "Positional Encoding", "3x", *sub_layers]
    masked = ["Masked Multi-Head Attention", "Add & Norm"]
    assert right == [
        "Outputs (shifted right)",
        "Output Embedding",
        "Positional Encoding",
        "2x",
        *masked,
        *sub_layers,
        "Linear",
    ]


def test_the_picture_of_others():
    """Pre-norm in a stack of one column; a layer alone is one box."""
    ((*boxes,),) = labels(tnp.trace(tnp.GPT(9, 8, 2, 2, max_len=4))(np.ones((1, 3), int)))
    layer = ["Norm", "Multi-Head Attention", "Add", "Norm", "Feed Forward", "Add"]
    assert boxes == ["Embedding", "Learned Positions", "2x", *layer, "Norm", "Linear"]
    assert labels(tnp.trace(tnp.layers.ReLU())(np.ones((1, 2)))) == [["Re LU".replace(" ", "")]]


def test_the_picture_of_recurrent_layers():
    """Each stack has a box for its layer, and for its direction where there are two."""
    ids = np.ones((1, 3), int)
    model = tnp.Seq2SeqRNN(9, 9, 8, 2, "gru", bidirectional=True)
    left, right = labels(tnp.trace(model)(ids, ids))
    assert left == ["Inputs", "Input Embedding", "2x", ""]  # a row of two
    assert right[:5] == ["Outputs (shifted right)", "Output Embedding", "2x", "GRU", "Additive Attention"]
    column, _ = Outline(tnp.trace(model)(ids, ids).steps).columns()
    assert [box.label for box in column[-1].parts[0].parts] == ["GRU →", "GRU ←"]


def scenes_in(name):
    """The scenes of one of the small models."""
    layer, inputs = MODELS[name](np.random.default_rng(0))
    return scenes_of(tnp.trace(layer.eval())(*inputs))


@pytest.mark.parametrize("name", MODELS)
def test_every_statement_of_a_model_says_something(name):
    """Beside its source each statement of the house has a formula, or words; so has every array filled step by step."""
    scenes = scenes_in(name)
    assert [s.first.source for s in scenes if not s.enters and not s.formula and not s.words] == []


def test_the_statements_of_the_loss_say_something():
    """With label smoothing and padding too."""
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0, spread="others")
    ids = np.array([[3, 4, 0]])
    trace = tnp.trace(tnp.GPT(7, 8, 2, 1, 8, max_len=4, dropout=0.0), loss_fn, np.array([[4, 5, 0]]))(ids)
    scenes = [s for s in scenes_of(trace) if s.first.module == "loss" and not s.enters]
    assert len(scenes) > 8
    assert all(s.formula or s.words for s in scenes)


def test_a_loop_tells_which_round_it_is():
    """What was put into states at t is what the next step reads there, and t is said."""
    trace = tnp.trace(tnp.layers.RNN(3, 2, seed=0))(np.random.default_rng(0).standard_normal((1, 4, 3)).astype("f4"))
    page = document(page_of(trace, check=False))
    rounds = [s for s in page["scenes"] if s["source"] == "a += states[t] @ self.weight_hh.data"]
    assert [s["counts"] for s in rounds] == [{"t": t} for t in range(4)]
    (before,) = [x for x in rounds[2]["inputs"] if x.get("shown") == "states[t]"]
    assert before["name"] == "h_t.2"
    np.testing.assert_array_equal(trace["h_t.2"], trace["y"][:, 1])


class WrongNorm(tnp.layers.LayerNorm):
    """A layer norm whose gradient is a tenth too large."""

    def backward(self, dy):
        """dx, wrong."""
        return super().backward(dy) * 1.1


class Linear:
    """A class of a reader's own that is called like one of the house and does something else."""

    def forward(self, x):
        """y = 2 x."""
        y = x + x
        return y

    def backward(self, dy):
        """dx = 2 dy."""
        return dy + dy


def test_formulas_are_for_the_house_alone():
    """A namesake is shown as it is written; a class derived from one of the house has what it inherits."""
    scenes = scenes_of(tnp.trace(Linear())(np.ones((2, 2))))
    assert [s.formula for s in scenes] == [None] * len(scenes)
    scenes = scenes_of(tnp.trace(WrongNorm(4))(np.ones((2, 4), np.float32)))
    assert "g = γ * dy" in [s.formula for s in scenes]


def test_badges_say_what_is_so():
    """Right layers are ok; a wrong one is wrong, and so is the layer around it; twins share a check and say so."""
    layer = tnp.layers.EncoderLayer(8, 2, 16, dropout=0.0, seed=0)
    x = np.random.default_rng(0).standard_normal((1, 3, 8)).astype(np.float32)
    right = badges_of(tnp.trace(layer)(x))
    assert {b["status"] for b in right.values()} == {"ok"}
    assert right[""]["error"] < 1e-6
    assert "checked on norm1" in right["norm2"]["text"]
    layer.norm2 = WrongNorm(8)
    wrong = badges_of(tnp.trace(layer)(x))
    assert wrong["norm2"]["status"] == wrong[""]["status"] == "wrong"
    assert wrong["norm1"]["status"] == "ok"
    assert wrong["norm2"]["error"] == pytest.approx(0.1 / 1.1, rel=1e-6)


def test_a_large_model_is_cut_and_says_so():
    """With less room, the first rows and columns of the largest arrays, and the numbers are still the right ones."""
    model = tnp.layers.Linear(40, 50, seed=0)
    traced = tnp.trace(model)(np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32))
    page = page_of(traced, numbers=1500, check=False)
    content = document(page)
    assert content["size"] <= 1500
    (view,) = [v for v in content["views"] if v["shape"] == [40, 50] and v.get("kept")][:1]
    rows, columns = view["kept"]
    numbers = unpacked(part(page, "arrays"), content["size"])[view["at"] :][: rows * columns]
    kept = [traced.parameters["weight"], traced.gradients["weight"]]
    assert any(np.allclose(numbers, k[:rows, :columns].ravel(), rtol=1e-4) for k in kept)


def test_write_page_and_frame(tmp_path, quickstart):
    """The file is the page; the frame of a notebook escapes it whole."""
    layer = tnp.layers.LayerNorm(4)
    traced = tnp.trace(layer, tokens=(["<a>", '"'], []))(np.ones((1, 2, 4), np.float32))
    path = tmp_path / "steps.html"
    assert write_page(traced, path, title="</title><script>") == path
    text = path.read_text(encoding="utf-8")
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>" in text
    frame = notebook_view(traced)
    assert frame.count("<") == 2  # <iframe ..></iframe>


def test_patches_are_labelled_by_row_and_column():
    """Before the class token and after it, on both axes of attention; the pixels of the image itself have no labels."""
    model = tnp.ViT((4, 6), 2, 1, 3, 8, 2, 1, 8, dropout=0.0).eval()
    page = document(page_of(tnp.trace(model)(np.ones((2, 1, 4, 6), np.float32)), check=False))
    names = ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    assert page["tokens"] == {"src": [names], "tgt": [["[class]", *names]]}
    views = {o["name"]: page["views"][o["view"]] for s in page["scenes"] for o in s["outputs"]}
    assert views["encoder.layers.0.self_attention.attention.weights"]["axes"] == ["", "", "tgt", "tgt"]
    assert views["patches.y"]["axes"] == ["", "src", ""]
    assert (views["images"]["picture"], "axes" in views["images"]) == ("image", False)
    assert views["patches.dx"]["picture"] == "gradient"
    assert page["patches"] == {"view": page["scenes"][0]["outputs"][0]["view"], "size": 2, "rows": 2, "columns": 3}


def test_labels_where_time_comes_first():
    """The steps of a layer that reads from the end are in another order than its tokens: they have no labels."""
    axes = Axes({"src": [list("abc")], "tgt": [list("wxyz")]}, {"src": None, "tgt": None}, {"onwards": 0, "back": 1})
    assert axes.of((3, 1, 8), "gates", "onwards") == ["src", "", ""]
    assert axes.of((3, 8), "rows", "onwards") == ["src", ""]
    assert axes.of((1, 3, 8), "x", "onwards") == ["", "src", ""]
    assert axes.of((3, 1, 8), "gates", "back") == ["", "", ""]
    assert axes.of((3, 8), "rows", "back") == ["", ""]
    assert axes.of((1, 3, 8), "y", "back") == ["", "src", ""]
    several = Axes({"src": [list("abc")] * 2, "tgt": []}, {"src": None, "tgt": None}, {"onwards": 0})
    assert several.of((6, 8), "rows", "onwards") == ["", ""]  # time first: not one sentence after another
    assert axes.of((1, 4, 3, 8), "sums", "attention") == ["", "tgt", "src", ""]


def test_labels_where_source_and_target_are_as_long():
    """By length alone the axes could not be told apart: then the layer and the variable decide."""
    axes = Axes({"src": [list("abc")], "tgt": [list("xyz")]}, {"src": None, "tgt": list("xyzw")})
    cross = "decoder.layers.0.cross_attention"
    assert axes.of((1, 2, 3, 3), "weights", f"{cross}.attention") == ["", "", "tgt", "src"]
    assert axes.of((1, 2, 3, 8), "q", cross) == ["", "", "tgt", ""]
    assert axes.of((1, 2, 3, 8), "dk", f"{cross}.attention") == ["", "", "src", ""]
    assert axes.of((3, 8), "y", f"{cross}.w_v") == ["src", ""]
    assert axes.of((1, 2, 3, 3), "scores", "encoder.layers.0.self_attention.attention") == ["", "", "src", "src"]
    assert axes.of((1, 3, 8), "memory", "decoder") == ["", "src", ""]
    assert axes.of((1, 3, 4), "logits", "output") == ["", "tgt", "tgt words"]
    assert axes.of((3, 8), "weight", "decoder.layers.0.norm1", parameter=True) == ["", ""]


def test_unreadable_statements_have_no_tree():
    """What cannot be read is None, never a guess."""

    def unknown(expression):
        raise LookupError(expression)

    leaf = {"x": (0, (2, 3))}.get
    for source in ("y = mystery(x)", "y = x[ids]", "y = (", "", "y = x[::2]", "y = lambda: x", "for y in x: pass"):
        assert provenance.read(source, "y", leaf, unknown, (2, 3)) is None
    assert provenance.read("y = x + 1", "y", leaf, unknown, (3, 2)) is None  # of another shape than it should have
