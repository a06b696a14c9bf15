"""Errors of the elementwise functions, and their values at special arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_calls import run_kernel
from ulp import FUNCTIONS, NUMPY, PAIRS, errors, pairs, points, reference

from pullback_cpu.runtime.isa import ISA

# Units in the last place: of most functions, and of those that are farther off. Of float64, cosh
# and lgamma are the mathematics library's.
BOUND = {"f32": 1.0, "f64": 1.05}
OTHERS = {
    "f32": {"sigmoid": 1.3 if ISA == "baseline" else 1, "softplus": 1.05},
    "f64": {
        "cos": 1.4,
        "cosh": 2.5,
        "digamma": 3,
        "erfc": 1.6,
        "exp": 1.15,
        "exp2": 1.15,
        "lgamma": 4,
        "log2": 1.3,
        "pow": 1.15,
        "sigmoid": 1.3 if ISA == "baseline" else 1.05,
        "sin": 1.4,
        "softplus": 1.5,
        "tanh": 1.6,
    },
}


def bound_of(primitive: str, dtype: str) -> float:
    return OTHERS[dtype].get(primitive, BOUND[dtype])


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("primitive", FUNCTIONS)
def test_error_of_function(primitive, dtype):
    values = points(primitive, dtype)
    out = np.empty_like(values)
    run_kernel(primitive, out, [values])
    error = errors(out, reference(FUNCTIONS[primitive].reference, dtype, values))
    worst = np.nanargmax(error)
    assert not np.isnan(error).any()
    assert error[worst] <= bound_of(primitive, dtype), values[worst]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("primitive", PAIRS)
def test_error_of_function_of_two(primitive, dtype):
    x, y = pairs(primitive, dtype)
    out = np.empty_like(x)
    run_kernel(primitive, out, [x, y])
    error = errors(out, reference(PAIRS[primitive], dtype, x, y))
    worst = np.nanargmax(error)
    assert not np.isnan(error).any()
    assert error[worst] <= bound_of(primitive, dtype), (x[worst], y[worst])


def test_digamma_next_to_its_root():
    values = np.array([1.4616321449683622, *np.nextafter(1.4616321449683622, [0, 9])])
    values = np.concatenate([values, 1.4616321449683622 + np.array([1e-12, -1e-9, 1e-6, -1e-3])])
    out = np.empty_like(values)
    run_kernel("digamma", out, [values])
    assert errors(out, reference(FUNCTIONS["digamma"].reference, "f64", values)).max() <= 3


@pytest.mark.parametrize("dtype", NUMPY)
def test_power_of_special_values(dtype):
    numbers = NUMPY[dtype].type
    tiny = np.finfo(numbers).smallest_subnormal
    values = [0, 1, 2, 3, 0.5, 1.5, np.inf, float(tiny), float(np.finfo(numbers).max), 1e7 + 1]
    values = np.array([*values, *(-v for v in values), np.nan], numbers)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    out = np.empty_like(x)
    run_kernel("pow", out, [x, y])
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(numbers)
    limit = 4 * float(np.finfo(numbers).eps)
    np.testing.assert_allclose(out, expected, rtol=limit, atol=float(tiny))
    np.testing.assert_array_equal(np.signbit(out[out == 0]), np.signbit(expected[out == 0]))


LIMITS = {
    "exp": [(np.inf, np.inf), (-np.inf, 0), (1e30, np.inf), (-1e30, 0), (0, 1)],
    "exp2": [(np.inf, np.inf), (-np.inf, 0), (1e30, np.inf), (-1e30, 0), (10, 1024), (-1, 0.5)],
    "expm1": [(np.inf, np.inf), (-np.inf, -1), (-1e30, -1), (-0.0, -0.0)],
    "log": [(np.inf, np.inf), (0, -np.inf), (-0.0, -np.inf), (-1, np.nan), (1, 0)],
    "log2": [(np.inf, np.inf), (0, -np.inf), (-np.inf, np.nan), (1024, 10), (0.125, -3)],
    "log10": [(np.inf, np.inf), (-0.0, -np.inf), (-1e-30, np.nan), (1000, 3)],
    "log1p": [(np.inf, np.inf), (-1, -np.inf), (-1.5, np.nan), (-0.0, -0.0), (0, 0)],
    "lgamma": [
        (0, np.inf),
        (-0.0, np.inf),
        (1, 0),
        (2, 0),
        (-1, np.inf),
        (np.inf, np.inf),
        (-np.inf, np.inf),
    ],
    "sigmoid": [(np.inf, 1), (-np.inf, 0), (0, 0.5), (1e30, 1)],
    "tanh": [(np.inf, 1), (-np.inf, -1), (-0.0, -0.0), (1e30, 1)],
    "erf": [(np.inf, 1), (-np.inf, -1), (-0.0, -0.0)],
    "erfc": [(np.inf, 0), (-np.inf, 2), (0, 1)],
    "entr": [(np.inf, -np.inf), (-1, -np.inf), (0, 0), (-0.0, 0), (1, -0.0)],
    "logit": [(0, -np.inf), (-0.0, -np.inf), (1, np.inf), (0.5, 0), (-1, np.nan), (2, np.nan)],
    "ndtr": [(np.inf, 1), (-np.inf, 0), (0, 0.5), (-0.0, 0.5), (40, 1), (-40, 0)],
    "sinc": [(0, 1), (-0.0, 1), (3, 0), (-4, 0), (1e30, 0), (np.inf, np.nan)],
    "sin": [(np.inf, np.nan), (-0.0, -0.0), (0, 0)],
    "cos": [(-np.inf, np.nan), (0, 1)],
    "tan": [(np.inf, np.nan), (-0.0, -0.0)],
    "asin": [(1.5, np.nan), (-0.0, -0.0), (np.inf, np.nan)],
    "acos": [(1, 0), (-1.5, np.nan), (np.inf, np.nan)],
    "atan": [(-0.0, -0.0)],
    "sinh": [(np.inf, np.inf), (-np.inf, -np.inf), (-0.0, -0.0)],
    "cosh": [(np.inf, np.inf), (-np.inf, np.inf), (0, 1)],
    "asinh": [(np.inf, np.inf), (-np.inf, -np.inf), (-0.0, -0.0)],
    "acosh": [(1, 0), (0.5, np.nan), (np.inf, np.inf), (-np.inf, np.nan)],
    "atanh": [(1, np.inf), (-1, -np.inf), (2, np.nan), (-0.0, -0.0)],
    "rsqrt": [(0, np.inf), (np.inf, 0), (-1, np.nan), (4, 0.5)],
}


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("primitive", LIMITS)
def test_special_values(primitive, dtype):
    values = np.array([x for x, _ in LIMITS[primitive]] + [np.nan], NUMPY[dtype])
    expected = np.array([y for _, y in LIMITS[primitive]] + [np.nan], NUMPY[dtype])
    for repeat in (1, 40):  # loops of vectors, and what they leave
        out = np.empty(values.size * repeat, values.dtype)
        run_kernel(primitive, out, [np.tile(values, repeat)])
        np.testing.assert_array_equal(out, np.tile(expected, repeat))
        zeros = out == 0
        np.testing.assert_array_equal(
            np.signbit(out[zeros]), np.signbit(np.tile(expected, repeat)[zeros])
        )


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("primitive", ["sin", "cos", "tan"])
def test_huge_angles_among_small_ones(primitive, dtype):
    values = np.linspace(-50, 50, 3000).astype(NUMPY[dtype])
    values[[0, 7, 1023, 1024, 2999]] = [1e30, -3e38, 65536, 1e8, -1e20]
    out = np.empty_like(values)
    run_kernel(primitive, out, [values])
    for k in (0, 1, 7, 8, 1023, 1024, 1025, 2999):
        assert math.isclose(
            out[k], getattr(math, primitive)(values[k].item()), rel_tol=1e-5, abs_tol=1e-6
        )


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize(
    "primitive",
    ["cos", "erfc", "exp", "log", "log10", "log1p", "log2", "rsqrt", "sin", "sqrt", "tan"],
)
def test_results_do_not_depend_on_neighbours(primitive, dtype):
    # Blocks without special arguments are computed in a shorter way.
    values = np.random.default_rng(3).uniform(0.01, 20, 3001).astype(NUMPY[dtype])
    whole, part = np.empty_like(values), np.empty_like(values)
    run_kernel(primitive, whole, [values])
    for first in range(0, values.size, 7):
        few = values[first : first + 7].copy()
        out = np.empty_like(few)
        run_kernel(primitive, out, [few])
        part[first : first + 7] = out
    np.testing.assert_array_equal(whole, part)
    mixed, out = values.copy(), np.empty_like(values)
    mixed[::300] = np.nan
    run_kernel(primitive, out, [mixed])
    whole[::300] = np.nan
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("primitive", ["erfc", "gelu", "tanh"])
def test_functions_by_pieces_go_on_beyond_their_tables(primitive):
    # Neighbours of the bounds between intervals, of the last one's end, and numbers far beyond.
    ends = np.array(
        [
            3.9375,
            3.9375 * 2**0.5,
            9.25,
            31.5 / 3.4,
            *(np.arange(32) + 0.5) / 8,
            *(np.arange(32) + 0.5) / 3.4,
        ],
        np.float32,
    )
    values = np.concatenate(
        [
            ends,
            np.nextafter(ends, np.float32(99)),
            np.nextafter(ends, np.float32(0)),
            np.float32([12, 100, 3e38, np.inf]),
        ]
    )
    values = np.concatenate([values, -values[:-1]])
    expected = np.array(
        [
            {"erfc": math.erfc(x), "gelu": x * 0.5 * math.erfc(-x / 2**0.5), "tanh": math.tanh(x)}[
                primitive
            ]
            for x in values.tolist()
        ]
    )
    out = np.empty_like(values)
    run_kernel(primitive, out, [values])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=2e-38)


@pytest.mark.parametrize("length", [1, 3, 8, 15, 255, 256, 257, 1025, 3000])
def test_blocks_of_any_length(length):
    for dtype, numbers in NUMPY.items():
        values = np.random.default_rng(length).uniform(-3, 3, length).astype(numbers)
        expected = np.empty_like(values)
        run_kernel("tanh", expected, [values])
        strided = np.repeat(values, 3)[::3]
        out = np.zeros(2 * length, numbers)[::2]
        run_kernel("tanh", out, [strided])
        np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(numbers).eps, err_msg=dtype)
        run_kernel("tanh", values, [values])
        np.testing.assert_allclose(values, expected, rtol=4 * np.finfo(numbers).eps)
