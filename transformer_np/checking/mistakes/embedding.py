"""Embedding: y = table[ids], and the tied embedding, whose table is also the output layer."""

import math
from types import SimpleNamespace

import numpy as np

from .linear import rows
from .museum import Layer


def forward(ids, table, scaled=False):
    scale = math.sqrt(table.shape[-1]) if scaled else 1.0
    return table[ids] * scale, SimpleNamespace(ids=ids, table=table, scale=scale)


def scatter(ids, dy, table):
    """Add each row of dy to the row of the table it was read from."""
    out = np.zeros(table.shape)
    np.add.at(out, ids, dy)
    return out


def backward(dy, c):
    return {"table": scatter(c.ids, dy * c.scale, c.table)}


def draw(rng):
    ids = np.array([[1, 2, 1, 0], [4, 2, 2, 0], [5, 4, 3, 2]])
    return {"ids": ids, "table": rng.normal(size=(8, 5)), "scaled": True}


EMBEDDING = Layer(
    "embedding",
    "y = table[ids] · √D (the √D where the layer scales);  dtable[i] = sum of dy over the places that read row i",
    {"ids": "...", "table": "V D"},
    ("ids",),
    forward,
    backward,
    draw,
    settings={"scaled": (False, True)},
)


@EMBEDDING.mistake(
    "repeated ids",
    source="BP-27: karpathy/nn-zero-to-hero#57, HIPS/autograd#263, chainer/chainer#2198",
    why="dtable[ids] += dy reads all rows first, adds, then writes: of an id that occurs twice, one write survives.",
    line="dtable[i] = sum over every place with ids == i",
    fix="np.add.at(dtable, ids, dy)",
    hidden_when="no id occurs twice",
)
def fancy_index_adds_once(dy, c):
    """`dtable[ids] += dy`: where an id occurs more than once, only its last occurrence counts."""
    out = np.zeros(c.table.shape)
    out[c.ids] += dy * c.scale
    return {"table": out}


@EMBEDDING.mistake(
    "repeated ids",
    source="BP-27, written with =",
    why="Assignment looks right: each row gets its gradient.",
    line="dtable[i] = sum over every place with ids == i",
    fix="np.add.at(dtable, ids, dy)",
    hidden_when="no id occurs twice",
)
def rows_assigned(dy, c):
    """`dtable[ids] = dy`: a later occurrence overwrites an earlier one."""
    out = np.zeros(c.table.shape)
    out[c.ids] = dy * c.scale
    return {"table": out}


@EMBEDDING.mistake(
    "repeated ids",
    why="Gradients of the same word are averaged, as one would average embeddings.",
    line="dtable[i] is a sum, whatever the number of occurrences",
    fix="do not divide by the counts",
    hidden_when="no id occurs twice",
)
def averaged_over_occurrences(dy, c):
    """The gradient of a word is divided by how often it occurs."""
    counts = np.maximum(np.bincount(c.ids.ravel(), minlength=len(c.table)), 1)
    return {"table": scatter(c.ids, dy * c.scale, c.table) / counts[:, None]}


@EMBEDDING.mistake(
    "repeated ids",
    why="np.unique(ids, return_index=True) gives the first place of each id, which is then indexed.",
    line="dtable[i] = sum over every place with ids == i",
    fix="np.add.at(dtable, ids, dy)",
    hidden_when="no id occurs twice",
)
def first_occurrence_only(dy, c):
    """Each word gets the gradient of its first occurrence only."""
    out = np.zeros(c.table.shape)
    unique, first = np.unique(c.ids, return_index=True)
    out[unique] = rows(dy)[first] * c.scale
    return {"table": out}


@EMBEDDING.mistake(
    "constant factor",
    why="The paper multiplies embeddings by √d_model (section 3.4); backward forgot the same factor.",
    line="y = √D table[ids], so dtable = √D times the scattered dy",
    fix="multiply dy by √D",
    hidden_when="the layer does not scale",
)
def root_d_forgotten(dy, c):
    """The factor √D of forward is missing in backward."""
    return {"table": scatter(c.ids, dy, c.table)}


@EMBEDDING.mistake(
    "constant factor",
    why="The batch size is divided out in every layer.",
    line="dtable is a sum over places; nothing is divided",
    fix="drop the division",
)
def divided_by_the_batch(dy, c):
    """The table's gradient is divided by the batch size B."""
    return {"table": scatter(c.ids, dy * c.scale, c.table) / len(dy)}


@EMBEDDING.mistake(
    "positions",
    why="Row 0 is cleared as padding, though forward reads it as an ordinary word.",
    line="a row that forward reads has a gradient",
    fix="clear the padding row only if forward masks it",
    hidden_when="id 0 does not occur",
)
def padding_row_cleared(dy, c):
    """The row of id 0 is set to zero although forward uses it."""
    out = scatter(c.ids, dy * c.scale, c.table)
    out[0] = 0
    return {"table": out}


@EMBEDDING.mistake(
    "positions",
    why="An off-by-one in the shift of targets leaves out the last token.",
    line="every position that was read sends its gradient back",
    fix="scatter all T positions",
    hidden_when="the last position has no gradient",
)
def last_position_left_out(dy, c):
    """The last token of each sequence sends nothing back."""
    return {"table": scatter(c.ids[:, :-1], dy[:, :-1] * c.scale, c.table)}


@EMBEDDING.mistake(
    "reshaped",
    why="A vocabulary with an added special token shifts the ids in one place and not in the other.",
    line="the row that was read is the row that gets the gradient",
    fix="use the same ids in forward and backward",
)
def rows_shifted_by_one(dy, c):
    """Each gradient lands in the row below its own."""
    return {"table": np.roll(scatter(c.ids, dy * c.scale, c.table), 1, axis=0)}


@EMBEDDING.mistake(
    "zero",
    why="The table was thought of as data: embeddings have no input gradient, so nothing was written.",
    line="the ids have no gradient, the table has one",
    fix="scatter dy into the table's gradient",
)
def table_never_filled(dy, c):
    """The table's gradient stays zero."""
    return {"table": np.zeros(c.table.shape)}


def tied_forward(ids, table):
    h = table[ids]
    return h @ table.T, SimpleNamespace(ids=ids, table=table, h=h)


def tied_backward(dy, c):
    return {"table": input_path(dy, c) + output_path(dy, c)}


def input_path(dy, c):
    return scatter(c.ids, dy @ c.table, c.table)


def output_path(dy, c):
    return rows(dy).T @ rows(c.h)


def tied_draw(rng):
    return {"ids": np.array([[1, 2, 1, 0], [4, 2, 2, 6], [5, 4, 3, 2]]), "table": rng.normal(size=(8, 5))}


TIED = Layer(
    "tied embedding",
    "logits = E[ids] Eᵀ;  dE = the scattered (dlogits E) + dlogitsᵀ E[ids]",
    {"ids": "...", "table": "V D"},
    ("ids",),
    tied_forward,
    tied_backward,
    tied_draw,
)


@TIED.mistake(
    "missing path",
    source="Ultron09/Numpy-Transformer drops the tied lm_head gradient; BP-28",
    why="The embedding's backward writes the gradient, the output layer's is thrown away.",
    line="dE has two summands: E was read as input and used as output",
    fix="add dlogits.T @ h to the gradient",
)
def output_path_dropped(dy, c):
    """The gradient of the shared table misses what comes from the output layer."""
    return {"table": input_path(dy, c)}


@TIED.mistake(
    "missing path",
    source="BP-28: paiml/entrenar#314, nntrainer PR#4025",
    why="The output layer's gradient is assigned over the embedding's, or the embedding is frozen.",
    line="dE has two summands: E was read as input and used as output",
    fix="accumulate with += in both places",
)
def input_path_dropped(dy, c):
    """The gradient of the shared table misses what comes from the input side."""
    return {"table": output_path(dy, c)}


@TIED.mistake(
    "missing term",
    why="The optimiser holds the shared array twice, so one path is added twice.",
    line="each path is counted once",
    fix="list a shared array once",
)
def output_path_twice(dy, c):
    """The output layer's part of the gradient is counted twice."""
    return {"table": input_path(dy, c) + 2 * output_path(dy, c)}


@TIED.mistake(
    "repeated ids",
    source="BP-27 inside a tied model",
    why="dE[ids] += keeps one write for each row, and the output path makes the error look small.",
    line="the input path is a sum over every place with ids == i",
    fix="np.add.at",
    hidden_when="no id occurs twice",
)
def input_path_adds_once(dy, c):
    """The input path is added with fancy indexing, so repeated ids count once."""
    out = output_path(dy, c)
    out[c.ids] += dy @ c.table
    return {"table": out}
