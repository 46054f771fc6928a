"""What the statements of the models say where they are more than calls of their layers: see formulas.py."""

LOOK = ("True where a query may look", "At real tokens, and never ahead.")
DECODER_ONLY = {
    "decode": {
        "positions, may_look =": ("positions 0, 1, 2 .., and where to look", "No token sees what comes after it."),
        "x =": (None, "One vector a token, to which layer after layer adds."),
    },
    "_look": {
        "places =": ("0, 1, 2 ..", "Each token's place."),
        "may_look =": ("True where a query may look", "At its own place and before: never ahead."),
        "return": LOOK,
    },
    "_in_sight": {
        "back =": ("t − s", "How far key s (column) lies behind query t (row)."),
        "return": ("0 ≤ t − s", "At its own place and before: never ahead."),
    },
}
T5 = {
    "decode": {
        "may_look =": LOOK,
        "scaled *=": ("y / √D", "The output shares the embedding's matrix, whose numbers are large."),
    },
    "backward": {"dy *=": ("dy / √D", "The same factor.")},
}
BERT = {
    "encode": {
        "segments =": ("all in the first segment", "Which of two sentences a token is in; here there is one."),
        "vectors =": ("E[ids] + E_seg[segments]", "What the token is, and which sentence it is in."),
    },
    "forward": {"return": ("the logits", "Of the masked words, and of whether the second sentence follows the first.")},
    "backward": {
        "dword_logits, dnext_logits =": ("the gradients of both heads", "Each goes back through its own."),
        "dx +=": ("dx = Σ over the heads", "Both read the same vectors: their gradients add up."),
    },
}
VIT = {
    "forward": {
        "patches =": ("one vector a patch", "The image, cut into squares, reads like a sentence."),
        "x =": ("[class; patches]", "A learned vector in front: it will gather what the image shows."),
        "y =": ("encoder([class; patches] + P)", "Every patch looks at every other."),
        "logits =": ("logits = y_class W + b", "Only the class token's vector says what it is."),
    },
    "backward": {
        "dy =": ("zeros", "Of the encoder's output only the class token's vector was used."),
        "dy[:, 0] =": ("dy_class = dlogits Wᵀ", "So only it has a gradient to begin with."),
        "self.class_token.accumulate": ("dclass = Σ dx_0 over the images", "It stood in front of every image."),
        "return": ("dimages", "How each pixel would have to change."),
    },
}
PATCH_EMBEDDING = {
    "forward": {
        "patches = x.reshape(b, c, height // p, p, width // p, p)": (
            "the image, cut",
            "Still in the order of its pixels.",
        ),
        "patches = patches.transpose(0, 2, 4, 1, 3, 5)": ("patch by patch", "The pixels of one patch side by side."),
        "y =": ("y_n = patch_n W + b", "One vector for each patch."),
    },
    "backward": {
        "dpatches =": ("dpatch_n = dy_n Wᵀ", "What each pixel of each patch should do."),
        "return": ("dimages", "The pixels back where they came from."),
    },
}
POOLER = {
    "forward": {"y =": ("y = tanh(x_0 W + b)", "The first place stands for the whole.")},
    "backward": {
        "dx =": ("zeros", "No place but the first was read."),
        "dx[:, 0] =": ("dx_0", "So only it has a gradient."),
    },
}
RELATIVE_POSITION_BIAS = {
    "forward": {
        "distances =": ("s − t, all there are", "From the last query and the first key to the other way round."),
        "buckets = relative_buckets(distances, self.n_buckets, self.max_distance, self.bidirectional)":
            ("bucket(s − t)", "Near distances have a bucket each, far ones share."),
        "t, s =": ("t and s", "The places of queries (rows) and keys (columns)."),
        "buckets = xp.asarray(buckets[s - t + n_queries - 1])": ("bucket(s − t)", "For every query and key."),
        "bias =": ("bias = E[bucket(s − t)]", "A learned number for each bucket and head."),
    },
    "backward": {
        "sums =": ("dE[b] = Σ dbias where the bucket is b", "Each number served every place of its bucket."),
        "self.weight.accumulate": ("dE", "Each number served every place of its bucket."),
    },
}  # fmt: skip
TRANSFORMER = {
    "forward": {"memory, src_mask =": ("what the encoder made", "The decoder will look at it.")},
    "decode": {"may_look =": LOOK},
}
SHARED_BIAS = ("dbias = Σ over the layers", "All layers share one bias: its gradients add up.")
ENCODER = {"backward": {"dy, dlayer_bias =": ("dx and dbias", "On to the layer below."), "dbias =": SHARED_BIAS}}
DECODER = {
    "backward": {
        "dy, dlayer_memory, *dlayer_bias =": ("dx, and what the layer wants of the memory", "On to the layer below."),
        "dmemory =": ("dmemory = Σ over the layers", "Every layer looked at the memory: its gradients add up."),
        "dbias =": SHARED_BIAS,
    },
}
MODELS = {
    "EncoderLayer": {"backward": {"return": ("dx, and dbias where there was a bias", "On to what came before.")}},
    "DecoderOnly": DECODER_ONLY,
    "GPT": {"embed": {"positions =": ("0, 1, 2 ..", "The places, for each sentence.")}},
    "T5": T5,
    "BERT": BERT,
    "ViT": VIT,
    "Transformer": TRANSFORMER,
    "Encoder": ENCODER,
    "Decoder": DECODER,
    "PatchEmbedding": PATCH_EMBEDDING,
    "Pooler": POOLER,
    "RelativePositionBias": RELATIVE_POSITION_BIAS,
}
