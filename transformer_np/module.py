"""The contract of every layer: `y = layer.forward(x)`, then `dx = layer.backward(dy)`.

`forward` keeps what `backward` needs; `backward` returns the gradient for each input and *adds* the gradient of each
parameter to `parameter.grad`. One forward serves one backward: a second `backward` raises instead of adding the same
gradient again, so a notebook cell run twice never corrupts anything silently. Of two forwards in a row, the last
counts.
"""

import contextlib
import contextvars

import numpy as np

from .backend import array_module, float_dtype, is_half, module_named, to_numpy
from .checks import check_array, check_floats, check_names

_inference = contextvars.ContextVar("inference", default=False)


@contextlib.contextmanager
def inference():
    """Within `with inference():` layers keep nothing for backward, so long generations hold no activations."""
    token = _inference.set(True)
    try:
        yield
    finally:
        _inference.reset(token)


def is_inference():
    """Say whether the code runs inside `with inference():`."""
    return _inference.get()


class Parameter:
    """An array that is learned, and its gradient.

    `data` is the value. `grad` is an array of the same shape and dtype, zeros until something is added; `backward`
    adds to it by `accumulate`, and `zero_grad` empties it.
    """

    def __init__(self, data):
        self.data = data
        self._grad = None

    def __repr__(self):
        return f"Parameter({self.data.dtype.name} of shape {self.shape})"

    @property
    def shape(self):
        """The shape of the value."""
        return self.data.shape

    @property
    def size(self):
        """How many numbers the value holds."""
        return self.data.size

    @property
    def grad(self):
        """The gradient gathered so far: zeros where nothing was added yet."""
        if self._grad is None:
            self._grad = array_module(self.data).zeros_like(self.data)
        return self._grad

    @property
    def has_grad(self):
        """Whether there is a gradient: False after `zero_grad` until something is added."""
        return self._grad is not None

    @grad.setter
    def grad(self, value):
        if value is not None and (value.shape != self.data.shape or value.dtype != self.data.dtype):
            raise ValueError(
                f"Parameter: grad must be {self.data.dtype.name} of shape {self.shape} like the value, "
                f"got {value.dtype.name} of shape {tuple(value.shape)}"
            )
        self._grad = value

    def accumulate(self, gradient):
        """Add `gradient`. The array now belongs to the parameter: pass a fresh one, not one that is used elsewhere.

        Raises ValueError where the shape or dtype is not the value's: `+=` would broadcast or convert silently. Only a
        float32 sum that belongs to a float16 or bfloat16 value is rounded.
        """
        if is_half(self.data) and gradient.dtype == np.float32:
            gradient = gradient.astype(self.data.dtype)
        if self._grad is None:
            self.grad = gradient
        elif gradient.shape != self.data.shape or gradient.dtype != self.data.dtype:
            raise ValueError(
                f"Parameter: a gradient of {gradient.dtype.name} and shape {tuple(gradient.shape)} does not fit a "
                f"value of {self.data.dtype.name} and shape {self.shape}"
            )
        else:
            self._grad += gradient

    def zero_grad(self):
        """Forget the gradient; `grad` reads as zeros again."""
        self._grad = None


def _find(kind, name, value):
    """Yield (name, object) for an attribute of that kind, or for each in a list or dict, as "layers.0"."""
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _find(kind, f"{name}.{i}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find(kind, f"{name}.{key}", item)


class Module:
    """The base of every layer and model. A subclass writes `forward` and `backward`, and calls `super().__init__`.

    Parameters and sub-layers are found through the attributes, in the order in which they were set, in lists and
    dicts too. `seed` is an integer, None (fresh randomness), or a generator to draw from, which is how a model hands
    one on to its parts. `dtype` is the type of the parameters; layers that have none follow their inputs.
    """

    def __init__(self, seed=None, dtype="float32"):
        self.rng = np.random.default_rng(seed)
        self.dtype = float_dtype(dtype, type(self).__name__)
        self.training = True
        self._saved = None

    def forward(self, *inputs):
        """Compute the layer's output."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, dy):
        """Return the gradient for each input of the last forward; add to the parameters' gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def save_for_backward(self, *values, output):
        """Keep what backward will need, and the output's shape and dtype; inside `inference()` keep nothing.

        Arrays are kept as they are, not copied: change none of them between forward and backward.
        """
        self._saved = None if _inference.get() else (values, output.shape, output.dtype)

    def saved(self, dy):
        """Hand out what forward kept, once, having checked that `dy` has the output's shape and dtype.

        Raises RuntimeError where nothing was kept, ValueError for a `dy` that does not fit (then nothing is used up).
        """
        if self._saved is None:
            raise RuntimeError(
                f"{type(self).__name__}.backward: call forward first. Each backward uses up one forward "
                "(of a layer used twice, the last), and inside tnp.inference() nothing is kept"
            )
        values, shape, dtype = self._saved
        check_floats(self, "upstream gradient dy", dy, shape=shape, min_ndim=0, dtype=dtype)
        self._saved = None
        return values

    def children(self):
        """Yield (name, sub-layer) for the layers directly inside this one."""
        for name, value in vars(self).items():
            yield from _find(Module, name, value)

    def named_modules(self, prefix=""):
        """Yield (dotted name, layer) for this layer (named "") and every layer inside."""
        yield prefix, self
        for name, child in self.children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self):
        """Yield (dotted name, Parameter). A shared parameter comes once, under the first of its names."""
        seen = set()
        for prefix, module in self.named_modules():
            for attribute, content in vars(module).items():
                for name, p in _find(Parameter, attribute, content):
                    if id(p) not in seen:
                        seen.add(id(p))
                        yield (f"{prefix}.{name}" if prefix else name), p

    def parameters(self):
        """List the parameters, each once."""
        return [p for _, p in self.named_parameters()]

    def n_parameters(self):
        """Count the learned numbers, shared ones once."""
        return sum(p.size for p in self.parameters())

    def zero_grad(self):
        """Empty every parameter's gradient."""
        for p in self.parameters():
            p.zero_grad()

    def train(self, training=True):
        """Switch dropout on (or off) throughout; return self."""
        for _, module in self.named_modules():
            module.training = training
        return self

    def eval(self):
        """Switch dropout off throughout; return self. Backward still works: use `inference()` to keep nothing."""
        return self.train(False)

    def replay_dropout(self, on=True):
        """With `on`, every dropout inside draws a mask at its next forward and uses that one again from then on.

        So the same function can be evaluated many times, as a gradient check must. `replay_dropout(False)` ends it.
        """
        for _, module in self.named_modules():
            if hasattr(module, "replay"):
                module.replay(on)
        return self

    def forget(self):
        """Drop whatever the last forward kept, here and in every layer inside."""
        for _, module in self.named_modules():
            module._saved = None

    def state_dict(self):
        """Return {dotted name: NumPy copy of the value}, shared parameters once."""
        return {name: np.array(to_numpy(p.data)) for name, p in self.named_parameters()}

    def load_state_dict(self, state):
        """Copy the values of a state_dict into the parameters; return self.

        Raises, before anything is changed, TypeError for no dict, and ValueError that names missing and unexpected
        entries, wrong shapes and dtypes.
        """
        mine, who = dict(self.named_parameters()), f"{type(self).__name__}.load_state_dict"
        check_names(who, state, mine)
        for name, p in mine.items():
            check_array(who, name, state[name], p.shape, p.data.dtype)
        for name, p in mine.items():
            p.data[...] = array_module(p.data).asarray(state[name])
        return self

    def astype(self, dtype):
        """Convert every parameter and gradient to `dtype`, in place; return self. What forward kept is dropped."""
        dtype = float_dtype(dtype, f"{type(self).__name__}.astype")
        for _, module in self.named_modules():
            module.dtype = dtype
            module._saved = None
        for p in self.parameters():
            p.data = p.data.astype(dtype)
            p._grad = None if p._grad is None else p._grad.astype(dtype)
        return self

    def to(self, device):
        """Move every parameter and gradient to "numpy" ("cpu") or "cupy" ("gpu"); return self.

        Raises RuntimeError, before anything moves, where a GPU is asked for and there is none.
        """
        xp = module_named(device)
        move = to_numpy if xp is np else xp.asarray
        self.forget()
        for p in self.parameters():
            p.data = move(p.data)
            p._grad = None if p._grad is None else move(p._grad)
        return self
