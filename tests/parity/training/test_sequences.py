"""Attention and LSTM layers give torch's results and derivatives of both orders."""

import numpy as np
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

# Sizes of query, key and value; options of the call.
CALLS = [
    ([(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], {}),
    ([(2, 3, 40, 20)] * 3, {"is_causal": True}),
    ([(1, 2, 9, 4), (1, 2, 5, 4), (1, 2, 5, 4)], {"is_causal": True, "scale": 0.3}),
    ([(4, 6, 8), (4, 140, 8), (4, 140, 8)], {}),
    ([(6, 8), (9, 8), (9, 8)], {}),
    ([(2, 4, 6, 8), (2, 2, 9, 8), (2, 2, 9, 8)], {"enable_gqa": True}),
    ([(2, 1, 6, 8), (1, 3, 9, 8), (1, 3, 9, 8)], {}),
]
MASKS = [None, "bool", "rows", "added"]


def call(library, arrays, mask, options, dtype, grad):
    """Return the result, its strides, gradients, and those of their squares' sum."""
    parts = [library.tensor(array).to(dtype).requires_grad_() for array in arrays]
    mask = None if mask is None else library.tensor(mask)
    if mask is not None and mask.dtype != library.bool:
        mask = mask.to(dtype)
    out = library.nn.functional.scaled_dot_product_attention(*parts, mask, **options)
    first = library.autograd.grad(out, parts, library.tensor(grad).to(dtype), retain_graph=True)
    kept = library.autograd.grad(out.square().sum(), parts, create_graph=True)
    second = library.autograd.grad(sum(part.square().sum() for part in kept), parts)
    return [out, *first, *second], out.stride()


@pytest.mark.parametrize("sizes,options", CALLS, ids=str)
@pytest.mark.parametrize("kind", MASKS, ids=str)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_attention(sizes, options, kind, name):
    if kind and "is_causal" in options:
        pytest.skip("torch takes one of them")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(size) for size in sizes]
    rows, columns = sizes[0][-2], sizes[1][-2]
    mask = {
        "bool": rng.random((rows, columns)) < 0.7,
        "rows": rng.random((1, columns)) < 0.7,
        "added": rng.standard_normal((rows, columns)),
    }.get(kind)
    if kind == "bool":
        mask[rows // 2] = False
    lead = np.broadcast_shapes(sizes[0][:-2], () if options.get("enable_gqa") else sizes[1][:-2])
    grad = rng.standard_normal((*lead, rows, sizes[2][-1]))
    found, strides = call(pullback, arrays, mask, options, getattr(pullback, name), grad)
    # torch's fused kernels have no second derivative
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted, _ = call(torch, arrays, mask, options, getattr(torch, name), grad)
    tolerance = 2e-5 if name == "float32" else 1e-12
    for one, other in zip(found, wanted, strict=True):
        one, other = one.detach().numpy(), other.detach().numpy()
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * abs(other).max())
    if kind is None and len(sizes[0]) == 4:
        plain = [torch.tensor(array).to(getattr(torch, name)) for array in arrays]
        fused = torch.nn.functional.scaled_dot_product_attention(*plain, **options)
        assert strides == fused.stride()


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}],
    ids=str,
)
def test_lstm(options):
    theirs = torch.nn.LSTM(5, 7, **options)
    ours = pullback.nn.LSTM(5, 7, **options)
    ours.load_state_dict(
        {name: pullback.tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    )
    data, results = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32), []
    for library, layer in ((torch, theirs), (pullback, ours)):
        x = library.tensor(data).requires_grad_()
        output, (h, c) = layer(x)
        loss = output.square().sum() + (h * c).sum()
        grads = library.autograd.grad(loss, [x, *layer.parameters()])
        results.append([part.detach().numpy() for part in (output, h, c, *grads)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * abs(other).max())


@pytest.mark.parametrize("name,gates", [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)])
def test_cells_and_their_errors(name, gates):
    rng = np.random.default_rng(0)
    x, state, biases = rng.standard_normal((2, 3)), rng.standard_normal((2, 4)), np.ones(4 * gates)
    weights = rng.standard_normal((4 * gates, 3)), rng.standard_normal((4 * gates, 4))
    calls = [
        (x, state, *weights),
        (x, state, *weights, biases, biases),
        (x, state, rng.standard_normal((4 * gates, 5)), weights[1]),
        (x, rng.standard_normal((3, 4)), *weights),
        (x, state, rng.standard_normal((5, 3)), weights[1]),
        (x.astype(np.int64), state.astype(np.int64), *(part.astype(np.int64) for part in weights)),
    ]
    for arrays in calls:
        results = []
        for library in (torch, pullback):
            parts = [library.tensor(array) for array in arrays]
            if name == "lstm":
                parts[1] = (parts[1], parts[1])
            try:
                found = getattr(library, f"{name}_cell")(*parts)
                results.append([one.numpy() for one in (found if name == "lstm" else (found,))])
            except (RuntimeError, IndexError) as error:
                results.append((type(error), str(error)))
        if isinstance(results[0], tuple):
            assert results[0] == results[1]
            continue
        for one, other in zip(*results, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-12)


def test_a_cell_of_lstm_takes_a_pair():
    weights = [pullback.ones(16, 3), pullback.ones(16, 4)]
    with pytest.raises(RuntimeError, match="lstm_cell expects two hidden states"):
        pullback.lstm_cell(pullback.ones(2, 3), (pullback.ones(2, 4),), *weights)
