"""The plain recurrent layer (Elman): a state that each step mixes with the next input."""

from ..backend import array_module, where
from ..checks import check_choice
from .recurrent import Recurrent


class RNN(Recurrent):
    """h_t = act(x_t W_ih + b_ih + h_{t-1} W_hh + b_hh),  y_t = h_t,  act tanh or ReLU.

    Shapes: x (B, T, d_in), h0 (B, M) or None for zeros, y (B, T, M), last state (B, M), M = d_hidden.
    mask (B, T) is True at real tokens: the others leave the state as it is and give y_t = 0, so that with padding, at
    either end, the last state is the one after the last real token.
    Backward goes through time from the end. With a_t what act is applied to, and dh the gradient that arrives at h_t
    from the step after:
        da_t = (dh + dy_t) * act'(a_t),  dh for the step before = da_t W_hhᵀ,
        dx_t = da_t W_ihᵀ,  dW_ih = sum of x_tᵀ da_t,  dW_hh = sum of h_{t-1}ᵀ da_t,  db_ih = db_hh = sum of da_t.
    tanh'(a) = 1 - h², ReLU'(a) = 1 where h > 0.
    Raises ValueError for shapes, dtypes and options that do not fit.
    Source: Elman 1990; formulas as in torch.nn.RNN. Derivation: docs/derivations/rnn.md.
    """

    def __init__(self, d_in, d_hidden, activation="tanh", bias=True, reverse=False, *, seed=None, dtype="float32"):
        super().__init__(d_in, d_hidden, bias, reverse, seed=seed, dtype=dtype)
        check_choice(self, "activation", activation, ("tanh", "relu"))
        self.activation = activation

    def forward(self, x, h0=None, mask=None):
        """x (B, T, d_in), h0 (B, M) -> y (B, T, M) and the last state (B, M)."""
        self.check_inputs(x, mask, h0=h0)
        xp = array_module(x)
        rows, gates = self.project(x)  # (T*B, d_in), (T, B, M)
        if self.bias_hh is not None:
            gates += self.bias_hh.data
        real = self.mask_steps(mask)
        states = self.new_states(x, h0)  # (T + 1, B, M)
        for t, a in enumerate(gates):
            a += states[t] @ self.weight_hh.data
            h_t = xp.tanh(a, out=a) if self.activation == "tanh" else xp.maximum(a, 0, out=a)
            states[t + 1] = h_t if real is None else where(real[t], h_t, states[t])
        y, h = self.outputs(states, real)
        self.save_for_backward(rows, states, real, output=y)
        return y, h

    def backward(self, dy, dh=None):
        """dy (B, T, M), dh (B, M) or None for zeros -> dx (B, T, d_in), dh0 (B, M); adds dW and db."""
        self.check_states(dy, dh=dh)
        rows, states, real = self.saved(dy)
        xp = array_module(dy)
        dy = self.time_first(dy)  # (T, B, M)
        dgates = xp.empty(dy.shape, dy.dtype)
        from_later = xp.zeros_like(states[0]) if dh is None else dh
        for t in reversed(range(len(dy))):
            dh_t = from_later + dy[t]
            if real is not None:
                dh_t *= real[t]
            h_t = states[t + 1]
            slope = 1 - h_t * h_t if self.activation == "tanh" else h_t > 0
            da = dh_t * slope
            dgates[t] = da
            passed_on = da @ self.weight_hh.data.T
            from_later = passed_on if real is None else where(real[t], passed_on, from_later)
        dh0 = from_later.astype(states.dtype, copy=False)
        return self.finish_backward(rows, states, dgates), dh0
