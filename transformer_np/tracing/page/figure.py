"""The picture of the model: the columns of an Outline as SVG, drawn as figure 1 of the paper draws them."""

from html import escape

WIDTH, HEIGHT, GAP = 148, 30, 13  # of a box, and between two
LANE = 17  # between a box and the path around it
PAD = 13  # between the frame of a stack and what is inside


class Figure:
    """The SVG text and its boxes: `boxes` lists {"covers", "label", "stack"}, stack being a list's pattern or None."""

    def __init__(self, columns, title):
        self.shapes, self.lines, self.boxes, self.stacks = [], [], [], []
        self.cross, self.tops = None, []
        wide = WIDTH + 2 * (LANE + PAD)
        self.height = max(self._height(c) for c in columns) + 34
        for i, column in enumerate(columns):
            x = wide / 2 + 8 + i * (wide + 20)
            side = -1 if i == 0 else 1
            self._column(column, x, side)
        self.width = wide * len(columns) + 20 * (len(columns) - 1) + 16
        if len(columns) == 2 and self.cross:
            self._memory(wide)
        self.title = title

    def svg(self):
        """Return the whole as text."""
        arrow = (
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="head"/></marker></defs>'
        )
        return (
            f'<svg id="figure" viewBox="0 0 {self.width:g} {self.height:g}" role="group" '
            f'aria-label="{escape(self.title)}">{arrow}{"".join(self.lines)}{"".join(self.shapes)}</svg>'
        )

    def _height(self, items):
        return sum(self._item_height(b) + GAP for b in items)

    def _item_height(self, box):
        if box.shape == "stack":
            return self._height(box.parts) + 2 * PAD + GAP
        return {"add": 20, "text": 16}.get(box.shape, HEIGHT)

    def _column(self, items, x, side):
        y = self._items(items, x, self.height - 8, side, None)
        self._line(f"M{x:g} {y + GAP:g}V{y - 2:g}", flow=True)
        self.tops.append((x, y))

    def _items(self, items, x, y, side, stack):
        """Draw items upwards from y; return the y above the last."""
        entries = []  # the y just below each item: where a path around it may begin
        for box in items:
            height = self._item_height(box)
            below = y
            entries.append(below)
            top = y - height
            if entries[:-1] or stack is not None:
                self._line(f"M{x:g} {below + GAP - 1:g}V{below:g}", flow=True)
            getattr(self, f"_{box.shape}")(box, x, top, height, side, stack)
            if box.residual:
                start = entries[len(entries) - 1 - box.residual] + GAP / 2
                edge = x + side * (WIDTH / 2 + LANE)
                end = x + side * (10 if box.shape == "add" else WIDTH / 2)
                middle = top + height / 2
                self._line(f"M{x:g} {start:g}H{edge:g}V{middle:g}H{end:g}", flow=True)
            y = top - GAP
        return y

    def _line(self, path, flow=False):
        head = ' marker-end="url(#arrow)"' if flow else ""
        self.lines.append(f'<path class="line" d="{path}"{head}/>')

    def _text(self, box, x, y, height, side, stack):
        self.lines.append(f'<text class="note" x="{x:g}" y="{y + 12:g}">{escape(box.label)}</text>')

    def _open(self, box, stack):
        """Begin the group of a box that can be pressed."""
        number = len(self.boxes)
        self.boxes.append({"covers": list(box.covers), "label": box.label or box.covers[0], "stack": stack})
        return (
            f'<g class="box {box.colour}" data-box="{number}" role="button" tabindex="0" '
            f'aria-label="{escape(box.label)}">'
        )

    def _box(self, box, x, y, height, side, stack, width=WIDTH):
        left = x - width / 2
        words = box.label if len(box.label) <= 24 or width < WIDTH else None
        label = (
            f'<text x="{x:g}" y="{y + height / 2 + 4:g}">{escape(words)}</text>'
            if words
            else "".join(
                f'<text x="{x:g}" y="{y + height / 2 + dy:g}">{escape(part)}</text>'
                for part, dy in zip(_halves(box.label), (-2, 10), strict=True)
            )
        )
        self.shapes.append(
            f'{self._open(box, stack)}<rect x="{left:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
            f'{label}<text class="mark" x="{left + width - 7:g}" y="{y + 10:g}"></text></g>'
        )
        if any("cross_attention" in c or c == "attention" for c in box.covers):
            self.cross = (left, y + height / 2)

    def _add(self, box, x, y, height, side, stack):
        """A circle with a plus. Its label stands where no path around comes in."""
        middle = y + height / 2
        outward = side if not box.residual else -side
        anchor, beside = ("start" if outward > 0 else "end"), x + outward * 17
        lines = _halves(box.label) if " " in box.label else (box.label,)
        label = "".join(
            f'<text class="{anchor}" x="{beside:g}" y="{middle + 10 - 6 * len(lines) + 12 * i:g}">{escape(line)}</text>'
            for i, line in enumerate(lines)
        )
        self.shapes.append(
            f'{self._open(box, stack)}<rect class="target" x="{x - 14:g}" y="{y - 4:g}" width="28" height="28"/>'
            f'<circle cx="{x:g}" cy="{middle:g}" r="10"/><path class="plus" d="M{x - 5:g} {middle:g}h10M{x:g} '
            f'{middle - 5:g}v10"/>{label}</g>'
        )

    def _row(self, box, x, y, height, side, stack):
        n = len(box.parts)
        width = (WIDTH - 6 * (n - 1)) / n
        for i, part in enumerate(box.parts):
            self._box(part, x - WIDTH / 2 + width / 2 + i * (width + 6), y, height, side, stack, width)

    def _stack(self, box, x, y, height, side, stack):
        left, wide = x - WIDTH / 2 - LANE - PAD + 2, WIDTH + 2 * (LANE + PAD) - 4
        number = len(self.stacks)
        self.stacks.append({"pattern": box.covers[0], "n": box.n})
        self.lines.append(
            f'<g class="stack" data-stack="{number}"><rect class="frame" x="{left:g}" y="{y:g}" width="{wide:g}" '
            f'height="{height:g}" rx="9"/></g>'
        )
        if box.n > 1:
            at = left + 6 if side < 0 else left + wide - 6
            anchor = "start" if side < 0 else "end"
            self.lines.append(
                f'<text class="times {anchor}" data-stack="{number}" x="{at:g}" y="{y + 16:g}">{box.n}×</text>'
            )
        above = self._items(box.parts, x, y + height - PAD - GAP / 2, side, box.covers[0])
        self._line(f"M{x:g} {above + GAP:g}V{y:g}")

    def _memory(self, wide):
        """The encoder's output, on its way to every cross-attention."""
        (x, top), (left, y) = self.tops[0], self.cross
        between = wide + 18
        self._line(f"M{x:g} {top:g}V{top - 6:g}H{between:g}V{y:g}H{left:g}", flow=True)


def _halves(label):
    words = label.split()
    cut = min(range(1, len(words)), key=lambda i: abs(len(" ".join(words[:i])) - len(label) / 2))
    return " ".join(words[:cut]), " ".join(words[cut:])
