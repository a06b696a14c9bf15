"""Rows, strips and blocks: elementwise calls in layouts that take different ways through them."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from kernel_calls import run_kernel

KINDS = (np.uint8, np.int16, np.float16, np.float32, np.int64, np.complex128)
SHAPES = ((300, 17), (16, 130), (33, 5, 47), (2, 19, 257))


def numbered(shape, kind):
    """An array whose elements differ as far as the type allows."""
    return (np.arange(np.prod(shape)) % 2039).astype(kind).reshape(shape)


def views(shape, kind):
    """Arrays of one shape, in every order of dimensions, with gaps and backwards."""
    for order in permutations(range(len(shape))):
        base = numbered([shape[d] for d in order], kind)
        yield base.transpose(np.argsort(order))
    wide = numbered([2 * n for n in shape], kind)
    yield wide[tuple(slice(None, None, 2) for _ in shape)]
    yield wide[tuple(slice(n, None) for n in shape)]
    yield numbered(shape, kind)[tuple(slice(None, None, -1) for _ in shape)]
    yield np.broadcast_to(numbered(shape[-1:], kind), shape)
    yield np.broadcast_to(numbered([*shape[:-1], 1], kind), shape)


def empty_like_view(view):
    """A zeroed array with the strides of a view, those of size 0 made contiguous."""
    if not all(view.strides):
        return np.zeros(view.shape, view.dtype)
    low = sum(min(0, step * (n - 1)) for step, n in zip(view.strides, view.shape, strict=True))
    high = sum(max(0, step * (n - 1)) for step, n in zip(view.strides, view.shape, strict=True))
    memory = np.zeros((high - low) // view.itemsize + 1, view.dtype)
    return np.lib.stride_tricks.as_strided(
        memory[-low // view.itemsize :], view.shape, view.strides
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_between_all_layouts(shape, kind):
    for source, target in product(views(shape, kind), views(shape, kind)):
        out = empty_like_view(target)
        run_kernel("copy", out, [source])
        np.testing.assert_array_equal(out, source)


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.complex128])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_inputs_in_all_layouts(shape, kind):
    for x, y in product(views(shape, kind), repeat=2):
        out = empty_like_view(x)
        run_kernel("add", out, [x, y])
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("shape", SHAPES)
def test_three_inputs_of_different_sizes(shape):
    for c, x in product(views(shape, np.uint8), views(shape, np.float64)):
        condition = c % 2 == 0
        y = -np.asfortranarray(x)
        out = empty_like_view(x)
        run_kernel("where", out, [condition, x, y])
        np.testing.assert_array_equal(out, np.where(condition, x, y))


@pytest.mark.parametrize("layout", range(8))
def test_in_place_in_every_layout(layout):
    x = list(views((33, 5, 47), np.float32))[layout]
    out = empty_like_view(x)
    out[...] = x
    run_kernel("sqrt", out, [out])
    np.testing.assert_array_equal(out, np.sqrt(x))


@pytest.mark.parametrize("length", [63, 64, 255, 256, 257, 1000])
@pytest.mark.parametrize("step", [-3, -1, 2, 5])
def test_strided_lines(length, step):
    x = numbered(length * abs(step), np.float32)[::step]
    out = np.zeros(2 * length, np.float32)[::2]
    run_kernel("square", out, [x])
    np.testing.assert_array_equal(out, x * x)
    flags = np.zeros(length, bool)
    run_kernel("isnan", flags, [x])
    assert not flags.any()
