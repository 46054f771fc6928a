"""docs/known-mistakes.md, written from the museum.

To write it: `python -m transformer_np.checking.mistakes.page > docs/known-mistakes.md`.
"""

from . import LAYERS, MISTAKES
from .museum import OWN

OPENING = """# Known mistakes

A museum of wrong backward passes: {mistakes} ways to get the gradients of {layers} layers wrong. {seen} of them were
seen in public code or bug reports, which are named (numbers such as BP-27 are cases of the project's bug pool); the
others are our own. `tnp.gradcheck` recomputes each of them on your inputs, and when your gradient equals one of them to
the last digits, it tells you its name.

Each entry says what the mistake is, how it comes to be written, which line of the derivation is wrong, and what to
write instead. *Hidden when* gives the conditions under which no test can see it: test elsewhere.

The code is in `transformer_np/checking/mistakes/`, one file a layer. This page is written from it.
"""


def entry(mistake):
    """One mistake in Markdown."""
    lines = [
        f"### {mistake.name}",
        "",
        mistake.what,
        "",
        f"- Why: {mistake.why}",
        f"- Line: {mistake.line}",
        f"- Fix: {mistake.fix}",
        f"- The error looks like: {mistake.kind}",
    ]
    if mistake.hidden_when:
        lines.append(f"- Hidden when: {mistake.hidden_when}")
    if mistake.equivalent:
        lines.append("- This one is no mistake: its gradient is the right one.")
    lines.append(f"- Seen in: {mistake.source}")
    return "\n".join(lines)


def page():
    """The whole page."""
    wrong = [mistake for mistake in MISTAKES if not mistake.equivalent]
    seen = sum(mistake.source != OWN for mistake in wrong)
    parts = [OPENING.format(mistakes=len(wrong), layers=len(LAYERS), seen=seen)]
    for layer in LAYERS:
        parts.append(f"## {layer.name}\n\n`{layer.formula}`\n")
        parts += [entry(mistake) + "\n" for mistake in layer.mistakes]
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
