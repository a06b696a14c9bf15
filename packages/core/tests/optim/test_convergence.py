"""Optimizers find minima, and steps that are recorded have derivatives."""

import numpy as np
import pytest

import pullback
from pullback import optim

QUADRATIC = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    ("ASGD", {"lr": 0.1, "lambd": 0.0}),
    ("Adadelta", {"lr": 5.0}),
    ("Adafactor", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.8}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.0}),
    ("Adamax", {"lr": 0.2}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.02, "centered": True}),
    ("Rprop", {"lr": 0.1}),
    ("Muon", {"lr": 0.02, "weight_decay": 0.0}),
    ("LBFGS", {"lr": 0.5}),
]


@pytest.mark.parametrize("name, options", QUADRATIC, ids=str)
def test_minimum_of_a_quadratic(name, options):
    drawn = np.random.default_rng(2)
    target = pullback.tensor(drawn.normal(size=(2, 3)).tolist())
    curvature = pullback.tensor(drawn.uniform(0.5, 3, size=(2, 3)).tolist())
    param = pullback.zeros(2, 3, requires_grad=True)
    optimizer = getattr(optim, name)([param], **options)

    def closure():
        optimizer.zero_grad()
        loss = (curvature * (param - target).square()).sum()
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(5 if name == "LBFGS" else 300):
        optimizer.step(closure)
    assert closure().item() < 1e-3 * first


@pytest.mark.parametrize("dtype", [pullback.float64, pullback.complex128], ids=str)
@pytest.mark.parametrize("history_size", [100, 3])
def test_lbfgs_minimum_of_rosenbrock(history_size, dtype):
    x = pullback.tensor([-1.2, 1.0, -0.5], dtype=dtype, requires_grad=True)
    unused = pullback.ones(2, dtype=dtype, requires_grad=True)
    options = {"history_size": history_size, "line_search_fn": "strong_wolfe"}
    optimizer = optim.LBFGS([unused, x], max_iter=200, tolerance_change=1e-13, **options)

    def closure():
        optimizer.zero_grad()
        pairs = pullback.view_as_real(x) if x.is_complex() else x.reshape(-1, 1)
        loss = (100 * (pairs[1:] - pairs[:-1] ** 2) ** 2 + (1 - pairs[:-1]) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    found = x.detach().numpy()
    np.testing.assert_allclose(found, np.full(3, 1 + 1j if x.is_complex() else 1), atol=1e-4)
    assert unused.tolist() == [1, 1]


def test_lbfgs_counts_evaluations_and_stops_at_a_limit():
    x = pullback.tensor([-1.2, 1.0], dtype=pullback.float64, requires_grad=True)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        loss.backward()
        calls.append(loss.item())
        return loss

    optimizer = optim.LBFGS([x], max_iter=4, max_eval=99, line_search_fn="strong_wolfe")
    assert optimizer.step(closure).item() == calls[0]
    state = optimizer.state[x]
    assert (state["n_iter"], state["func_evals"]) == (4, len(calls))
    x.grad, previous = None, len(calls)
    optimizer.param_groups[0].update(max_iter=50, max_eval=6)
    optimizer.step(closure)
    assert 6 <= len(calls) - previous <= 7 and state["func_evals"] == len(calls)
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optim.LBFGS([x], line_search_fn="armijo").step(closure)


# ---- recorded steps ------------------------------------------------------------------------------

RECORDED = [
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "eps": 0.1}),
    ("AdamW", {"weight_decay": 0.3}),
    ("RMSprop", {"alpha": 0.8}),
    ("RMSprop", {"alpha": 0.8, "momentum": 0.5, "centered": True, "eps": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adadelta", {"eps": 0.1}),
    ("Adamax", {"betas": (0.7, 0.8)}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.7, 0.99), "weight_decay": 0.1}),
]


def loss_after(name, options, weights, count=6, differentiable=True):
    """Return the loss after steps from values that depend on ``weights``, recorded or not."""
    drawn = np.random.default_rng(4)
    matrix = pullback.tensor(drawn.normal(size=(3, 3)).tolist(), dtype=pullback.float64)

    def loss_of(x):
        return ((matrix @ x.sin()) ** 2).sum() + (x**4).sum()

    param = (weights * 1.0) if differentiable else weights.clone().requires_grad_(True)
    optimizer = getattr(optim, name)([param], differentiable=differentiable, **options)
    for _ in range(count):
        (param.grad,) = pullback.autograd.grad(loss_of(param.clone()), param, create_graph=True)
        optimizer.step()
        assert pullback.is_grad_enabled()
    return loss_of(param.clone())


@pytest.mark.parametrize(
    "name, options", [*RECORDED, ("ASGD", {"lambd": 0.1}), ("Rprop", {})], ids=str
)
def test_recorded_steps_are_those_that_are_not(name, options):
    weights = pullback.tensor([0.7, -0.4, 0.9], dtype=pullback.float64)
    recorded = loss_after(name, {"lr": 0.05, **options}, weights.clone().requires_grad_(True))
    plain = loss_after(name, {"lr": 0.05, **options}, weights, differentiable=False)
    assert recorded.item() == pytest.approx(plain.item(), rel=1e-12)


def difference(function, at, step=1e-6):
    return (function(at + step) - function(at - step)) / (2 * step)


@pytest.mark.parametrize("name, options", RECORDED, ids=str)
def test_derivative_by_the_learning_rate(name, options):
    weights = pullback.tensor([0.7, -0.4, 0.9], dtype=pullback.float64)

    def loss(lr):
        return loss_after(name, {"lr": lr, **options}, weights.clone().requires_grad_(True))

    lr = pullback.tensor(0.05, dtype=pullback.float64, requires_grad=True)
    (got,) = pullback.autograd.grad(loss(lr), lr)
    wanted = difference(lambda value: loss(value).item(), 0.05)
    assert got.item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    "name, options", [*RECORDED, ("ASGD", {"lambd": 0.1}), ("Rprop", {})], ids=str
)
def test_derivative_by_the_first_parameters(name, options):
    weights = pullback.tensor([0.7, -0.4, 0.9], dtype=pullback.float64, requires_grad=True)
    (got,) = pullback.autograd.grad(loss_after(name, {"lr": 0.05, **options}, weights), weights)
    for i in range(3):

        def loss(value, i=i):
            moved = weights.detach().clone()
            moved[i] = value
            return loss_after(name, {"lr": 0.05, **options}, moved.requires_grad_(True)).item()

        assert got[i].item() == pytest.approx(difference(loss, weights[i].item()), rel=1e-4)


def test_derivative_by_the_betas_of_adam_and_the_decay_of_sgd():
    weights = pullback.tensor([0.7, -0.4, 0.9], dtype=pullback.float64)
    at = [0.8, 0.9]

    def loss(*betas):
        return loss_after("Adam", {"lr": 0.05, "betas": betas}, weights.clone().requires_grad_())

    betas = [pullback.tensor(b, dtype=pullback.float64, requires_grad=True) for b in at]
    got = pullback.autograd.grad(loss(*betas), betas)
    for i in range(2):
        wanted = difference(
            lambda b, i=i: loss(*[b if i == j else at[j] for j in range(2)]).item(), at[i]
        )
        assert got[i].item() == pytest.approx(wanted, rel=1e-5)

    def decayed(decay):
        options = {"lr": 0.05, "momentum": 0.5, "weight_decay": decay}
        return loss_after("SGD", options, weights.clone().requires_grad_())

    decay = pullback.tensor(0.2, dtype=pullback.float64, requires_grad=True)
    (got,) = pullback.autograd.grad(decayed(decay), decay)
    assert got.item() == pytest.approx(difference(lambda d: decayed(d).item(), 0.2), rel=1e-5)
