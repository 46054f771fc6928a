"""The command line: `transformer-np COMMAND`. Each file here parses, calls and prints; the work is done elsewhere."""

import argparse
import os
import sys

from ..version import __version__
from . import bench, generate, gradcheck, info, step, train, translate

COMMANDS = (train, translate, generate, gradcheck, step, bench, info)


def main(arguments=None):
    """Run one command; return 0 if what was asked for happened, 1 if not, 2 for bad usage, 130 for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a console that lacks a letter shows "?" instead of failing
            stream.reconfigure(errors="replace")
    parser = argparse.ArgumentParser(
        prog="transformer-np",
        description="The Transformer by hand in NumPy: train it, use it, check its gradients.",
        epilog="transformer-np COMMAND --help explains each command, with an example.",
    )
    parser.add_argument("--version", action="version", version=f"transformer_np {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` does: no error worth a word
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (ValueError, IndexError, OSError, RuntimeError, FloatingPointError, ImportError) as error:
        print(f"transformer-np {args.command}: {error}", file=sys.stderr)
        return 1
