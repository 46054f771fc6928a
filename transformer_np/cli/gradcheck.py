"""`transformer-np gradcheck`: check the backward of a class or function in a file, or of the layers of this package."""

import argparse
import inspect
import json
import linecache
import sys
import time
import traceback
import types
from pathlib import Path

import numpy as np

from .. import layers
from ..checking import gradcheck
from ..checking.examples import construct, described, draw_inputs, pairs

EXAMPLES = """
examples:
  transformer-np gradcheck LayerNorm                      a layer of this package
  transformer-np gradcheck --all                          every layer of this package
  transformer-np gradcheck mine.py:Linear                 a class of yours; sizes are chosen by argument names
  transformer-np gradcheck mine.py:Linear --init "Linear(3, 4)" --inputs "randn(2, 3)"
  transformer-np gradcheck mine.py:softmax                functions softmax_forward and softmax_backward
  transformer-np gradcheck mine.py                        everything in the file, or its gradcheck_example()
  transformer-np gradcheck mine.py:Linear --watch         again on every save
  transformer-np gradcheck mine.py:Linear --hint 2        1 where, 2 what the error looks like, 3 which line, 4 the fix

A file may say how by a function gradcheck_example() that returns (subject, input, ...).
"""
# How to make and feed what the names of the arguments do not tell.
OWN = {
    "Checkpoint": ("Checkpoint(EncoderLayer(8, 2, 16, dropout=0.0))", "randn(2, 3, 8)"),
    "PatchEmbedding": ("PatchEmbedding(2, 3, 8)", "randn(2, 3, 4, 6)"),
    "CrossEntropy": ("CrossEntropy(label_smoothing=0.1, ignore_index=0)", "randn(2, 3, 11), ids(2, 3)"),
    "Transformer": (
        "Transformer(11, 12, d_model=8, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, d_ff=16, max_len=8)",
        "ids(2, 5), ids(2, 4)",
    ),
}
CONSTANT = ("ALiBi",)  # takes and learns no floats: there is nothing to differentiate
DOUBTFUL = ("SHAPE", "ERROR", "NONFINITE", "VACUOUS")  # a right layer ends so too where it is given the wrong inputs
POLL = 0.1  # seconds between two looks at a watched file


def add_parser(subparsers):
    """Add the command `gradcheck` to the command line."""
    parser = subparsers.add_parser(
        "gradcheck",
        help="check a backward against finite differences",
        epilog=EXAMPLES,
        description="Check a hand-written backward against finite differences, and say what is wrong with it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="FILE.py:Class, FILE.py:function, FILE.py, or a layer's name"
    )
    parser.add_argument("--all", action="store_true", help="every layer of this package")
    parser.add_argument("--init", metavar="EXPR", help='how to make it, in the words of the file: "Linear(3, 4)"')
    parser.add_argument("--inputs", metavar="EXPR", help='what forward takes: "randn(2, 3), ids(2, 5)", np is NumPy')
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default 0)")
    parser.add_argument("--replay", action="store_true", help="freeze dropout masks and other random numbers")
    parser.add_argument("--causal", action="store_true", help="also demand that no output looks ahead")
    parser.add_argument("--no-contracts", action="store_true", help="compare numbers only")
    parser.add_argument(
        "--hint", type=int, metavar="N", choices=(1, 2, 3, 4), help="only the first N rungs of the hint ladder"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="draw the first wrong gradient")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    parser.add_argument("--watch", action="store_true", help="check again whenever the file is saved")
    parser.set_defaults(run=run)


def run(args):
    """Run the command; return 0 only if everything that was checked passes."""
    if bool(args.all) == bool(args.target):
        raise ValueError("give one of FILE.py:Class, a layer's name, or --all (see transformer-np gradcheck --help)")
    if args.watch:
        if args.all or not _file_of(args.target):
            raise ValueError("--watch needs a file: FILE.py or FILE.py:Class")
        return watch(args)
    return check_all(args)


def check_all(args):
    """Check every subject of the target once and print the reports; return the exit code."""
    reports = []
    for name, subject, inputs, chosen in subjects(args):
        report = gradcheck(
            subject,
            *inputs,
            seed=args.seed,
            replay=args.replay or args.all,
            causal=args.causal,
            contracts=not args.no_contracts,
        )
        report.subject = name
        if chosen and (report.status in DOUBTFUL or report.findings):
            report.notes.append(
                f"checked with {described(subject, inputs)}; if forward takes something else, say it with --inputs"
            )
        reports.append(report)
        if not args.json:
            print(
                report.headline() if args.all and report.ok else report.hint(args.hint) if args.hint else report,
                flush=True,
            )
            if report.status == "NONDETERMINISTIC":
                print("  on the command line: --replay")
    if args.json:
        print(json.dumps([json.loads(r.to_json()) for r in reports], indent=2))
    wrong = [r for r in reports if not r.ok]
    if args.plot and any(r.arrays for r in reports):
        next(r for r in [*wrong, *reports] if r.arrays).plot().savefig(args.plot, dpi=120, bbox_inches="tight")
    if len(reports) > 1 and not args.json:
        print(f"{len(reports) - len(wrong)} of {len(reports)} pass, {sum(r.seconds for r in reports):.1f} s")
    return 0 if reports and not wrong else 1


def subjects(args):
    """Yield (name, subject, inputs, whether they were chosen here) for everything that the arguments name."""
    if args.all:
        for name in dict.fromkeys((*layers.__all__, *OWN)):
            if name not in CONSTANT:
                yield *_own(name, None, None, args.seed), False
        return
    path = _file_of(args.target)
    if path is None:
        yield *_own(args.target, args.init, args.inputs, args.seed), not args.inputs
    else:
        yield from _in_file(*path, args)


def _file_of(target):
    """Split FILE.py:Name into (path, name or None); None where the target is no file."""
    head, colon, tail = target.rpartition(":")
    if colon and head.endswith(".py"):
        return Path(head), tail
    return (Path(target), None) if target.endswith(".py") else None


def _own(name, init, inputs, seed):
    import transformer_np

    namespace = {**vars(layers), **vars(transformer_np)}
    cls = namespace.get(name)
    if not inspect.isclass(cls) or not hasattr(cls, "backward"):
        raise ValueError(
            f"no layer named {name!r} here, and no FILE.py; layers: {', '.join(layers.__all__)}, {', '.join(OWN)}"
        )
    own_init, own_inputs = OWN.get(name, (None, None))
    subject = _evaluate(init or own_init, namespace, seed) if init or own_init else construct(cls)
    return name, subject, _inputs(subject, inputs or own_inputs, namespace, seed)


def _inputs(subject, expression, namespace, seed):
    if not expression:
        return draw_inputs(subject, seed)
    values = _evaluate(f"({expression},)", namespace, seed)
    dtype = getattr(subject, "dtype", None)
    return [
        v.astype(dtype) if isinstance(v, np.ndarray) and v.dtype.kind == "f" and dtype is not None else v
        for v in values
    ]


def _evaluate(expression, namespace, seed):
    """Evaluate what the user wrote after --init or --inputs, with randn, ids, rng and np at hand."""
    rng = np.random.default_rng(seed)
    names = {
        "np": np,
        "rng": rng,
        "randn": lambda *shape: rng.standard_normal(shape),
        "ids": lambda *shape, size=11: rng.integers(0, size, shape),
    }
    try:
        return eval(expression, {**names, **namespace})
    except Exception as error:
        raise ValueError(f"{expression!r} raised {type(error).__name__}: {error}") from error


def load(path):
    """Execute a Python file afresh and return its names; imports find the file's own folder, or its package, first."""
    if not path.is_file():
        raise ValueError(f"no file {path}")
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    root = path.resolve().parent
    while (root / "__init__.py").is_file():  # a file of a package: its imports may begin with a dot
        module.__package__ = f"{root.name}.{module.__package__}".rstrip(".") if module.__package__ else root.name
        root = root.parent
    folder = str(root)
    source = path.read_text(encoding="utf-8")
    linecache.checkcache(str(path))
    sys.path.insert(0, folder)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        raise ValueError(f"{path} does not run: {''.join(traceback.format_exception_only(error)).strip()}") from error
    finally:
        sys.path.remove(folder)
    return vars(module)


def _in_file(path, name, args):
    namespace = load(path)
    example = namespace.get("gradcheck_example")
    if callable(example) and name in (None, "gradcheck_example") and not args.init:
        subject, *inputs = example()
        yield getattr(subject, "__name__", type(subject).__name__), subject, inputs, False
        return
    found = _checkable(namespace)
    if name is not None and name not in found:
        raise ValueError(
            f"{path} has nothing to check named {name!r}; it has {', '.join(found) or 'nothing with a backward'}"
        )
    if not found:
        raise ValueError(
            f"{path} has no class with forward and backward and no functions NAME_forward and NAME_backward"
        )
    for label in [name] if name is not None else found:
        subject = found[label]
        if args.init:
            subject = _evaluate(args.init, namespace, args.seed)
        elif inspect.isclass(subject):
            maker = getattr(subject, "gradcheck_example", None)
            made = maker() if callable(maker) else None
            if isinstance(made, tuple):
                yield label, made[0], list(made[1:]), False
                continue
            if callable(example):
                subject, *inputs = example()
                if type(subject).__name__ == label:
                    yield label, subject, inputs, False
                    continue
                subject = found[label]
            subject = construct(subject)
        yield label, subject, _inputs(subject, args.inputs, namespace, args.seed), not args.inputs


def _checkable(namespace):
    """What in a file has a backward: its own classes, objects made there, and pairs of functions."""
    file = namespace.get("__name__")
    found = {}
    for name, value in namespace.items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value):
            runs = hasattr(value, "forward") or "__call__" in vars(value)
            if value.__module__ == file and runs and hasattr(value, "backward"):
                found[name] = value
        elif callable(getattr(value, "forward", None)) and callable(getattr(value, "backward", None)):
            found[name] = value
    return {**found, **dict(pairs(namespace))}


def watch(args, looks=None):
    """Check now and after every save, until Ctrl-C (or after so many looks at the file); return the last exit code.

    The process stays warm, so an answer comes well within a second of the save.
    """
    path, seen, code = _file_of(args.target)[0], None, 1
    while looks is None or looks > 0:
        looks = None if looks is None else looks - 1
        try:
            stamp = path.stat()
            stamp = (stamp.st_mtime_ns, stamp.st_size)
        except OSError:
            stamp = None  # an editor is just replacing the file
        if stamp is not None and stamp != seen:
            seen = stamp
            if not args.json:
                print(f"--- {path} {time.strftime('%H:%M:%S')}", flush=True)
            try:
                code = check_all(args)
            except ValueError as error:
                print(error, file=sys.stderr, flush=True)
                code = 1
        try:
            time.sleep(POLL)
        except KeyboardInterrupt:
            return code
    return code
