"""`transformer-np train`: learn to translate dates, from data that is made on the spot."""

import argparse
import sys
import time

EXAMPLE = """example:
  transformer-np train                       English to Korean, half a minute on two cores
  transformer-np train --from en --to fr     any two of Babel's locales
  transformer-np train --norm post --steps 1500 --dropout 0.1

Then: transformer-np translate "Sunday, November 29, 2026"
"""


def add_parser(subparsers):
    """Add `train` to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a Transformer to translate dates",
        description="Train a Transformer, from scratch, to translate written dates between two languages. The dates "
        "come from the Unicode CLDR through Babel: nothing is downloaded. Afterwards it translates 1,000 dates it "
        "has never seen, and saves the model, a loss curve and an attention picture into a folder of their own.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", default="en", metavar="LOCALE", help="locale of the source (default: en)"
    )
    parser.add_argument(
        "--to", dest="target", default="ko", metavar="LOCALE", help="locale of the target (default: ko)"
    )
    parser.add_argument("--steps", type=int, default=500, help="training steps (default: 500)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences a step (default: 64)")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate (default: 0.003)")
    parser.add_argument("--d-model", type=int, default=64, help="width D (default: 64)")
    parser.add_argument("--heads", type=int, default=4, help="attention heads (default: 4)")
    parser.add_argument("--layers", type=int, default=2, help="encoder layers, and decoder layers (default: 2)")
    parser.add_argument("--d-ff", type=int, default=256, help="width of the feed-forward network (default: 256)")
    parser.add_argument(
        "--dropout", type=float, default=0.0, help="dropout; this short training needs none (default: 0)"
    )
    parser.add_argument(
        "--norm", choices=("pre", "post"), default="pre", help="layer norm before each part, or after (default: pre)"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads that share each batch (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same numbers (default: 0)")
    parser.add_argument("--name", help="name of the run's folder (default: FROM-TO, as en-ko)")
    parser.add_argument("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu needs CuPy (default: cpu)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def run(args):
    """Train, save, test, and show what came out."""
    from ..backend import module_named
    from ..data import Batches, DateTask
    from ..losses import CrossEntropy
    from ..models import Transformer
    from ..optim import Adam, LinearSchedule
    from ..training import TrainStep, fit, new_run, save_run

    start = time.perf_counter()
    module_named(args.device)  # a missing GPU should be said now, not after the data is made
    task = DateTask(args.source, args.target, seed=args.seed)
    vocabularies = (task.source_tokenizer.vocabulary, task.target_tokenizer.vocabulary)
    sources, targets = task.ids(task.train)
    batches = Batches(sources, targets, args.batch_size, seed=args.seed)
    model = Transformer(
        len(vocabularies[0]),
        len(vocabularies[1]),
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
    step = TrainStep(model, CrossEntropy(ignore_index=0), Adam(model.parameters(), lr=schedule), args.threads, clip=1.0)
    folder = new_run(args.runs, args.name or f"{task.source_locale}-{task.target_locale}")

    print(
        f"{task.source_locale} to {task.target_locale}: {len(task.train):,} pairs to learn from, "
        f"{len(vocabularies[0])} and {len(vocabularies[1])} tokens, {model.n_parameters():,} parameters"
    )
    example = task.train[0]
    print(f"  for example  {example.source}  =  {example.target}")
    history = fit(step, batches, args.steps, device=args.device, progress=not args.quiet)

    model.to("cpu")
    asked = {"from": task.source_locale, "to": task.target_locale}
    training = {
        name: getattr(args, name) for name in ("steps", "batch_size", "lr", "dropout", "threads", "seed", "device")
    }
    config = {"task": "dates", **asked, "model": model.config, "training": training}
    record = {
        "losses": history.losses,
        "learning_rates": history.learning_rates,
        "tokens_per_second": history.tokens_per_second,
        "interrupted": history.interrupted,
    }
    save_run(folder, model, vocabularies, config, record)
    if history.interrupted:
        print(f"interrupted after {history.steps} of {args.steps} steps; saved in {folder}/", file=sys.stderr)
        return 130
    record["test"] = show_test(model, task)
    save_run(folder, model, vocabularies, config, record)
    draw(folder, model, task, history)
    print(f"saved in {folder}/ (model, loss.png, attention.png); {time.perf_counter() - start:.1f} s in all")
    print(f'next: transformer-np translate "{task.test[0].source}"')
    return 0


def show_test(model, task):
    """Translate the test split, print how much is right and five examples; return the figures."""
    from ..training import translate

    answers = translate(model, task.source_tokenizer, task.target_tokenizer, [pair.source for pair in task.test])
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
