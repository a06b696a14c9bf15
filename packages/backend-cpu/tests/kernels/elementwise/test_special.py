"""Errors of special functions against mpmath, and incomplete gamma functions at their edges."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_calls import run_kernel
from ulp import NUMPY
from ulp_special import arguments, truth

import pullback as pb
from pullback_cpu.runtime.isa import ISA

# Units in the last place, as ulp_special counts them.
BOUND = {"f32": 1, "f64": 4}
PRIMITIVES = {
    **{
        name: name
        for name in (
            "bessel_j0",
            "bessel_j1",
            "bessel_y1",
            "chebyshev_polynomial_t",
            "chebyshev_polynomial_w",
            "hermite_polynomial_h",
            "hermite_polynomial_he",
            "i0",
            "laguerre_polynomial_l",
            "legendre_polynomial_p",
            "ndtr",
            "shifted_chebyshev_polynomial_v",
        )
    },
    "gammainc": "igamma",
    "gammaincc": "igammac",
}
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_error_of_special_function(name, dtype):
    values = arguments(name, dtype, 60)
    (exact, rest), scale = truth(name, dtype, values)
    out = np.empty_like(values[0])
    run_kernel(PRIMITIVES[name], out, list(values))
    last = np.spacing(scale.astype(out.dtype)).astype(float)
    error = np.abs((out.astype(float) - exact) - rest) / last
    worst = np.nanargmax(error)
    assert not np.isnan(error).any()
    assert error[worst] <= BOUND[dtype], [x[worst] for x in values]


def gamma_parts(a: float, x: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return P and Q by their series and continued fraction, DLMF 8.11.4 and 8.9.2."""
    with mpmath.workprec(200):
        a, x = mpmath.mpf(a), mpmath.mpf(x)
        factor = mpmath.exp(a * mpmath.log(x) - x - mpmath.loggamma(a + 1))
        if x < 1 or x < a + 1 + 2 * mpmath.sqrt(a):
            n, term, total = 0, mpmath.mpf(1), mpmath.mpf(1)
            while term > total * mpmath.mpf(2) ** -190:
                n += 1
                term *= x / (a + n)
                total += term
            return factor * total, 1 - factor * total
        below = mpmath.mpf(1e6)
        for k in range(800, -1, -1):
            below = x + 1 - a + 2 * k + (k + 1) * (a - k - 1) / below
        return 1 - factor * a / below, factor * a / below


def gamma_arguments(region: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)

    def spread(low, high, count=40):
        return rng.uniform(low, high, count)

    if region == "small":
        return spread(0.06, 5), spread(0.01, 9)
    if region == "series and fraction":
        a = spread(0.06, 200)
        return a, a + 1 + 2 * np.sqrt(a) * spread(0.97, 1.03)
    if region == "small a":
        return np.exp(spread(-30, -3)), np.exp(spread(-1.38, 4))
    if region == "small x":
        return np.exp(spread(-5, 4)), np.exp(spread(-40, 1))
    if region == "huge a":
        a = spread(1e5, 3e5, 12)
        return a, a + np.sqrt(a) * spread(4, 37, 12) * np.sign(spread(-1, 1, 12))
    a = np.exp(spread(np.log(200), np.log(5000)))
    if region == "large":
        return a, a + np.sqrt(20 * a) * spread(1.01, 2) * np.sign(spread(-1, 1))
    a[:3] = 200, 300, 1000.5
    x = a + np.sqrt(20 * a) * spread(-1, 1) ** 3
    x[:3] = a[:3]
    return a, x


REGIONS = ["small", "series and fraction", "small a", "small x", "large", "middle", "huge a"]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("region", REGIONS)
def test_error_of_incomplete_gamma_function(region, upper):
    if region in ("middle", "huge a") and ISA == "baseline":
        pytest.skip("SciPy's, which is off by more")
    a, x = gamma_arguments(region)
    out = np.empty_like(a)
    run_kernel("igammac" if upper else "igamma", out, [a, x])
    for found, first, second in zip(out, a, x, strict=True):
        exact = gamma_parts(float(first), float(second))[upper]
        last = max(np.spacing(float(exact)), 5e-324)
        assert abs(mpmath.mpf(float(found)) - exact) / last <= 4, (first, second)


@pytest.mark.parametrize("dtype", NUMPY)
def test_edges_of_incomplete_gamma_functions(dtype):
    huge = float(np.finfo(NUMPY[dtype]).max)
    cases = [      # a, x, P
        (0, 1, 1), (1, 0, 0), (0, 0, NAN), (2, INF, 1), (INF, 2, 0), (INF, INF, NAN),
        (-1, 1, NAN), (1, -1, NAN), (NAN, 1, NAN), (1, NAN, NAN), (5, huge, 1), (1e4, 1e6, 1),
        (1, 1e-37, 1e-37), (0.5, 2e6, 1), (1e5, 1e-3, 0), (100, 1e-30, 0), (huge, 1, 0),
    ]  # fmt: skip
    a, x, expected = (np.array(column, NUMPY[dtype]) for column in zip(*cases, strict=True))
    lower, upper = np.empty_like(a), np.empty_like(a)
    run_kernel("igamma", lower, [a, x])
    run_kernel("igammac", upper, [a, x])
    np.testing.assert_array_equal(lower, expected)
    np.testing.assert_array_equal(upper, 1 - expected)


def test_incomplete_gamma_functions_of_all_kinds_in_one_block():
    rng = np.random.default_rng(5)
    a, x = np.exp(rng.uniform(-6, 9, 1500)), np.exp(rng.uniform(-6, 9, 1500))
    a[::97] = NAN
    x[::89] = 0
    both = []
    for primitive in ("igamma", "igammac"):
        out, alone = np.empty_like(a), np.empty_like(a)
        run_kernel(primitive, out, [a, x])
        for k in range(a.size):
            run_kernel(primitive, alone[k : k + 1], [a[k : k + 1], x[k : k + 1]])
        np.testing.assert_array_equal(out, alone)
        both.append(out)
    np.testing.assert_allclose(both[0] + both[1], np.where(np.isnan(a), NAN, 1), rtol=5e-15)


def test_polynomials_of_float32_of_large_degrees():
    x = np.linspace(-1, 1, 300, dtype=np.float32)
    n = np.resize(np.array([3, 255, 256, 257, 300, 2000], np.float32), 300)
    for primitive in ("legendre_polynomial_p", "chebyshev_polynomial_u"):
        out, wide = np.empty_like(x), np.empty(300)
        run_kernel(primitive, out, [x, n])
        run_kernel(primitive, wide, [x.astype(float), n.astype(float)])
        np.testing.assert_allclose(out, wide, rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("name", sorted(n for n in dir(pb.special) if "polynomial" in n))
@pytest.mark.parametrize("dtype", [pb.float32, pb.float64], ids=str)
def test_polynomials_that_are_zero_have_no_sign(name, dtype):
    degrees = pb.arange(12, dtype=dtype)
    for x in (pb.zeros(12, dtype=dtype), pb.ones(12, dtype=dtype), -pb.ones(12, dtype=dtype)):
        mixed = getattr(pb.special, name)(x, degrees)
        alone = pb.stack([getattr(pb.special, name)(x[0], n) for n in range(12)])
        for found in (mixed, alone):
            assert not pb.signbit(found[found == 0]).any()
