"""`transformer-np step SENTENCE`: a page that steps through a translation, forward and backward."""

import argparse
import sys
import webbrowser
from pathlib import Path

DESCRIPTION = """\
Write one HTML page that walks through a model step by step while it translates
a sentence: every operation with its formula, shapes, inputs and outputs, then
the loss, then every gradient, back to the embeddings. The page needs nothing
but a browser.

The model is one that `transformer-np train` left, of the task dates or reverse.
What it should say is taken to be what it does say, unless --target is given.
Without a trained model the page shows an untrained one.
"""

EXAMPLE = """\
example:
  transformer-np step "Sunday, November 29, 2026"
  transformer-np step "July 14, 1989" --target "1989년 7월 14일" --out july.html --open
"""
UNTRAINED_LENGTH = 12  # an untrained model seldom says the end token: it would go on to its limit


def add_parser(subparsers):
    """Add `step` to the command line."""
    parser = subparsers.add_parser(
        "step",
        help="step through a translation, forward and backward, in the browser",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sentence", metavar="SENTENCE", help="what to translate")
    parser.add_argument("--target", metavar="TEXT", help="the right answer, which the loss is counted from")
    parser.add_argument("--out", default="steps.html", metavar="FILE", help="the page (default: steps.html)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--no-check", action="store_true", help="leave out the gradient checks (some seconds)")
    parser.add_argument(
        "--run", dest="folder", metavar="FOLDER", help="run folder (default: the last of dates or reverse)"
    )
    parser.add_argument("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    parser.set_defaults(run=run)


def run(args):
    """Trace the sentence, write the page, and say what is in it."""
    from ..losses import CrossEntropy
    from ..tracing import trace
    from ..tracing.page import write_page

    out = Path(args.out)
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out must be a file in a folder that exists, got {args.out!r}")
    model, source, target, trained = _model(args)
    src, tgt, expected = _ids(args, model, source, target, trained)
    labels = (source.vocabulary.decode(src[0]), target.vocabulary.decode(tgt[0]))
    steps = trace(model.eval(), CrossEntropy(ignore_index=model.pad_id), expected, tokens=labels)(src, tgt)
    write_page(
        steps,
        out,
        title=f"“{args.sentence.strip()}”, step by step",
        src_vocabulary=source.vocabulary.tokens,
        tgt_vocabulary=target.vocabulary.tokens,
        check=not args.no_check,
    )
    says = target.decode(steps.output[0].argmax(-1))
    print(f"{args.sentence.strip()}  =  {says}")
    arrays = f"{len(steps.forward):,} arrays forward, {len(steps.backward):,} backward"
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): {arrays}, loss {steps.loss:.3g}")
    if args.open:
        webbrowser.open(out.resolve().as_uri())
    else:
        print("open it in a browser")
    return 0


def _model(args):
    """Return (model, source tokenizer, target tokenizer, whether it is trained)."""
    from ..training import last_run, load_run
    from ..training.run import TRANSLATORS

    try:
        folder = args.folder or last_run(args.runs, TRANSLATORS)
    except FileNotFoundError:
        print(
            f"note: no trained model in {args.runs}/, so this one is as it was drawn at random; "
            "transformer-np train makes one that translates, in minutes",
            file=sys.stderr,
        )
        return *_fresh(), False
    model, source, target, _ = load_run(folder)
    strange = source.unknown_tokens(args.sentence.strip())
    if strange:
        print(f"note: the model never saw {', '.join(map(repr, strange))} in training", file=sys.stderr)
    return model, source, target, True


def _fresh():
    """A model and tokenizers as `transformer-np train` begins with."""
    from .tasks.dates import Dates
    from .train import TASKS

    args = argparse.Namespace(**TASKS["dates"].DEFAULTS, seed=0)
    task = Dates(args)
    return task.model(), task.task.source_tokenizer, task.task.target_tokenizer


def _ids(args, model, source, target, trained):
    """Return src (1, S), tgt (1, T) and what should come out (1, T): the target, or what the model says."""
    import numpy as np

    from ..generation import greedy

    ids = source.encode(args.sentence.strip())
    if not ids:
        raise ValueError(f"there is nothing to translate: the text {args.sentence!r} is empty")
    src, vocabulary = np.array([ids]), target.vocabulary
    if args.target is None:
        expected = greedy(model, src, None if trained else UNTRAINED_LENGTH)  # (1, T)
    else:
        wanted = target.encode(args.target.strip())
        if not wanted:
            raise ValueError(f"--target is empty: {args.target!r}")
        expected = np.array([[*wanted, vocabulary.eos]], src.dtype)
    begin = np.full((1, 1), vocabulary.bos, expected.dtype)
    return src, np.concatenate([begin, expected[:, :-1]], 1), expected
