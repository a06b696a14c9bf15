"""Per-sample gradients beside those of a loop over samples, and of vmap over grad."""

import pytest

import pullback as pb
from pullback.autograd.diagnostics import per_sample
from pullback.autograd.graph import per_sample_gradients

functional = pb.nn.functional
BATCH = 5


def leaf(*shape):
    return pb.randn(*shape, dtype=pb.float64).requires_grad_()


def data(*shape):
    return pb.randn(BATCH, *shape, dtype=pb.float64)


def mlp():
    w1, b1, w2, b2 = leaf(8, 6), leaf(8), leaf(3, 8), leaf(3)
    h = functional.linear(functional.relu(functional.linear(data(6), w1, b1)), w2, b2)
    target = pb.arange(BATCH) % 3
    return functional.cross_entropy(h, target, reduction="none"), [w1, b1, w2, b2]


def regression():
    w, b = leaf(8, 6), leaf(8)
    out = functional.linear(data(6), w, b)
    return functional.mse_loss(out, data(8), reduction="none").mean(1), [w, b]


def convolutions():
    w1, b, w2 = leaf(4, 3, 3, 3), leaf(4), leaf(6, 2, 3, 3)
    h = functional.conv2d(data(3, 8, 8), w1, b, padding=1).tanh()
    h = functional.max_pool2d(functional.conv2d(h, w2, groups=2, stride=2), 2)
    return h.flatten(1).logsumexp(1), [w1, b, w2]


def embeddings():
    table, g, b, w = leaf(10, 6), leaf(6), leaf(6), leaf(6, 6)
    h = functional.embedding(pb.randint(0, 10, (BATCH, 4)), table, padding_idx=2)
    return (functional.layer_norm(h, (6,), g, b) @ w).relu().sum((1, 2)), [table, g, b, w]


def tied_weights():
    table = leaf(10, 6)
    h = functional.embedding(pb.randint(0, 10, (BATCH, 4)), table)
    return (h @ table.t()).exp().mean((1, 2)), [table]


def attention():
    weights = [leaf(6, 6) for _ in range(4)]
    q, k, v, out = weights
    x = data(4, 6)
    scores = (x @ q) @ (x @ k).transpose(1, 2)
    return (x + pb.softmax(scores / 2, -1) @ (x @ v) @ out).square().mean((1, 2)), weights


def transformer():
    layer = pb.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=pb.float64)
    return layer(data(4, 8)).square().mean((1, 2)), list(layer.parameters())


def group_norm():
    w, g, b = leaf(4, 3, 3, 3), leaf(4), leaf(4)
    h = functional.group_norm(functional.conv2d(data(3, 8, 8), w), 2, g, b)
    return h.square().sum((1, 2, 3)), [w, g, b]


def instance_norm():
    w, g, b = leaf(4, 3, 3, 3), leaf(4), leaf(4)
    h = functional.instance_norm(functional.conv2d(data(3, 8, 8), w), weight=g, bias=b)
    return h.sin().sum((1, 2, 3)), [w, g, b]


def running_norm():
    w, g, b = leaf(4, 3, 3, 3), leaf(4), leaf(4)
    mean, variance = pb.randn(4, dtype=pb.float64), pb.rand(4, dtype=pb.float64) + 1
    h = functional.batch_norm(functional.conv2d(data(3, 8, 8), w), mean, variance, g, b)
    return h.sin().sum((1, 2, 3)), [w, g, b]


def weight_norm():
    scale, w, b = leaf(8, 1), leaf(8, 6), leaf(8)
    weight = scale * w / w.norm(dim=1, keepdim=True)
    return functional.linear(data(6), weight, b).sin().sum(1), [scale, w, b]


def several_uses():
    w, x = leaf(6, 6), data(6)
    h = functional.linear(functional.linear(x, w).tanh(), w).sum(1)
    return h + functional.linear(x, w.t())[:, 0], [w]


def joins_and_views():
    w, g, x = leaf(8, 6), leaf(6), data(6)
    h = pb.cat([functional.linear(x, w), x * g], 1).permute(1, 0).unsqueeze(0).squeeze(0).t()
    a, b = h.chunk(2, 1)
    return (a * b.sigmoid()).square().sum(1), [w, g]


def samples_in_the_second_dim():
    g, w = leaf(6), leaf(6, 6)
    return ((data(4, 6).transpose(0, 1) * g) @ w).tanh().sum((0, 2)), [g, w]


def along_dims():
    w, x = leaf(6), data(4, 6)
    h = (x * w).cumprod(1).sort(2)[0].unbind(1)
    h = pb.stack([h[0], h[2]], 2).gather(1, pb.randint(0, 6, (BATCH, 3, 2)))
    return h.unsqueeze(1).select(2, 1).narrow(2, 0, 1).amax((1, 2)), [w]


def einsum():
    w = leaf(6, 6)
    return pb.einsum("bti,io->bto", data(4, 6), w).exp().sum((1, 2)), [w]


def regularized():
    w = leaf(8, 6)
    return functional.linear(data(6), w).sum(1) + (w * w).sum(), [w]


def unused():
    w, other = leaf(6), leaf(2)
    return (data(6) * w).sum(1), [w, other]


UNDERSTOOD = [
    *(mlp, regression, convolutions, embeddings, tied_weights, attention, transformer),
    *(group_norm, instance_norm, running_norm, weight_norm, several_uses, joins_and_views),
    *(samples_in_the_second_dim, along_dims, einsum, regularized, unused),
]


def recurrent():
    layer = pb.nn.LSTM(8, 3, batch_first=True, dtype=pb.float64)
    return layer(data(4, 8))[0].sum((1, 2)), list(layer.parameters())


def determinants():
    w = leaf(4)
    return pb.linalg.det((data(4) * w).reshape(BATCH, 2, 2)), [w]


def flipped():
    w = leaf(6)
    return ((data(6) * w).flip(0) * data(6)).sum(1), [w]


def looped(losses, parameters):
    """Return the gradients by one pass for each sample."""
    rows = [
        pb.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in losses
    ]
    return [
        pb.stack([pb.zeros_like(p) if row[k] is None else row[k] for row in rows])
        for k, p in enumerate(parameters)
    ]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        pb.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", UNDERSTOOD)
def test_as_a_loop_over_samples(make, monkeypatch):
    monkeypatch.delattr(per_sample, "_batched")  # all of it is understood
    losses, parameters = make()
    found = per_sample_gradients(losses, parameters)
    assert [tuple(item.shape) for item in found] == [(BATCH, *p.shape) for p in parameters]
    assert_equal(found, looped(losses, parameters))


@pytest.mark.parametrize("make", UNDERSTOOD)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_of_one_number(make, reduction):
    losses, parameters = make()
    loss = getattr(losses, reduction)()
    assert_equal(
        per_sample_gradients(loss, parameters, reduction=reduction), looped(losses, parameters)
    )


@pytest.mark.parametrize("make", [recurrent, determinants, flipped])
def test_other_nodes(make):
    losses, parameters = make()
    expected = looped(losses, parameters)
    assert_equal(per_sample_gradients(losses, parameters), expected)
    with pytest.raises(
        RuntimeError, match=r"(Lstm|LinalgDet|Flip)Backward0 #\d+ is not understood"
    ):
        per_sample_gradients(losses.sum(), parameters)


def test_as_vmap_over_grad():
    w, b = leaf(3, 6), leaf(3)
    x = data(6)

    def loss(w, b, x):
        return functional.linear(x, w, b).tanh().sum(-1)

    found = per_sample_gradients(loss(w, b, x), {"w": w, "b": b})
    over_samples = pb.func.vmap(pb.func.grad(loss, (0, 1)), (None, None, 0))
    expected = over_samples(w.detach(), b.detach(), x)
    assert list(found) == ["w", "b"]
    assert_equal(found.values(), expected)


def test_losses_that_reduce():
    w, x, target = leaf(3, 6), data(6), pb.arange(BATCH) % 3
    vector = functional.cross_entropy(functional.linear(x, w), target, reduction="none")
    number = functional.cross_entropy(functional.linear(x, w), target) * 2
    expected = [item * 2 for item in per_sample_gradients(vector, w)]
    assert_equal(per_sample_gradients(number, w, reduction="mean"), expected)
    number = functional.mse_loss(functional.linear(x, w), pb.zeros(BATCH, 3, dtype=pb.float64))
    found = per_sample_gradients(number, [w], reduction="mean")
    assert_equal(found, looped(functional.linear(x, w).square().mean(1), [w]))


def test_samples_in_another_dim_of_what_is_reduced():
    w, x = leaf(6), data(6)
    loss = (x * w).t().square().sum()
    assert_equal(per_sample_gradients(loss, w, batch_dim=1), looped((x * w).square().sum(1), [w]))


def test_samples_that_mix():
    w, g, x = leaf(4, 6), leaf(4), data(6)
    h = functional.linear(x, w)
    normed = functional.batch_norm(h, None, None, g, None, training=True).square().sum(1)
    for loss in (normed, normed.sum()):
        with pytest.raises(RuntimeError, match=r"samples mix in NativeBatchNormBackward0 #\d+"):
            per_sample_gradients(loss, [w, g])
    with pytest.raises(RuntimeError, match=r"samples mix in MmBackward0 #\d+"):
        per_sample_gradients((h - h.mean(0)).square().sum(1), w)
    with pytest.raises(RuntimeError, match=r"samples mix in SoftmaxBackward0 #\d+"):
        per_sample_gradients(h.softmax(0).square().sum(1), w)
    with pytest.raises(RuntimeError, match=r"samples mix in CumsumBackward0 #\d+"):
        per_sample_gradients(h.cumsum(0).square().sum(1), w)


def test_regularization_beside_a_reduced_loss_is_refused():
    w, x = leaf(8, 6), data(6)
    loss = functional.linear(x, w).sum(1).mean() + (w * w).sum()
    with pytest.raises(RuntimeError, match="is not understood"):
        per_sample_gradients(loss, w, reduction="mean")


def test_no_samples_and_parameters_given_twice():
    w = leaf(6)
    (found,) = per_sample_gradients((pb.ones(0, 6, dtype=pb.float64) * w).sum(1), [w])
    assert found.shape == (0, 6)
    losses = (data(6) * w).sum(1)
    first, second = per_sample_gradients(losses, [w, w])
    assert_equal([first, second], looped(losses, [w]) * 2)


def test_graph_and_grads_stay():
    losses, parameters = mlp()
    per_sample_gradients(losses, parameters)
    assert all(p.grad is None for p in parameters)
    again = per_sample_gradients(losses, parameters)  # the graph was kept
    losses.sum().backward()
    assert_equal([item.sum(0) for item in again], [p.grad for p in parameters])


def test_wrong_arguments():
    w, x = leaf(6), data(6)
    losses = (x * w).sum(1)
    with pytest.raises(TypeError, match="expected Tensors, not int"):
        per_sample_gradients(3, w)
    with pytest.raises(TypeError, match="expected Tensors, not str"):
        per_sample_gradients(losses, ["w"])
    with pytest.raises(TypeError, match="'batch_dim' must be int, not str"):
        per_sample_gradients(losses, w, batch_dim="0")
    with pytest.raises(ValueError, match="must be 'sum' or 'mean', not 'max'"):
        per_sample_gradients(losses, w, reduction="max")
    with pytest.raises(RuntimeError, match="a parameter does not require grad"):
        per_sample_gradients(losses, x)
    with pytest.raises(RuntimeError, match="the loss does not require grad"):
        per_sample_gradients(x.sum(1), w)
    with pytest.raises(RuntimeError, match=r"not of shape \[5, 6\]"):
        per_sample_gradients(x * w, w)
