"""What the statements of the recurrent layers, of additive attention and of convolution say: see formulas.py."""

PASSED_ON = "Where there is no token, the gradient of the later step goes past it unchanged."
REAL = "Where there is no token, the state stays as it was: nothing comes back from here."
A_STEP = "The next step of time: what the input adds, computed before."
GATES = ("x W_ih + b_ih + b_hh", "The second bias too is the same for every step.")
CELL = {
    "real =": ("True at tokens", "Padding changes no state."),
    "rows, gates =": ("x W_ih + b_ih", "The part that needs no earlier state, for all steps at once."),
    "y, h =": ("y_t = h_t, and the last state", "What the layer shows is its state after each step."),
    "states[t + 1] =": ("h_t", "Kept: the next step starts from here."),
}
SHARED = {
    "time_first": {
        "x =": ("x, time first", "One step of time after the other: that is the order in which it works."),
        "return": ("x, time first", "One step of time after the other; from the end where it reads backwards."),
    },
    "mask_steps": {"return": ("True at tokens, time first", "Padding changes no state.")},
    "new_states": {"states[0] =": ("h_0", "The state to begin with: 0 unless one was given.")},
    "outputs": {
        "y =": ("y_t = h_t", "The state after each step; 0 where there is no token."),
        "return": ("y, and the last state", "Sentence by sentence again, and where the reading ended."),
    },
    "project": {
        "rows =": ("x, a row for each step", "Time first, so that a step is one piece."),
        "gates =": ("x W_ih", "The part that needs no earlier state: one product for all steps."),
        "gates +=": ("x W_ih + b_ih", "The bias: the same for every step."),
        "return": ("x W_ih + b_ih, step by step", "Cut into the steps again."),
    },
    "check_states": {"for name, state in": (None, "A look at what was given: does its shape fit?")},
    "finish_backward": {
        "dgates =": ("da, a row for each step", "All steps one below the other."),
        "all_dw =": ("dw, a row for each step", "The gradient of h W_hh + b_hh, all steps one below the other."),
        "self.weight_ih.accumulate": (
            "dW_ih = Σ x_tᵀ da_t",
            "The same weights served every step: their gradients add up.",
        ),
        "self.weight_hh.accumulate": ("dW_hh = Σ h_{t−1}ᵀ da_t", "Likewise, with the state before each step."),
        "self.bias_ih.accumulate": ("db_ih = Σ da_t", "A bias served every step: its gradients add up."),
        "self.bias_hh.accumulate": ("db_hh = Σ da_t", "Likewise."),
        "return": ("dx_t = da_t W_ihᵀ", "Each input gets its gradient back through the weights, all steps at once."),
    },
}
RNN = {
    "forward": CELL | {
        "gates +=": GATES,
        "for t, a in": ("a_t = x_t W_ih + b", A_STEP),
        "a +=": ("a_t = x_t W_ih + h_{t−1} W_hh + b", "And what the state before adds: so the past comes in."),
        "h_t =": ("h_t = act(a_t)", "The new state."),
    },
    "backward": {
        "dy =": ("dy, time first", "One step of time after the other."),
        "from_later =": ("dh from the later step", PASSED_ON),
        "dh_t = from_later + dy[t]": ("dh_t = dy_t + da_{t+1} W_hhᵀ", "It was shown, and the next step used it."),
        "dh_t *= real[t]": ("dh_t, 0 at padding", REAL),
        "h_t =": ("h_t", "The state that forward reached at this step."),
        "slope =": ("act′(a_t): 1 − h_t², or h_t > 0", "The slope of the activation, from its own result."),
        "da =": ("da_t = dh_t * act′(a_t)", "Back through the activation."),
        "passed_on =": ("da_t W_hhᵀ", "To the state before: the same matrix at every step, so it shrinks or grows."),
        "dh0 =": ("dh_0", "What arrives at the state that it began with."),
        "return": ("dx and dh_0", "The parameters' gradients, and those of the inputs, for all steps at once."),
    },
}  # fmt: skip
LSTM = {
    "forward": CELL | {
        "gates +=": GATES,
        "for t, a in": ("a_t = x_t W_ih + b", A_STEP),
        "a +=": ("a_t = x_t W_ih + h_{t−1} W_hh + b", "All four gates at once, side by side."),
        "i, f, g, o =": ("i, f, o = σ(a),  g = tanh(a)", "What to write, what to keep, the new content, what to show."),
        "c_t =": ("c_t = f * c_{t−1} + i * g", "The memory: some of it is kept, some new is written."),
        "h_t =": ("h_t = o * tanh(c_t)", "What is shown of the memory."),
        "cells[t + 1] =": ("c_t", "Kept: the next step starts from here."),
        "c =": ("the last c_t", "The memory at the end."),
    },
    "backward": {
        "dy =": ("dy, time first", "One step of time after the other."),
        "h_from_later =": ("dh from the later step", PASSED_ON),
        "c_from_later =": ("dc from the later step", PASSED_ON),
        "i, f, g, o =": ("i, f, g, o", "The gates, as forward left them."),
        "tanh_c =": ("k = tanh(c_t)", "Once more, from the memory that was kept."),
        "dh_t =": ("dh_t = dy_t + da_{t+1} W_hhᵀ", "The state was shown, and the next step used it."),
        "dc_t =": ("dc_t = dc_{t+1} * f_{t+1} + dh_t * o * (1 − k²)", "The memory: from the next step, and by what "
                   "was shown of it."),
        "dh_t *= real[t]": ("dh_t, 0 at padding", REAL),
        "dc_t *= real[t]": ("dc_t, 0 at padding", REAL),
        "di, df, dg, do =": ("di = dc * g,  df = dc * c_{t−1},  dg = dc * i,  do = dh * k", "Of a product, each factor "
                             "gets the other."),
        "through =": ("d σ = s (1 − s),  d tanh = 1 − g²", "Through each gate's own slope."),
        "da =": ("da_t", "The four side by side again."),
        "h_passed_on, c_passed_on =": ("da_t W_hhᵀ,  dc_t * f", "To the step before; dc passes through f alone: where "
                                       "f is near 1 it neither vanishes nor explodes."),
        "dh0, dc0 =": ("dh_0 and dc_0", "What arrives at the state that it began with."),
        "return": ("dx, dh_0 and dc_0", "The parameters' gradients, and those of the inputs, for all steps at once."),
    },
}  # fmt: skip
GRU = {
    "forward": CELL | {
        "for t, u in": ("u_t = x_t W_ih + b_ih", A_STEP),
        "w =": ("w_t = h_{t−1} W_hh", "What the state before adds, in three parts: r, z, n."),
        "w +=": ("w_t = h_{t−1} W_hh + b_hh", "With its own bias, since r is applied to the last part."),
        "r, z, u_n =": ("r, z = σ(u + w),  u_n", "How much of the past to use, how much to keep; the new content."),
        "n =": ("n = tanh(u_n + r * w_n)", "The proposal: new content, and as much of the past as r lets in."),
        "h_t =": ("h_t = (1 − z) * n + z * h_{t−1}", "Between the proposal and the state before; z says where."),
    },
    "backward": {
        "dy =": ("dy, time first", "One step of time after the other."),
        "from_later =": ("dh from the later step", PASSED_ON),
        "r, z, n =": ("r, z, n", "The gates, as forward left them."),
        "dh_t = from_later + dy[t]": ("dh_t = dy_t + dh from the later step", "The state was shown, and the next step "
                                      "read it."),
        "dh_t *= real[t]": ("dh_t, 0 at padding", REAL),
        "dn, dz =": ("dn = dh * (1 − z),  dz = dh * (h_{t−1} − n)", "Of a product, each factor gets the other."),
        "du_n =": ("du_n = dn * (1 − n²)", "Through tanh."),
        "dr =": ("dr = du_n * w_n", "r let w_n in."),
        "through =": ("du_r = dr * r (1 − r),  du_z = dz * z (1 − z)", "Through the sigmoids of both gates."),
        "du =": ("du", "The three side by side: the gradient of x W_ih + b_ih."),
        "dw =": ("dw: du_r, du_z, du_n * r", "And that of h W_hh + b_hh, where r stood before the last part."),
        "passed_on =": ("dh * z + dw W_hhᵀ", "To the state before: straight on through z, and through the weights."),
        "dh0 =": ("dh_0", "What arrives at the state that it began with."),
        "return": ("dx and dh_0", "The parameters' gradients, and those of the inputs, for all steps at once."),
    },
}  # fmt: skip
ADDITIVE_ATTENTION = {
    "forward": {
        "sums =": ("q W + k U", "Every query with every key."),
        "hidden =": ("n = tanh(q W + k U)", "A small network looks at each pair."),
        "scores =": ("scores = n · v", "And says in one number how well they match."),
        "weights =": ("P = softmax(scores)", "Each row becomes positive and adds up to 1: where this query looks."),
        "y =": ("y = P value", "Each query takes the mean of the values, weighted by where it looks."),
        "self.weights =": ("P", "Kept to be looked at."),
    },
    "backward": {
        "dvalue =": ("dvalue = Pᵀ dy", "A value was read by every query, as much as each looked at it."),
        "dweights =": ("dP = dy valueᵀ", "A weight should grow if the value it lets in is what the loss wants."),
        "dscores =": ("dscores = P * (dP − Σ dP * P)", "Through the softmax: one grows only as others shrink."),
        "self.v.accumulate": ("dv = Σ dscores n", "v served every pair: its gradients add up."),
        "hidden *=": ("n²", "On the way to tanh′ = 1 − n²."),
        "dsums = (1 - hidden) * self.v.data": ("v * (1 − n²)", "Through v and tanh, for a score that grows by 1."),
        "dsums *=": ("da = dscores v * (1 − n²)", "Times what each score wants."),
        "dquery =": ("dquery = (Σ da over the keys) Wᵀ", "A query met every key."),
        "dkey =": ("dkey = (Σ da over the queries) Uᵀ", "A key met every query."),
    },
}
CONV_1D = {
    "_neighbours": {
        "padded =": ("zeros", "Room for the sequence, and zeros around it."),
        "padded[:, self.left:self.left + length] =": ("x with zeros around", "So that the ends have neighbours too."),
        "return": ("neighbours", "For each position the inputs that its output is made of, side by side."),
    },
    "forward": {
        "x =": ("x, 0 at padding", "What is no token counts as nothing."),
        "neighbours =": ("x_{t−left} .. x_{t+right}", "For each position its neighbours side by side."),
        "y =": ("y_t = Σ_j x_{t+j−left} W_j", "One product for the k matrices, one for each neighbour."),
        "y +=": ("y_t = Σ_j x_{t+j−left} W_j + b", "The bias: the same for every position."),
    },
    "backward": {
        "neighbours =": ("x_{t−left} .. x_{t+right}", "Once more, as in forward."),
        "self.weight.accumulate": ("dW_j = Σ_t x_{t+j−left}ᵀ dy_t", "The weights served every position: the sum."),
        "self.bias.accumulate": ("db = Σ dy over the positions", "The bias served every position: the sum."),
        "dneighbours =": ("dy Wᵀ", "What each output wants of each of its neighbours."),
        "gathered =": ("zeros", "Room for the sum, with the ends outside of the sequence."),
        "gathered": ("dx_u = Σ_j dy_{u−j+left} W_jᵀ", "A position was a neighbour of k outputs: the sum."),
        "dx =": ("dx", "Without the ends."),
        "return": ("dx", "Where there is no token, 0."),
    },
}
CONV_BLOCK = {
    "forward": {
        "both =": ("[a, g] = conv(x)", "Twice the width: one half will be the gate of the other."),
        "a, gate =": ("a,  σ(g)", "The gate is between 0 and 1."),
        "h =": ("h = x + a * σ(g)", "What passes the gate joins the residual path."),
        "y =": ("y = h / √2", "The variance of the sum stays what it was."),
    },
    "backward": {
        "dh =": ("dh = dy / √2", "The same factor."),
        "dboth =": ("da = dh * σ(g),  dg = dh * a * σ′(g)", "Of a product, each factor gets the other."),
    },
}
STACK = {
    "forward": {
        "results =": ("y and the last states", "Of each direction that reads."),
        "y, *after =": ("[y→, y←]", "Both directions side by side."),
        "ends +=": ("the last states so far", "The decoder will begin with them."),
        "last =": ("the last states of all layers", "All that is handed on without attention."),
    },
    "backward": {
        "of_inner, *before =": ("dx of each direction", "And the gradients of the states that they began with."),
        "starts =": ("d of the first states", "Layer by layer, from the last."),
        "dinner =": ("dx = Σ over the directions", "Both read the same input: their gradients add up."),
        "dy =": ("dy of the layer below", "On through the dropout between them, if there is a layer below."),
        "return": ("dx, and d of the first states", "On to what the stack read."),
    },
}
SEQ2SEQ_RNN = {
    "forward": {
        "memory, src_mask =": ("the encoder's last states, and its outputs", "All that the decoder will know.")
    },
    "encode": {"vectors, states =": ("h_s of the encoder, and the last", "One for each source token.")},
    "decode": {
        "states, vectors =": ("the encoder's last states, its outputs", "To begin with, and to look at."),
        "decoded, states =": ("h_t of the decoder", "It begins where the encoder ended."),
        "context =": ("c_t", "What each state of the decoder found when it looked back."),
        "both =": ("[h_t, c_t]", "The state, and what it found, side by side."),
    },
    "backward": {
        "dboth =": ("d[h_t, c_t]", "Back through tanh and the linear map."),
        "dcontext =": ("dc_t", "The half that was found by looking back."),
        "ddecoded, dvectors =": (
            "dh_t = d + dquery,  dh_s = dkey + dvalue",
            "Used more than once: the gradients add up.",
        ),
    },
}
RECURRENT = {
    "Recurrent": SHARED,
    "RNN": RNN,
    "LSTM": LSTM,
    "GRU": GRU,
    "AdditiveAttention": ADDITIVE_ATTENTION,
    "Conv1D": CONV_1D,
    "ConvBlock": CONV_BLOCK,
    "RecurrentStack": STACK,
    "Seq2SeqRNN": SEQ2SEQ_RNN,
}
