"""Reference kernels of windows: the largest element of each, the mean and its derivative."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen


class Windows(NamedTuple):
    """Positions of the elements of windows: arrays (*windows, elements of a window)."""

    positions: Array  # counted row by row in the last dims
    inside: Array
    areas: Array  # (*windows): how many elements each one counts


def _line(size: int, count: int, side: tuple[int, ...], padded: int) -> tuple[Array, Array, Array]:
    """Return positions, which of them are inside, and lengths of the windows of one dim."""
    kernel, stride, padding, dilation = side
    number = np.arange(count)
    if not kernel:
        start, end = number * size // count, -(-(number + 1) * size // count)
        positions = start[:, None] + np.arange(max(end - start, default=0))
        return positions.clip(0, size - 1), positions < end[:, None], end - start
    start, more = number * stride - padding, padding if padded else 0
    positions = start[:, None] + np.arange(kernel) * dilation
    inside = (positions >= 0) & (positions < size)
    lengths = np.minimum(start + kernel, size + more) - np.maximum(start, -more)
    return positions.clip(0, size - 1), inside, lengths


def _windows(
    whole: Array, pooled: Array, window_params: tuple[int, ...], padded: int = 0
) -> Windows:
    """Join the dims."""
    rank = len(window_params) // 4
    found = Windows(np.zeros((1,), np.int64), np.ones((1,), bool), np.ones((), np.int64))
    for dim, (size, count) in enumerate(zip(whole.shape[-rank:], pooled.shape[-rank:])):
        positions, inside, lengths = _line(size, count, window_params[dim::rank], padded)
        joined = (*found.areas.shape, count, found.positions.shape[-1] * positions.shape[1])
        shape = (*(1,) * dim, count, 1, positions.shape[1])
        positions = found.positions[..., None, :, None] * size + positions.reshape(shape)
        inside = found.inside[..., None, :, None] & inside.reshape(shape)
        found = Windows(
            positions.reshape(joined), inside.reshape(joined), found.areas[..., None] * lengths
        )
    return found


def _planes(array: Array, rank: int) -> Array:
    """Return an array with its last dims as one."""
    return array.reshape(*array.shape[: array.ndim - rank], int(np.prod(array.shape[-rank:])))


def max_pool(outs: tuple[Array, Array], x: Array, *, window_params: tuple[int, ...]) -> None:
    """Take the first of the elements that equal the largest, or the last NaN."""
    found = _windows(x, outs[0], window_params)
    parts = _planes(widen(x), len(window_params) // 4)[..., found.positions]
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    best = np.where(found.inside, parts, lowest).max(-1)  # NaN wins
    first = np.argmax(found.inside & (parts == best[..., None]), -1)
    nans = found.inside & np.isnan(parts)
    last = nans.shape[-1] - 1 - np.argmax(nans[..., ::-1], -1)
    chosen = np.where(nans.any(-1), last, first)
    store(outs[0], best)
    positions = np.broadcast_to(found.positions, parts.shape)
    outs[1][...] = np.take_along_axis(positions, chosen[..., None], -1)[..., 0]


def avg_pool(
    out: Array, x: Array, *, window_params: tuple[int, ...], padded: int, divisor: int
) -> None:
    """Sum the elements inside; integers are divided towards 0."""
    found = _windows(x, out, window_params, padded)
    with np.errstate(all="ignore"):
        parts = _planes(widen(x), len(window_params) // 4)[..., found.positions]
        mean = np.where(found.inside, parts, 0).sum(-1) / (divisor or found.areas)
        store(out, mean if out.dtype.kind != "i" else np.trunc(mean))


def avg_pool_backward(
    out: Array, x: Array, *, window_params: tuple[int, ...], padded: int, divisor: int
) -> None:
    """Add the share of each window to its elements."""
    found, rank = _windows(out, x, window_params, padded), len(window_params) // 4
    with np.errstate(all="ignore"):
        shares = widen(x) / (divisor or found.areas)
        total = np.zeros(_planes(out, rank).shape)
        for number in range(found.positions.shape[-1]):
            inside = found.inside[..., number]
            key = cast(Any, (..., found.positions[..., number][inside]))
            np.add.at(total, key, shares[..., inside])
    store(out, total.reshape(out.shape))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "max_pool": (masks.REAL_NUMBERS, max_pool),
    "avg_pool": (masks.FLOATING | masks.INT64, avg_pool),
    "avg_pool_backward": (masks.FLOATING, avg_pool_backward),
}
