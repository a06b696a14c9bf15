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


def reduce_any(out: Array, x: Array) -> None:
    """Tell whether an element is non-zero."""
    out[...] = np.any(widen(x) != 0, axis=reduced_axes(out, x), keepdims=True)


def reduce_all(out: Array, x: Array) -> None:
    """Tell whether every element is non-zero."""
    out[...] = np.all(widen(x) != 0, axis=reduced_axes(out, x), keepdims=True)


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


def cumprod(out: Array, x: Array, *, dim: int) -> None:
    """Multiply along one dimension, keeping every step."""
    with np.errstate(all="ignore"):
        store(out, np.cumprod(np.atleast_1d(widen(x)), axis=dim).reshape(x.shape))


def logcumsumexp(out: Array, x: Array, *, dim: int) -> None:
    """Find the logarithm of the sum of exponentials so far along one dimension."""
    with np.errstate(all="ignore"):
        store(out, np.logaddexp.accumulate(np.atleast_1d(widen(x)), axis=dim).reshape(x.shape))


def _running_extreme(name: str, function: np.ufunc) -> Kernel:
    def kernel(outs: tuple[Array, Array], x: Array, *, dim: int) -> None:
        wide = np.atleast_1d(widen(x))
        values = function.accumulate(wide, axis=dim)
        positions = np.arange(wide.shape[dim]).reshape(
            [-1 if d == dim % wide.ndim else 1 for d in range(wide.ndim)]
        )
        records = np.where((wide == values) | (wide != wide), positions, 0)
        store(outs[0], values.reshape(x.shape))
        outs[1][...] = np.maximum.accumulate(records, axis=dim).reshape(x.shape)

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = (
        f"Find what {name[3:]} gives of the elements so far, and the last position of it."
    )
    return kernel


def nansum(out: Array, x: Array) -> None:
    """Add up what is not NaN."""
    wide = widen(x)
    reduce_sum(out, np.where(wide != wide, 0, wide))


def count_nonzero(out: Array, x: Array) -> None:
    """Count the elements that are not 0."""
    out[...] = np.sum(widen(x) != 0, axis=reduced_axes(out, x), keepdims=True)


def sum_squares(out: Array, x: Array) -> None:
    """Add up the squares."""
    with np.errstate(all="ignore"):
        reduce_sum(out, widen(x) ** 2)


def moments(outs: tuple[Array, Array], x: Array) -> None:
    """Find the mean, and the sum of the squared differences from it."""
    axes, wide = reduced_axes(outs[0], x), widen(x)
    count = np.prod([x.shape[axis] for axis in axes])
    with np.errstate(all="ignore"):
        mean = _sum_rows(wide, axes) / count
        store(outs[0], mean)
        store(outs[1], _sum_rows((wide - mean) ** 2, axes))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "all": (masks.ALL, reduce_all),
    "amax": (masks.REAL, amax),
    "amin": (masks.REAL, amin),
    "any": (masks.ALL, reduce_any),
    "argmax": (masks.REAL, _arg_extreme("argmax", np.argmax)),
    "argmin": (masks.REAL, _arg_extreme("argmin", np.argmin)),
    "count_nonzero": (masks.ALL, count_nonzero),
    "cummax": (masks.REAL, _running_extreme("cummax", np.maximum)),
    "cummin": (masks.REAL, _running_extreme("cummin", np.minimum)),
    "cumprod": (masks.NUMBERS, cumprod),
    "cumsum": (masks.NUMBERS, cumsum),
    "logcumsumexp": (masks.FLOATING, logcumsumexp),
    "moments": (masks.FLOATING, moments),
    "nansum": (masks.FLOATING, nansum),
    "prod": (masks.INT64 | masks.INEXACT, prod),
    "sum": (masks.INT64 | masks.INEXACT, reduce_sum),
    "sum_squares": (masks.FLOATING, sum_squares),
}
