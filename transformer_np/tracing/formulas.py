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
        "ddropped =": ("d(P * M) = dy vᵀ", "A weight should grow if the value it lets in agrees with what the loss wants."),
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
        "self.gamma.accumulate": ("dγ = Σ dy * n over the rows", "The scale serves every row, so its gradients add up."),
        "self.beta.accumulate": ("dβ = Σ dy over the rows", "The shift serves every row, so its gradients add up."),
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
        "self.gamma.accumulate": ("dγ = Σ dy * n over the rows", "The scale serves every row, so its gradients add up."),
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
        "loss =": ("−log p at the right token", "How surprised the model is by each token; 0 would be certainty."),
        "return": ("L = mean of −log p", "The loss: the mean surprise over the tokens that count."),
    },
    "backward": {
        "return": ("dlogits = (p − q) / n", "What the model said, less what was right: wrong tokens go down, the right "
                   "one goes up."),
    },
}  # fmt: skip
FORMULAS = {
    "Linear": LINEAR,
    "OutputProjection": {
        "forward": {
            "logits =": ("x Eᵀ", "Each token's score: how well its row of E matches the vector."),
            "logits +=": ("logits = x Eᵀ + b", "And one number a token, whatever the vector."),
        },
        "backward": {
            "self.weight.accumulate": ("dE = dyᵀ x", "Each token's row gathers the vectors that should score it higher."),
            "self.bias.accumulate": ("db = Σ dy over the rows", "The bias serves every row, so its gradients add up."),
            "return": ("dx = dy E", "Each vector moves towards the tokens that should score higher."),
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
    "FeedForward": {
        "forward": {"return": ("y = act(x W₁ + b₁) W₂ + b₂", "The same small network at every position.")},
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
    """Return (formula, words) of a statement; (None, words) where only its nature is known, (None, "") where nothing."""
    table = FORMULAS.get(kind, {}).get("backward" if method == "backward" else "forward", {})
    statement = parse(source)
    if statement is None:
        return None, ""
    if is_reshape(statement):
        return None, "The same numbers in the same order, in another shape."
    start = beginning(statement)
    if start in table:
        return table[start]
    if calls(statement, "saved"):
        return None, "What forward kept for this moment."
    if calls(statement, "real_tokens"):
        return None, "True at real tokens, False at padding."
    if _is_sum(statement):
        backward = method == "backward"
        return None, (
            "A value that was used more than once gets the sum of its gradients."
            if backward
            else "The residual path: what came in is added to what the sub-layer made of it."
        )
    return None, ""


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
    """Say whether a statement changes nothing but a shape (and perhaps a type)."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Assign, ast.Return)) or not isinstance(value, ast.Call):
        return False
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


def _is_sum(statement):
    """Say whether the statement adds the result of a sub-layer to something."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add) and "self." in ast.unparse(value)
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and "self." in ast.unparse(value)
