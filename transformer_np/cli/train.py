"""`transformer-np train`: train a small model on one of four tasks, and see how good it got."""

import argparse
import pathlib
import shlex
import shutil
import sys
import time
import zlib

from .arguments import positive, probability, whole_number
from .tasks import TASKS

DESCRIPTION = """\
Train a small model from scratch; nothing is downloaded. The tasks:

  dates    a Transformer translates written dates between two languages, from
           the Unicode CLDR through Babel; tested on 1,000 unseen dates
  text     a GPT guesses the next character of Python's own help texts, or of
           a file; the loss on the last tenth, and a sample
  digits   a ViT reads scikit-learn's handwritten digits, 8 by 8; tested on a
           held-out fifth (needs scikit-learn)
  reverse  a Transformer writes random letters backwards; tested on 1,000
           unseen sequences

The model, a loss curve and an attention picture go into a folder of their own.
Ctrl-C ends the training early and saves what there is then; --resume goes on
from there, just as if it had never stopped. After a crash or a power cut it
goes on from what was saved last, which happens every minute.
"""

EXAMPLE = """\
example:
  transformer-np train                       dates, English to Korean
  transformer-np train --from en --to fr     any two of Babel's locales
  transformer-np train --norm post --steps 1500 --dropout 0.1
  transformer-np train --task text
  transformer-np train --task text --file novel.txt --steps 2000
  transformer-np train --resume runs/text    go on after Ctrl-C

Then: transformer-np translate "Sunday, November 29, 2026"
or, after text: transformer-np generate "The "
"""
NO_DEFAULT = {"file": "Python's help texts"}
COMMON = {"task": "dates", "seed": 0, "device": "cpu", "threads": "auto", "runs": "runs"}  # whatever the task
MAY_CHANGE = ("steps", "device")  # where a run is resumed


def add_parser(subparsers):
    """Add `train` to the command line. An option's default depends on the task, so `run` fills it in."""
    parser = subparsers.add_parser(
        "train",
        usage="transformer-np train [--task TASK] [options]",
        help="train a Transformer to translate dates, or on another task",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count = {"type": whole_number(1), "metavar": "N"}

    def option(group, flag, text, *, dest=None, **kind):
        dest = flag.removeprefix("--").replace("-", "_") if dest is None else dest
        group.add_argument(flag, dest=dest, help=f"{text} ({default_of(dest)})", **kind)

    group = parser.add_argument_group("task")
    group.add_argument("--task", choices=tuple(TASKS), help="(default: dates)")
    option(group, "--from", "locale of the source", dest="source", metavar="LOCALE")
    option(group, "--to", "locale of the target", dest="target", metavar="LOCALE")
    option(group, "--file", "text to learn, in UTF-8", metavar="PATH")
    option(group, "--length", "characters seen at once, or letters in the longest sequence", **count)
    group = parser.add_argument_group("model")
    option(group, "--d-model", "width D", **count)
    option(group, "--heads", "attention heads, a divisor of D", **count)
    option(group, "--layers", "layers; of encoder and of decoder, where there are both", **count)
    option(group, "--d-ff", "width of the feed-forward network", **count)
    option(group, "--norm", "layer norm before each part, or after", choices=("pre", "post"))
    option(group, "--dropout", "dropout", type=probability, metavar="P")
    group = parser.add_argument_group("training")
    option(group, "--steps", "training steps", **count)
    option(group, "--batch-size", "sentences, stretches of text, or images a step", **count)
    option(group, "--lr", "highest learning rate", type=positive, metavar="RATE")
    add = group.add_argument
    add("--seed", type=whole_number(0), metavar="N", help="same seed, same numbers (default: 0)")
    threads = "threads that share each batch (default: one a core, 8 at most, where D is 128 or more; else none)"
    add("--threads", **count, help=threads)
    add("--device", choices=("cpu", "gpu"), help="gpu needs CuPy (default: cpu)")
    resume = "go on with a run as if it had never stopped; --steps N for N in all, if not as many as first asked"
    add("--resume", metavar="RUN", help=resume)
    add = parser.add_argument_group("output").add_argument
    add("--name", help="name of the run's folder (default: the task, or the languages, as en-ko); none is overwritten")
    add("--runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    add("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run, parser=parser)


def default_of(dest):
    """Say the default of an option; where it differs, for each task that has the option."""
    values = {name: task.DEFAULTS[dest] for name, task in TASKS.items() if dest in task.DEFAULTS}
    shown = {
        name: NO_DEFAULT.get(dest, f"{value:g}" if isinstance(value, float) else value)
        for name, value in values.items()
    }
    if len(shown) == len(TASKS) and len(set(shown.values())) == 1:
        return f"default: {shown['dates']}"
    if len(set(shown.values())) == 1:
        return f"{', '.join(shown)}: {next(iter(shown.values()))}"
    return ", ".join(f"{name}: {value}" for name, value in shown.items())


def fill_in(args):
    """Give each option its default where none was given; an option of another task is bad usage."""
    for dest, value in COMMON.items():
        if getattr(args, dest) is None:
            setattr(args, dest, value)
    defaults = TASKS[args.task].DEFAULTS
    for dest in task_options():
        if getattr(args, dest) is None:
            setattr(args, dest, defaults.get(dest))
        elif dest not in defaults:
            tasks = " and ".join(name for name, task in TASKS.items() if dest in task.DEFAULTS)
            args.parser.error(f"{flag(dest)} is an option of the task {tasks}, not of {args.task}")


def take_up(args):
    """Give each option the value it had in the run that is to go on; return that run's state, history and data.

    An option that may not change is bad usage: with another value, the training would be another one.
    """
    from ..training import load_training

    fixed = [dest for dest in (*COMMON, "name", *task_options()) if dest not in MAY_CHANGE]
    given = [flag(dest) for dest in fixed if getattr(args, dest) is not None]
    if given:
        args.parser.error(f"with --resume the run keeps its options: leave out {', '.join(given)}")
    state, history, about = load_training(args.resume)
    try:
        saved, data = about["options"], about["data"]
        options = {dest: saved[dest] for dest in saved_options(saved["task"])}
    except (KeyError, TypeError):
        raise ValueError(f"the training in {args.resume} was not begun by transformer-np train") from None
    options |= {dest: getattr(args, dest) for dest in MAY_CHANGE if getattr(args, dest) is not None}
    if options["steps"] <= history.steps:
        raise ValueError(
            f"{args.resume} has made {history.steps} steps: to go on, give --steps a larger number; "
            "it counts from the beginning"
        )
    vars(args).update(options)
    return state, history, data


def task_options():
    """The options that depend on the task, of all tasks."""
    return sorted({dest for task in TASKS.values() for dest in task.DEFAULTS})


def saved_options(task):
    """The options that make a training what it is."""
    return "task", "seed", "threads", "device", *TASKS[task].DEFAULTS


def flag(dest):
    """Return the option as it is written on the command line."""
    return {"source": "--from", "target": "--to"}.get(dest, f"--{dest.replace('_', '-')}")


def run(args):
    """Train, save, test, and show what came out."""
    from ..backend import module_named
    from ..training import History, keep_freed_memory, new_run
    from ..training.run import HISTORY, TRAINING, write_json

    start = time.perf_counter()
    resumed = fill_in(args) if args.resume is None else take_up(args)
    keep_freed_memory()
    module_named(args.device)  # a missing GPU should be said now, not after the data is made
    if args.d_model % args.heads:
        raise ValueError(f"--d-model {args.d_model} must be a multiple of --heads {args.heads}")
    task = TASKS[args.task](args)
    step, batches = prepare(args, task)
    if resumed is None:
        history, folder = History(), new_run(args.runs, task.name if args.name is None else args.name)
    else:
        history, folder = go_on(args.resume, step, batches, *resumed), pathlib.Path(args.resume)
    try:
        record = learn(args, task, step, batches, history, folder)
    except BaseException:  # KeyboardInterrupt too, which a second Ctrl-C is
        if resumed is None and not (folder / TRAINING).exists():
            shutil.rmtree(folder)  # it was made for this run, and so far it is worth nothing
        raise
    if history.interrupted:
        print(
            f"interrupted after {history.steps} of {args.steps} steps; saved in {folder}/\n"
            f"to go on: transformer-np train --resume {shlex.quote(str(folder))}",
            file=sys.stderr,
        )
        return 130
    record["test"] = task.test(step.model)
    write_json(folder / HISTORY, record)
    draw(folder, task, step.model, history)
    print(f"saved in {folder}/ (model, loss.png, attention.png); {time.perf_counter() - start:.1f} s in all")
    where = "" if folder.parent == pathlib.Path("runs") else f"--run {shlex.quote(str(folder))} "
    print(f"next: {task.next(folder, where)}")
    return 0


def prepare(args, task):
    """Make the model and all that trains it; return the training step and the batches."""
    from ..optim import Adam, LinearSchedule
    from ..training import TrainStep

    batches = task.batches()
    model = task.model().to(args.device)
    schedule = LinearSchedule(args.lr, warmup_steps=max(1, min(100, args.steps // 5)), n_steps=args.steps)
    optimizer = Adam(model.parameters(), lr=schedule)
    step = TrainStep(model, task.loss(), optimizer, args.threads, clip=1.0)
    args.threads = step.threads  # for the record
    return step, batches


def go_on(run, step, batches, state, history, data):
    """Take up the state of a run, and its history, which is returned. Raises ValueError where the data has changed."""
    if checksum(batches) != data:
        raise ValueError(
            f"the data that {run} was trained on has changed: another file, or another version of Python, Babel "
            "or scikit-learn"
        )
    step.load_state_dict(state)
    return history


def checksum(batches):
    """Return a number that tells one task's data from another's: the CRC of the first epoch."""
    number = 0
    for batch in batches.epoch(0):
        for array in batch:
            number = zlib.crc32(array.tobytes(), number)
    return number


def learn(args, task, step, batches, history, folder):
    """Train with a progress bar and save the run; return the record of it that was saved."""
    from ..training import fit, save_checkpoint, save_run
    from ..training.run import TRAINING

    model = step.model
    print(task.introduction(model), flush=True)
    if history.steps:
        print(f"going on after {history.steps} of {args.steps} steps", flush=True)
    options = {dest: getattr(args, dest) for dest in saved_options(args.task)}
    about = {"options": options, "data": checksum(batches)}

    def save(history):
        save_checkpoint(folder / TRAINING, step, history, about)

    shown = {"progress": not args.quiet, "count": task.count, "unit": task.unit}
    fit(step, batches, args.steps, device=args.device, history=history, save=save, **shown)
    save(history)
    model.to("cpu")
    names = ("steps", "batch_size", "lr", "dropout", "threads", "seed", "device")
    training = {name: getattr(args, name) for name in names}
    config = {"task": args.task, **task.about, "model": model.config, "training": training}
    record = {
        "losses": history.losses,
        "learning_rates": history.learning_rates,
        f"{task.unit}_per_second": history.tokens_per_second,
        "interrupted": history.interrupted,
    }
    save_run(folder, model, task.vocabularies, config, record)
    return record


def draw(folder, task, model, history):
    """Save the loss curve and the attention picture."""
    from .. import plot

    figure = plot.losses(history.losses, history.learning_rates)
    figure.axes[0].set_ylabel(f"loss (nats a {task.unit.removesuffix('s')})")
    figure.savefig(folder / "loss.png", dpi=120)
    task.attention(model).savefig(folder / "attention.png", dpi=120)
