"""The LSTM: a state with a memory cell beside it, and gates that decide what is kept, written and shown."""

from ..backend import array_module, where
from .activations import sigmoid
from .recurrent import Recurrent


def open_gates(parts):
    """Put i, f and o through the sigmoid and g through tanh, in place; return all four."""
    i, f, g, o = parts
    for gate in (i, f, o):
        gate[...] = sigmoid(gate)
    array_module(g).tanh(g, out=g)
    return i, f, g, o


class LSTM(Recurrent):
    """i, f, g, o = the four parts of x_t W_ih + b_ih + h_{t-1} W_hh + b_hh,  all but g through the sigmoid, g through
    tanh;  c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t),  y_t = h_t.

    Input gate, forget gate, new content, output gate: in torch's order.
    Shapes: x (B, T, d_in), h0 and c0 (B, M) or None for zeros, y (B, T, M), last h and c (B, M), M = d_hidden.
    mask (B, T) is True at real tokens: the others leave h and c as they are and give y_t = 0.
    Backward goes through time from the end. With dh and dc the gradients that arrive at h_t and c_t from the step
    after, and k = tanh(c_t):
        dh += dy_t,  do = dh * k,  dc += dh * o * (1 - k²),  di = dc * g,  df = dc * c_{t-1},  dg = dc * i,
        through each gate: da = d times s (1 - s) for a sigmoid s, times 1 - g² for g,
        for the step before: dc = dc * f,  dh = da W_hhᵀ,
        dx_t = da W_ihᵀ,  dW_ih = sum of x_tᵀ da,  dW_hh = sum of h_{t-1}ᵀ da,  db_ih = db_hh = sum of da.
    dc passes from step to step through f alone: where f is near 1 it neither vanishes nor explodes.
    Raises ValueError for shapes and dtypes that do not fit.
    Source: Hochreiter and Schmidhuber 1997, forget gate: Gers et al. 2000; formulas as in torch.nn.LSTM.
    Derivation: docs/derivations/lstm.md.
    """

    n_gates = 4

    def forward(self, x, h0=None, c0=None, mask=None):
        """x (B, T, d_in), h0 and c0 (B, M) -> y (B, T, M), and the last h (B, M) and c (B, M)."""
        self.check_inputs(x, mask, h0=h0, c0=c0)
        xp = array_module(x)
        rows, gates = self.project(x)  # (T*B, d_in), (T, B, 4M)
        if self.bias_hh is not None:
            gates += self.bias_hh.data
        real = self.mask_steps(mask)
        states, cells = self.new_states(x, h0), self.new_states(x, c0)  # (T + 1, B, M)
        for t, a in enumerate(gates):
            a += states[t] @ self.weight_hh.data  # (B, 4M)
            i, f, g, o = open_gates(self._parts(a))
            c_t = f * cells[t] + i * g
            h_t = o * xp.tanh(c_t)
            cells[t + 1] = c_t if real is None else where(real[t], c_t, cells[t])
            states[t + 1] = h_t if real is None else where(real[t], h_t, states[t])
        y, h = self.outputs(states, real)
        c = cells[-1].copy()
        self.save_for_backward(rows, states, cells, gates, real, output=y)
        return y, h, c

    def backward(self, dy, dh=None, dc=None):
        """dy (B, T, M), dh and dc (B, M) or None -> dx (B, T, d_in), dh0 (B, M), dc0 (B, M); adds dW and db."""
        self.check_states(dy, dh=dh, dc=dc)
        rows, states, cells, gates, real = self.saved(dy)
        xp = array_module(dy)
        dy = self.time_first(dy)  # (T, B, M)
        dgates = xp.empty_like(gates)
        h_from_later = xp.zeros_like(states[0]) if dh is None else dh
        c_from_later = xp.zeros_like(states[0]) if dc is None else dc
        for t in reversed(range(len(dy))):
            i, f, g, o = self._parts(gates[t])
            tanh_c = xp.tanh(cells[t + 1])
            dh_t = h_from_later + dy[t]
            dc_t = c_from_later + dh_t * o * (1 - tanh_c * tanh_c)
            if real is not None:
                dh_t *= real[t]
                dc_t *= real[t]
            di, df, dg, do = dc_t * g, dc_t * cells[t], dc_t * i, dh_t * tanh_c
            through = (di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), do * o * (1 - o))
            da = xp.concatenate(through, axis=-1, out=dgates[t])  # (B, 4M)
            h_passed_on, c_passed_on = da @ self.weight_hh.data.T, dc_t * f
            h_from_later = h_passed_on if real is None else where(real[t], h_passed_on, h_from_later)
            c_from_later = c_passed_on if real is None else where(real[t], c_passed_on, c_from_later)
        dh0, dc0 = (d.astype(states.dtype, copy=False) for d in (h_from_later, c_from_later))
        return self.finish_backward(rows, states, dgates), dh0, dc0

    def _parts(self, a):
        """Views of the four parts of a (B, 4M)."""
        m = self.d_hidden
        return a[:, :m], a[:, m : 2 * m], a[:, 2 * m : 3 * m], a[:, 3 * m :]
