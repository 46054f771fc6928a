"""The GRU: a state that each step mixes with a new proposal, as far as its gates let it."""

from ..backend import array_module
from .activations import sigmoid
from .recurrent import Recurrent


class GRU(Recurrent):
    """With u = x_t W_ih + b_ih and w = h_{t-1} W_hh + b_hh, each in three parts named r, z, n:

        r = sigmoid(u_r + w_r),  z = sigmoid(u_z + w_z),  n = tanh(u_n + r * w_n),
        h_t = (1 - z) * n + z * h_{t-1},  y_t = h_t

    Reset gate, update gate, new content: in torch's order, with r applied after the product, as in torch and cuDNN.
    Shapes: x (B, T, d_in), h0 (B, M) or None for zeros, y (B, T, M), last state (B, M), M = d_hidden.
    mask (B, T) is True at real tokens: the others leave the state as it is and give y_t = 0.
    Backward goes through time from the end. With dh the gradient that arrives at h_t from the step after, plus dy_t:
        du_n = dh * (1 - z) * (1 - n²),  dw_n = du_n * r,
        du_r = dw_r = du_n * w_n * r (1 - r),  du_z = dw_z = dh * (h_{t-1} - n) * z (1 - z),
        for the step before: dh = dh * z + dw W_hhᵀ,
        dx_t = du W_ihᵀ,  dW_ih = sum of x_tᵀ du,  db_ih = sum of du,  dW_hh = sum of h_{t-1}ᵀ dw,  db_hh = sum of dw.
    Raises ValueError for shapes and dtypes that do not fit.
    Source: Cho et al. 2014; formulas as in torch.nn.GRU. Derivation: docs/derivations/gru.md.
    """

    n_gates = 3

    def forward(self, x, h0=None, mask=None):
        """x (B, T, d_in), h0 (B, M) -> y (B, T, M) and the last state (B, M)."""
        self.check_inputs(x, mask, h0=h0)
        xp, m = array_module(x), self.d_hidden
        rows, gates = self.project(x)  # (T*B, d_in), (T, B, 3M): u, overwritten by r, z and n
        real = self.mask_steps(mask)
        states = self.new_states(x, h0)  # (T + 1, B, M)
        w_n = xp.empty_like(states[1:])  # (T, B, M)
        for t, u in enumerate(gates):
            w = states[t] @ self.weight_hh.data  # (B, 3M)
            if self.bias_hh is not None:
                w += self.bias_hh.data
            w_n[t] = w[:, 2 * m :]
            u[:, : 2 * m] = sigmoid(u[:, : 2 * m] + w[:, : 2 * m])
            r, z, n = self._parts(u)
            n += r * w_n[t]
            xp.tanh(n, out=n)
            h = n + z * (states[t] - n)
            states[t + 1] = h if real is None else xp.where(real[t], h, states[t])
        y, h = self.outputs(states, real)
        self.save_for_backward(rows, states, gates, w_n, real, output=y)
        return y, h

    def backward(self, dy, dh=None):
        """dy (B, T, M), dh (B, M) or None for zeros -> dx (B, T, d_in), dh0 (B, M); adds dW and db."""
        self.check_states(dy, dh=dh)
        rows, states, gates, w_n, real = self.saved(dy)
        xp = array_module(dy)
        dy = self.time_first(dy)  # (T, B, M)
        dgates, dgates_hh = xp.empty_like(gates), xp.empty_like(gates)  # du, dw
        dh = xp.zeros_like(states[0]) if dh is None else dh
        for t in reversed(range(len(dy))):
            r, z, n = self._parts(gates[t])
            du_r, du_z, du_n = self._parts(dgates[t])
            dh_t = dh + dy[t]
            du_n[...] = dh_t * (1 - z) * (1 - n * n)
            du_r[...] = du_n * w_n[t] * r * (1 - r)
            du_z[...] = dh_t * (states[t] - n) * z * (1 - z)
            if real is not None:
                dgates[t] *= real[t]
            dgates_hh[t] = dgates[t]
            self._parts(dgates_hh[t])[2][...] = du_n * r
            dh_before = dh_t * z + dgates_hh[t] @ self.weight_hh.data.T
            dh = dh_before if real is None else xp.where(real[t], dh_before, dh)
        return self.finish_backward(rows, states, dgates, dgates_hh), dh

    def _parts(self, a):
        """Views of the three parts of a (B, 3M)."""
        m = self.d_hidden
        return a[:, :m], a[:, m : 2 * m], a[:, 2 * m :]
