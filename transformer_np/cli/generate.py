"""`transformer-np generate PROMPT`: let a trained language model write."""

import argparse
import sys

from .arguments import not_negative, positive, share, whole_number

DESCRIPTION = """\
Let a model write on from a prompt: one that `transformer-np train --task text`
left, or weights of others. These are a Hugging Face folder (GPT-2, Llama, T5)
with its tokenizer.json, a .bin file of llama2.c with its tokenizer, or a folder
of CTranslate2. A model with an encoder answers the prompt instead.
"""

EXAMPLE = """\
example:
  transformer-np generate "The "
  transformer-np generate --run runs/text-2 --temperature 0.5 --seed 1 "If "
  transformer-np generate --beam 4 --max-len 60 "A list is "
  transformer-np generate --weights gpt2/ --top-p 0.9 "Once upon a time"
  transformer-np generate --weights stories260K.bin --tokenizer tok512.bin ""
"""
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")


def add_parser(subparsers):
    """Add `generate` to the command line."""
    parser = subparsers.add_parser(
        "generate",
        usage="transformer-np generate [--run FOLDER | --weights PATH] [options] PROMPT",
        help="let a trained language model write on from a prompt",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompt", metavar="PROMPT", help='what to go on from; "" for a beginning')
    add = parser.add_argument_group("model").add_argument
    add("--run", dest="folder", metavar="FOLDER", help="run folder (default: the last of the task text)")
    add("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    add("--weights", metavar="PATH", help="weights of others: a folder, or a .bin file")
    add("--tokenizer", metavar="PATH", help="their tokenizer, where it is not in the folder")
    add = parser.add_argument_group("writing").add_argument
    count = {"type": whole_number(1), "metavar": "N"}
    add("--max-len", **count, default=200, help="tokens to write at most (default: 200)")
    add(
        "--temperature",
        type=not_negative,
        metavar="T",
        help="below 1 likely tokens become likelier; 0 takes the likeliest (default: 0.8; 0 to answer)",
    )
    add("--top-k", **count, help="draw from the N likeliest tokens only")
    add("--top-p", type=share, metavar="P", help="draw from the likeliest that add up to P")
    add("--repetition-penalty", type=positive, metavar="X", help="above 1: what is there already is less likely")
    add("--seed", type=whole_number(0), metavar="N", help="same seed, same text (default: another each time)")
    add("--beam", **count, help="draw nothing: search for the likeliest text, N side by side")
    parser.set_defaults(run=run, parser=parser)


def run(args):
    """Write, and print it as it should be read: the prompt too, unless it was answered."""
    if args.weights is not None and args.folder is not None:
        args.parser.error("--run and --weights exclude each other")
    if args.tokenizer is not None and args.weights is None:
        args.parser.error("--tokenizer goes with --weights")
    drawing = [name for name in SAMPLING if getattr(args, name) is not None]
    if args.beam is not None and drawing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in drawing)
        args.parser.error(f"--beam draws nothing, so it takes no {flags}")
    writer = open_writer(args)
    strange = writer.unknown(args.prompt)
    if strange:
        print(f"note: the model does not know {', '.join(map(repr, strange))}", file=sys.stderr)
    text = answer(writer, args) if writer.translates else continuation(writer, args)
    print(text)
    return 0


def open_writer(args):
    """Return the Writer that the options name."""
    from ..training import last_run
    from ..training.run import WRITERS
    from .writers import from_run, from_weights

    if args.weights is not None:
        return from_weights(args.weights, args.tokenizer)
    return from_run(args.folder or last_run(args.runs, WRITERS))


def settings_of(args, writer):
    """Return what the options ask for, as `sample` or `beam_search` takes it."""
    if args.beam is not None:
        return writer.settings
    asked = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    return {"temperature": 0.0 if writer.translates else 0.8, **asked, **writer.settings}


def continuation(writer, args):
    """The prompt and what the model makes of it."""
    from ..training import write_on

    prompt = writer.encode(args.prompt) or writer.start
    if not prompt:
        raise ValueError("the prompt is empty, and this model has no token to begin with: give it some text")
    new = write_on(writer.model, prompt, args.max_len, beam_size=args.beam, **settings_of(args, writer))
    if not args.prompt:
        return writer.decode([*prompt, *new]).removeprefix("\n")
    # Decoded together, for a token may be part of a character; but the prompt stays as it was typed.
    before, whole = writer.decode(prompt), writer.decode([*prompt, *new])
    return args.prompt + whole.removeprefix(before) if whole.startswith(before) else whole


def answer(writer, args):
    """What a model with an encoder makes of the prompt."""
    import numpy as np

    from ..generation import beam_search, sample

    ids = writer.encode(args.prompt)
    if not ids:
        raise ValueError("the prompt is empty: this model answers a text, so give it one")
    longest = writer.model.config.get("max_len") or args.max_len
    options = {"max_len": min(args.max_len, longest), **settings_of(args, writer)}
    source = np.array([ids])
    if args.beam is not None:
        out = beam_search(writer.model, source, args.beam, **options)[0].tolist()
    else:
        out = sample(writer.model, source, **options)[0].tolist()
    end = writer.settings["eos_id"]
    return writer.decode(out[: out.index(end)] if end in out else out)
