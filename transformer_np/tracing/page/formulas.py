"""What the statements of each layer say in the paper's symbols, and in words.

FORMULAS[class][method] maps the beginning of a statement, such as "scores =", to (formula, words). A test holds every
entry against the source. A statement that is not here, such as one of the reader's own, is shown as it is written.
The symbols are those of docs/derivations; * is entry by entry, a product without a sign is one of matrices.
"""

import ast

LINEAR = {
    "forward": {
        "y =": ("y = x W", "Each output is a weighted sum of one row of x, with the weights of one column of W."),
        "y +=": ("y = x W + b", "The bias: one number a column, the same for every row."),
    },
    "backward": {
        "self.weight.accumulate": ("dW = xᵀ dy", "Each weight gathers, over all rows, its input times its gradient."),
        "self.bias.accumulate": ("db = Σ dy over the rows", "The bias serves every row, so its gradients add up."),
        "return": ("dx = dy Wᵀ", "Each input reached every output through a row of W, and gets its gradients back so."),
    },
}
ATTENTION = {
    "forward": {
        "scale =": ("1 / √K", "It keeps the scores' variance at 1, where the softmax still has a slope."),
        "q_scaled =": ("q / √K", "Scaling the queries is cheaper than scaling the scores."),
        "scores =": ("scores = q kᵀ / √K", "How well each query (row) matches each key (column)."),
        "scores +=": ("scores = q kᵀ / √K + bias", "A learned preference for certain distances."),
        "weights =": ("P = softmax(scores)", "Each row becomes positive and adds up to 1: where this query looks."),
        "dropped =": ("P * M", "During training some weights are dropped at random, the others scaled up."),
        "y =": ("y = P v", "Each query takes the mean of the values, weighted by where it looks."),
    },
    "backward": {
        "dv =": ("dv = (P * M)ᵀ dy", "A value was read by every query, as much as each looked at it."),
        "ddropped =": ("d(P * M) = dy vᵀ", "A weight should grow if the value it lets in is what the loss wants."),
        "dweights =": ("dP = d(P * M) * M", "What was dropped has no say; without dropout M is 1."),
        "dscores =": ("dscores = P * (dP − Σ dP * P)", "Through the softmax: the weights of a row add up to 1, so one "
                      "grows only as others shrink."),
        "dq_scaled =": ("dscores k", "Each query moves towards the keys that it should match better."),
        "dq =": ("dq = dscores k / √K", "The scale of forward, once more."),
        "dk =": ("dk = dscoresᵀ q / √K", "Each key moves towards the queries that it should match better."),
    },
}  # fmt: skip
LAYER_NORM = {
    "forward": {
        "n =": ("n = x − mean(x)", "Each position by itself: its numbers get mean 0."),
        "std =": ("std = √(mean(n²) + ε)", "The spread of each position's numbers."),
        "n /=": ("n = (x − mean(x)) / std", "Now every position has mean 0 and variance 1."),
        "y =": ("γ * n", "A learned scale for each feature."),
        "y +=": ("y = γ * n + β", "And a learned shift."),
    },
    "backward": {
        "self.gamma.accumulate": ("dγ = Σ dy * n over the rows", "The scale serves every row: its gradients add up."),
        "self.beta.accumulate": ("dβ = Σ dy over the rows", "The shift serves every row: its gradients add up."),
        "g =": ("g = γ * dy", "The gradient with respect to n."),
        "dx =": ("g − mean(g)", "The path through the mean: moving all numbers alike changes nothing."),
        "dx -=": ("g − mean(g) − n * mean(g * n)", "The path through the spread: scaling all numbers alike changes "
                  "nothing."),
        "dx /=": ("dx = (g − mean(g) − n * mean(g * n)) / std", "Divided by std, as forward did."),
    },
}  # fmt: skip
RMS_NORM = {
    "forward": {
        "rms =": ("rms = √(mean(x²) + ε)", "The size of each position's numbers."),
        "n =": ("n = x / rms", "Every position gets size 1."),
        "y =": ("y = γ * n", "A learned scale for each feature."),
    },
    "backward": {
        "self.gamma.accumulate": ("dγ = Σ dy * n over the rows", "The scale serves every row: its gradients add up."),
        "dx =": ("g = γ * dy", "The gradient with respect to n."),
        "dx -=": ("g − n * mean(g * n)", "The path through the size: scaling all numbers alike changes nothing."),
        "dx /=": ("dx = (g − n * mean(g * n)) / rms", "Divided by rms, as forward did."),
    },
}
EMBEDDING = {
    "forward": {
        "y =": ("y = E[ids]", "For each token its row of the table."),
        "y *=": ("y = √D E[ids]", "Scaled, so that the positions added next do not drown it."),
    },
    "backward": {
        "add_rows": ("dE[id] += √D dy", "Each token's row gathers the gradients of all places where the token stands."),
    },
}
POSITIONS = {
    "forward": {"y =": ("y = x + PE", "Each position adds a pattern of sines and cosines of its own.")},
    "backward": {"return": ("dx = dy", "A sum hands its gradient on as it is.")},
}
LEARNED_POSITIONS = {
    "forward": {"y =": ("y = x + P", "Each position adds a learned row of its own.")},
    "backward": {
        "self.weight.grad": ("dP = Σ dy over the sentences", "Each row serves its position in every sentence."),
        "return": ("dx = dy", "A sum hands its gradient on as it is."),
    },
}
SOFTMAX = {
    "forward": {"y =": ("y = exp(x) / Σ exp(x)", "Each row becomes positive and adds up to 1.")},
    "backward": {"return": ("dx = y * (dy − Σ dy * y)", "In a row that adds up to 1, one grows as others shrink.")},
}
CROSS_ENTROPY = {
    "forward": {
        "counts =": (None, "Which tokens count: padding does not."),
        "q =": ("q", "What the model should have said: at the right token, at any other, at padding."),
        "(kept, total, score) =": ("exp(logits − max), their sum, Σ q logits", "What softmax and its logarithm need."),
        "loss = xp.log(total) - score": ("−Σ q log p", "How surprised the model is by each token; 0 is certainty."),
        "loss = loss @ scale": ("L = mean of −Σ q log p", "The mean surprise over the tokens that count."),
        "return": ("L", "The loss: one number for all."),
    },
    "backward": {
        "dlogits =": ("dlogits = (p − q) / n", "What the model said, less what was right: wrong tokens go down, the "
                      "right one goes up."),
    },
}  # fmt: skip
GELU = {
    "forward": {
        "near, kept = (x, normal_cdf(x))": ("Φ(x)", "How likely a standard normal number is to be smaller."),
        "y = x * kept": ("y = x Φ(x)", "A ReLU with a soft corner."),
        "kept = xp.tanh(kept)": ("t = tanh(√(2/π) (x + 0.044715 x³))", "A cheap stand-in for Φ: (1 + t) / 2."),
        "y *= x": ("y = x (1 + t) / 2", "A ReLU with a soft corner."),
    },
    "backward": {"slope *= dy": ("dx = dy * slope", "The slope of forward at each x.")},
}
GATED = {
    "forward": {
        "gate =": ("g = act(x W_g + b_g)", "How far each gate is open."),
        "up =": ("u = x W₁ + b₁", "What would pass if all gates were open."),
        "hidden =": ("g * u", "The gate lets parts of u through."),
    },
    "backward": {},
}
ROTARY = {
    "forward": {"y =": ("y = R x", "Each pair of features turns by an angle that grows with the position.")},
    "backward": {"return": ("dx = Rᵀ dy", "A rotation's transpose turns back.")},
}
FORMULAS = {
    "Linear": LINEAR,
    "OutputProjection": {
        "forward": {
            "logits_rows =": ("x Eᵀ", "Each token's score: how well its row of E matches the vector."),
            "logits_rows +=": ("logits = x Eᵀ + b", "And one number a token, whatever the vector."),
        },
        "backward": {
            "self.weight.accumulate": (
                "dE = dlogitsᵀ x",
                "Each token's row gathers the vectors that should score it more.",
            ),
            "self.bias.accumulate": ("db = Σ dy over the rows", "The bias serves every row, so its gradients add up."),
            "return": ("dx = dlogits E", "Each vector moves towards the tokens that should score higher."),
        },
    },
    "ScaledDotProductAttention": ATTENTION,
    "MultiHeadAttention": {
        "forward": {
            "q =": ("q = split(query W_Q)", "Projected, then cut into heads: each sees K of the D features."),
            "k =": ("k = split(key W_K)", "Projected, then cut into heads."),
            "v =": ("v = split(value W_V)", "Projected, then cut into heads."),
            "heads =": ("head = attention(q, k, v)", "All heads at once, side by side."),
            "return": ("y = concat(head₁ .. head_H) W_O", "The heads next to each other again, mixed by W_O."),
        },
        "backward": {
            "dheads =": ("dheads = split(dy W_Oᵀ)", "Back through the last projection, then cut into heads."),
            "dquery =": ("dquery = merge(dq) W_Qᵀ", "The heads next to each other again, back through W_Q."),
            "dkey =": ("dkey = merge(dk) W_Kᵀ", "The heads next to each other again, back through W_K."),
            "dvalue =": ("dvalue = merge(dv) W_Vᵀ", "The heads next to each other again, back through W_V."),
        },
    },
    "LayerNorm": LAYER_NORM,
    "RMSNorm": RMS_NORM,
    "Embedding": EMBEDDING,
    "SinusoidalPositions": POSITIONS,
    "LearnedPositions": LEARNED_POSITIONS,
    "Softmax": SOFTMAX,
    "CrossEntropy": CROSS_ENTROPY,
    "GELU": GELU,
    "GatedFeedForward": GATED,
    "RotaryPositions": ROTARY,
    "FeedForward": {
        "forward": {
            "hidden =": ("hidden = x W₁ + b₁", "More room, F numbers, for what a position makes of itself."),
            "return": ("y = act(hidden) W₂ + b₂", "The same small network at every position."),
        },
        "backward": {
            "dhidden =": ("dhidden = act′(h) * (dy W₂ᵀ)", "Back through the second map and the activation."),
            "return": ("dx = dhidden W₁ᵀ", "Back through the first map."),
        },
    },
    "ReLU": {
        "forward": {"y =": ("y = max(0, x)", "Negative numbers become 0.")},
        "backward": {"return": ("dx = dy where x > 0, else 0", "Where forward cut off, nothing comes back.")},
    },
    "Sigmoid": {
        "forward": {"y =": ("y = 1 / (1 + exp(−x))", "A soft switch between 0 and 1.")},
        "backward": {"return": ("dx = dy * y * (1 − y)", "The slope, steepest in the middle.")},
    },
    "Tanh": {
        "forward": {"y =": ("y = tanh(x)", "Squeezed between −1 and 1.")},
        "backward": {"return": ("dx = dy * (1 − y²)", "The slope, steepest at 0.")},
    },
    "SiLU": {
        "forward": {"y =": ("y = x / (1 + exp(−x))", "A ReLU with a soft corner.")},
        "backward": {"slope *=": ("dx = dy * s * (1 + x (1 − s))", "The product rule for x s, a factor at a time.")},
    },
    "Dropout": {
        "forward": {"y =": ("y = x * M", "In training M drops some numbers at random; otherwise y = x.")},
        "backward": {"return": ("dx = dy * M", "What was dropped gets no gradient.")},
    },
}


def formula_of(kind, method, source):
    """Return (formula, words) of a statement; (None, words) where only its form is known, (None, "") where nothing."""
    table = FORMULAS.get(kind, {}).get("backward" if method == "backward" else "forward", {})
    statement = parse(source)
    if statement is None:
        return None, ""
    if is_reshape(statement):
        return None, "The same numbers in the same order, in another shape."
    for key in (ast.unparse(statement), beginning(statement)):
        if key in table:
            return table[key]
    return None, _words(statement, method == "backward")


def _words(statement, backward):
    """What can be said of a statement by its form alone."""
    if calls(statement, "real_tokens"):
        return "True at real tokens, False at padding."
    if calls(statement, "saved"):
        return "What forward kept for this moment."
    if _is_sum(statement, backward):
        if backward:
            return "A value that was used more than once gets the sum of its gradients."
        return "The residual path: what came in is added to what the sub-layer made of it."
    layer = _layer_called(statement)
    if layer:
        return f"The gradient that comes back through {layer}." if backward else f"What {layer} makes of it."
    return ""


def parse(source):
    """Return the one statement of a source line, or None."""
    try:
        return ast.parse(source.strip()).body[0]
    except (SyntaxError, IndexError):
        return None


def beginning(statement):
    """Return what a statement is found by: "scores =", "y +=", "return", "self.weight.accumulate"."""
    if isinstance(statement, ast.Assign):
        return f"{ast.unparse(statement.targets[0])} ="
    if isinstance(statement, ast.AugAssign):
        target, sign = statement.target, ast.unparse(statement).split("=")[0].split()[-1]
        name = ast.unparse(target.value if isinstance(target, ast.Subscript) else target)
        return name if isinstance(target, ast.Subscript) else f"{name} {sign}="
    if isinstance(statement, ast.Return):
        return "return"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func)
    return ""


def is_reshape(statement):
    """Say whether a statement changes nothing but shapes (and perhaps a type)."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Assign, ast.Return)):
        return False
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    shapes = [getattr(v, "attr", "") == "shape" for v in values]
    return not all(shapes) and all(a or _reshapes(v) for a, v in zip(shapes, values, strict=True))


def _reshapes(value):
    while isinstance(value, ast.Call):
        name = getattr(value.func, "attr", getattr(value.func, "id", ""))
        if name == "reshape":
            return isinstance(value.func.value, ast.Name)
        if name == "astype":
            value = value.func.value
        elif name == "widen" and value.args:
            value = value.args[0]
        else:
            return False
    return False


def calls(statement, name):
    """Say whether a function or method of that name is what the statement calls last."""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and name in (getattr(value.func, "attr", ""), getattr(value.func, "id", ""))


def _is_sum(statement, backward):
    """Say whether a statement adds the result of a sub-layer to something, or gradients to each other."""
    value = getattr(statement, "value", None)
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    sums = [v for v in values if isinstance(v, ast.BinOp) and isinstance(v.op, ast.Add)]
    names = all(isinstance(n, (ast.Name, ast.BinOp, ast.Add, ast.Load)) for v in sums for n in ast.walk(v))
    return bool(sums) and ((backward and names) or any(_is_layer(n) for v in sums for n in ast.walk(v)))


def _is_layer(node):
    """Say whether a node is the call of a sub-layer: self.norm1(x), self.norm1.backward(dy)."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")


def _layer_called(statement):
    """The name of the sub-layer whose call is all of a statement's value."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.IfExp):
        value = value.orelse
    if not isinstance(value, ast.Call):
        return ""
    name = ast.unparse(value.func).removesuffix(".backward").removesuffix(".forward")
    if name == "layer":
        return "the layer"
    return name.removeprefix("self.") if name.startswith("self.") and name.count(".") == 1 else ""
