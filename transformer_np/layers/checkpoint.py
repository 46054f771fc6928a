"""Gradient checkpointing: forget what a layer computed, and compute it once more when backward wants it."""

from ..module import Module, inference
from .dropout import Dropout


def checkpointed(layers):
    """Return the layers of a stack, each in a Checkpoint but the last: its backward comes right after its forward."""
    return [*map(Checkpoint, layers[:-1]), layers[-1]]


class Checkpoint(Module):
    """The layer inside it, kept small: forward keeps the inputs alone, backward first runs the layer's forward again.

    Of a stack of N checkpointed layers, N inputs and the activations of one layer are in memory at a time, instead of
    the activations of all N; the price is a second forward of each. The gradients are the same to the last bit: the
    second forward draws the dropout masks of the first, from where the random streams stood.
    Shapes, arguments and results are the layer's. To be found under the same names with and without, its parameters
    are named as if it were not there, and the layer's attributes can be asked of it.
    Every model that stacks layers takes checkpoint=True, for all but the last layer of a stack, whose activations are
    wanted at once. Not so Seq2SeqRNN: with a layer or two it would save nothing; what grows there is the number of time
    steps inside one layer.
    Raises RuntimeError where train() or eval() was called between forward and backward.
    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """

    def __init__(self, layer):
        super().__init__(dtype=layer.dtype)
        self.layer = layer

    def forward(self, *inputs, **options):
        """The layer's forward."""
        marks = [dropout.mark() for dropout in self._dropouts()]
        with inference():
            y = self.layer.forward(*inputs, **options)
        self.save_for_backward(inputs, options, marks, self.training, output=y)
        return y

    def backward(self, dy):
        """The layer's backward."""
        inputs, options, marks, training = self.saved(dy)
        if training != self.training:
            raise RuntimeError("Checkpoint: train() or eval() was called between forward and backward")
        dropouts = self._dropouts()
        now = [dropout.rewind(mark) for dropout, mark in zip(dropouts, marks, strict=True)]
        self.layer.forward(*inputs, **options)
        for dropout, mark in zip(dropouts, now, strict=True):
            dropout.rewind(mark)
        gradients = self.layer.backward(dy)
        for _, module in self.layer.named_modules():
            if "weights" in vars(module):
                module.weights = None  # an attention goes on showing them; of a checkpointed layer nothing stays
        return gradients

    def named_modules(self, prefix=""):
        """Yield itself, and the layer and all inside under the names they have without the checkpoint."""
        yield prefix, self
        yield from self.layer.named_modules(prefix)

    def __getattr__(self, name):  # asked only for what is not found here
        if name == "layer":  # nor is that, while a copy is being made
            raise AttributeError(name)
        return getattr(self.layer, name)

    def _dropouts(self):
        return [module for _, module in self.layer.named_modules() if isinstance(module, Dropout)]
