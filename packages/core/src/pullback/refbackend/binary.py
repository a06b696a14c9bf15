"""Reference kernels with two inputs of one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen


class IntegerDivisionError(RuntimeError, ZeroDivisionError):
    """An integer was divided by zero: torch's RuntimeError, and Python's own error as well."""


def _refuse_zero(divisor: Array) -> None:
    if divisor.dtype.kind in "biu" and np.any(divisor == 0):
        raise IntegerDivisionError("ZeroDivisionError")


def _floor_divide(x: Array, y: Array) -> Array:
    _refuse_zero(y)
    return np.floor_divide(x, y)


def _fmod(x: Array, y: Array) -> Array:
    _refuse_zero(y)
    return np.fmod(x, y)


def _remainder(x: Array, y: Array) -> Array:
    _refuse_zero(y)
    rest = np.fmod(x, y)
    # A zero keeps the sign of x, as in torch; NumPy's remainder would take that of y.
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu" or y.dtype.kind == "u":
        return np.power(x, y)
    one = np.ones((), dtype=x.dtype)
    sign = np.where(y % 2 == 0, one, x)
    inverse = np.where(x == 1, one, np.where(x == -1, sign, 0 * one))
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))


def _bits(x: Array) -> int:
    return 8 * int(x.dtype.itemsize)


def _lshift(x: Array, y: Array) -> Array:
    # C leaves such shifts undefined; torch makes them 0.
    outside = (y < 0) | (y >= _bits(x))
    return np.where(outside, 0 * x, np.left_shift(x, np.where(outside, 0 * y, y)))


def _rshift(x: Array, y: Array) -> Array:
    # Shifts outside the width leave only the sign, as if all bits had been shifted out.
    outside = (y < 0) | (y >= _bits(x))
    signs = np.where(x < 0, ~(0 * x), 0 * x)
    return np.where(outside, signs, np.right_shift(x, np.where(outside, 0 * y, y)))


def _binary(name: str, function: Callable[[Array, Array], Any]) -> Kernel:
    def kernel(out: Array, x: Array, y: Array) -> None:
        with np.errstate(all="ignore"):
            store(out, function(widen(x), widen(y)))

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"Fill ``out`` with {name} of each pair of elements."
    return kernel


_BITS = masks.BOOL | masks.INTEGRAL

_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (masks.ALL, np.add),
    "atan2": (masks.FLOATING, np.arctan2),
    "bitwise_and": (_BITS, np.bitwise_and),
    "bitwise_or": (_BITS, np.bitwise_or),
    "bitwise_xor": (_BITS, np.bitwise_xor),
    "div": (masks.INEXACT, np.divide),
    "eq": (masks.ALL, np.equal),
    "floor_divide": (masks.REAL_NUMBERS, _floor_divide),
    "fmod": (masks.REAL_NUMBERS, _fmod),
    "lshift": (masks.INTEGRAL, _lshift),
    "lt": (masks.REAL, np.less),
    "mul": (masks.ALL, np.multiply),
    "pow": (masks.NUMBERS, _pow),
    "remainder": (masks.REAL_NUMBERS, _remainder),
    "rshift": (masks.INTEGRAL, _rshift),
    "sub": (masks.NUMBERS, np.subtract),
}

KERNELS = {name: (mask, _binary(name, function)) for name, (mask, function) in _FUNCTIONS.items()}
