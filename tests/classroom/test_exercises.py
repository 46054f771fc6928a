"""Exercise checkers: right answers pass, wrong ones are told what is off, and nothing is ever raised."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.classroom import check, check_function, check_hidden, digest

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


@pytest.fixture
def said(capsys):
    """What `check(...)` prints, without the line's end."""

    def call(*args, checker=check, **options):
        assert checker(*args, **options) is None  # or a notebook would show what is returned
        return capsys.readouterr().out.removesuffix("\n")

    return call


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (X, X),
        (X.tolist(), X),
        (X.astype("float32") / 3, X / 3),
        (X * (1 + 1e-6), X),
        (3, 3.0),
        (3.0, 3),
        (np.float64(0.1) + 0.2, 0.3),
        (np.eye(2, dtype=int), np.eye(2)),
        ("W_O ", "W_O"),
        (True, np.bool_(True)),
        (X > 0, X > 0),
        ((X, 2 * X), (X, 2 * X)),
        ([X, None], (X, None)),
        ((2, 3), X.shape),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
        (np.array([-np.inf, 0.0]), np.array([-np.inf, 0.0])),
        (np.float64(0.0), 1e-12),
    ],
)
def test_right_answers(said, answer, expected):
    assert said(answer, expected) == "right"


@pytest.mark.parametrize("answer", [None, ..., (None, None), (..., ...)])
def test_no_answer_yet(said, answer):
    assert said(answer, X) == "not answered yet"
    assert said(answer, digest(3), checker=check_hidden) == "not answered yet"
    assert said(answer, np.sum, X, checker=check_function) == "not answered yet"


@pytest.mark.parametrize(
    ("answer", "expected", "word"),
    [
        (X.T, X, "the shape is (3, 2), expected (2, 3): transposed?"),
        (X[None], X, "an axis of size 1 too many or too few"),
        (np.stack([X, X, X, X]), X, "is a sum over an axis missing?"),
        (X[0], X, "the shape is (3,), expected (2, 3)"),
        (-X, X, "the sign is wrong"),
        (2.5 * X, X, "every entry is 2.5 times what it should be"),
        (X + 0.25, X, "every entry is too large by 0.25"),
        (X[:, :2].T, X[:, :2], "it is transposed, the rest is right"),
        (0 * X, X, "all entries are zero"),
        (np.where(X == 3, 3.5, X), X, "1 of 6 entries is wrong; the largest difference is at [0, 2]: 3.5, expected 3"),
        (np.where(X > 3, np.nan, X), X, "2 of 6 entries are NaN or infinite, the first at [1, 0]"),
        ((X > 0) * 1.0, X > 0, "expected boolean, got floating-point numbers (float64)"),
        (X < 0, X > 0, "True and False are swapped"),
        ((X > 0) | (X == -2), X > 0, "1 of 6 entries is wrong, the first at [0, 1]"),
        (X, X.astype(int), "expected whole numbers, got floating-point numbers"),
        (0.5, 0.25, "0.5 is not the number looked for"),
        (0.2501, 0.25, "close, but 0.2501"),
        (np.nan, 0.25, "the answer is NaN or infinite"),
        (0.0, 0.25, "it should not be zero"),
        ((X, X), (X, -X), "part 1 of the answer: the sign is wrong"),
        ((X, None), (X, X), "part 1 of the answer: this part is not answered yet"),
        ((0.0, ...), (0.0, 0.0), "part 1 of the answer: this part is not answered yet"),
        ((X, X), (X, None), "part 1 of the answer: expected None"),
        (X, (X, X), "expected 2 parts, got one ndarray"),
        ((X,), (X, X), "expected 2 parts, got 1"),
        ("w_q", "W_O", "'w_q' is not what was looked for"),
        (3, "W_O", "3 is not what was looked for"),
        ("three", X, "'three' is not what was looked for"),
        ([[1.0], [2.0, 3.0]], X, "expected an array or a number, got list"),
        (object(), X, "expected an array or a number, got object"),
        (lambda x: x, X, "expected an array or a number, got function"),
        ({"x": X}, X, "expected an array or a number, got dict"),
        (1 + 2j, 1.0, "expected an array or a number, got complex"),
    ],
)
def test_wrong_answers_are_told_what_is_off(said, answer, expected, word):
    line = said(answer, expected)
    assert line.startswith("not yet: ")
    assert word in line


def test_the_hint_follows(said):
    assert said(1.0, 2.0, hint="sum over the batch").endswith("(hint: sum over the batch)")
    assert said(2.0, 2.0, hint="sum over the batch") == "right"


def test_a_factor_is_not_blamed_where_one_entry_does_not_follow_it(said):
    answer = 2 * X
    answer[0, 0] = 0
    assert "times" not in said(answer, X)


def test_functions(said):
    def square(x, scale):
        return scale * x * x

    def raises(x, scale):
        raise ZeroDivisionError("oh")

    def writes(x, scale):
        x *= x
        x *= scale
        return x

    def stub(x, scale): ...

    before = X.copy()
    assert said(square, square, X, 2.0, checker=check_function) == "right"
    assert "your function raised ZeroDivisionError: oh" in said(raises, square, X, 2.0, checker=check_function)
    assert "changes its argument 0" in said(writes, square, X, 2.0, checker=check_function)
    assert said(stub, square, X, 2.0, checker=check_function) == "not answered yet"
    assert "takes 0 positional" in said(lambda: 0, square, X, 2.0, checker=check_function)
    assert "the sign" in said(lambda x, s: -s * x * x, square, X, 2.0, checker=check_function, hint="!")
    np.testing.assert_array_equal(X, before)
    # A function or a model among the arguments is nothing that could be compared.
    assert said(lambda f, x: f(x) + f(x), lambda f, x: 2 * f(x), np.sin, 2.0, checker=check_function) == "right"
    assert (
        said(lambda m, x: m.forward(x), lambda m, x: m.forward(x), tnp.layers.ReLU(), X, checker=check_function)
        == "right"
    )


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (0.12345, 0.1234),
        (0.12549999, 0.1255),  # on either side of a rounding edge
        (-2.5, -2.5),
        (3, 3),
        (3.0, 3),
        (3, 3.0),
        (np.float32(0.1), 0.1),
        (np.array([[7]]), 7),
        (131072, 131072),
        (" feed-Forward ", "feed-forward"),
        (np.True_, True),
        (-0.0, 0.0),
    ],
)
def test_hidden_answers(said, answer, kept):
    assert said(answer, digest(kept), checker=check_hidden) == "right"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (0.124, 0.123),
        (2.5, -2.5),
        (131073, 131072),
        (True, 1),
        (1, True),
        ("4", 3),
        (np.nan, 3),
        (np.inf, 3),
        (np.zeros(2), 0),
        ([0], 0),
        (object(), 0),
        (1j, 0),
    ],
)
def test_other_answers_are_not_the_hidden_one(said, answer, kept):
    assert said(answer, digest(kept), "think", checker=check_hidden).startswith("not yet: this is another answer")


def test_a_number_in_quotes_is_called_that(said):
    words = "not yet: that is the number, but written as a text: leave out the quotes"
    assert said("3", digest(3), "think", checker=check_hidden) == words
    assert said(" 0.1234 ", digest(0.12344), "think", checker=check_hidden) == words


def test_a_digest_hides_and_stays():
    assert len(digest(42)) == 12
    assert "42" != digest(42) != digest(43)
    # Digests stand in notebooks, so they may never change: SHA-256 of the salt and "whole 42", by `sha256sum`.
    assert digest(42) == "927e0c9ac755"
    with pytest.raises(TypeError, match="must be a number, a text or a truth value, got ndarray"):
        digest(np.zeros(2))


def test_the_room_opens_when_named():
    assert tnp.classroom.check is check
