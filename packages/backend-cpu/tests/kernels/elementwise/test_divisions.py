"""Divisions with rest, bit for bit: they are computed in vectors where operands allow it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import DTYPES, INTEGRAL, run_kernel

from pullback.testing.kernel_calls import KernelError, Scalar

NAMES = ("floor_divide", "fmod", "remainder")
COUNT = 4000
EDGES = [0.0, 0.1, 0.5, 1.0, 3.0, 2.0**22, 2.0**23 - 0.5, 2.0**23, 2.0**24, 2.0**51, 2.0**52]
EDGES += [2.0**52 - 0.5, 2.0**53, np.inf, np.nan]


def wanted(name, x, y):
    """Return the quotient rounded down, or the rest, of operands without a divisor of 0."""
    rest = np.fmod(x, y)
    if x.dtype.kind != "f":
        rest = np.where((x == np.iinfo(x.dtype).min) & (y == -1), 0, rest)
    if name == "fmod":
        return rest.astype(x.dtype)
    crosses = (rest != 0) & ((rest < 0) != (y < 0))
    if name == "remainder":
        return np.where(crosses, rest + y, rest).astype(x.dtype)
    if x.dtype.kind != "f":
        return np.floor_divide(x, y)
    one = x.dtype.type(1)
    quotient = (x - rest) / y - np.where(crosses, one, one - one)
    whole = np.floor(quotient)
    whole += np.where(quotient - whole > 0.5, one, one - one)
    whole = np.where(quotient == 0, np.copysign(one - one, x / y), whole)
    return np.where(y == 0, x / y, whole)


def check(x, y):
    """Compare all kernels: contiguous, in place, a few elements, in steps and by one number."""
    with np.errstate(all="ignore"):
        for name in NAMES:
            expected = wanted(name, x, y)
            out = np.empty_like(x)
            run_kernel(name, out, [x, y])
            assert_same(out, expected)
            out = x.copy()
            run_kernel(name, out, [out, y])
            assert_same(out, expected)
            out = np.empty_like(x)[:7]
            run_kernel(name, out, [x[:7], y[:7]])
            assert_same(out, expected[:7])
            steps = np.empty_like(x)[: (x.size + 2) // 3 * 3 : 3]
            run_kernel(name, steps, [x[::3], y[::3]])
            assert_same(steps, expected[::3])
            out = np.empty_like(x)
            run_kernel(name, out, [x, Scalar(y[1:2].reshape(()))])
            assert_same(out, wanted(name, x, np.full_like(x, y[1])))
            run_kernel(name, out, [np.broadcast_to(x[1], y.shape), y])
            assert_same(out, wanted(name, np.full_like(x, x[1]), y))


def assert_same(out, expected):
    """Compare numbers and the signs of zeros."""
    np.testing.assert_array_equal(out, expected)
    if out.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(out[numbers]), np.signbit(expected[numbers]))


def random_integers(dtype, rng):
    """Return integers of all lengths."""
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, COUNT, dtype, endpoint=True)
    return drawn >> rng.integers(0, 8 * dtype.itemsize, COUNT).astype(dtype)


@pytest.mark.parametrize("name", INTEGRAL)
def test_integers_of_all_lengths(name):
    dtype, rng = DTYPES[name], np.random.default_rng(0)
    x, y = random_integers(dtype, rng), random_integers(dtype, rng)
    y[y == 0] = 1
    check(x, y)
    if name == "i64":
        for bits in (8, 11, 12, 13, 14):  # about the length up to which they are divided as floats
            check(x >> bits, np.where(y >> bits == 0, 7, y >> bits))


@pytest.mark.parametrize("name", INTEGRAL)
def test_integers_beside_multiples(name):
    dtype, rng = DTYPES[name], np.random.default_rng(1)
    info = np.iinfo(dtype)
    y = random_integers(dtype, rng)
    y[(y == 0) | (y == -1)] = 2
    x = random_integers(dtype, rng) // y * y + rng.integers(-1, 2, COUNT).astype(dtype)
    check(x, y)
    edges = [info.min, info.min + 1, -1, 0, 1, 2**50, -(2**50), info.max - 1, info.max]
    edges = np.array([n for n in edges if info.min <= n <= info.max], dtype)
    x, y = (part.ravel() for part in np.meshgrid(edges, edges[edges != 0]))
    check(x, y)
    y = np.arange(1, min(COUNT, int(info.max)) + 1).astype(dtype)
    check(np.full_like(y, info.max), y)
    check(np.full_like(y, info.min), y)


@pytest.mark.parametrize("name", INTEGRAL)
@pytest.mark.parametrize("count", [1, 40, 1000])
@pytest.mark.parametrize("primitive", NAMES)
def test_a_divisor_of_zero_anywhere(primitive, count, name):
    x = np.ones(count, DTYPES[name])
    for position in {0, count // 2, count - 1}:
        y = x.copy()
        y[position] = 0
        for operands in ([x, y], [x[::-1], y[::-1]], [x, Scalar(np.zeros((), x.dtype))]):
            with pytest.raises(KernelError, match="ZeroDivisionError"):
                run_kernel(primitive, np.empty_like(x), operands)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_floats_of_all_sizes(name):
    dtype, rng = DTYPES[name], np.random.default_rng(2)
    top = np.iinfo(f"u{dtype.itemsize}").max
    x, y = (rng.integers(0, top, COUNT, f"u{dtype.itemsize}").view(dtype) for _ in range(2))
    check(x, y)
    numbers = np.nan_to_num(x)
    check(x, numbers * np.exp2(rng.uniform(-60, 0, COUNT)).astype(dtype))
    x, y = (rng.standard_normal((2, COUNT)) * 10.0 ** rng.integers(-4, 5, (2, COUNT))).astype(dtype)
    check(x, y)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_floats_beside_multiples(name):
    dtype, rng = DTYPES[name], np.random.default_rng(3)
    bits = 22 if name == "f32" else 51
    y = rng.standard_normal(COUNT).astype(dtype)
    x = y * np.rint(rng.choice([-1, 1], COUNT) * np.exp2(rng.uniform(0, bits, COUNT))).astype(dtype)
    check(x, y)
    check(np.nextafter(x, dtype.type(np.inf)), y)
    check(np.nextafter(x, dtype.type(-np.inf)), y)
    whole = rng.integers(0, 2 ** (bits + 2), (2, COUNT)).astype(dtype)
    check(whole[0], np.ldexp(whole[1] + 1, rng.integers(-bits, bits, COUNT)).astype(dtype))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_special_floats(name):
    dtype = DTYPES[name]
    info = np.finfo(dtype)
    sizes = np.array([*EDGES, info.max, info.tiny, info.smallest_subnormal], dtype)
    edges = np.concatenate([sizes, -sizes])
    x, y = (part.ravel() for part in np.meshgrid(edges, edges))
    check(x, y)
    for i in range(0, x.size, 16):  # so that blocks without NaN and infinities occur
        check(x[i : i + 16].copy(), y[i : i + 16].copy())


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_halves_divide_as_floats(name):
    dtype, rng = DTYPES[name], np.random.default_rng(4)
    x, y = (rng.integers(0, 2**16, COUNT, np.uint16).view(dtype) for _ in range(2))
    near = rng.standard_normal((2, COUNT)).astype(dtype)
    for first, second in ((x, y), near):
        with np.errstate(all="ignore"):
            for primitive in NAMES:
                given_floats = [first.astype(np.float32), second.astype(np.float32)]
                floats = np.empty(COUNT, np.float32)
                run_kernel(primitive, floats, given_floats)
                out = np.empty(COUNT, dtype)
                run_kernel(primitive, out, [first, second])
                assert_same(out.astype(np.float32), floats.astype(dtype).astype(np.float32))
                reverse = out.copy()
                run_kernel(primitive, reverse[::-1], [first[::-1], second[::-1]])
                assert reverse.tobytes() == out.tobytes()


@given(st.lists(st.tuples(*(st.floats(width=32),) * 2), min_size=1, max_size=40))
@settings(deadline=None)
def test_any_floats(pairs):
    x, y = np.array(pairs, np.float32).T.copy()
    with np.errstate(all="ignore"):
        for name in NAMES:
            out = np.empty_like(x)
            run_kernel(name, out, [x, y])
            assert_same(out, wanted(name, x, y))
