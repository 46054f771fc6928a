"""How fast does a GPT write, beside Hugging Face's `generate` with the same weights?

Both write the same tokens from the same prompts, greedily and by beam search, with their key/value caches, in float32
and with as many threads. The two take turns; what counts is the median. Needs the extra `parity`, and transformers.

    python benchmarks/decode.py [--size small|gpt2] [--tokens 128] [--threads 1] [--repeats 5] [--json FILE]

"small" is 4 layers of d = 128 with a vocabulary of 4,096; "gpt2" has the sizes of GPT-2 small. Weights are random.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import transformer_np as tnp  # noqa: E402

SIZES = {
    "small": {"vocab_size": 4096, "d_model": 128, "n_heads": 4, "n_layers": 4, "max_len": 1024},
    "gpt2": {"vocab_size": 50257, "d_model": 768, "n_heads": 12, "n_layers": 12, "max_len": 1024},
}
CASES = {  # how many sentences, and how many beams for each
    "greedy, 1 sentence": (1, 1),
    "greedy, 8 sentences": (8, 1),
    "beam search, 5 beams": (1, 5),
}


def ours_writes(model, prompts, n_beams, n_tokens):
    if n_beams == 1:
        return tnp.greedy(model, prompts, n_tokens)
    return tnp.beam_search(model, prompts, n_beams, 1.0, n_tokens, length_rule="power")


def theirs_writes(model, prompts, n_beams, n_tokens):
    import torch

    ids = torch.tensor(prompts)
    options = {"max_new_tokens": n_tokens, "do_sample": False, "num_beams": n_beams, "pad_token_id": 0}
    if n_beams > 1:
        options["early_stopping"] = "never"
    out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    return out[:, prompts.shape[1] :].numpy()


def measure(writers, repeats):
    """Let the writers take turns; return for each the seconds of every turn, and what it wrote last."""
    seconds, texts = {name: [] for name in writers}, {}
    for _ in range(repeats + 1):
        for name, write in writers.items():
            start = time.perf_counter()
            texts[name] = write()
            seconds[name].append(time.perf_counter() - start)
    return {name: s[1:] for name, s in seconds.items()}, texts  # the first turn warms up


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import torch
    from threadpoolctl import threadpool_limits

    warnings.simplefilter("ignore")
    from decoder_only_twins import gpt_twins

    torch.set_num_threads(arguments.threads)
    ours, theirs, _ = gpt_twins(**SIZES[arguments.size], dtype="float32")
    rng = np.random.default_rng(0)
    results = {}
    print(f"{arguments.size}: {ours.n_parameters():,} parameters, {arguments.threads} thread(s), tokens per second")
    with threadpool_limits(arguments.threads, user_api="blas"):
        for case, (n_sentences, n_beams) in CASES.items():
            prompts = rng.integers(0, ours.vocab_size, (n_sentences, arguments.prompt))
            sizes = (prompts, n_beams, arguments.tokens)
            writers = {
                "transformer_np": lambda sizes=sizes: ours_writes(ours, *sizes),
                "transformers": lambda sizes=sizes: theirs_writes(theirs, *sizes),
            }
            seconds, texts = measure(writers, arguments.repeats)
            rate = {name: n_sentences * arguments.tokens / statistics.median(s) for name, s in seconds.items()}
            same = float((texts["transformer_np"] == texts["transformers"]).mean())
            ratio = rate["transformer_np"] / rate["transformers"]
            rates = "   ".join(f"{name} {tokens:8.1f}" for name, tokens in rate.items())
            print(f"  {case:22} {rates}   ratio {ratio:.2f}   same tokens {same:.0%}", flush=True)
            results[case] = {"tokens_per_second": rate, "ratio": ratio, "same_tokens": same, "seconds": seconds}
    if arguments.json:
        settings = {key: value for key, value in vars(arguments).items() if key != "json"}
        arguments.json.write_text(json.dumps({"settings": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
