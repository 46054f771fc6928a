"""The tasks of `transformer-np train`, one a file. Each is a class of the same shape:

DEFAULTS                 the options that it has, and their values where none is given
Task(args)               makes the data, the same for the same options: a run that is resumed makes it again
name, about, unit        the run's folder; what config.json says of the task; what is counted a second
vocabularies             those to save: source and target, one for both, or none
model(), batches(), loss(), count(*batch)
introduction(model)      the lines printed before training
test(model)              prints how good the model is; returns the figures
attention(model)         a picture of where it looks
next(folder, where)      what to do with the run, a line; `where` is a command's --run option, if it needs one
"""

from .dates import Dates
from .digits import Digits
from .reverse import Reverse
from .text import Text

TASKS = {"dates": Dates, "text": Text, "digits": Digits, "reverse": Reverse}

__all__ = ["TASKS"]
