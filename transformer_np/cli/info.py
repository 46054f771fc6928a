"""`transformer-np info`: what this installation is and has."""

import argparse
import importlib.util
import json
import os
import platform

OPTIONAL = ("cupy", "torch", "tokenizers", "sacrebleu", "pytest", "hypothesis")


def add_parser(subparsers):
    """Add `info` to the command line."""
    parser = subparsers.add_parser(
        "info",
        help="say which versions, devices and runs there are",
        description="Say which versions, devices and runs there are, for a bug report.",
        epilog="example:\n  transformer-np info --json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", default="runs", metavar="FOLDER", help="where the run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args):
    """Print the facts, one a line."""
    import pathlib

    import numpy as np

    from ..backend import gpu_available
    from ..training.run import WEIGHTS
    from ..version import __version__

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    facts = {
        "transformer_np": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "cores": os.cpu_count(),
        "gpu": gpu_available(),
        "installed": [name for name in OPTIONAL if importlib.util.find_spec(name)],
        "runs": sorted(str(path.parent) for path in pathlib.Path(args.runs).glob(f"*/{WEIGHTS}")),
    }
    if args.json:
        print(json.dumps(facts, ensure_ascii=False, indent=1))
    else:
        for name, value in facts.items():
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            print(f"{name:<15} {', '.join(value) or 'none' if isinstance(value, list) else shown}")
    return 0
