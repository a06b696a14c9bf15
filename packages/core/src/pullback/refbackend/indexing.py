"""Reference kernels that read or write by index, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, at_least_1d, store, widen


def _check_bounds(index: Array, lowest: int, size: int, dim: int) -> None:
    outside = index[(index < lowest) | (index >= size)]
    if outside.size:
        raise IndexError(
            f"index {int(outside.flat[0])} is out of bounds for dimension {dim} with size {size}"
        )


def _point_along(index: Array, dim: int, target: Array) -> tuple[Array, ...]:
    """Return full coordinates for ``index``, which replaces the coordinate ``dim``."""
    _check_bounds(index, 0, target.shape[dim], dim)
    coordinates: list[Array] = list(np.indices(index.shape, sparse=True))
    coordinates[dim] = index
    return tuple(coordinates)


def gather(out: Array, x: Array, index: Array, *, dim: int) -> None:
    """Read one element for each index along ``dim``."""
    x, index = at_least_1d(x), at_least_1d(index)
    out[...] = x[_point_along(index, dim % x.ndim, x)].reshape(out.shape)


def _source_for(index: Array, src: Any) -> Array:
    """Cut ``src`` to the shape of the index; a scalar stands for all elements."""
    src = np.asarray(src)
    if src.ndim == 0:
        return src
    return src[tuple(slice(0, size) for size in index.shape)]


def scatter(out: Array, index: Array, src: Array, *, dim: int) -> None:
    """Write one element for each index along ``dim``; the last of equal indices wins."""
    target, index = at_least_1d(out), at_least_1d(index)
    target[_point_along(index, dim % target.ndim, target)] = _source_for(index, src)


def _accumulate(target: Array, where: tuple[Array, ...], values: Array) -> None:
    total = widen(target).copy()
    with np.errstate(all="ignore"):
        np.add.at(total, where, widen(values))
        store(target, total)


def scatter_add(out: Array, index: Array, src: Array, *, dim: int) -> None:
    """Add one element for each index along ``dim``."""
    target, index = at_least_1d(out), at_least_1d(index)
    _accumulate(target, _point_along(index, dim % target.ndim, target), _source_for(index, src))


def _check_indices(target: Array, indices: tuple[Array, ...]) -> tuple[Array, ...]:
    if len(indices) > target.ndim:
        raise IndexError(f"too many indices for tensor of dimension {target.ndim}")
    indices = np.broadcast_arrays(*indices) if indices else ()
    for dim, index in enumerate(indices):
        _check_bounds(index, -target.shape[dim], target.shape[dim], dim)
    return tuple(indices)


def index(out: Array, x: Array, *indices: Array) -> None:
    """Read at the given coordinates of the first dimensions."""
    out[...] = x[_check_indices(x, indices)]


def index_put(out: Array, values: Array, *indices: Array, accumulate: int) -> None:
    """Write or add at the given coordinates of the first dimensions."""
    where = _check_indices(out, indices)
    if accumulate:
        _accumulate(out, where, values)
    else:
        out[where] = values


def nonzero(out: Array, x: Array) -> None:
    """List the coordinates of the non-zero elements."""
    found = np.argwhere(widen(x) != 0)
    if out.shape != found.shape:
        raise RuntimeError(f"nonzero(): expected an output of shape {found.shape}, got {out.shape}")
    out[...] = found


def _order(x: Array, descending: int) -> Array:
    keys = widen(x)
    if descending:
        # Sorting the reversed rows and reversing the result keeps equal elements in order.
        return x.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.argsort(keys, axis=-1, kind="stable")


def argsort(out: Array, x: Array, *, descending: int) -> None:
    """Return the indices that sort the last dimension."""
    order = _order(at_least_1d(np.asarray(x)), descending)
    at_least_1d(out)[...] = order[..., : at_least_1d(out).shape[-1]]


def sort(out: tuple[Array, Array], x: Array, *, descending: int) -> None:
    """Sort along the last dimension; equal elements keep their order and NaN is largest."""
    values, indices = (at_least_1d(array) for array in out)
    x = at_least_1d(np.asarray(x))
    order = _order(x, descending)[..., : values.shape[-1]]  # shorter outputs get the first ones
    values[...] = np.take_along_axis(x, order, axis=-1)
    indices[...] = order


KERNELS: dict[str, tuple[int, Kernel]] = {
    "gather": (masks.ALL, gather),
    "index": (masks.ALL, index),
    "index_put": (masks.ALL, index_put),
    "nonzero": (masks.ALL, nonzero),
    "scatter": (masks.ALL, scatter),
    "scatter_add": (masks.ALL, scatter_add),
    "sort": (masks.REAL, sort),
}
