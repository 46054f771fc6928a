"""`transformer-np translate TEXT`: use a trained translator."""

import argparse
import json
import sys

DESCRIPTION = """\
Translate texts with a model that `transformer-np train` left, of the task
dates or reverse, one translation a line. Words the model has never seen are
named on the error stream.
"""

EXAMPLE = """\
example:
  transformer-np translate "Sunday, November 29, 2026"
  transformer-np translate --run runs/en-fr "November 29, 2026" "July 14, 1989"
"""


def add_parser(subparsers):
    """Add `translate` to the command line."""
    parser = subparsers.add_parser(
        "translate",
        help="translate with a trained model",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="what to translate")
    parser.add_argument(
        "--run", dest="folder", metavar="FOLDER", help="run folder (default: the last of dates or reverse)"
    )
    parser.add_argument("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args):
    """Translate and print; warn of words the model has never seen."""
    from ..training import last_run, load_run, translate
    from ..training.run import TRANSLATORS

    folder = args.folder or last_run(args.runs, TRANSLATORS)
    model, source_tokenizer, target_tokenizer, config = load_run(folder)
    unknown = [source_tokenizer.unknown_tokens(text.strip()) for text in args.texts]
    translations = translate(model, source_tokenizer, target_tokenizer, args.texts)
    if args.json:
        rows = zip(args.texts, translations, unknown, strict=True)
        results = [{"source": s, "translation": t, "unknown_tokens": u} for s, t, u in rows]
        print(json.dumps({"run": str(folder), "translations": results}, ensure_ascii=False, indent=1))
        return 0
    for text, translation, strange in zip(args.texts, translations, unknown, strict=True):
        if strange:
            words, known = ", ".join(map(repr, strange)), config.get("example")
            print(
                f"note: the model never saw {words} in training, so do not trust what it makes of {text!r}"
                + (f"; it knows texts like {known!r}" if known else ""),
                file=sys.stderr,
            )
        print(translation)
    return 0
