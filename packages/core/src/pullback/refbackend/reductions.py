"""Reference kernels that reduce dimensions, and the running sum.

``out`` has size 1 where the input is reduced. An output element whose range is empty gets the
identity of the operation; argmax and argmin have none and raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, reduced_axes, store, widen


def _accumulator(out: Array) -> np.dtype[Any]:
    return widen(np.empty(0, dtype=out.dtype)).dtype


def _sum_rows(x: Array, axes: tuple[int, ...]) -> Array:
    # NumPy adds in pairs, with a much smaller error, only along a contiguous last axis.
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = [x.shape[axis] for axis in kept]
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    rows = np.ascontiguousarray(x.transpose([*kept, *axes])).reshape([*shape, count])
    return np.expand_dims(rows.sum(axis=-1, dtype=x.dtype), axes)


def reduce_sum(out: Array, x: Array) -> None:
    """Add up."""
    axes = reduced_axes(out, x)
    with np.errstate(all="ignore"):
        store(out, _sum_rows(widen(x).astype(_accumulator(out), copy=False), axes))


def prod(out: Array, x: Array) -> None:
    """Multiply all."""
    axes = reduced_axes(out, x)
    with np.errstate(all="ignore"):
        store(out, np.prod(widen(x), axis=axes, keepdims=True, dtype=_accumulator(out)))


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def amax(out: Array, x: Array) -> None:
    """Find the largest element; NaN wins."""
    axes, wide = reduced_axes(out, x), widen(x)
    with np.errstate(all="ignore"):
        store(out, np.max(wide, axis=axes, keepdims=True, initial=_lowest(wide.dtype)))


def amin(out: Array, x: Array) -> None:
    """Find the smallest element; NaN wins."""
    axes, wide = reduced_axes(out, x), widen(x)
    with np.errstate(all="ignore"):
        store(out, np.min(wide, axis=axes, keepdims=True, initial=_highest(wide.dtype)))


def _arg_extreme(name: str, function: Callable[..., Any]) -> Callable[..., None]:
    def kernel(out: Array, x: Array) -> None:
        axes = reduced_axes(out, x)
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = [x.shape[axis] for axis in kept]
        count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
        if out.size == 0:
            return
        if count == 0:
            raise IndexError(f"{name}(): expected a reduced dim of non-zero size, got none")
        rows = widen(x).transpose([*kept, *axes]).reshape([*shape, count])
        out[...] = np.expand_dims(function(rows, axis=-1), axes)

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"Find the position of the first element that {name[3:]} gives; NaN wins."
    return kernel


def cumsum(out: Array, x: Array, *, dim: int) -> None:
    """Add up along one dimension, keeping every step."""
    wide = widen(x)
    if wide.ndim == 0:
        store(out, wide)
        return
    with np.errstate(all="ignore"):
        store(out, np.cumsum(wide, axis=dim, dtype=_accumulator(out)))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "amax": (masks.REAL, amax),
    "amin": (masks.REAL, amin),
    "argmax": (masks.REAL, _arg_extreme("argmax", np.argmax)),
    "argmin": (masks.REAL, _arg_extreme("argmin", np.argmin)),
    "cumsum": (masks.NUMBERS, cumsum),
    "prod": (masks.INT64 | masks.INEXACT, prod),
    "sum": (masks.INT64 | masks.INEXACT, reduce_sum),
}
