"""The step-through page in a real browser: by key, by button, by mouse; its numbers against the arrays; its manners."""

import html
import re
import shutil

import numpy as np
import pytest
from traced_layers import MODELS

import transformer_np as tnp
from transformer_np.layers.embedding import add_rows_plain
from transformer_np.layers.linear import column_sums
from transformer_np.layers.multi_head_attention import merge_heads, repeat_heads, split_heads, sum_repeated_heads
from transformer_np.layers.rotary import rotate
from transformer_np.layers.softmax import softmax, softmax_backward
from transformer_np.tracing.page import page_of, provenance

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
SOURCE, TARGET = ["Sunday", ",", " <b>&\"'", " </script>", "6"], ["<bos>", "2", " & 0", "년"]


@pytest.fixture(scope="module")
def browser():
    """A browser that the machine has; nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("needs Chromium or Chrome")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def traced():
    """A small Transformer, both phases and the loss."""
    model = tnp.Transformer(11, 13, 8, 2, 1, 1, 16, dropout=0.0, norm="pre", seed=3).eval()
    rng = np.random.default_rng(0)
    src, tgt, out = (rng.integers(3, 11, (1, n)) for n in (5, 4, 4))
    return tnp.trace(model, tnp.CrossEntropy(ignore_index=0), out, tokens=(SOURCE, TARGET))(src, tgt)


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """Write a page; return its address."""
    folder = tmp_path_factory.mktemp("pages")

    def write(text):
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(text, encoding="utf-8")
        return path.as_uri()

    return write


@pytest.fixture(scope="module")
def address(traced, file_of):
    """The page of `traced`, as it is on a disk."""
    return file_of(page_of(traced))


@pytest.fixture
def open_page(browser):
    """Open an address; at the end of the test, nothing may have been complained about or asked of the network."""
    pages, complaints = [], []

    def open_it(address, width=1280, height=860, scheme="light", **options):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        own = address.partition("#")[0]
        page.on("request", lambda request: None if request.url == own else complaints.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
        return page

    yield open_it
    for page in pages:
        page.close()
    assert [c for c in complaints if not c.startswith(("data:", "about:"))] == []


def where(page):
    """Which step is on view, and of how many."""
    return tuple(map(int, re.match(r"Step (\d+) of (\d+)", page.inner_text("#count")).groups()))


def go_to(page, name):
    """Go to a step by its name, as a reader would."""
    page.fill("#find", name)
    page.press("#find", "Enter")
    page.wait_for_function("name => viewer.page.scenes[viewer.at].outputs.some(o => o.name === name)", arg=name)


def test_by_key_to_the_end_and_back(open_page, address, traced):
    """Every step of the trace is passed, in order, each of backward too; then all the way back."""
    page = open_page(address)
    shown, made = (
        [],
        "() => [...document.querySelectorAll('.makes .map:not(.partner) figcaption code')].map(c => c.innerText)",
    )
    n = where(page)[1]
    for i in range(1, n + 1):
        assert where(page) == (i, n)
        phase = page.inner_text("#count").split("· ")[1]
        shown += [(phase, variable) for variable in page.evaluate(made)]
        page.keyboard.press("ArrowRight")
    assert where(page) == (n, n)
    assert shown == [(s.phase, s.variable) for s in traced.steps]
    for _ in range(n):
        page.keyboard.press("ArrowLeft")
    assert where(page) == (1, n)


def test_by_button_to_the_end_and_back(open_page, file_of):
    """The same with the buttons, on a single layer, and the shortcuts of both."""
    layer = tnp.layers.FeedForward(8, 16, seed=0)
    page = open_page(file_of(page_of(tnp.trace(layer)(np.ones((1, 3, 8), np.float32)), check=False)))
    n = where(page)[1]
    for _ in range(n - 1):
        page.click("#next")
    assert where(page) == (n, n)
    for _ in range(n - 1):
        page.click("#back")
    assert where(page) == (1, n)
    page.click("#last")
    assert where(page) == (n, n)
    page.click("#first")
    page.click("#next")
    assert where(page) == (2, n)
    page.click("#layer-next")
    here = where(page)[0]
    page.click("#layer-next")
    page.click("#layer-back")
    assert where(page)[0] == here
    page.click("#phases .backward")
    assert page.inner_text("#count").endswith("backward")
    page.keyboard.press("f")
    assert where(page) == (1, n)


def test_the_slider(open_page, address):
    """It has the keyboard's focus after Tab, moves by arrow keys, and says in words where it stands."""
    page = open_page(address)
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert where(page)[0] == 3
    assert page.get_attribute("#slider", "aria-valuetext").startswith("Step 3 of ")
    assert page.inner_text("#live").startswith("Step 3 of ")


FAMILIES = ("GPT", "Llama", "BERT", "T5", "ViT", "Seq2SeqRNN, lstm", "Seq2SeqRNN, gru, two directions", "ConvEncoder")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, file_of):
    """A small model of each other family: its trace, and the address of its page."""
    model, inputs = MODELS[request.param](np.random.default_rng(0))
    trace = tnp.trace(model.eval())(*inputs)
    side = "src_tokens" if "src" in trace else "tgt_tokens"
    tokens = {} if "images" in trace else {side: [list("abcd")[: inputs[0].shape[1]]] * 2}
    return trace, file_of(page_of(trace, check=False, **tokens))


def test_every_number(open_page, address, traced):
    """All numbers of the page, written as the page writes them, are those of the trace to four digits."""
    check_numbers(open_page(address), traced)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_family(open_page, family, width, scheme):
    """Each of its steps can be shown, none too wide; its numbers are the arrays'; nothing for axe to say."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    trace, address = family
    page = open_page(address, width=width, scheme=scheme)
    if scheme == "light":
        check_numbers(page, trace)
    n = where(page)[1]
    wide = page.evaluate(
        """width => viewer.page.scenes.flatMap((_, i) => {
            viewer.show(i);
            return document.scrollingElement.scrollWidth > width ? [i] : [];
        })""",
        width,
    )
    assert wide == []
    for i in (0, n // 3, n - 1):
        page.evaluate("i => viewer.show(i)", i)
        found = axe.run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


def check_numbers(page, trace):
    """All numbers of the page, written as the page writes them, are those of the trace to four digits."""
    texts = page.evaluate(
        """() => Object.fromEntries(viewer.page.scenes.flatMap(s => s.outputs).map(o => {
            const view = viewer.page.views[o.view];
            return [o.name, Array.from(viewer.numbers.values(view), (_, i) => viewer.numbers.text(view, i))];
        }))"""
    )
    assert set(texts) == {s.name for s in trace.steps}
    for step in trace.steps:
        whole = step.value.dtype.kind in "iub"
        numbers = step.value.ravel().tolist()  # + 0.0, since the page has no minus zero
        assert texts[step.name] == [str(x) if whole else format(x + 0.0, ".4g") for x in numbers], step.name


HOVERED = (
    "encoder.layers.0.self_attention.attention.weights",
    "decoder.layers.0.cross_attention.attention.scores",
    "decoder.layers.0.feed_forward.linear1.y",
    "encoder.layers.0.norm1.dx",
    "output.dweight",
    "src",
)


@pytest.mark.parametrize("name", HOVERED)
def test_hover_shows_the_number(open_page, address, traced, name):
    """What is said of the entry under the mouse is that entry of the array."""
    page = open_page(address)
    go_to(page, name)
    value, seen = traced[name], set()
    box = page.locator(".makes canvas").first.bounding_box()
    for x, y in np.random.default_rng(1).uniform(size=(30, 2)):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        said = re.match(r"\w+\[([\d, ]+)\] = (\S+)", page.locator(".makes .reading").first.inner_text())
        if said:
            index = tuple(map(int, said[1].split(", ")))
            assert said[2] == format(value[index].item(), ".4g" if value.dtype.kind == "f" else "")
            seen.add(index)
    assert len(seen) >= 4


def test_hover_says_where_a_number_comes_from(open_page, address):
    """A product's entry from a row of each side (k is transposed), a softmax's from its row; with their tokens."""
    page = open_page(address)
    go_to(page, "decoder.layers.0.cross_attention.attention.scores")
    canvas = page.locator(".makes canvas").first
    spot = "([t, i, j]) => { const m = viewer.maps.find(m => m.element.closest('.makes'));"
    spot += " const [x, y] = m.tileAt(m.s, t); return [x + (j + 0.5) * m.s.w, y + (i + 0.5) * m.s.h]; }"
    x, y = page.evaluate(spot, [1, 2, 0])
    canvas.hover(position={"x": x, "y": y})
    assert page.inner_text(".makes .reading").startswith("scores[0, 1, 2, 0] = ")
    assert re.fullmatch(r"From row 2 \(·&·0\) of q\w* · row 0 \(Sunday\) of k\w*", page.inner_text(".makes .from"))
    page.keyboard.press("ArrowRight")
    assert "softmax" in page.inner_text(".formula")
    canvas.hover(position={"x": x, "y": y})
    assert "row 2 (·&·0) of scores" in page.inner_text(".makes .from")


def test_a_heat_map_by_keyboard(open_page, address, traced):
    """Arrow keys move its cursor, past a head into the next, without leaving the step; Escape gives them back."""
    page = open_page(address)
    name = "encoder.layers.0.self_attention.attention.weights"
    go_to(page, name)
    step, value = where(page), traced[name]
    page.focus(".makes .field")
    for key in ("ArrowDown", "ArrowDown", *["ArrowRight"] * value.shape[-1]):
        page.keyboard.press(key)
    assert where(page) == step
    said = page.inner_text(".makes .reading")
    assert said.startswith(f"weights[0, 1, 1, 0] = {value[0, 1, 1, 0]:.4g}")
    assert "," in said.split("(")[1]  # the token
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert where(page)[0] == step[0] + 1


def entry(page, part, array, index):
    """The middle of one entry of a heat map of the page, on the screen. part: "reads" or "makes"."""
    return page.evaluate(
        """([part, array, index]) => {
            const m = viewer.maps.find(m => m.element.closest(`.${part}`) && m.name === array);
            m.field.scrollIntoView({block: "center"});
            const {tile, i, j} = m.place(m.s, m.toKept(ravel(index, m.shape)));
            const [x, y] = m.tileAt(m.s, tile);
            const box = m.canvas.getBoundingClientRect();
            return [box.left + x + (j + 0.5) * m.s.w, box.top + y + (i + 0.5) * m.s.h];
        }""",
        [part, array, index],
    )


def following(page):
    """The entry that is pinned, as the page says it."""
    return page.inner_text("#pin span") if page.is_visible("#pin") else None


def test_a_number_is_followed_by_keyboard(open_page, address, traced):
    """From an embedding by U alone to the loss, each entry made of the one before; G to its gradient and back."""
    page = open_page(address)
    go_to(page, "src_embedding.y")
    page.focus(".makes .field")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    value = traced["src_embedding.y"]
    assert following(page).startswith(f"Following y[0, 1, 1] = {value[0, 1, 1]:.4g}")
    begun = where(page)
    page.keyboard.press("g")
    gradient = traced.gradients["src_embedding.y"]
    assert page.inner_text("#count").endswith("backward")
    assert following(page).startswith(f"Following dy[0, 1, 1] = {gradient[0, 1, 1]:.4g}")
    page.keyboard.press("g")
    assert where(page) == begun
    seen = [following(page)]
    while not seen[-1].startswith("Following loss ="):
        page.keyboard.press("u")
        assert page.inner_text("#count").split("· ")[1] != "backward"
        seen.append(following(page))
        assert len(seen) < 300
    assert seen[-1].startswith(f"Following loss = {traced.loss:.4g}")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert following(page) is None


def test_a_number_is_followed_by_mouse(open_page, address, traced):
    """A click pins, links lead on, the browser's button back; another click lets go."""
    page = open_page(address)
    name = "decoder.layers.0.cross_attention.attention"
    go_to(page, f"{name}.q_scaled")
    page.mouse.click(*entry(page, "makes", "q_scaled", [0, 1, 2, 3]))
    value = traced[f"{name}.q_scaled"][0, 1, 2, 3]
    assert following(page).startswith(f"Following q_scaled[0, 1, 2, 3] = {value:.4g}")
    begun = where(page)
    page.click(".makes .links button >> nth=0")
    assert page.inner_text("#title") == "scores"
    assert page.inner_text(".makes .from") == "q_scaled goes into row 2 (·&·0) of scores"
    back = 1 + index_of(page, f"{name}.dq_scaled")
    page.click(f".reads .links button[aria-label='q_scaled: gradient in step {back}']")
    assert page.inner_text(".makes figcaption code >> nth=0") == "dq_scaled"
    page.go_back()
    assert page.inner_text("#title") == "scores"
    page.go_back()
    page.wait_for_function("n => viewer.at === n - 1", arg=begun[0])
    page.mouse.click(*entry(page, "makes", "q_scaled", [0, 1, 2, 3]))
    assert following(page) is None


def index_of(page, name):
    """The number of the step that makes an array, from 0."""
    return page.evaluate("name => viewer.trail.made.get(name)", name)


def test_a_finger_pins(open_page, address):
    """On a phone, where nothing hovers: a tap, and the number stays in view."""
    page = open_page(address, width=390, has_touch=True)
    go_to(page, "decoder.layers.0.cross_attention.attention.weights")
    page.touchscreen.tap(*entry(page, "makes", "weights", [0, 1, 2, 3]))
    assert following(page).startswith("Following weights[0, 1, 2, 3] = ")
    assert page.inner_text(".makes .from").startswith("From row 2 (·&·0) of scores")
    page.click("#pin button")
    assert following(page) is None


def test_what_an_entry_reaches(open_page, file_of):
    """Forward as backward: an entry goes into just those that come from it."""
    layer = tnp.layers.Linear(3, 4, seed=0)
    page = open_page(file_of(page_of(tnp.trace(layer)(np.ones((2, 3), np.float32)), check=False)))
    found = page.evaluate(
        """() => { const o = new Origins(null, [{shape: [2, 3]}, {shape: [3, 4]}]);
            const tree = ["product", [2, 4], ["in", 0], ["in", 1]];
            return [[...o.reached(tree, 0, 4)], [...o.reached(tree, 1, 6)], o.reached(tree, 0, 4, -1)]; }"""
    )
    assert found == [[4, 5, 6, 7], [2, 6], None]  # row 1 of y; column 2; no time to find out


def test_the_address_of_a_step(open_page, address):
    """By number, by name, or by a part of one; also when it is changed by hand. What is not there leads nowhere."""
    name = "decoder.layers.0.cross_attention.attention.scores"
    page = open_page(f"{address}#step={name}")
    assert page.inner_text("#title") == "scores"
    there = where(page)
    page.evaluate("window.location.hash = '#step=7'")
    page.wait_for_function("viewer.at === 6")
    page.evaluate("window.location.hash = '#step=cross_attention.attention.scores'")
    page.wait_for_function("n => viewer.at === n - 1", arg=there[0])
    page.evaluate("window.location.hash = '#step=nowhere'")
    page.wait_for_timeout(100)
    assert where(page) == there
    page.fill("#find", "nowhere")
    page.press("#find", "Enter")
    assert page.evaluate("document.querySelector('#find').validationMessage") == "No step is called so."
    assert where(page) == there


def test_on_paper(open_page, address):
    """A dark page prints in light, the step alone; afterwards it is dark again."""
    page = open_page(f"{address}#step=decoder.layers.0.cross_attention.attention.scores", scheme="dark")
    dark = page.evaluate("viewer.maps[0].canvas.toDataURL()")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("viewer.maps[0].canvas.toDataURL()") != dark
    assert page.get_attribute("html", "data-theme") == "light"
    assert [page.is_visible(s) for s in ("#title", "#count", ".formula", ".makes canvas")] == [True] * 4
    assert [page.is_visible(s) for s in (".buttons", "#slider", "#model", ".links", "footer")] == [False] * 5
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.get_attribute("html", "data-theme") == "dark"


def test_the_model_can_be_folded_away(open_page, address):
    """Then the numbers have the whole width."""
    page = open_page(address)
    before = page.locator("#main").bounding_box()["width"]
    page.click("#model summary")
    assert page.locator("#main").bounding_box()["width"] > before + 200


def test_patches_are_shown_as_they_are(open_page, file_of):
    """White where an image is smallest, black where it is largest, and so in the labels; of each image its own."""
    images = np.random.default_rng(0).uniform(-1, 1, (2, 1, 4, 4)).astype(np.float32)
    model = tnp.ViT(4, 2, 1, 3, 8, 2, 1, 8, dropout=0.0).eval()
    page = open_page(file_of(page_of(tnp.trace(model)(images), check=False)))
    shades = """one => { viewer.sentence = one; viewer.drawAll();
        const whole = viewer.maps[0].picture(viewer.maps[0].sheet());
        const read = c => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            return Array.from({length: d.length / 4}, (_, k) => d[4 * k]); };
        const stamps = viewer.stamps({axes: ["", "src"]}, 1);
        return [read(whole), stamps.map(read), viewer.stamps({axes: ["", "tgt"]}, 1)[0]]; }"""
    for one, image in enumerate(images[:, 0]):
        whole, stamps, of_class = page.evaluate(shades, one)
        grey = lambda x, low, high: np.rint(255 * (1 - (x - low) / (high - low)))  # noqa: E731
        np.testing.assert_allclose(whole, grey(image, images.min(), images.max()).ravel(), atol=1)
        patches = image.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
        np.testing.assert_allclose(stamps, grey(patches, image.min(), image.max()), atol=1)
        assert of_class is None


def test_the_picture_leads_to_its_layers(open_page, address):
    """Boxes by mouse and by key, each marked while its steps are on view; the gradient of a value stands beside it."""
    page = open_page(address)
    page.click("#figure .attention >> nth=1")
    assert "self_attention" in page.inner_text(".crumbs")
    assert page.locator("#figure .box[aria-current=step]").count() == 1
    page.keyboard.press("b")
    page.locator("#figure .feed").first.focus()
    page.keyboard.press("Enter")
    assert "feed_forward" in page.inner_text(".crumbs")
    assert page.inner_text("#count").endswith("backward")
    page.focus(".crumbs button >> nth=1")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "title"  # the focus is not lost with what was pressed
    go_to(page, "decoder.layers.0.cross_attention.attention.dq")
    assert page.inner_text(".partner figcaption").startswith("q, the value it belongs to")
    assert "gradients right" in page.inner_text(".badge")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(open_page, address, width, scheme):
    """No serious fault by axe-core, forward and backward; nothing is wider than a phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(address, width=width, scheme=scheme)
    names = ("encoder.layers.0.self_attention.attention.weights", "decoder.layers.0.norm2.dx", "src")
    for name in names:
        go_to(page, name)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found = axe.run(page).response["violations"]
        bad = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert bad == []
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_dark_and_light_by_switch(open_page, address):
    """The switch turns the page and its heat maps over, from whatever the system prefers."""
    page = open_page(address, scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark, before = page.evaluate(colour), page.evaluate("viewer.maps[0].canvas.toDataURL()")
    page.click("#theme")
    assert page.evaluate(colour) != dark
    assert page.evaluate("viewer.maps[0].canvas.toDataURL()") != before
    assert page.get_attribute("#theme", "aria-pressed") == "false"


def test_tokens_are_text(open_page, address):
    """Whatever is in a token, it is shown and never obeyed."""
    page = open_page(address)
    assert page.evaluate("viewer.labels(viewer.page.views[viewer.page.scenes[0].outputs[0].view], 1, 5)") == [
        t.replace(" ", "·") for t in SOURCE
    ]
    assert page.locator("b").count() == 0


def test_in_a_notebook(open_page, file_of, traced):
    """The frame of a notebook cell holds the whole page."""
    frame = traced._repr_html_()
    assert html.unescape(frame).count("<!doctype html>") == 1
    page = open_page(file_of(f"<!doctype html><html data-ready><body>{frame}</body></html>"))
    inner = page.frame_locator("iframe")
    inner.locator("#scene h2").wait_for()
    inner.locator("#next").click()
    assert inner.locator("#count").inner_text().startswith("Step 2 of ")


class Doubling:
    """A class of a reader's own: nothing of it is known here."""

    def __init__(self):
        self.w = np.array([[1.0, 2.0], [3.0, 4.0]])
        self.dw = np.zeros((2, 2))

    def forward(self, x):
        """x (N, 2) -> y (N, 2)."""
        self.x = x
        y = 2 * (x @ self.w)
        return y

    def backward(self, dy):
        """Adds dw, returns dx."""
        self.dw += 2 * self.x.T @ dy
        dx = 2 * dy @ self.w.T
        return dx


def test_a_class_of_ones_own(open_page, file_of):
    """Its statements are shown as they stand, and where their numbers come from is read off them."""
    page = open_page(file_of(page_of(tnp.trace(Doubling())(np.arange(6.0).reshape(3, 2)))))
    go_to(page, "y")
    assert page.inner_text(".source code") == "y = 2 * (x @ self.w)"
    canvas = page.locator(".makes canvas").first
    canvas.hover(position={"x": 20, "y": 20})
    assert re.search(r"row \d of x", page.inner_text(".makes .from"))
    assert "gradients right" in page.inner_text(".badge")


def test_several_sentences(open_page, file_of):
    """One is shown at a time, and a selector changes it."""
    model = tnp.GPT(11, 8, 2, 1, max_len=6, dropout=0.0, seed=0).eval()
    traced = tnp.trace(model)(np.random.default_rng(0).integers(0, 11, (3, 5)))
    page = open_page(file_of(page_of(traced, src_tokens=None, check=False)))
    name = "layers.0.self_attention.attention.weights"
    go_to(page, name)
    page.select_option("#sentence", label="3")
    page.focus(".makes .field")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".makes .reading").startswith(f"weights[2, 0, 0, 0] = {traced[name][2, 0, 0, 0]:.4g}")


EXPRESSIONS = {
    "y = (q * scale) @ k.swapaxes(-1, -2)": {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4)},
    "y = x.reshape(-1, 4) @ w": {"x": (2, 3, 4), "w": (4, 5)},
    "y = (a @ w.T).reshape(x.shape)": {"a": (6, 2), "w": (4, 2), "x": (2, 3, 4)},
    "y = a.T @ b": {"a": (3, 4), "b": (3, 2)},
    "y = x + bias": {"x": (2, 3, 4), "bias": (4,)},
    "y = softmax(x)": {"x": (2, 3)},
    "y = softmax_backward(a, b)": {"a": (2, 3), "b": (2, 3)},
    "y = x - x.sum(-1, keepdims=True) / 4": {"x": (3, 4)},
    "y = x.mean(axis=0)": {"x": (3, 4)},
    "y = x.sum()": {"x": (3, 4)},
    "y = column_sums(a * b)": {"a": (3, 4), "b": (3, 4)},
    "y = split_heads(x, 2)": {"x": (2, 3, 4)},
    "y = merge_heads(x)": {"x": (2, 2, 3, 2)},
    "y = repeat_heads(x, 2)": {"x": (1, 2, 3, 2)},
    "y = sum_repeated_heads(x, 2)": {"x": (1, 4, 3, 2)},
    "y = x[:, 1:3]": {"x": (3, 4)},
    "y = x[:, None, :] * a": {"x": (2, 3), "a": (2, 4, 3)},
    "y = x.transpose(1, 2, 0)": {"x": (2, 3, 4)},
    "y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)": {"x": (2, 3)},
    "y = np.maximum(x, 0) * (a > 0)": {"x": (2, 3), "a": (2, 3)},
    "y = v @ u": {"v": (4,), "u": (4,)},
    "y = x @ v": {"x": (2, 3, 4), "v": (4,)},
    "y = v @ x": {"v": (3,), "x": (3, 4)},
    "y = np.matmul(a, b.T)": {"a": (2, 3), "b": (4, 3)},
    "y = np.concatenate([x, a, x], axis=-1)": {"x": (2, 3), "a": (2, 1)},
    "y = x[..., 1:3]": {"x": (2, 3, 4)},
    "y = x[..., None] * a": {"x": (2, 3), "a": (2, 3, 4)},
    "y = x[:, -1]": {"x": (2, 3, 4)},
    "y = rotate(x, c, s, 'halves')": {"x": (2, 3, 4), "c": (3, 2), "s": (3, 2)},
    "y = rotate(x, c, s, 'interleaved')": {"x": (2, 3, 4), "c": (3, 2), "s": (3, 2)},
    "y = -x ** 2 + a[0]": {"x": (2, 3), "a": (2, 3)},
}
NAMES = {
    f.__name__: f for f in (softmax, softmax_backward, column_sums, split_heads, merge_heads, repeat_heads, rotate)
}


def contagion(source, inputs):
    """{(input, entry): the entries of y that turn to NaN when this one does}: where numbers go, by trying it."""
    names = {**NAMES, "sum_repeated_heads": sum_repeated_heads, "np": np, "scale": 0.5}
    found = {}
    for name, array in inputs.items():
        for flat in range(array.size):
            touched = {n: a.copy() for n, a in inputs.items()}
            touched[name].reshape(-1)[flat] = np.nan
            with np.errstate(invalid="ignore"):
                # A comparison with NaN is False, not NaN: made a number, it is.
                y = eval(source.split(" = ")[1].replace("(a > 0)", "(a * 0 + 1)"), {**names, **touched})
            found[name, flat] = set(np.flatnonzero(np.isnan(y)).tolist())
    return found


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_origins_are_those_of_the_statement(open_page, address, source):
    """Entry by entry: the page says a number comes from just those that make it NaN when they are NaN."""
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape) for name, shape in EXPRESSIONS[source].items()}
    known = {name: (i, a.shape) for i, (name, a) in enumerate(inputs.items())}
    y = np.asarray(
        eval(
            source.split(" = ")[1],
            {**NAMES, "sum_repeated_heads": sum_repeated_heads, "np": np, "scale": 0.5, **inputs},
        )
    )

    def constant(expression):
        raise LookupError(expression)

    tree = provenance.read(source, "y", known.get, constant, y.shape)
    assert tree is not None
    page = open_page(address)
    origins = page.evaluate(
        """([tree, shapes, n]) => { const o = new Origins(null, shapes.map(shape => ({shape})));
            return Array.from({length: n}, (_, i) => [...o.of(tree, i)].map(([k, set]) => [k, [...set]])); }""",
        [tree, [list(a.shape) for a in inputs.values()], max(y.size, 1)],
    )
    names, said = list(inputs), set()
    for out, found in enumerate(origins):
        said |= {(names[k], flat, out) for k, flats in found for flat in flats}
    # x.shape in a reshape reads no number of x.
    assert said == {(n, flat, out) for (n, flat), outs in contagion(source, inputs).items() for out in outs}


def test_origins_of_what_is_put_into_an_array(open_page, address):
    """Inside of the place from what was put there, and with += from before too; outside as it was."""
    page = open_page(address)
    run = """([tree, shapes, n]) => { const o = new Origins(null, shapes.map(shape => ({shape})));
        return Array.from({length: n}, (_, i) => [...o.of(tree, i)].map(([k, set]) => [k, [...set]])); }"""
    known = {"y": (0, (2, 3)), "v": (1, (2,))}
    tree = provenance.read("y[:, 1] = v", "y", known.get, None, (2, 3))
    old = lambda i: [[0, [i]]]  # noqa: E731
    expected = [old(0), [[1, [0]]], old(2), old(3), [[1, [1]]], old(5)]
    assert page.evaluate(run, [tree, [[2, 3], [2]], 6]) == expected
    tree = provenance.read("y[:, 1] += v", "y", known.get, None, (2, 3))
    expected[1], expected[4] = [[0, [1]], [1, [0]]], [[0, [4]], [1, [1]]]
    assert page.evaluate(run, [tree, [[2, 3], [2]], 6]) == expected


def test_origins_of_a_layer_that_reads_backwards(open_page, address):
    """time_first of a reversed layer: the last token is the first step."""
    page = open_page(address)
    tree = provenance.read("y = self.time_first(x)", "y", {"x": (0, (1, 3))}.get, lambda e: True, (3, 1))
    run = "tree => [0, 1, 2].map(i => [...new Origins(null, [{shape: [1, 3]}]).of(tree, i).get(0)])"
    assert page.evaluate(run, tree) == [[2], [1], [0]]


def test_origins_of_a_look_up(open_page, address):
    """A row of the table for each id, and its backward: the row gathers what its ids sent."""
    ids, table = np.array([[1, 0, 1]]), np.zeros((3, 2))
    page = open_page(address)
    run = """([tree, views, values, i]) => { const o = new Origins({values: v => v.values}, views);
        return [...o.of(tree, i)].map(([k, set]) => [k, [...set].sort((a, b) => a - b)]); }"""
    views = [{"shape": [3, 2]}, {"shape": [1, 3], "values": ids.ravel().tolist()}]
    known = {"table": (0, (3, 2)), "ids": (1, (1, 3)), "rows": (0, (3, 2))}
    tree = provenance.read("y = table.take(ids, 0)", "y", known.get, None, (1, 3, 2))
    assert page.evaluate(run, [tree, views, None, 5]) == [[0, [3]], [1, [2]]]  # y[0, 2, 1]: id 1, so table[1, 1]
    source = "add_rows(self.weight.grad, ids.reshape(-1), rows)"
    leaf = {**known, "self.weight.grad": (0, (3, 2))}.get
    tree = provenance.read(source, "dweight", leaf, None, (3, 2))
    add_rows_plain(table, ids.ravel(), np.arange(6.0).reshape(3, 2))
    assert table[1, 0] == 0 + 4  # rows 0 and 2
    assert page.evaluate(run, [tree, views, None, 2]) == [[1, [0, 2]], [0, [0, 4]]]
