"""Pooling windows: the largest element, the mean and its backward pass."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import run_kernel
from layouts import sample

from pullback.testing.kernel_calls import KernelError

TOLERANCE = {"f32": 1e-5, "f64": 1e-13}


def members(size, count, number, side):
    """Return the indices of a window that are inside a dim, in order."""
    kernel, stride, padding, dilation = side
    if not kernel:
        return range(number * size // count, -(-(number + 1) * size // count))
    start = number * stride - padding
    return [p for p in range(start, start + kernel * dilation, dilation) if 0 <= p < size]


def windows(sizes, counts, sides):
    """Yield each window's number by dim, and the indices of its elements, row by row."""
    for spot in itertools.product(*map(range, counts)):
        lines = [members(*of) for of in zip(sizes, counts, spot, sides)]
        yield spot, list(itertools.product(*lines))


def parameters_of(sides):
    """Return the sides as the kernels take them: by parameter, then by dim."""
    return tuple(number for part in zip(*sides) for number in part)


def count_of(size, side):
    """Return the number of windows that begin inside the dim or before it."""
    kernel, stride, padding, dilation = side
    return max((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 1)


def search(plane, counts, sides):
    """Return the largest elements and their indices, by a loop over all elements."""
    values, indices = np.empty(counts, plane.dtype), np.empty(counts, np.int64)
    for spot, found in windows(plane.shape, counts, sides):
        best, index = -math.inf, found[0] if found else None
        for at in found:
            if plane[at] > best or math.isnan(plane[at]):
                best, index = plane[at], at
        values[spot] = best
        indices[spot] = np.ravel_multi_index(index, plane.shape) if found else -1
    return values, indices


SIDES = {
    "pairs": ((7,), ((2, 2, 0, 1),)),
    "padded": ((5, 9), ((3, 2, 1, 1), (3, 1, 1, 1))),
    "wide": ((4, 300), ((2, 1, 0, 1), (3, 2, 1, 1))),
    "short rows": ((41, 11), ((3, 2, 1, 1), (3, 2, 1, 1))),
    "dilated": ((6, 40), ((2, 2, 0, 3), (3, 3, 1, 2))),
    "volume": ((3, 4, 17), ((2, 1, 1, 1), (3, 2, 1, 1), (2, 1, 0, 1))),
    "adaptive": ((5, 7), ((0, 1, 0, 1), (0, 1, 0, 1))),
    "whole": ((6, 20), ((6, 6, 0, 1), (20, 20, 0, 1))),
    "long": ((2500,), ((1200, 400, 100, 1),)),
}


def case(name):
    """Return sizes, counts and sides."""
    sizes, sides = SIDES[name]
    counts = tuple(3 if not side[0] else count_of(n, side) for n, side in zip(sizes, sides))
    return sizes, counts, sides


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("step", [None, 1])
def test_largest_elements(dtype, name, step):
    sizes, counts, sides = case(name)
    source = sample(dtype, (2, *sizes), seed=1)
    if step:  # so that many are equal
        source = np.round(source).astype(source.dtype)
    values, indices = np.empty((2, *counts), source.dtype), np.empty((2, *counts), np.int64)
    run_kernel("max_pool", [values, indices], [source], parameters_of(sides))
    for number in range(2):
        expected = search(source[number], counts, sides)
        np.testing.assert_array_equal(values[number], expected[0])
        np.testing.assert_array_equal(indices[number], expected[1])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_nan_and_infinity_among_the_largest(dtype):
    rng = np.random.default_rng(2)
    choices = [math.nan, -math.inf, math.inf, -0.0, 0.0, 1.0]
    source = rng.choice(choices, (6, 70)).astype(sample(dtype, ()).dtype)
    for sides in (((2, 2, 0, 1), (2, 2, 0, 1)), ((3, 1, 1, 1), (3, 1, 1, 1))):
        counts = tuple(map(count_of, source.shape, sides))
        values, indices = np.empty(counts, source.dtype), np.empty(counts, np.int64)
        run_kernel("max_pool", [values, indices], [source], parameters_of(sides))
        expected = search(source, counts, sides)
        np.testing.assert_array_equal(values, expected[0])
        np.testing.assert_array_equal(indices, expected[1])


def test_window_without_elements():
    source = np.ones((3,))
    values, indices = np.empty((1,)), np.empty((1,), np.int64)
    run_kernel("max_pool", [values, indices], [source], (2, 1, 1, 4))
    assert values[0] == -math.inf
    assert 0 <= indices[0] < 3


def divisor_of(sizes, counts, spot, sides, padded):
    """Return how many elements a window counts."""
    return math.prod(
        len(members(size + 2 * more, count, number, (side[0], side[1], side[2] - more, 1)))
        for size, count, number, side in zip(sizes, counts, spot, sides)
        for more in [side[2] if padded else 0]
    )


def mean_matrix(sizes, counts, sides, padded, divisor):
    """Return the matrix of the mean for one plane."""
    matrix = np.zeros((math.prod(counts), math.prod(sizes)))
    for row, (spot, found) in enumerate(windows(sizes, counts, sides)):
        share = divisor or divisor_of(sizes, counts, spot, sides, padded)
        for at in found:
            matrix[row, np.ravel_multi_index(at, sizes)] = 1 / share
    return matrix


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", [name for name in SIDES if name != "dilated"])
@pytest.mark.parametrize(("padded", "divisor"), [(0, 0), (1, 0), (0, -3)])
def test_mean_and_its_backward(dtype, name, padded, divisor):
    sizes, counts, sides = case(name)
    room = TOLERANCE[dtype] * 30
    matrix = mean_matrix(sizes, counts, sides, padded, divisor)
    source = sample(dtype, (3, *sizes), seed=3)
    out = np.full((3, *counts), np.nan, source.dtype)
    run_kernel("avg_pool", out, [source], parameters_of(sides), padded, divisor)
    expected = source.reshape(3, -1).astype(float) @ matrix.T
    np.testing.assert_allclose(out.reshape(3, -1), expected, rtol=room, atol=room)
    back = np.full(source.shape, np.nan, source.dtype)
    run_kernel("avg_pool_backward", back, [out], parameters_of(sides), padded, divisor)
    expected = out.reshape(3, -1).astype(float) @ matrix
    np.testing.assert_allclose(back.reshape(3, -1), expected, rtol=room, atol=room)


SIZE = st.integers(1, 12)
SIDE = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZE, SIDE), min_size=1, max_size=3), st.integers(0, 9))
def test_any_parameters(dims, seed):
    sizes = tuple(size for size, _ in dims)
    sides = [(k, s, min(p, k // 2), d) for _, (k, s, p, d) in dims]
    counts = tuple(map(count_of, sizes, sides))
    source = np.random.default_rng(seed).integers(-3, 3, sizes).astype(np.float32)
    values, indices = np.empty(counts, np.float32), np.empty(counts, np.int64)
    run_kernel("max_pool", [values, indices], [source], parameters_of(sides))
    expected = search(source, counts, sides)
    np.testing.assert_array_equal(values, expected[0])
    inside = expected[1] >= 0
    np.testing.assert_array_equal(indices[inside], expected[1][inside])


def test_many_planes_are_like_one():
    source = sample("f32", (64, 40, 40), seed=5)
    parameters = (3, 3, 2, 2, 1, 1, 1, 1)
    values, indices = np.empty((64, 20, 20), np.float32), np.empty((64, 20, 20), np.int64)
    means = np.empty((64, 20, 20), np.float32)
    run_kernel("max_pool", [values, indices], [source], parameters)
    run_kernel("avg_pool", means, [source], parameters, 1, 0)
    for number in (0, 31, 63):
        one, index, mean = (np.empty((20, 20), part.dtype) for part in (values, indices, means))
        run_kernel("max_pool", [one, index], [source[number]], parameters)
        run_kernel("avg_pool", mean, [source[number]], parameters, 1, 0)
        np.testing.assert_array_equal(values[number], one)
        np.testing.assert_array_equal(indices[number], index)
        np.testing.assert_array_equal(means[number], mean)


def test_nothing():
    run_kernel(
        "max_pool",
        [np.empty((0, 2)), np.empty((0, 2), np.int64)],
        [np.empty((0, 5))],
        (2, 2, 0, 1),
    )
    back = np.full((2, 3), np.nan)
    run_kernel("avg_pool_backward", back, [np.empty((2, 0))], (2, 2, 0, 1), 0, 0)
    assert (back == 0).all()


@pytest.mark.parametrize(
    "parameters",
    [(1, 1, 0), (1,) * 16, (2, 0, 0, 1), (-1, 1, 0, 1), (2, 1, 0, 0), (2, 1, -1, 1), ()],
)
def test_parameters_without_a_window(parameters):
    out = [np.empty((2, 2, 2, 2)), np.empty((2, 2, 2, 2), np.int64)]
    with pytest.raises(KernelError):
        run_kernel("max_pool", out, [np.ones((2, 2, 2, 2))], parameters)
