"""Steps of every optimizer, against the formulas of the papers in NumPy."""

import numpy as np
import pytest

import pullback
from pullback import optim

STEPS = 12
SHAPE = (4, 3)


def moving(values, decay, start=0.0):
    """Yield exponential averages."""
    average = start
    for value in values:
        average = decay * average + (1 - decay) * value
        yield average


def sgd(p, grads, lr=1e-3, momentum=0.0, dampening=0.0, nesterov=False):
    velocity = None
    for g in grads:
        g = g(p)
        velocity = g if velocity is None else momentum * velocity + (1 - dampening) * g
        p = p - lr * (g + momentum * velocity if nesterov else velocity if momentum else g)
        yield p


def adam(p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, amsgrad=False, decay=0.0):
    m = v = largest = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = g(p)
        p = p - lr * decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v) if amsgrad else v
        p = p - lr * m / (1 - betas[0] ** t) / (np.sqrt(largest / (1 - betas[1] ** t)) + eps)
        yield p


def adamw(p, grads, lr=1e-3, weight_decay=1e-2):
    return adam(p, grads, lr, decay=weight_decay)


def rmsprop(p, grads, lr=1e-2, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
    v = mean = velocity = np.zeros_like(p)
    for g in grads:
        g = g(p)
        v, mean = alpha * v + (1 - alpha) * g**2, alpha * mean + (1 - alpha) * g
        velocity = momentum * velocity + g / (np.sqrt(v - mean**2 if centered else v) + eps)
        p = p - lr * velocity
        yield p


def adagrad(p, grads, lr=1e-2, lr_decay=0.0, eps=1e-10, initial_accumulator_value=0.0):
    total = np.full_like(p, initial_accumulator_value)
    for t, g in enumerate(grads):
        g = g(p)
        total = total + g**2
        p = p - lr / (1 + t * lr_decay) * g / (np.sqrt(total) + eps)
        yield p


def asgd(p, grads, lr=1e-2, lambd=1e-4, alpha=0.75):
    rate = np.float32(lr)  # the state has the digits of the default dtype
    for t, g in enumerate(grads, 1):
        g = g(p)
        p = p - float(rate) * (g + lambd * p)
        rate = np.float32(lr / (1 + lambd * lr * t) ** alpha)
        yield p


def adadelta(p, grads, lr=1.0, rho=0.9, eps=1e-6):
    v = u = np.zeros_like(p)
    for g in grads:
        g = g(p)
        v = rho * v + (1 - rho) * g**2
        change = np.sqrt(u + eps) / np.sqrt(v + eps) * g
        u = rho * u + (1 - rho) * change**2
        p = p - lr * change
        yield p


def adamax(p, grads, lr=2e-3, betas=(0.9, 0.999), eps=1e-8):
    m = u = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = g(p)
        m, u = betas[0] * m + (1 - betas[0]) * g, np.maximum(betas[1] * u, np.abs(g) + eps)
        p = p - lr / (1 - betas[0] ** t) * m / u
        yield p


def nadam(p, grads, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, momentum_decay=4e-3):
    m = v = np.zeros_like(p)
    product = np.float32(1)  # the state has the digits of the default dtype
    factor = [betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay)) for t in range(STEPS + 2)]
    for t, g in enumerate(grads, 1):
        g = g(p)
        product = np.float32(product * factor[t])
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        ahead = factor[t + 1] * m / (1 - float(product) * factor[t + 1])
        now = (1 - factor[t]) * g / (1 - float(product))
        p = p - lr * (ahead + now) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
        yield p


def radam(p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
    m = v = np.zeros_like(p)
    longest = 2 / (1 - betas[1]) - 1
    for t, g in enumerate(grads, 1):
        g = g(p)
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        unbiased, rest = m / (1 - betas[0] ** t), 1 - betas[1] ** t
        length = longest - 2 * t * betas[1] ** t / rest
        if length > 5:
            top = (length - 4) * (length - 2) * longest
            rectified = np.sqrt(top / ((longest - 4) * (longest - 2) * length))
            unbiased = rectified * unbiased * np.sqrt(rest) / (np.sqrt(v) + eps)
        p = p - lr * unbiased
        yield p


def rprop(p, grads, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50)):
    size, before = np.full_like(p, lr), np.zeros_like(p)
    for g in grads:
        g = g(p)
        turned, same = g * before < 0, g * before > 0
        size = np.clip(size * np.where(turned, etas[0], np.where(same, etas[1], 1)), *step_sizes)
        before = np.where(turned, 0, g)
        p = p - np.sign(before) * size
        yield p


def adafactor(p, grads, lr=1e-2, beta2_decay=-0.8, eps=(2.0**-52, 1e-3), d=1.0, weight_decay=0.0):
    rows = columns = 0.0
    for t, g in enumerate(grads, 1):
        g = g(p)
        keep = 1 - t**beta2_decay
        size = max(eps[1], np.sqrt((p**2).mean())) * min(lr, 1 / np.sqrt(t))
        p = p - lr * weight_decay * p
        rows = keep * rows + (1 - keep) * (g**2).mean(1, keepdims=True)
        columns = keep * columns + (1 - keep) * (g**2).mean(0, keepdims=True)
        update = g / np.sqrt(rows * columns / rows.mean())
        p = p - size * update / max(1, np.sqrt((update**2).mean()) / d)
        yield p


CASES = [
    ("SGD", sgd, {"lr": 0.1}),
    ("SGD", sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
    ("SGD", sgd, {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    ("Adam", adam, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
    ("Adam", adam, {"amsgrad": True, "betas": (0.5, 0.6)}),
    ("AdamW", adamw, {"lr": 0.1, "weight_decay": 0.3}),
    ("RMSprop", rmsprop, {"alpha": 0.8, "eps": 1e-4}),
    ("RMSprop", rmsprop, {"alpha": 0.8, "momentum": 0.7, "centered": True, "eps": 0.1}),
    ("Adagrad", adagrad, {"lr": 0.5, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("ASGD", asgd, {"lr": 0.25, "lambd": 0.1}),
    ("Adadelta", adadelta, {"lr": 0.9, "rho": 0.8, "eps": 1e-3}),
    ("Adamax", adamax, {"lr": 0.1, "betas": (0.7, 0.8)}),
    ("NAdam", nadam, {"lr": 0.1, "momentum_decay": 0.1}),
    ("RAdam", radam, {"lr": 0.1, "betas": (0.8, 0.99)}),
    ("Rprop", rprop, {"lr": 0.05, "step_sizes": (0.04, 0.09)}),
    ("Adafactor", adafactor, {"lr": 0.3, "weight_decay": 0.1, "d": 1.2}),
]


def start():
    drawn = np.random.default_rng(1)
    noise = drawn.normal(size=(STEPS, *SHAPE))
    return drawn.normal(size=SHAPE), noise


def run(name, options, p, noise, dtype=pullback.float64):
    """Yield the parameter after each step with the gradients p + noise."""
    param = pullback.tensor(p.tolist(), dtype=dtype, requires_grad=True)
    optimizer = getattr(optim, name)([param], **options)
    for part in noise:
        optimizer.zero_grad()
        ((param * param) / 2 + param * pullback.tensor(part.tolist(), dtype=dtype)).sum().backward()
        optimizer.step()
        yield param.detach().numpy().copy()


def case_id(value):
    return value.__name__ if callable(value) else str(value)


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("name, formula, options", CASES, ids=case_id)
def test_steps_follow_the_formula(name, formula, options, foreach):
    p, noise = start()
    wanted = formula(p, [lambda p, part=part: p + part for part in noise], **options)
    for got, value in zip(
        run(name, {**options, "foreach": foreach}, p, noise), wanted, strict=True
    ):
        np.testing.assert_allclose(got, value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "name", [name for name, *_ in CASES if name not in ("AdamW", "Rprop", "Adafactor")]
)
def test_weight_decay_adds_to_the_gradient(name):
    p, noise = start()
    decayed = run(name, {"weight_decay": 0.25}, p, noise)
    param = pullback.tensor(p.tolist(), dtype=pullback.float64, requires_grad=True)
    optimizer = getattr(optim, name)([param])
    for part, got in zip(noise, decayed):
        param.grad = pullback.tensor(part.tolist(), dtype=pullback.float64) + 1.25 * param.detach()
        optimizer.step()
        np.testing.assert_allclose(got, param.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    "name, formula, options", [case for case in CASES if case[0] != "ASGD"], ids=case_id
)
def test_maximize_takes_the_opposite_gradient(name, formula, options):
    p, noise = start()
    wanted = list(formula(p, [lambda p, part=part: part for part in noise], **options))
    param = pullback.tensor(p.tolist(), dtype=pullback.float64, requires_grad=True)
    optimizer = getattr(optim, name)([param], maximize=True, **options)
    for part in noise:
        param.grad = pullback.tensor((-part).tolist(), dtype=pullback.float64)
        optimizer.step()
        assert param.grad.numpy().tolist() == (-part).tolist()  # it is only read
    np.testing.assert_allclose(param.detach().numpy(), wanted[-1], rtol=1e-10)


FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


@pytest.mark.parametrize(
    "name, mode", [*((name, "fused") for name in FUSED), *((name, "foreach") for name, *_ in CASES)]
)
def test_foreach_and_fused_do_not_change_results(name, mode):
    p, noise = start()
    plain, other = (list(run(name, options, p, noise)) for options in ({}, {mode: True}))
    np.testing.assert_allclose(plain, other, rtol=1e-12)


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES} - {"Adafactor"}))
def test_complex_parameters_move_as_pairs_of_numbers(name):
    p, noise = start()
    wanted = list(run(name, {}, p, noise))[-1]
    pairs = pullback.tensor(p[:, :2].tolist(), dtype=pullback.float64)
    param = pullback.view_as_complex(pairs).clone().requires_grad_(True)
    optimizer = getattr(optim, name)([param])
    for part in noise:
        grad = pullback.view_as_real(param.detach()) + pullback.tensor(part[:, :2].tolist())
        param.grad = pullback.view_as_complex(grad)
        optimizer.step()
    got = pullback.view_as_real(param.detach()).numpy()
    np.testing.assert_allclose(got, wanted[:, :2], rtol=1e-5)


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_half_precision_parameters_have_state_of_their_dtype(name):
    p, noise = start()
    param = pullback.tensor(p.tolist(), dtype=pullback.float16, requires_grad=True)
    optimizer = getattr(optim, name)([param], lr=0.5)
    param.grad = pullback.tensor(noise[0].tolist(), dtype=pullback.float16)
    optimizer.step()
    assert not np.allclose(param.detach().numpy(), p, atol=1e-3)
    for key, value in optimizer.state[param].items():
        small = key in ("step", "eta", "mu", "mu_product")
        assert value.dtype == (pullback.float32 if small else pullback.float16), key


def test_muon_steps_are_nearly_orthogonal():
    p, noise = start()
    for options, size in (({}, np.sqrt(4 / 3)), ({"adjust_lr_fn": "match_rms_adamw"}, 0.4)):
        options = {"lr": 0.5, "momentum": 0.0, "weight_decay": 0.0, **options}
        first = next(run("Muon", options, p, noise))
        u, _, v = np.linalg.svd(p + noise[0], full_matrices=False)
        step = (p - first) / (0.5 * size)
        values = np.linalg.svd(step, compute_uv=False)
        assert (np.abs(values - 1) < 0.35).all()  # five iterations leave 0.7 to 1.2
        assert np.linalg.norm(step - u @ v) < 0.5


def test_parameters_without_a_gradient_stay_and_have_no_state():
    used, unused = (pullback.ones(2, requires_grad=True) for _ in range(2))
    used.grad = pullback.ones(2)
    for name, *_ in CASES:
        optimizer = getattr(optim, name)([used, unused])
        optimizer.step()
        assert unused.tolist() == [1, 1]
        if name != "Adagrad":
            assert unused not in optimizer.state


@pytest.mark.parametrize("mode", [{}, {"fused": True}], ids=str)
def test_learning_rate_in_a_tensor_is_read_at_each_step(mode):
    param, lr = pullback.zeros(1, requires_grad=True), pullback.tensor(1.0)
    for kind in (optim.SGD, optim.Adam, optim.Adagrad):
        param.data.zero_()
        param.grad = pullback.ones(1)
        optimizer = kind([param], lr=lr.fill_(1.0), **mode)
        optimizer.step()
        assert param.item() == pytest.approx(-1)
        lr.fill_(0.0)
        optimizer.step()
        assert param.item() == pytest.approx(-1)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad])
def test_scaled_gradients_and_overflow(kind):
    """A gradient scaler hands over its scale and whether a gradient is not finite."""
    params = [pullback.ones(3, requires_grad=True) for _ in range(2)]
    plain, scaled = (kind([param], lr=0.1, fused=True) for param in params)
    assert scaled._step_supports_amp_scaling
    params[0].grad, params[1].grad = pullback.ones(3), pullback.ones(3) * 8
    plain.step()
    scaled.grad_scale, scaled.found_inf = pullback.tensor(8.0), pullback.tensor(0.0)
    scaled.step()
    assert params[1].tolist() == pytest.approx(params[0].tolist())
    scaled.found_inf = pullback.tensor(1.0)
    before = params[1].tolist()
    scaled.step()
    assert params[1].tolist() == before
    assert all(state.get("step", 1) == 1 for state in scaled.state.values())


def test_adafactor_keeps_what_has_finite_gradients():
    """As in torch: NaN does not count in the size of a step."""
    x = pullback.zeros(3, requires_grad=True)
    x.grad = pullback.tensor([float("nan"), 1.0, 2.0])
    optim.Adafactor([x], lr=0.1).step()
    assert x.isnan().tolist() == [True, False, False]
    np.testing.assert_allclose(x.detach()[1:], [-1e-4, -1e-4], rtol=1e-5)
