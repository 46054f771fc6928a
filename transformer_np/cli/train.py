"""`transformer-np train`: learn to translate dates, from data that is made on the spot."""

import argparse
import shlex
import shutil
import sys
import time

from .arguments import positive, probability, whole_number

DESCRIPTION = """\
Train a Transformer, from scratch, to translate written dates between two
languages. The dates come from the Unicode CLDR through Babel: nothing is
downloaded. Afterwards it translates 1,000 dates it has never seen, and saves
the model, a loss curve and an attention picture into a folder of their own.
Ctrl-C ends the training early and saves the model as it is then.
"""

EXAMPLE = """\
example:
  transformer-np train                       English to Korean
  transformer-np train --from en --to fr     any two of Babel's locales
  transformer-np train --norm post --steps 1500 --dropout 0.1

Then: transformer-np translate "Sunday, November 29, 2026"
"""


def add_parser(subparsers):
    """Add `train` to the command line."""
    parser = subparsers.add_parser(
        "train",
        usage="transformer-np train [--from LOCALE] [--to LOCALE] [options]",
        help="train a Transformer to translate dates",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count = {"type": whole_number(1), "metavar": "N"}
    add = parser.add_argument_group("task").add_argument
    add("--from", dest="source", default="en", metavar="LOCALE", help="locale of the source (default: en)")
    add("--to", dest="target", default="ko", metavar="LOCALE", help="locale of the target (default: ko)")
    add = parser.add_argument_group("model").add_argument
    add("--d-model", **count, default=64, help="width D (default: 64)")
    add("--heads", **count, default=4, help="attention heads, a divisor of D (default: 4)")
    add("--layers", **count, default=2, help="encoder layers, and decoder layers (default: 2)")
    add("--d-ff", **count, default=256, help="width of the feed-forward network (default: 256)")
    add("--norm", choices=("pre", "post"), default="pre", help="layer norm before each part, or after (default: pre)")
    add(
        "--dropout",
        type=probability,
        default=0.0,
        metavar="P",
        help="dropout; this short training needs none (default: 0)",
    )
    add = parser.add_argument_group("training").add_argument
    add("--steps", **count, default=500, help="training steps (default: 500)")
    add("--batch-size", **count, default=64, help="sentences a step (default: 64)")
    add("--lr", type=positive, default=3e-3, metavar="RATE", help="highest learning rate (default: 0.003)")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="same seed, same numbers (default: 0)")
    add("--threads", **count, default=2, help="threads that share each batch (default: 2)")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="gpu needs CuPy (default: cpu)")
    add = parser.add_argument_group("output").add_argument
    add("--name", help="name of the run's folder (default: FROM-TO, as en-ko); none is overwritten")
    add("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    add("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def run(args):
    """Train, save, test, and show what came out."""
    from ..backend import module_named
    from ..data import DateTask
    from ..training import keep_freed_memory, new_run
    from ..training.run import HISTORY, write_json

    start = time.perf_counter()
    keep_freed_memory()
    module_named(args.device)  # a missing GPU should be said now, not after the data is made
    if args.d_model % args.heads:
        raise ValueError(f"--d-model {args.d_model} must be a multiple of --heads {args.heads}")
    task = DateTask(args.source, args.target, seed=args.seed)
    step, batches = prepare(args, task)
    name = f"{task.source_locale}-{task.target_locale}" if args.name is None else args.name
    folder = new_run(args.runs, name)
    try:
        history, record = learn(args, task, step, batches, folder)
    except BaseException:  # KeyboardInterrupt too, which a second Ctrl-C is
        shutil.rmtree(folder)  # it was made for this run, and without the weights it is worth nothing
        raise
    if history.interrupted:
        print(f"interrupted after {history.steps} of {args.steps} steps; saved in {folder}/", file=sys.stderr)
        return 130
    record["test"] = show_test(step.model, task)
    write_json(folder / HISTORY, record)
    draw(folder, step.model, task, history)
    print(f"saved in {folder}/ (model, loss.png, attention.png); {time.perf_counter() - start:.1f} s in all")
    where = "" if args.runs == "runs" else f"--run {shlex.quote(str(folder))} "
    print(f'next: transformer-np translate {where}"{task.test[0].source}"')
    return 0


def prepare(args, task):
    """Make the model and all that trains it; return the training step and the batches."""
    from ..data import Batches
    from ..losses import CrossEntropy
    from ..models import Transformer
    from ..optim import Adam, LinearSchedule
    from ..training import TrainStep

    batches = Batches(*task.ids(task.train), args.batch_size, seed=args.seed)
    model = Transformer(
        len(task.source_tokenizer.vocabulary),
        len(task.target_tokenizer.vocabulary),
        d_model=args.d_model,
        n_heads=args.heads,
        n_encoder_layers=args.layers,
        n_decoder_layers=args.layers,
        d_ff=args.d_ff,
        dropout=args.dropout,
        max_len=64,
        norm=args.norm,
        seed=args.seed,
    ).to(args.device)
    schedule = LinearSchedule(args.lr, warmup_steps=max(1, min(100, args.steps // 5)), n_steps=args.steps)
    optimizer = Adam(model.parameters(), lr=schedule)
    return TrainStep(model, CrossEntropy(ignore_index=0), optimizer, args.threads, clip=1.0), batches


def learn(args, task, step, batches, folder):
    """Train with a progress bar and save the run; return the history, and the record of it that was saved."""
    from ..training import fit, save_run

    model, example = step.model, task.train[0].source
    vocabularies = (task.source_tokenizer.vocabulary, task.target_tokenizer.vocabulary)
    print(
        f"{task.source_locale} to {task.target_locale}: {len(task.train):,} pairs to learn from, "
        f"{len(vocabularies[0])} and {len(vocabularies[1])} tokens, {model.n_parameters():,} parameters"
    )
    print(f"  for example  {example}  =  {task.train[0].target}", flush=True)
    history = fit(step, batches, args.steps, device=args.device, progress=not args.quiet)

    model.to("cpu")
    asked = {"from": task.source_locale, "to": task.target_locale, "example": example}
    names = ("steps", "batch_size", "lr", "dropout", "threads", "seed", "device")
    training = {name: getattr(args, name) for name in names}
    config = {"task": "dates", **asked, "model": model.config, "training": training}
    record = {
        "losses": history.losses,
        "learning_rates": history.learning_rates,
        "tokens_per_second": history.tokens_per_second,
        "interrupted": history.interrupted,
    }
    save_run(folder, model, vocabularies, config, record)
    return history, record


def show_test(model, task):
    """Translate the test split, print how much is right and five examples; return the figures."""
    from ..training import translate

    longest = max(map(len, task.ids(task.test)[1]))
    answers = translate(
        model,
        task.source_tokenizer,
        task.target_tokenizer,
        [pair.source for pair in task.test],
        max_len=longest + 2,  # one more than the longest with its end token: what gets there is wrong anyway
    )
    right = [answer == pair.target for answer, pair in zip(answers, task.test, strict=True)]
    dates = {pair.date for pair in task.test}
    wrong_dates = {pair.date for pair, ok in zip(task.test, right, strict=True) if not ok}
    n_right = len(dates) - len(wrong_dates)
    print(
        f"exact match: {n_right:,} of {len(dates):,} unseen dates right in both formats "
        f"({100 * n_right / len(dates):.1f} %); {sum(right):,} of {len(right):,} texts"
    )
    shown = [right.index(False)] if not all(right) else []  # one mistake, if there is any, is worth seeing
    shown += [i for i in range(0, len(right), len(right) // 7) if i not in shown][: 5 - len(shown)]
    for i in sorted(shown):
        pair = task.test[i]
        print(f"  {pair.source}\n    {'right' if right[i] else 'WRONG'}    {answers[i]}\n    expected {pair.target}")
    return {"dates": len(dates), "dates_right": n_right, "texts": len(right), "texts_right": sum(right)}


def draw(folder, model, task, history):
    """Save the loss curve and the attention picture of one test date."""
    from .. import plot
    from ..training import attention_of

    plot.losses(history.losses, history.learning_rates).savefig(folder / "loss.png", dpi=120)
    text = task.test[0].source
    source, target, weights = attention_of(model, task.source_tokenizer, task.target_tokenizer, text)
    title = f'Where the last decoder layer looks while it translates "{text}"'
    plot.attention(weights, target, source, title=title).savefig(folder / "attention.png", dpi=120)
