"""How well, and how soon, `transformer-np train` learns to translate dates into each language: the README's table.

    python benchmarks/dates.py                     the thirteen locales of the README
    python benchmarks/dates.py --to ko de fr       some

Each locale is a fresh process with the defaults of the command. The time is that of the whole process, from start to
saved pictures. "dates" are unseen dates right in both formats, "texts" are single texts.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

LOCALES = ("ko", "de", "fr", "ja", "ru", "ar", "hi", "th", "fi", "he", "hu", "eu", "vi")
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from transformer_np.cli import main; sys.exit(main())",
    "train",
    "--quiet",
]


def measure(source, target, options):
    """Train one pair of locales in a fresh process; return its figures."""
    with tempfile.TemporaryDirectory() as runs:
        start = time.perf_counter()
        subprocess.run(
            [*COMMAND, "--from", source, "--to", target, "--runs", runs, "--name", "run", *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        test = json.loads((pathlib.Path(runs) / "run" / "history.json").read_text(encoding="utf-8"))["test"]
    return {"from": source, "to": target, "seconds": round(seconds, 1), **test}


def main():
    """Measure every locale and print a row as it comes; write JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", default="en")
    parser.add_argument("--to", nargs="+", default=LOCALES)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("options", nargs="*", help="after --: options for transformer-np train")
    args = parser.parse_args()
    rows = []
    print("| to | dates right | texts right | seconds in all |\n|---|---|---|---|", flush=True)
    for target in args.to:
        row = measure(args.source, target, args.options)
        rows.append(row)
        print(
            f"| {target} | {row['dates_right']:,} of {row['dates']:,} | {row['texts_right']:,} of {row['texts']:,} "
            f"| {row['seconds']} |",
            flush=True,
        )
    if args.json:
        machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
        args.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
