"""What the statements of the layers and of the loss say: see formulas.py for the form of this table."""

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
        "dbias =": ("dbias = dscores", "It was added to the scores; where it served several, the sum."),
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
    "_target_distribution": {
        "q_other =": ("q = smoothing / V", "What every wrong token should get: nothing, without label smoothing."),
    },
    "forward": {
        "counts =": ("which tokens count", "Padding does not: what the model says there is of no interest."),
        "counts, targets =": ("all tokens in one row", "The sentences one after another; padding has no say."),
        "rows =": ("logits, one row a token", "The same numbers in the same order, in another shape."),
        "scale =": ("1/n where the token counts, else 0", "n tokens count: each has 1/n of a say in the mean."),
        "q =": ("q", "What the model should have said: at the right token, at any other, at padding."),
        "kept, total, score =": ("exp(logits − max), their sum, Σ q logits", "What softmax and its logarithm need."),
        "loss = xp.log(total) - score": ("−Σ q log p", "How surprised the model is by each token; 0 is certainty."),
        "loss = loss @ scale": ("L = mean of −Σ q log p", "The mean surprise over the tokens that count."),
        "return": ("L", "The loss: one number for all."),
    },
    "backward": {
        "dlogits =": ("dlogits = (p − q) / n", "What the model said, less what was right: wrong tokens go down, the "
                      "right one goes up."),
        "return": ("dlogits", "In the shape of the logits."),
    },
}  # fmt: skip
GELU = {
    "forward": {
        "near, kept = (x, normal_cdf(x))": ("Φ(x)", "How likely a standard normal number is to be smaller."),
        "y = x * kept": ("y = x Φ(x)", "A ReLU with a soft corner."),
        "near =": ("x, kept within bounds", "Far out nothing changes any more, but the cube would overflow."),
        "kept = near * near": ("x²", "On the way to √(2/π) (x + 0.044715 x³), a factor at a time."),
        "kept *= TANH_SCALE * TANH_CUBE": ("√(2/π) · 0.044715 x²", "The factor of the cubic term."),
        "kept +=": ("√(2/π) (1 + 0.044715 x²)", "And that of the linear one."),
        "kept *= near": ("√(2/π) (x + 0.044715 x³)", "Times x: what goes into tanh."),
        "kept = xp.tanh(kept)": ("t = tanh(√(2/π) (x + 0.044715 x³))", "A cheap stand-in for Φ: (1 + t) / 2."),
        "y = kept + 1": ("1 + t", "From −1 .. 1 to 0 .. 2."),
        "y *= 0.5": ("(1 + t) / 2", "From 0 to 1, as Φ."),
        "y *= x": ("y = x (1 + t) / 2", "A ReLU with a soft corner."),
    },
    "backward": {
        "x, kept =": ("x and Φ(x), or t", "What forward kept for this moment."),
        "slope = normal_pdf(x)": ("φ(x) = exp(−x²/2) / √(2π)", "The slope of Φ."),
        "slope *= x": ("x φ(x), or on the way to t′", "The product rule for x Φ(x): x times the slope of Φ."),
        "slope += kept": ("Φ(x) + x φ(x), or t + x t′", "And Φ itself: together the slope of forward."),
        "slope = x * x": ("x²", "On the way to the slope of t, a factor at a time."),
        "slope *= 3 * TANH_SCALE * TANH_CUBE": ("√(2/π) · 3 · 0.044715 x²", "The slope of the cubic term."),
        "slope += TANH_SCALE": ("√(2/π) (1 + 3 · 0.044715 x²)", "And that of the linear one."),
        "slope *= 1 - kept * kept": ("x t′ = x (1 − t²) √(2/π) (1 + 3 · 0.044715 x²)", "The slope of tanh is 1 − t²."),
        "slope += 1": ("1 + t + x t′", "The product rule for x (1 + t)."),
        "slope *= 0.5": ("(1 + t + x t′) / 2", "The slope of forward at each x."),
        "slope *= dy": ("dx = dy * slope", "The slope of forward at each x."),
        "return": ("dx", "In the type of dy."),
    },
}
GATED = {
    "forward": {
        "gate =": ("g = act(x W_g + b_g)", "How far each gate is open."),
        "up =": ("u = x W₁ + b₁", "What would pass if all gates were open."),
        "hidden =": ("g * u", "The gate lets parts of u through."),
        "y =": ("y = (g * u) W₂ + b₂", "Back to the width of the model."),
    },
    "backward": {
        "dhidden =": ("d(g * u) = dy W₂ᵀ", "Back through the last map."),
        "dgate, dup =": ("dg = d(g * u) * u,  du = d(g * u) * g", "Of a product, each factor gets the other."),
        "dx =": ("(dg * act′) W_gᵀ", "Back through the gate."),
        "dx +=": ("dx = (dg * act′) W_gᵀ + du W₁ᵀ", "x went into both, so both gradients add up."),
    },
}
ROTARY = {
    "_grow_table": {
        "angles =": (
            "angle = m base^(−2i/K)",
            "Position m (row) times the speed of pair i (column): the first is fast.",
        ),
    },
    "forward": {
        "cos, sin =": ("cos and sin of the angles", "Of the positions that are here."),
        "y =": ("y = R x", "Each pair of features turns by an angle that grows with the position."),
    },
    "backward": {"return": ("dx = Rᵀ dy", "A rotation's transpose turns back.")},
}
LAYERS = {
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
            "keys, values =": ("k and v, repeated", "One head of keys and values serves several heads of queries."),
            "heads =": ("head = attention(q, k, v)", "All heads at once, side by side."),
            "return": ("y = concat(head₁ .. head_H) W_O", "The heads next to each other again, mixed by W_O."),
        },
        "backward": {
            "dheads =": ("dheads = split(dy W_Oᵀ)", "Back through the last projection, then cut into heads."),
            "dk, dv =": ("dk = Σ, dv = Σ over the heads served", "Keys and values that several heads read."),
            "dq, dk =": ("dq = Rᵀ dq,  dk = Rᵀ dk", "Queries and keys were turned: their gradients turn back."),
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
        "forward": {
            "s =": ("s = 1 / (1 + exp(−x))", "A soft switch between 0 and 1."),
            "y =": ("y = x s = x / (1 + exp(−x))", "A ReLU with a soft corner."),
        },
        "backward": {
            "slope = 1 - s": ("1 − s", "The slope of the switch is s (1 − s)."),
            "slope *= x": ("x (1 − s)", "The product rule for x s, a factor at a time."),
            "slope += 1": ("1 + x (1 − s)", "And the switch itself, divided by s."),
            "slope *= s": ("s (1 + x (1 − s))", "The slope of forward at each x."),
            "slope *= dy": ("dx = dy * s * (1 + x (1 − s))", "Times the gradient that arrives."),
        },
    },
    "Dropout": {
        "forward": {"y =": ("y = x * M", "In training M drops some numbers at random; otherwise y = x.")},
        "backward": {"return": ("dx = dy * M", "What was dropped gets no gradient.")},
    },
}
