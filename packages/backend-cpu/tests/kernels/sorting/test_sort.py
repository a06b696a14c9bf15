"""Stable sorting along the last dimension."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import COMPLEX, DTYPES, FLOATING, dtypes_of, run_kernel
from layouts import LAYOUTS, empty_like, sample, widen

from pullback.testing.kernel_calls import E_DTYPE, KernelError
from pullback_cpu.runtime import threads


def check_sort(values: np.ndarray, layout: str = "contiguous") -> None:
    """Compare with NumPy's stable sort, in both directions."""
    wide = widen(values)
    for descending in (0, 1):
        out, indices = empty_like(values, layout=layout), empty_like(values, np.int64, layout)
        run_kernel("sort", [out, indices], [LAYOUTS[layout](values)], descending)
        if descending:
            # Stable: sort the reversed line, reverse the result and number it from the other end.
            order = np.argsort(wide[..., ::-1], axis=-1, kind="stable")[..., ::-1]
            expected = values.shape[-1] - 1 - order if values.ndim else order
        else:
            expected = np.argsort(wide, axis=-1, kind="stable")
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_array_equal(widen(out), np.take_along_axis(wide, expected, -1))
        alone = empty_like(values, np.int64, layout)
        run_kernel("argsort", alone, [LAYOUTS[layout](values)], descending)
        np.testing.assert_array_equal(alone, expected)


@pytest.mark.parametrize("dtype", dtypes_of("sort"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (2,), (17,), (3, 4, 65), (2, 200), (2, 0), (3, 1500)], ids=str
)
def test_sort(dtype, layout, shape):
    check_sort(sample(dtype, shape, low=-5, high=5), layout)


@pytest.mark.parametrize("dtype", dtypes_of("sort"))
def test_sort_whole_range(dtype):
    rng = np.random.default_rng(4)
    kind = DTYPES[dtype]
    for n in (8, 300, 3000):
        if kind.kind == "b":
            check_sort(rng.random(n) < 0.5)
        else:
            check_sort(np.frombuffer(rng.bytes(n * kind.itemsize), kind).copy())


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("n", [6, 60, 6000])
def test_sort_nan_is_largest_and_zeros_are_equal(dtype, n):
    start = np.array([3, np.nan, -0.0, 0.0, -np.inf, -np.nan, np.inf], DTYPES[dtype])
    check_sort(np.resize(start, n))


@pytest.mark.parametrize("dtype", ["i64", "f64"])
@pytest.mark.parametrize("groups", [1, 2, 200, 3000])
def test_sort_of_keys_that_differ_in_their_last_bits(dtype, groups):
    rng = np.random.default_rng(groups)
    bits = rng.integers(0, groups, 3000) << 45 | rng.integers(0, 8, 3000)
    check_sort(bits.view(DTYPES[dtype]))
    check_sort(-bits.view(DTYPES[dtype]))


@pytest.mark.parametrize("shape", [(5, 3000), (3, 9000), (2, 3, 2000)], ids=str)
def test_threads_sort_as_one_does(shape):
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(3)
        check_sort(sample("f32", shape), "transposed")
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["u8", "i32", "bf16", "f32", "f64"])
@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize("count", [1, 10, 32, 33, 900])
@pytest.mark.parametrize("order", ["any", "rising", "falling", "equal"])
def test_the_first_of_long_lines(dtype, descending, count, order):
    values = sample(dtype, (2, 20_000), low=-90, high=100)
    if order == "equal":
        values[...] = 3
    elif order != "any":
        values.sort()
        values = values if order == "rising" else values[..., ::-1].copy()
    out, indices = np.zeros((2, count), values.dtype), np.zeros((2, count), np.int64)
    run_kernel("sort", [out, indices], [values], descending)
    keys = -widen(values).astype(np.float64) if descending else widen(values)
    expected = np.argsort(keys, axis=-1, kind="stable")[..., :count]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(out, np.take_along_axis(values, expected, -1))


@given(st.lists(st.floats(width=32), max_size=80))
@settings(deadline=None)
def test_sort_any_floats(numbers):
    check_sort(np.array(numbers, np.float32))


@pytest.mark.parametrize("dtype", dtypes_of("sort"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("descending", [0, 1])
def test_the_first_of_a_sort(dtype, layout, descending):
    calls = ((3, 7), 2), ((2, 90), 60), ((4, 3000), 5), ((1, 9000), 1500), ((2, 5), 0)
    for shape, count in calls:
        values = sample(dtype, shape, low=-5, high=5)
        whole = [np.empty(shape, values.dtype), np.empty(shape, np.int64)]
        run_kernel("sort", whole, [values], descending)
        first = [empty_like(part[:, :count].copy(), part.dtype, layout) for part in whole]
        run_kernel("sort", first, [LAYOUTS[layout](values)], descending)
        for part, expected in zip(first, whole):
            np.testing.assert_array_equal(widen(part), widen(expected[:, :count]))


@given(st.lists(st.floats(width=16), min_size=1, max_size=60), st.integers(1, 60))
@settings(deadline=None)
def test_the_first_of_any_floats(numbers, count):
    values = np.resize(np.array(numbers, np.float32), 5000)
    values[: len(numbers)] += np.float32(0.5)
    out, indices = np.empty(count, np.float32), np.empty(count, np.int64)
    run_kernel("sort", [out, indices], [values], 0)
    expected = np.argsort(values, kind="stable")[:count]
    np.testing.assert_array_equal(indices, expected)


def test_sort_of_a_scalar():
    out, index = np.zeros(()), np.ones((), np.int64)
    run_kernel("sort", [out, index], [np.array(4.0)], 0)
    assert (out, index) == (4, 0)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_sort_refuses_complex(dtype):
    values = np.zeros(3, DTYPES[dtype])
    with pytest.raises(KernelError) as info:
        run_kernel("sort", [values.copy(), np.zeros(3, np.int64)], [values], 0)
    assert info.value.code == E_DTYPE
