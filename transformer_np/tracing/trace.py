"""The trace: every step of a forward and a backward, found by name."""

import difflib

from .compare import compare
from .pairs import gradient_pairs
from .step import steps_of
from .summary import summary
from .table import Table, select


class Trace:
    """What `tnp.trace(model)(*inputs)` returns: the steps in order, the parameters, and their gradients.

    steps: all Steps in the order in which they ran. forward, loss_steps, backward: those of one phase.
    trace["decoder.layers.0.cross_attention.weights"]: one array; see `step`. parameters: {dotted name: value}.
    gradients: {dotted name: gradient}, for parameters, and for every step X of forward whose layer has a dX.
    output: what the model returned, NumPy arrays. loss: the loss, a float, by loss_fn; both may be None.
    tokens: {"src": [..], "tgt": [..]}, labels of positions, where they were given. letters: {size: letter} for sizes
    that mean one thing only.
    """

    def __init__(
        self,
        records,
        aliases,
        *,
        model,
        loss_fn,
        parameters,
        shared,
        gradients,
        output,
        loss,
        tokens,
        letters,
        ledger,
    ):
        self.steps, self._index = steps_of(records, aliases)
        self._pairs = gradient_pairs(records, aliases)
        self.model, self.loss_fn, self.output, self.loss = model, loss_fn, output, loss
        self.parameters, self._shared, self._parameter_gradients = parameters, shared, gradients
        self.tokens, self.letters, self._ledger = tokens, letters, ledger

    @property
    def forward(self):
        """The steps of the forward pass, in order."""
        return [s for s in self.steps if s.phase == "forward"]

    @property
    def loss_steps(self):
        """The steps of the loss's forward; its backward is the beginning of `backward`."""
        return [s for s in self.steps if s.phase == "loss"]

    @property
    def backward(self):
        """The steps of the backward pass, in order."""
        return [s for s in self.steps if s.phase == "backward"]

    @property
    def gradients(self):
        """{name: gradient}: of the parameters, and of every step X of forward whose layer has a step dX."""
        found = dict(self._parameter_gradients)
        for step in self.steps:
            gradient = self.gradient_of(step)
            if gradient is not None:
                found[step.name] = gradient.value
        return found

    def gradient_of(self, step):
        """Return the Step that holds the gradient of a step of forward, None where there is none."""
        i = self._pairs.get(step.index)
        return None if i is None else self.steps[i]

    def __contains__(self, name):
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, name):
        """The array of that name: a step's (see `step`), a parameter's, or "....weight.grad" for its gradient."""
        if not isinstance(name, str):
            raise TypeError(f"trace[...] takes a name, got {type(name).__name__} {name!r:.40}; trace.steps is a list")
        if name in self._index:
            return self.step(name).value
        plain = name.removesuffix(".grad")
        found = self.parameters if plain == name else self._parameter_gradients
        plain = self._shared.get(plain, plain)
        return found[plain] if plain in found else self.step(name).value

    def step(self, name):
        """The Step of that name. "layer.x" is what x was in the end, "layer.x.1", "layer.x.2" .. all it was in turn.

        Layers in between may be left out where no doubt is left: "decoder.layers.0.cross_attention.weights" is
        "decoder.layers.0.cross_attention.attention.weights".
        Raises KeyError, with names that come near, where there is no such step, or where several would fit.
        """
        if name in self._index:
            return self.steps[self._index[name]]
        found = self._inside(name)
        if len(found) == 1:
            return self.steps[found.popitem()[1]]
        raise KeyError(self._not_found(name, sorted(found, key=found.get)))

    def table(self, phase=None, module=None):
        """Return the steps as a Table: shape, type, mean, standard deviation, norm, share of zeros, NaN.

        phase="forward", "loss" or "backward" and module="encoder.layers.0" leave only those steps.
        """
        return Table(select(self.steps, phase, module))

    def compare(self, other, rtol=0.0):
        """Return where this trace and another first differ, and by how much; see Comparison.

        rtol=0: in any bit. Else by more than rtol times the largest entry of the step.
        """
        return compare(self, other, rtol)

    def ledger(self):
        """Return for each layer its parameters, the bytes it kept for backward, and the operations of its products."""
        return self._ledger

    def __str__(self):
        return summary(self)

    __repr__ = __str__

    def to_html(self, path, src_tokens=None, tgt_tokens=None, title=None, **options):
        """Write the trace as one HTML page to step through, forward and backward; return the path.

        For the labels, and for further options such as check=False, see `tracing.page.page_of`.
        """
        from .page import write_page

        return write_page(self, path, src_tokens=src_tokens, tgt_tokens=tgt_tokens, title=title, **options)

    def widget(self):
        """Return a slider over the steps, for a notebook with ipywidgets; see `tracing.widget`."""
        from .widget import widget

        return widget(self)

    def _repr_html_(self):
        """The same page, inside a notebook."""
        from .page import notebook_view

        return notebook_view(self)

    def _inside(self, name):
        """{name: index} of the steps further inside the layer that are called the same."""
        layer, _, last = name.rpartition(".")
        if last.isdigit():
            layer, _, before = layer.rpartition(".")
            last = f"{before}.{last}"
        start = f"{layer}." if layer else ""
        return {n: i for n, i in self._index.items() if n.startswith(start) and n.endswith(f".{last}")}

    def _not_found(self, name, found):
        if found:
            return f"{name!r} could be any of {_listed(found)}: say which"
        names = [*self._index, *self.parameters]
        near = difflib.get_close_matches(name, names, n=4, cutoff=0.6)
        layer, _, last = name.rpartition(".")
        near = near or [n for n in names if n.endswith(f".{last}")] or [n for n in names if n.startswith(layer)]
        return f"no step is called {name!r}; near it are {_listed(near)}" if near else f"no step is called {name!r}"


def _listed(names, most=4):
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
