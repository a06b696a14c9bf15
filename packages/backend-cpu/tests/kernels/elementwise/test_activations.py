"""Activations and their derivatives: errors against double precision, and special arguments."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import run_kernel
from scipy import special

ROOT = np.sqrt(2 / np.pi)


def density(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def gelu_tanh_share(x):
    return special.expit(2 * ROOT * (x + 0.044715 * x**3))


def gelu_tanh_derivative(x):
    share = gelu_tanh_share(x)
    return share + x * share * (1 - share) * 2 * ROOT * (1 + 3 * 0.044715 * x * x)


def silu_derivative(x):
    return special.expit(x) * (1 + x * special.expit(-x))


# The function in double, and the largest error of float32 in units in the last place.
UNARY = {
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 1.05),
    "gelu": (lambda x: x * special.ndtr(x), 6),
    "gelu_tanh": (lambda x: x * gelu_tanh_share(x), 30),
    "silu": (lambda x: x * special.expit(x), 4),
    "softplus": (lambda x: np.where(x > 20, x, np.logaddexp(0, x)), 2),
}
# The factors of the gradient; their error is compared with 1, because they pass through zero.
DERIVATIVES = {
    "gelu_backward": lambda x: special.ndtr(x) + x * density(x),
    "gelu_tanh_backward": gelu_tanh_derivative,
    "silu_backward": silu_derivative,
}


def numbers(low, high, kind):
    rng = np.random.default_rng(0)
    return np.concatenate([np.linspace(low, high, 5000), rng.standard_normal(5000)]).astype(kind)


@pytest.mark.parametrize("primitive", UNARY)
def test_errors_of_float32(primitive):
    function, bound = UNARY[primitive]
    x = numbers(-5, 30, np.float32)
    out = np.empty_like(x)
    run_kernel(primitive, out, [x])
    exact = function(x.astype(np.float64))
    error = np.abs(out - exact) / np.spacing(np.abs(exact.astype(np.float32)))
    assert error.max() <= bound, x[error.argmax()]


@pytest.mark.parametrize("primitive", UNARY)
@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_types(primitive, kind):
    x = numbers(-8, 30, kind)
    out = np.empty_like(x)
    run_kernel(primitive, out, [x])
    limit = 4 * float(np.finfo(kind).eps)
    np.testing.assert_allclose(
        out, UNARY[primitive][0](x.astype(np.float64)), rtol=limit, atol=limit
    )


@pytest.mark.parametrize("primitive", DERIVATIVES)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_derivatives(primitive, kind):
    x = numbers(-12, 12, kind)
    grad = x[::-1].copy()
    out = np.empty_like(x)
    run_kernel(primitive, out, [grad, x])
    expected = grad.astype(np.float64) * DERIVATIVES[primitive](x.astype(np.float64))
    limit = 64 * float(np.finfo(kind).eps)  # the reference rounds too
    np.testing.assert_allclose(out, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_logaddexp(kind):
    x = numbers(-100, 100, kind)
    y = np.roll(x, 37)
    out = np.empty_like(x)
    run_kernel("logaddexp", out, [x, y])
    expected = np.logaddexp(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=2 * np.finfo(kind).eps)


@pytest.mark.parametrize("primitive", UNARY)
def test_nan_of_any_bits_stays(primitive):
    x = np.arange(0x7F800001, 0x80000000, 9973, dtype=np.uint32).view(np.float32)
    out = np.empty_like(x)
    run_kernel(primitive, out, [x])
    assert np.isnan(out).all()


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("primitive", "given", "expected"),
    [
        ("elu", [INF, -INF, NAN, -0.0], [INF, -1, NAN, -0.0]),
        ("gelu", [INF, NAN, 0.0, -0.0, -60.0], [INF, NAN, 0.0, -0.0, -0.0]),
        ("gelu_tanh", [INF, NAN, 0.0, -0.0, -60.0], [INF, NAN, 0.0, -0.0, -0.0]),
        ("silu", [INF, NAN, 0.0, -0.0, -2000.0], [INF, NAN, 0.0, -0.0, -0.0]),
        ("softplus", [INF, -INF, NAN, 2000.0], [INF, 0, NAN, 2000.0]),
    ],
)
def test_special_values(primitive, given, expected, kind):
    x = np.array(given, kind)
    out = np.empty_like(x)
    run_kernel(primitive, out, [x])
    np.testing.assert_array_equal(out, np.array(expected, kind))
    zeros = out == 0
    np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(np.array(expected)[zeros]))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_logaddexp_of_special_values(kind):
    x = np.array([INF, -INF, INF, NAN, 1, -INF], kind)
    y = np.array([INF, -INF, -INF, 1, NAN, 3], kind)
    out = np.empty_like(x)
    run_kernel("logaddexp", out, [x, y])
    np.testing.assert_array_equal(out, np.array([INF, -INF, INF, NAN, NAN, 3], kind))
