"""Reading operands and writing results, the same way in all reference kernels.

Kernels compute in the widest type of a kind and round once, when the result is stored. For
float32 and narrower types that gives the correctly rounded result in nearly all cases, which is
what an oracle is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[..., None]


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype is bfloat16.

    NumPy has no bfloat16 of its own: the name is compared so that ml_dtypes is not imported here.
    Its kind is looked at first, as NumPy makes the name of its own dtypes anew each time.
    """
    return dtype.kind == "V" and dtype.name == "bfloat16"


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype is a real floating one, bfloat16 included."""
    return dtype.kind == "f" or is_bfloat16(dtype)


def widen(operand: Any) -> Array:
    """Return an operand as an array of float64 or complex128; bool and integers stay."""
    array = np.asarray(operand)
    if is_floating(array.dtype):
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "c":
        return array.astype(np.complex128, copy=False)
    return array


def store(out: Array, value: Any) -> None:
    """Write a value into ``out``, cast as C casts."""
    value = widen(value)
    if out.dtype.kind == "b":
        value = value != 0
    elif out.dtype.kind != "c" and value.dtype.kind == "c":
        value = value.real
    # C converts through a wider integer: -1.0 becomes 255 in uint8 on every machine that way.
    if out.dtype.kind in "iu" and out.dtype.itemsize < 4 and value.dtype.kind == "f":
        value = value.astype(np.int64)
    out[...] = value


def reduced_axes(out: Array, operand: Array) -> tuple[int, ...]:
    """Return the axes along which a reduction runs: those where the shapes differ."""
    if out.ndim != operand.ndim:
        raise ValueError(f"reduction: expected an output with {operand.ndim} dims, got {out.ndim}")
    pairs = zip(out.shape, operand.shape, strict=True)
    return tuple(axis for axis, (kept, size) in enumerate(pairs) if kept != size)


def at_least_1d(array: Array) -> Array:
    """Return a view that has a dimension; writing to it writes to ``array``."""
    return array.reshape(1) if array.ndim == 0 else array
