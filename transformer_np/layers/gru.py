"""The GRU: a state that each step mixes with a new proposal, as far as its gates let it."""

from ..backend import array_module, where
from .activations import sigmoid
from .recurrent import Recurrent


def open_gates(u, w, width):
    """Turn the first `width` columns of u, which are u_r and u_z, into r and z, in place."""
    u[:, :width] = sigmoid(u[:, :width] + w[:, :width])


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
            open_gates(u, w, 2 * m)
            r, z, u_n = self._parts(u)
            n = xp.tanh(u_n + r * w_n[t], out=u_n)
            h_t = n + z * (states[t] - n)
            states[t + 1] = h_t if real is None else where(real[t], h_t, states[t])
        y, h = self.outputs(states, real)
        self.save_for_backward(rows, states, gates, w_n, real, output=y)
        return y, h

    def backward(self, dy, dh=None):
        """dy (B, T, M), dh (B, M) or None for zeros -> dx (B, T, d_in), dh0 (B, M); adds dW and db."""
        self.check_states(dy, dh=dh)
        rows, states, gates, w_n, real = self.saved(dy)
        xp = array_module(dy)
        dy = self.time_first(dy)  # (T, B, M)
        dgates, all_dw = xp.empty_like(gates), xp.empty_like(gates)  # du, dw
        from_later = xp.zeros_like(states[0]) if dh is None else dh
        for t in reversed(range(len(dy))):
            r, z, n = self._parts(gates[t])
            dh_t = from_later + dy[t]
            if real is not None:
                dh_t *= real[t]
            dn, dz = dh_t * (1 - z), dh_t * (states[t] - n)
            du_n = dn * (1 - n * n)
            dr = du_n * w_n[t]
            through = dr * r * (1 - r), dz * z * (1 - z)
            du = xp.concatenate((*through, du_n), axis=-1)  # (B, 3M)
            dw = xp.concatenate((*through, du_n * r), axis=-1)
            dgates[t], all_dw[t] = du, dw
            passed_on = dh_t * z + dw @ self.weight_hh.data.T
            from_later = passed_on if real is None else where(real[t], passed_on, from_later)
        dh0 = from_later.astype(states.dtype, copy=False)
        return self.finish_backward(rows, states, dgates, all_dw), dh0

    def _parts(self, a):
        """Views of the three parts of a (B, 3M)."""
        m = self.d_hidden
        return a[:, :m], a[:, m : 2 * m], a[:, 2 * m :]
