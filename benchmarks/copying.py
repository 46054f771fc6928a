"""What attention was for: copy a sentence of random symbols, and see how the right answers fall with its length.

    python benchmarks/copying.py                                the table
    python benchmarks/copying.py --json copying.json --picture copying.png
    python benchmarks/copying.py --steps 200 --longest 16       sooner

Three models of the same width learn from the same sentences of 1 to `--longest` symbols: an LSTM encoder and decoder,
the same with additive attention (its encoder reads both ways), and a Transformer. The plain one has to carry the whole
source in one state, so that it loses the longer ones; the other two look back. The table gives, for new sentences of
each length, how many symbols are right when all before them are given, and how many sentences are right throughout.
"""

import argparse
import json
import pathlib
import time

import numpy as np
from threadpoolctl import threadpool_limits

import transformer_np as tnp

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB_SIZE = 13  # ten symbols, and these three
KINDS = ("LSTM", "LSTM with attention", "Transformer")


def make(kind, d_model, longest, seed=0):
    """A model of that kind."""
    if kind == "Transformer":
        sizes = (VOCAB_SIZE, VOCAB_SIZE, d_model, 4, 2, 2, 4 * d_model)
        return tnp.Transformer(*sizes, dropout=0.0, max_len=longest + 1, norm="pre", seed=seed)
    attention = kind != "LSTM"
    options = {"attention": attention, "bidirectional": attention, "dropout": 0.0, "seed": seed}
    return tnp.Seq2SeqRNN(VOCAB_SIZE, VOCAB_SIZE, d_model, max_len=longest + 1, **options)


def sentences(rng, n, shortest, longest):
    """Return n sentences: src (n, L), the decoder's input (n, L + 1), and what it should say (n, L + 1)."""
    lengths = rng.integers(shortest, longest + 1, n)
    src = rng.integers(FIRST, VOCAB_SIZE, (n, longest))
    src[np.arange(longest) >= lengths[:, None]] = PAD
    targets = np.concatenate([src, np.full((n, 1), PAD)], 1)
    tgt = np.concatenate([np.full((n, 1), BOS), src], 1)
    targets[np.arange(n), lengths] = EOS
    return src, tgt, targets


def train(kind, d_model, longest, steps, batch_size, lr):
    """Train a model of that kind; return it and the seconds it took."""
    model, rng = make(kind, d_model, longest), np.random.default_rng(1)
    schedule = tnp.LinearSchedule(lr, max(1, steps // 10), steps)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=PAD), tnp.Adam(model.parameters(), schedule), clip=1.0)
    start = time.perf_counter()
    for _ in range(steps):
        step(*sentences(rng, batch_size, 1, longest))
    return model.eval(), time.perf_counter() - start


def evaluate(model, length, n=200):
    """Return which parts of the symbols and of the sentences are right, for n new sentences of that length."""
    src, tgt, targets = sentences(np.random.default_rng(10_000 + length), n, length, length)
    with tnp.inference():
        right = model.forward(src, tgt).argmax(-1) == targets
    return {"symbols": float(right.mean()), "sentences": float(right.all(1).mean())}


def draw(rows, path):
    """Draw the part of right symbols over the length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 4))
    for row in rows:
        ax.plot([r["length"] for r in row["lengths"]], [r["symbols"] for r in row["lengths"]], "o-", label=row["kind"])
    ax.set(xlabel="symbols in the sentence", ylabel="symbols right", ylim=(0, 1.05))
    ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Train the three, print the table, and write JSON and the picture where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=24)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=1, help="of the matrix library")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--picture", type=pathlib.Path, help="draw them to this file")
    args = parser.parse_args()
    lengths = sorted({max(1, round(args.longest * part / 6)) for part in range(1, 7)})
    print("symbols right / sentences right, by length\n")
    print(f"| model | seconds | {' | '.join(map(str, lengths))} |\n|---|---|{'---|' * len(lengths)}", flush=True)
    rows = []
    with threadpool_limits(args.threads):
        for kind in KINDS:
            model, seconds = train(kind, args.width, args.longest, args.steps, args.batch, args.lr)
            results = [{"length": length, **evaluate(model, length)} for length in lengths]
            rows.append({"kind": kind, "seconds": seconds, "lengths": results})
            cells = " | ".join(f"{100 * r['symbols']:.1f} % / {100 * r['sentences']:.1f} %" for r in results)
            print(f"| {kind} | {seconds:.0f} | {cells} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if args.picture:
        draw(rows, args.picture)


if __name__ == "__main__":
    main()
