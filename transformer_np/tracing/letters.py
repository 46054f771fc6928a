"""Which letter a size stands for, where the model and its inputs say so."""

SIZES = {"D": ("d_model",), "H": ("n_heads",), "F": ("d_ff",), "V": ("vocab_size", "tgt_vocab_size")}


def letters_of_sizes(model, inputs):
    """Return {size: letter} for the sizes that stand for one thing only."""
    sizes = {}
    config = getattr(model, "config", None) or vars(model) if hasattr(model, "__dict__") else {}
    for letter, names in SIZES.items():
        for name in names:
            if isinstance(config.get(name), int):
                sizes.setdefault(letter, config[name])
    if "D" in sizes and "H" in sizes and sizes["D"] % sizes["H"] == 0:
        sizes["K"] = config.get("d_head") or sizes["D"] // sizes["H"]
    sequences = [x for x in inputs if getattr(x, "ndim", 0) in (2, 3)]
    if sequences:
        sizes["B"], sizes["T"] = sequences[-1].shape[:2]
        if len(sequences) > 1:
            sizes["S"] = sequences[0].shape[1]
    found = {}
    for letter, size in sizes.items():
        found.setdefault(size, []).append(letter)
    return {size: letters[0] for size, letters in found.items() if len(letters) == 1}
