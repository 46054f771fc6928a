"""Names for what a method returns without naming it: y, if backward is given dy; dx, if forward is given x."""

import inspect


def arguments_of(thing, method):
    """Return the names of a method's arguments, without the object itself; none where Python cannot tell."""
    code = getattr(inspect.unwrap(getattr(type(thing), method, None)), "__code__", None)
    return () if code is None else code.co_varnames[1 : code.co_argcount]


def name_of_output(thing, i=0):
    """The name of forward's output number i: that of backward's argument i without the d, else "output"."""
    arguments = arguments_of(thing, "backward")
    if i < len(arguments) and len(arguments[i]) > 1 and arguments[i].startswith("d"):
        return arguments[i].removeprefix("d_" if arguments[i].startswith("d_") else "d")
    return f"output[{i}]" if i else "output"


def name_of_gradient(thing, i=0):
    """The name of the gradient that backward returns at place i: d and forward's argument i, else "dinput"."""
    arguments = arguments_of(thing, "forward") or arguments_of(thing, "__call__")
    if i < len(arguments):
        return "d" + arguments[i]
    return f"dinput[{i}]" if i else "dinput"
