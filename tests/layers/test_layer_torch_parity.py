"""Single layers against their namesakes in PyTorch, in float64: outputs and every gradient."""

import numpy as np
import pytest

from transformer_np import CrossEntropy
from transformer_np.layers import Embedding, LayerNorm, Linear, MultiHeadAttention, ReLU, Softmax

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

B, T, S, D, H, D_KEY, D_VALUE, V = 4, 7, 5, 6, 2, 9, 10, 11


def close(ours, theirs):
    """Assert agreement to a few units of rounding of the largest entry."""
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert abs(ours - theirs).max() <= 1e-13 * abs(theirs).max()


def leaf(array):
    """A torch copy that gathers a gradient."""
    return torch.tensor(array, requires_grad=True)


def random_parameters(layer, rng):
    """Random numbers in every parameter."""
    for p in layer.parameters():
        p.data[...] = rng.standard_normal(p.shape)
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("d_key", "d_value"), [(None, None), (D_KEY, D_VALUE)])
def test_multi_head_attention(d_key, d_value, bias):
    rng = np.random.default_rng(0)
    ours = random_parameters(MultiHeadAttention(D, H, d_key=d_key, d_value=d_value, bias=bias, dtype="float64"), rng)
    theirs = torch.nn.MultiheadAttention(D, H, bias=bias, kdim=d_key, vdim=d_value, batch_first=True).double()
    if d_key is None:
        matrices = theirs.in_proj_weight.chunk(3)
    else:
        matrices = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    projections = ours.w_q, ours.w_k, ours.w_v
    with torch.no_grad():
        theirs.out_proj.weight.copy_(torch.tensor(ours.w_o.weight.data.T))
        for matrix, projection in zip(matrices, projections, strict=True):
            matrix.copy_(torch.tensor(projection.weight.data.T))
        if bias:
            theirs.out_proj.bias.copy_(torch.tensor(ours.w_o.bias.data))
            theirs.in_proj_bias.copy_(torch.tensor(np.concatenate([p.bias.data for p in projections])))
    query = rng.standard_normal((B, T, D))
    key, value = rng.standard_normal((B, S, d_key or D)), rng.standard_normal((B, S, d_value or D))
    real = np.arange(S) < np.array([5, 3, 1, 4])[:, None]  # (B, S)
    dy = rng.standard_normal((B, T, D))

    y = ours.forward(query, key, value, real[:, None, None, :])
    gradients = ours.backward(dy)
    inputs = leaf(query), leaf(key), leaf(value)
    torch_y, torch_weights = theirs(*inputs, key_padding_mask=torch.tensor(~real), average_attn_weights=False)
    torch_y.backward(torch.tensor(dy))
    close(y, torch_y)
    close(ours.weights, torch_weights)
    for gradient, x in zip(gradients, inputs, strict=True):
        close(gradient, x.grad)
    close(ours.w_o.weight.grad.T, theirs.out_proj.weight.grad)
    if d_key is None:
        close(np.concatenate([p.weight.grad.T for p in projections]), theirs.in_proj_weight.grad)
    else:
        for matrix, projection in zip(matrices, projections, strict=True):
            close(projection.weight.grad.T, matrix.grad)
    if bias:
        close(ours.w_o.bias.grad, theirs.out_proj.bias.grad)
        close(np.concatenate([p.bias.grad for p in projections]), theirs.in_proj_bias.grad)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm(eps):
    rng = np.random.default_rng(0)
    ours = random_parameters(LayerNorm(D, eps, dtype="float64"), rng)
    x, dy = 5 + 3 * rng.standard_normal((B, T, D)), rng.standard_normal((B, T, D))
    torch_x, gamma, beta = leaf(x), leaf(ours.gamma.data), leaf(ours.beta.data)
    torch_y = torch.nn.functional.layer_norm(torch_x, (D,), gamma, beta, eps)
    torch_y.backward(torch.tensor(dy))
    close(ours.forward(x), torch_y)
    close(ours.backward(dy), torch_x.grad)
    close(ours.gamma.grad, gamma.grad)
    close(ours.beta.grad, beta.grad)


def test_linear():
    rng = np.random.default_rng(0)
    ours = random_parameters(Linear(D, V, dtype="float64"), rng)
    x, dy = rng.standard_normal((B, T, D)), rng.standard_normal((B, T, V))
    torch_x, weight, bias = leaf(x), leaf(ours.weight.data.T), leaf(ours.bias.data)
    torch_y = torch.nn.functional.linear(torch_x, weight, bias)
    torch_y.backward(torch.tensor(dy))
    close(ours.forward(x), torch_y)
    close(ours.backward(dy), torch_x.grad)
    close(ours.weight.grad.T, weight.grad)
    close(ours.bias.grad, bias.grad)


def test_embedding():
    rng = np.random.default_rng(0)
    ours = Embedding(V, D, scaled=False, seed=0, dtype="float64")
    ids, dy = rng.integers(0, V, (B, T)), rng.standard_normal((B, T, D))
    table = leaf(ours.weight.data)
    torch_y = torch.nn.functional.embedding(torch.tensor(ids), table)
    torch_y.backward(torch.tensor(dy))
    close(ours.forward(ids), torch_y)
    assert ours.backward(dy) is None
    close(ours.weight.grad, table.grad)


@pytest.mark.parametrize(("ours", "theirs"), [(ReLU(), torch.relu), (Softmax(), lambda x: torch.softmax(x, -1))])
def test_without_parameters(ours, theirs):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((B, T, D)), rng.standard_normal((B, T, D))
    torch_x = leaf(x)
    torch_y = theirs(torch_x)
    torch_y.backward(torch.tensor(dy))
    close(ours.forward(x), torch_y)
    close(ours.backward(dy), torch_x.grad)


def test_relu_at_its_kink():
    x = np.array([-1.0, -0.0, 0.0, 1.0])
    torch_x, ours = leaf(x), ReLU()
    torch.relu(torch_x).backward(torch.ones(4, dtype=torch.float64))
    ours.forward(x)
    np.testing.assert_array_equal(ours.backward(np.ones(4)), torch_x.grad.numpy())


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("ignore_index", [0, 3, -100])
def test_cross_entropy(label_smoothing, ignore_index):
    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.standard_normal((B, T, V)), rng.integers(0, V, (B, T))
    targets[1, 2:] = ignore_index
    ours = CrossEntropy(label_smoothing, ignore_index)
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=label_smoothing, ignore_index=ignore_index)
    torch_logits = leaf(logits)
    torch_loss = theirs(torch_logits.reshape(-1, V), torch.tensor(targets).reshape(-1))
    torch_loss.backward()
    loss = ours.forward(logits, targets)
    assert abs(loss - torch_loss.item()) < 1e-14 * loss
    close(ours.backward(), torch_logits.grad)
