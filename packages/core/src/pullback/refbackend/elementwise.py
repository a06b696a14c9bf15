"""Reference kernels with one input, and ``where``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, is_floating, store, widen

_erf = np.vectorize(math.erf, otypes=[np.float64])


def copy(out: Array, x: Array) -> None:
    """Copy and cast."""
    with np.errstate(all="ignore"):
        if out.dtype == np.asarray(x).dtype:
            out[...] = x
        else:
            store(out, x)


def where(out: Array, condition: Array, x: Array, y: Array) -> None:
    """Select between two arrays of ``out``'s dtype."""
    out[...] = np.where(np.asarray(condition, dtype=np.bool_), x, y)


def _unless_integer(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Leave integers alone: rounding does not change them and NumPy would make them floats."""
    return lambda x: function(x) if is_floating(x.dtype) else x


def _unary(name: str, function: Callable[[Array], Any]) -> Kernel:
    def kernel(out: Array, x: Array) -> None:
        with np.errstate(all="ignore"):
            store(out, function(widen(x)))

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"Fill ``out`` with {name} of each element."
    return kernel


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "atan": (masks.INEXACT, np.arctan),
    "bitwise_not": (masks.BOOL | masks.INTEGRAL, np.invert),
    "cos": (masks.INEXACT, np.cos),
    "erf": (masks.FLOATING, _erf),
    "exp": (masks.INEXACT, np.exp),
    "floor": (masks.REAL_NUMBERS, _unless_integer(np.floor)),
    "log": (masks.INEXACT, np.log),
    "round": (masks.REAL_NUMBERS, _unless_integer(np.rint)),
    "sin": (masks.INEXACT, np.sin),
    "sqrt": (masks.INEXACT, np.sqrt),
}

KERNELS = {name: (mask, _unary(name, function)) for name, (mask, function) in _FUNCTIONS.items()}
KERNELS["copy"] = (masks.ALL, copy)
KERNELS["where"] = (masks.ALL, where)
