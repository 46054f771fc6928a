"""`transformer-np step INPUT`: a page that steps through a trained model, forward and backward."""

import argparse
import sys
import webbrowser
from pathlib import Path

from .arguments import whole_number
from .tasks import TASKS

DESCRIPTION = """\
Write one HTML page that walks through a model step by step while it reads one
input: every operation with its formula, shapes, inputs and outputs, then the
loss, then every gradient, back to the first layer. The page needs nothing but
a browser.

The model is one that `transformer-np train` left. Its task says what INPUT is:

  dates, reverse   a sentence to translate
  text             a prompt; each character is to be followed by the next one
  digits           the number of a held-out image, from 0 on

Without INPUT an example of the task is taken. What should come out is taken to
be what does come out (for an image, its true label), unless --target is given.
Without a trained model the page shows an untrained one.
"""

EXAMPLE = """\
example:
  transformer-np step "Sunday, November 29, 2026"
  transformer-np step "July 14, 1989" --target "1989년 7월 14일" --out july.html --open
  transformer-np step --task text "The value of "
  transformer-np step --task digits 7
"""
UNTRAINED_LENGTH = 12  # an untrained model seldom says the end token: it would go on to its limit
EXAMPLE_LENGTH = 16  # characters of the held-out part, which the run's sample begins with
SHOWN = 24  # characters of a prompt: the page then has about as many numbers as that of a date
UNTRAINED = "so this one is as it was drawn at random"


def add_parser(subparsers):
    """Add `step` to the command line."""
    parser = subparsers.add_parser(
        "step",
        help="step through a trained model, forward and backward, in the browser",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("input", metavar="INPUT", nargs="?", help="a sentence, a prompt, or the number of an image")
    add("--target", metavar="TEXT", help="the right answer, which the loss is counted from")
    add("--length", type=whole_number(1), default=SHOWN, metavar="N", help=f"of a text, characters (default: {SHOWN})")
    add("--out", default="steps.html", metavar="FILE", help="the page (default: steps.html)")
    add("--open", action="store_true", help="open the page in the browser")
    add("--no-check", action="store_true", help="leave out the gradient checks (some seconds)")
    add("--task", choices=tuple(TASKS), help="take the last run of this task (default: of any)")
    add("--run", dest="folder", metavar="FOLDER", help="run folder (default: the last run)")
    add("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    parser.set_defaults(run=run, parser=parser)


def run(args):
    """Trace the input, write the page, and say what is in it."""
    from ..losses import CrossEntropy
    from ..tracing import trace
    from ..tracing.page import write_page

    if args.task is not None and args.folder is not None:
        args.parser.error("--task and --run exclude each other: a run has its task")
    out = Path(args.out)
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out must be a file in a folder that exists, got {args.out!r}")
    task, folder = _find_run(args)
    lesson = LESSONS[task](args, task, folder)
    loss_fn = CrossEntropy(ignore_index=getattr(lesson.model, "pad_id", None))
    steps = trace(lesson.model.eval(), loss_fn, lesson.targets, tokens=lesson.tokens)(*lesson.inputs)
    words = dict(zip(("src_vocabulary", "tgt_vocabulary"), lesson.vocabularies, strict=True))
    write_page(steps, out, title=f"{lesson.title}, step by step", check=not args.no_check, **words)
    print(lesson.says(steps.output))
    arrays = f"{len(steps.forward):,} arrays forward, {len(steps.backward):,} backward"
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): {arrays}, loss {steps.loss:.3g}")
    if args.open:
        webbrowser.open(out.resolve().as_uri())
    else:
        print("open it in a browser")
    return 0


def _find_run(args):
    """Return (task, run folder), the folder None where there is no trained model."""
    from ..training import last_run
    from ..training.run import CONFIG, read_json

    try:
        folder = Path(args.folder or last_run(args.runs, args.task and (args.task,)))
    except FileNotFoundError:
        task = args.task or "dates"
        option = "" if task == "dates" else f" --task {task}"
        print(
            f"note: no trained model{f' of the task {task}' if args.task else ''} in {args.runs}/, {UNTRAINED}; "
            f"transformer-np train{option} makes a trained one, in minutes",
            file=sys.stderr,
        )
        return task, None
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}")
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"the run folder {folder} is not complete: it lacks {CONFIG}")
    task = read_json(folder / CONFIG).get("task", "dates")  # the first runs were of dates, and did not say so
    if task not in LESSONS:
        raise ValueError(f"{folder} is a run of the task {task!r}, expected one of {', '.join(LESSONS)}")
    return task, folder


def _fresh(task):
    """The task with the options that `transformer-np train` begins with."""
    return TASKS[task](argparse.Namespace(**TASKS[task].DEFAULTS, seed=0))


class Translation:
    """A sentence and what it should become. Attributes as all lessons have them:

    model; inputs of its forward; targets of the loss; tokens and vocabularies (source, target), labels for the page;
    title; says(output), the line to print.
    """

    def __init__(self, args, task, folder):
        import numpy as np

        from ..training import load_run

        if folder is None:
            fresh = _fresh(task)
            self.model, example = fresh.model(), fresh.about["example"]
            tokenizer = getattr(fresh.task, "tokenizer", None)  # reverse has one for both sides
            source = tokenizer or fresh.task.source_tokenizer
            target = tokenizer or fresh.task.target_tokenizer
        else:
            self.model, source, target, config = load_run(folder)
            example = config.get("example", "")
        self.text, self.target = (example if args.input is None else args.input).strip(), target
        ids = source.encode(self.text)
        if not ids:
            raise ValueError(f"there is nothing to translate: the text {self.text!r} is empty")
        if folder is not None:
            _note_unknown(source, self.text)
        src, vocabulary = np.array([ids]), target.vocabulary
        self.targets = self._expected(args, src, None if folder else UNTRAINED_LENGTH)  # (1, T)
        begin = np.full((1, 1), vocabulary.bos, self.targets.dtype)
        tgt = np.concatenate([begin, self.targets[:, :-1]], 1)
        self.inputs = (src, tgt)
        self.tokens = (source.vocabulary.decode(src[0]), vocabulary.decode(tgt[0]))
        self.vocabularies = (source.vocabulary.tokens, vocabulary.tokens)
        self.title = f"“{self.text}”"

    def _expected(self, args, src, longest):
        """What should come out, (1, T): --target, or what the model says."""
        import numpy as np

        from ..generation import greedy

        if args.target is None:
            return greedy(self.model, src, longest)
        wanted = self.target.encode(args.target.strip())
        if not wanted:
            raise ValueError(f"--target is empty: {args.target!r}")
        return np.array([[*wanted, self.target.vocabulary.eos]], src.dtype)

    def says(self, output):
        """The sentence and the model's answer."""
        return f"{self.text}  =  {self.target.decode(output[0].argmax(-1))}"


class Continuation:
    """A prompt, each character of which is to be followed by the next: that is what a GPT learns. See Translation."""

    def __init__(self, args, task, folder):
        import numpy as np

        from ..generation import sample
        from ..training import load_text_run
        from ..training.run import HISTORY, read_json

        if folder is None:
            fresh = _fresh(task)
            self.model, tokenizer = fresh.model(), fresh.task.tokenizer
            example = tokenizer.decode(fresh.task.validation[:EXAMPLE_LENGTH])
        else:
            self.model, tokenizer, _ = load_text_run(folder)
            example = read_json(folder / HISTORY).get("test", {}).get("sample", "")[:EXAMPLE_LENGTH]
        prompt = example if args.input is None else args.input
        if not prompt:
            raise ValueError("there is nothing to go on from: the prompt is empty")
        if args.target == "":
            raise ValueError("--target is empty: say what should follow the prompt")
        whole = prompt + (args.target or "")
        longest = min(args.length, self.model.max_len or args.length)
        if len(whole) > longest + bool(args.target):
            limit = "the model sees no more at once" if longest < args.length else "--length shows more"
            print(f"note: the page shows the first {longest} of {len(whole)} characters; {limit}", file=sys.stderr)
        ids = tokenizer.encode(whole)[: longest + 1]
        _note_unknown(tokenizer, whole[: longest + 1])
        if args.target is None and len(ids) <= longest:
            ids.append(int(sample(self.model, np.array([ids]), max_len=1, temperature=0)[0, -1]))
        ids = np.array([ids])
        self.inputs, self.targets, self.vocabulary = (ids[:, :-1],), ids[:, 1:], tokenizer.vocabulary
        self.tokens = ([], self.vocabulary.decode(ids[0, :-1]))
        self.vocabularies = (None, self.vocabulary.tokens)
        self.prompt = "".join(self.tokens[1])
        self.title = f"“{self.prompt}”"

    def says(self, output):
        """The prompt, and the character that the model finds likeliest after it."""
        (after,) = self.vocabulary.decode([int(output[0, -1].argmax())])
        right, n = int((output[0].argmax(-1) == self.targets[0]).sum()), self.targets.size
        return f"{self.prompt!r}: most likely {after!r} follows; {right} of {n} next characters are the likeliest"


class Reading:
    """One held-out image, and the digit that it shows. See Translation."""

    def __init__(self, args, task, folder):
        from ..data import DigitsTask
        from ..models import load
        from ..training.run import CONFIG, WEIGHTS, read_json

        if folder is None:
            fresh = _fresh(task)
            self.model, digits = fresh.model(), fresh.task
        else:
            if not (folder / WEIGHTS).is_file():
                raise FileNotFoundError(f"the run folder {folder} is not complete: it lacks {WEIGHTS}")
            digits = DigitsTask(seed=read_json(folder / CONFIG).get("training", {}).get("seed", 0))
            self.model = load(folder / WEIGHTS)
        n, given = len(digits.test_labels), "0" if args.input is None else args.input.strip()
        if not given.isdecimal() or int(given) >= n:
            raise ValueError(f"for the task digits give the number of a held-out image, 0 to {n - 1}, got {given!r}")
        self.number = int(given)
        images, labels = digits.test_images[self.number :][:1], digits.test_labels[self.number :][:1]
        if args.target is not None:
            if args.target.strip() not in map(str, range(digits.n_classes)):
                raise ValueError(f"--target must be a digit from 0 to {digits.n_classes - 1}, got {args.target!r}")
            labels = labels * 0 + int(args.target)
        self.inputs, self.targets, self.tokens = (images,), labels, None
        self.vocabularies = (None, [str(digit) for digit in range(digits.n_classes)])
        self.title = f"Held-out image {self.number}, to be read as {labels[0]}"

    def says(self, output):
        """What the model takes the image for."""
        return f"image {self.number}, to be read as {self.targets[0]}: the model reads {output[0].argmax()}"


LESSONS = {"dates": Translation, "reverse": Translation, "text": Continuation, "digits": Reading}


def _note_unknown(tokenizer, text):
    strange = tokenizer.unknown_tokens(text)
    if strange:
        print(f"note: the model never saw {', '.join(map(repr, strange))} in training", file=sys.stderr)
