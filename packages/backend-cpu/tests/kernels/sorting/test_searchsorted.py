"""Positions in sorted rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import FLOATING, dtypes_of, run_kernel
from layouts import LAYOUTS, empty_like, sample, widen

from pullback.testing.kernel_calls import E_VALUE, KernelError


def find(bounds, values, right=0, nan_last=0, layout="contiguous"):
    out = empty_like(values, np.int64, layout)
    operands = [LAYOUTS[layout](bounds), LAYOUTS[layout](values)]
    run_kernel("searchsorted", out, operands, right, nan_last)
    return out


@pytest.mark.parametrize("dtype", dtypes_of("searchsorted"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 100])
def test_searchsorted(dtype, layout, count):
    bounds = np.sort(sample(dtype, (3, count), low=-9, high=9), -1)
    values = sample(dtype, (3, 150), seed=1, low=-10, high=10)
    for right, side in enumerate(("left", "right")):
        found = find(bounds, values, right, layout=layout)
        for row, bound, value in zip(found, widen(bounds), widen(values), strict=True):
            np.testing.assert_array_equal(row, np.searchsorted(bound, value, side))


@pytest.mark.parametrize("dtype", FLOATING)
def test_searchsorted_with_nan(dtype):
    bounds = sample(dtype, (1, 4))
    bounds[0] = [1, 2, np.nan, np.nan]
    values = sample(dtype, (1, 3))
    values[0] = [1.5, 3, np.nan]
    assert find(bounds, values, 0, 1).tolist() == [[1, 2, 2]]
    bounds[0] = [np.nan, np.nan, 1, 2]
    assert find(bounds, values, 0, 0).tolist() == [[3, 4, 4]]
    assert find(bounds, values, 1, 0).tolist() == [[3, 4, 4]]


def halve(bounds, value, right):
    low, high = 0, len(bounds)
    while low < high:
        middle = (low + high) // 2
        found = bounds[middle] > value if right else bounds[middle] >= value
        low, high = (low, middle) if found else (middle + 1, high)
    return low


@given(st.lists(st.floats(width=32), max_size=40), st.lists(st.floats(width=32), max_size=5))
@settings(deadline=None)
def test_searchsorted_halves_any_row(bounds, values):
    found = [
        find(np.array([bounds], np.float32), np.array([values], np.float32), right)
        for right in (0, 1)
    ]
    for right in (0, 1):
        assert found[right].tolist() == [[halve(bounds, value, right) for value in values]]


def test_searchsorted_needs_rows_of_one_dtype():
    with pytest.raises(KernelError) as info:
        find(np.zeros((1, 3)), np.zeros((1, 3), np.float32))
    assert info.value.code == E_VALUE
