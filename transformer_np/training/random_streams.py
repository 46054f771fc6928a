"""Where the random streams of dropout stand: what a training needs, besides numbers, to go on as if never stopped."""

import json

import numpy as np

from ..checks import check_dict, check_names, describe


class RandomStreams:
    """The streams of a model and of its replicas: RandomStreams(model=model, shard0=...).

    A stream belongs to a layer that has `mark()`, which tells where the stream stands, and `rewind(mark)`, which goes
    there: Dropout has them. A layer of your own that draws numbers in forward must have them too, and draw from its
    `rng`. A mark is kept as JSON, the bytes of which are an array: bit generators count with integers of 128 bits.
    """

    def __init__(self, **models):
        self.models = models

    def state_dict(self):
        """Return {model and dotted name of the layer: mark}."""
        return {
            name: np.frombuffer(json.dumps(layer.mark(), default=np.ndarray.tolist).encode(), np.uint8)
            for name, layer in self._layers().items()
        }

    def check_state_dict(self, state):
        """Raise ValueError for other names than those of these layers, or what is no mark of a layer's generator."""
        who = "RandomStreams.load_state_dict"
        check_dict(who, state)
        places, mine = ({name.partition(".")[0] for name in names} for names in (state, self._layers()))
        if places != mine:
            raise ValueError(
                f"{who}: the state has the streams of {_listed(places)}, expected those of {_listed(mine)}: "
                "make TrainStep with the same threads and precision"
            )
        check_names(who, state, self._layers())
        for name, layer in self._layers().items():
            try:
                type(layer.rng.bit_generator)().state = _mark(state[name])
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                kind = type(layer.rng.bit_generator).__name__
                raise ValueError(
                    f"{who}: {name} must tell where a {kind} stands, got {describe(state[name])}"
                ) from error

    def load_state_dict(self, state):
        """Take over a state_dict. Raises as `check_state_dict`, before anything changes."""
        self.check_state_dict(state)
        for name, layer in self._layers().items():
            layer.rewind(_mark(state[name]))

    def _layers(self):
        """{model and dotted name: layer}."""
        return {
            f"{place}.{name}": layer
            for place, model in self.models.items()
            for name, layer in model.named_modules()
            if hasattr(layer, "mark") and hasattr(layer, "rewind")
        }


def _mark(array):
    return json.loads(array.tobytes())


def _listed(places):
    return ", ".join(sorted(places)) or "no layer"
