"""``nn.functional``: softmax, log_softmax, nll_loss, cross_entropy, dropout, relu."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pullback as pb

F = pb.nn.functional
INF = math.inf

LOGITS = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 0.0], [4.0, 4.0, -2.0], [0.0, 1.0, 0.0]])
LABELS = np.array([2, 0, 1, 1])
WEIGHTS = np.array([1.0, 2.0, 0.5])


def logits():
    return pb.tensor(LOGITS, dtype=pb.float64, requires_grad=True)


def reference_log_softmax(x, axis):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def reference_loss(labels, weight=None, ignore=-100, reduction="mean", smoothing=0.0):
    """Cross entropy of LOGITS, worked element by element."""
    logp = reference_log_softmax(LOGITS, 1)
    weight = np.ones(3) if weight is None else weight
    losses, total = np.zeros(len(labels)), 0.0
    for i, label in enumerate(labels):
        if label == ignore:
            continue
        target = np.full(3, smoothing / 3)
        target[label] += 1 - smoothing
        losses[i] = -(target * weight * logp[i]).sum()
        total += weight[label]
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / total


def numerical_gradient(function, x, step=1e-6):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (function(up) - function(down)) / (2 * step)
    return out


# softmax and log_softmax


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_softmax_values(dim):
    x = logits()
    expected = reference_log_softmax(LOGITS, dim)
    assert_allclose(F.log_softmax(x, dim).detach(), expected, rtol=1e-12)
    assert_allclose(F.softmax(x, dim).detach(), np.exp(expected), rtol=1e-12)
    assert_allclose(x.softmax(dim).detach(), np.exp(expected), rtol=1e-12)
    assert_allclose(x.log_softmax(dim).detach(), expected, rtol=1e-12)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_gradient(function, dim):
    x, seed = logits(), pb.tensor(np.arange(12.0).reshape(4, 3))

    def value(array):
        return (function(pb.tensor(array), dim) * seed).sum().item()

    function(x, dim).backward(seed)
    assert_allclose(x.grad, numerical_gradient(value, LOGITS), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax_second_gradient(function):
    def first(array):
        x = pb.tensor(array, requires_grad=True)
        y = function(x, 1) ** 2
        return pb.autograd.grad(y.sum(), x, create_graph=True)[0], x

    def value(array):
        return (first(array)[0] ** 2).sum().item()

    g, x = first(LOGITS)
    (g * g).sum().backward()
    assert_allclose(x.grad, numerical_gradient(value, LOGITS), rtol=1e-4, atol=1e-7)


def test_softmax_of_extreme_values():
    x = pb.tensor([1000.0, 0.0, -INF])
    assert F.softmax(x, 0).tolist() == [1.0, 0.0, 0.0]
    assert F.log_softmax(x, 0).tolist() == [0.0, -1000.0, -INF]
    assert all(math.isnan(v) for v in F.softmax(pb.tensor([-INF, -INF]), 0).tolist())


def test_softmax_of_small_shapes():
    assert F.softmax(pb.tensor(3.0), 0).item() == 1.0
    assert F.softmax(pb.zeros(0, 3), 1).shape == (0, 3)
    assert F.softmax(pb.zeros(3, 0), 1).shape == (3, 0)


def test_softmax_dtype_argument_converts_first():
    x = pb.tensor([1, 2])
    y = F.softmax(x, 0, dtype=pb.float64)
    assert y.dtype == pb.float64
    assert_allclose(y, np.exp([1, 2]) / np.exp([1, 2]).sum())
    half = pb.zeros(2, dtype=pb.float16, requires_grad=True)
    F.log_softmax(half, 0, dtype=pb.float32)[0].backward()
    assert half.grad.dtype == pb.float16
    assert half.grad.tolist() == [0.5, -0.5]


def test_softmax_of_strided_input():
    x = pb.tensor(LOGITS)
    assert_allclose(F.softmax(x.t(), 0).t(), F.softmax(x, 1))
    assert_allclose(F.softmax(x[::2, ::2], 1), F.softmax(x[::2, ::2].contiguous(), 1))


@pytest.mark.parametrize("dim", [2, -3, 100])
def test_softmax_dim_out_of_range(dim):
    with pytest.raises(IndexError, match="Dimension out of range"):
        F.softmax(logits(), dim)


def test_softmax_of_integers_is_refused():
    with pytest.raises((NotImplementedError, RuntimeError)):
        F.softmax(pb.tensor([1, 2]), 0)


# nll_loss and cross_entropy


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("ignore", [-100, 1], ids=["all", "ignoring"])
def test_losses_with_options(reduction, weight, ignore):
    options = {"reduction": reduction, "ignore_index": ignore}
    if weight is not None:
        options["weight"] = pb.tensor(weight)
    expected = reference_loss(LABELS, weight, ignore, reduction)
    x, labels = logits(), pb.tensor(LABELS)
    assert_allclose(F.cross_entropy(x, labels, **options).detach(), expected, rtol=1e-12)
    loss = F.nll_loss(F.log_softmax(x, 1), labels, **options)
    assert_allclose(loss.detach(), expected, rtol=1e-12)

    def value(array):
        return F.cross_entropy(pb.tensor(array), labels, **options).sum().item()

    loss.sum().backward()
    assert_allclose(x.grad, numerical_gradient(value, LOGITS), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
def test_label_smoothing(reduction, weight):
    labels = np.array([2, 0, -100, 1])
    options = {} if weight is None else {"weight": pb.tensor(weight)}
    loss = F.cross_entropy(
        logits(), pb.tensor(labels), reduction=reduction, label_smoothing=0.3, **options
    )
    expected = reference_loss(labels, weight, reduction=reduction, smoothing=0.3)
    assert_allclose(loss.detach(), expected, rtol=1e-12)


def test_class_probabilities_as_target():
    x = logits()
    target = np.array([[0.5, 0.5, 0], [1, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1]])
    loss = F.cross_entropy(x, pb.tensor(target))
    expected = -(target * reference_log_softmax(LOGITS, 1)).sum() / 4
    assert_allclose(loss.detach(), expected, rtol=1e-12)
    loss.backward()
    probabilities = np.exp(reference_log_softmax(LOGITS, 1))
    assert_allclose(x.grad, (probabilities - target) / 4, rtol=1e-10, atol=1e-12)


def test_loss_of_single_sample():
    x = logits()
    assert_allclose(
        F.cross_entropy(x[0], pb.tensor(2)).detach(),
        -reference_log_softmax(LOGITS, 1)[0, 2],
        rtol=1e-12,
    )


def test_loss_with_extra_dimensions():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    labels = np.arange(40).reshape(2, 4, 5) % 3
    logp = reference_log_softmax(x, 1)
    picked = -np.take_along_axis(logp, labels[:, None], 1)[:, 0]
    leaf = pb.tensor(x, requires_grad=True)
    loss = F.cross_entropy(leaf, pb.tensor(labels), reduction="none")
    assert loss.shape == (2, 4, 5)
    assert_allclose(loss.detach(), picked, rtol=1e-12)
    assert_allclose(F.cross_entropy(leaf, pb.tensor(labels)).detach(), picked.mean(), rtol=1e-12)
    loss.sum().backward()
    assert_allclose(leaf.grad.sum(1), np.zeros((2, 4, 5)), atol=1e-12)


def test_loss_of_no_samples():
    x, labels = pb.zeros(0, 3), pb.zeros(0, dtype=pb.int64)
    assert math.isnan(F.nll_loss(x, labels).item())
    assert F.nll_loss(x, labels, reduction="sum").item() == 0.0
    assert F.nll_loss(x, labels, reduction="none").shape == (0,)


def test_loss_where_everything_is_ignored():
    x, labels = logits(), pb.full((4,), -100, dtype=pb.int64)
    assert math.isnan(F.cross_entropy(x, labels).item())
    F.cross_entropy(x, labels, reduction="sum").backward()
    assert x.grad.tolist() == [[0.0] * 3] * 4


def test_uint8_labels_are_accepted():
    loss = F.cross_entropy(logits(), pb.tensor(LABELS).to(pb.uint8))
    assert_allclose(loss.detach(), reference_loss(LABELS), rtol=1e-12)


@pytest.mark.parametrize(
    ("labels", "options", "error", "fragment"),
    [
        ([0, 1, 2, 3], {}, IndexError, "Target 3 is out of bounds"),
        ([0, 1, 2, -1], {}, IndexError, "Target -1 is out of bounds"),
        (
            [0, 1],
            {},
            ValueError,
            r"Expected input batch_size \(4\) to match target batch_size \(2\)",
        ),
        ([0.0, 1.0, 2.0, 0.0], {}, RuntimeError, "expected target dtype"),
        ([0, 1, 2, 0], {"reduction": "some"}, ValueError, "is not a valid value for reduction"),
        (
            [0, 1, 2, 0],
            {"weight": pb.ones(2)},
            RuntimeError,
            "weight tensor should be defined either",
        ),
        ([0, 1, 2, 0], {"label_smoothing": 2.0}, RuntimeError, "label_smoothing must be between"),
    ],
)
def test_wrong_loss_arguments(labels, options, error, fragment):
    with pytest.raises(error, match=fragment):
        F.cross_entropy(logits(), pb.tensor(labels), **options)


def test_second_derivative_of_cross_entropy():
    def first(array):
        x = pb.tensor(array, requires_grad=True)
        loss = F.cross_entropy(x, pb.tensor(LABELS))
        return pb.autograd.grad(loss, x, create_graph=True)[0], x

    def value(array):
        return (first(array)[0] ** 2).sum().item()

    g, x = first(LOGITS)
    (g * g).sum().backward()
    assert_allclose(x.grad, numerical_gradient(value, LOGITS), rtol=1e-4, atol=1e-8)


# dropout


def test_dropout_zeroes_a_fraction_and_scales_the_rest():
    x = pb.ones(20_000)
    y = F.dropout(x, 0.25).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(4) / np.float32(3)}
    assert abs((y == 0).mean() - 0.25) < 0.02


def test_dropout_gradient_uses_the_same_mask():
    x = pb.ones(1000, requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


def test_dropout_follows_the_seed():
    x = pb.ones(100)
    pb.manual_seed(3)
    first = F.dropout(x).tolist()
    second = F.dropout(x).tolist()
    pb.manual_seed(3)
    assert F.dropout(x).tolist() == first
    assert second != first


def test_dropout_at_the_ends():
    x = pb.ones(10, requires_grad=True)
    assert F.dropout(x, 0.0).tolist() == [1.0] * 10
    y = F.dropout(x, 1.0)
    assert y.tolist() == [0.0] * 10
    y.sum().backward()
    assert x.grad.tolist() == [0.0] * 10


def test_dropout_outside_training_is_the_identity():
    x = pb.ones(10, requires_grad=True)
    y = F.dropout(x, 0.5, training=False)
    assert y.tolist() == [1.0] * 10
    y.sum().backward()
    assert x.grad.tolist() == [1.0] * 10


def test_dropout_in_place():
    x = pb.ones(1000)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert 0.0 in x.tolist()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        F.dropout(pb.ones(2, requires_grad=True), 0.5, inplace=True)


@pytest.mark.parametrize("p", [-0.1, 1.5, math.nan])
def test_dropout_probability_must_be_in_range(p):
    if math.isnan(p):
        with pytest.raises((ValueError, RuntimeError)):
            F.dropout(pb.ones(2), p)
    else:
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            F.dropout(pb.ones(2), p)


def test_relu():
    x = pb.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    F.relu(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0]
