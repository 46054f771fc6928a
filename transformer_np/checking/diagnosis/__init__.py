"""What mistake would give exactly this wrong gradient?

Three readers look at the evidence. `known` recomputes the mistakes of the museum on the same inputs and compares;
`terms` reads the weight of each term of a formula; `structure`, `places` and `factors` know no layer and look for what
shows in any. "certain" is said only where the numbers fit exactly, one explanation alone does, and the data are rich
enough to tell.
"""

from dataclasses import replace

import numpy as np

from ..evidence import Diagnosis, Evidence
from . import factors, known, places, structure, terms
from .compare import Comparison

__all__ = ["diagnose", "recognise"]


def recognise(evidence: Evidence):
    """The names of the museum's layers that compute what this object computes."""
    return [r.layer.name for r in known.recognise(evidence.on_host())]


def diagnose(evidence: Evidence):
    """The possible mistakes behind one wrong gradient, best first; never empty.

    Each is a `Diagnosis` with kind, certainty, array, where, shape_of_error, line, fix. The last resort is the kind
    "unknown".
    """
    c = Comparison(evidence.on_host())
    if c.a.size == 0 and c.same_shape:
        return [Diagnosis("unknown", "unknown", c.e.name, f"the gradient of {c.e.name} is empty", "nothing to compare")]
    if not np.all(np.isfinite(c.a)):
        return [not_finite(c)]
    with np.errstate(all="ignore"):
        return explain(c, c.where())


def explain(c, where):
    """The answers of all readers, best first."""
    layers = known.recognise(c.e)
    found, whole = from_museum(c, layers, where)
    clues = from_rules(c, layers, bool(found))
    found += [
        Diagnosis(clue.kind, "likely", c.e.name, where, clue.text, clue.line)
        for clue in clues
        if clue.kind not in {d.kind for d in found}
    ]
    if found and c.rich and proved(found, clues, whole):
        return [replace(found[0], certainty="certain")]
    return found or [unknown(c, where)]


def proved(found, clues, whole):
    """Whether the first answer is a known mistake or an exact pattern that is proof, and nothing else fits exactly.

    whole: the titles of the known mistakes that fit in every array they touch; others are at most half of the story.
    """
    first = found[0]
    exact = {d.kind for d in found if d.mistake} | {clue.kind for clue in clues if clue.exact}
    if exact != {first.kind} or first.alternatives:
        return False
    return first.mistake in whole or any(clue.proof for clue in clues if clue.exact)


def from_museum(c, layers, where):
    """A Diagnosis for each kind among the known mistakes that give this gradient, equal ones named together; and the
    titles of those that fit in every array they touch."""
    by_kind, whole = {}, set()
    for recognised in layers:
        for mistake, fits_everywhere in known.matches(c, recognised):
            by_kind.setdefault(mistake.kind, []).append(mistake)
            whole |= {mistake.title} if fits_everywhere else set()
    every = [mistake for group in by_kind.values() for mistake in group]
    found = [
        Diagnosis(
            kind,
            "likely",
            c.e.name,
            where,
            group[0].what,
            group[0].line,
            group[0].fix,
            group[0].title,
            tuple(f"{m.title} ({m.what})" for m in every if m is not group[0]),
        )
        for kind, group in by_kind.items()
    ]
    return found, whole


def from_rules(c, layers, known_already):
    """The clues of the rules for any layer and of the terms, exact ones first."""
    proofs = [*(terms.read_terms(c, r) for r in layers), *(rule(c) for rule in structure.PROOFS)]
    clues = [replace(clue, proof=clue.exact) for clue in proofs if clue is not None]
    rules = (*structure.RULES, *places.RULES)
    if c.e.right_before:  # then a formula is hardly wrong, but what it reads may be old
        rules = (*structure.LAST, *rules)
    clues += [clue for rule in rules if (clue := rule(c)) is not None]
    if not known_already and not any(clue.exact for clue in clues):
        clues += [clue for rule in factors.RULES if (clue := rule(c)) is not None]
    if not clues:
        last = (structure.wrong_shape, *structure.LAST, *places.LAST)
        clues = [clue for rule in last if (clue := rule(c)) is not None]
    return sorted(clues, key=lambda clue: not clue.exact)


def not_finite(c):
    """Nothing can be compared with NaN; say where it is."""
    bad = ~np.isfinite(c.a)
    index = ", ".join(str(int(i)) for i in np.argwhere(bad)[0])
    where = f"the gradient of the {c.e.kind} {c.e.name}: {int(bad.sum())} of {bad.size} entries are NaN or infinite"
    return Diagnosis(
        "unknown",
        "unknown",
        c.e.name,
        where,
        f"the first is {c.e.name}[{index}]",
        "look for 0/0, the logarithm of 0, or a row in which everything is masked",
    )


def unknown(c, where):
    """Nothing explains it: say so, and what can still be said."""
    text = "no known mistake and no simple pattern explains this gradient"
    if c.same_shape and not c.vanishing and c.n.size > 3:
        cosine = float((c.a * c.n).sum() / max((c.a**2).sum() ** 0.5 * (c.n**2).sum() ** 0.5, 1e-300))
        text += f"; it points {'nearly the right way' if cosine > 0.9 else 'another way'} (cosine {cosine:.3f})"
    return Diagnosis("unknown", "unknown", c.e.name, where, text, c.small_error)
