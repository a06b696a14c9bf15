"""Reference kernels with one input, and ``where``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import activations, masks, special
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


def _square(x: Array) -> Array:
    return x * x


def _exp2(x: Array) -> Array:
    return np.exp(x * math.log(2)) if x.dtype.kind == "c" else np.exp2(x)


def _relu(x: Array) -> Array:
    return np.where(x < 0, np.zeros_like(x), x)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _reciprocal(x: Array) -> Array:
    return 1 / x


def _logical_not(x: Array) -> Array:
    return x == 0


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
    "abs": (masks.NUMBERS, np.abs),
    "acos": (masks.INEXACT, np.arccos),
    "acosh": (masks.INEXACT, np.arccosh),
    "asin": (masks.INEXACT, np.arcsin),
    "asinh": (masks.INEXACT, np.arcsinh),
    "atan": (masks.INEXACT, np.arctan),
    "atanh": (masks.INEXACT, np.arctanh),
    "bitwise_not": (masks.BOOL | masks.INTEGRAL, np.invert),
    "ceil": (masks.REAL_NUMBERS, _unless_integer(np.ceil)),
    "conj": (masks.ALL, lambda x: x.conj()),
    "cos": (masks.INEXACT, np.cos),
    "cosh": (masks.INEXACT, np.cosh),
    "digamma": (masks.FLOATING, special.digamma),
    "erf": (masks.FLOATING, _erf),
    "erfc": (masks.FLOATING, special.erfc),
    "erfinv": (masks.FLOATING, special.erfinv),
    "exp": (masks.INEXACT, np.exp),
    "exp2": (masks.INEXACT, _exp2),
    "expm1": (masks.INEXACT, np.expm1),
    "floor": (masks.REAL_NUMBERS, _unless_integer(np.floor)),
    "i0": (masks.FLOATING, special.i0),
    "i1": (masks.FLOATING, special.i1),
    "isfinite": (masks.ALL, np.isfinite),
    "isnan": (masks.ALL, np.isnan),
    "lgamma": (masks.FLOATING, special.lgamma),
    "log": (masks.INEXACT, np.log),
    "log10": (masks.INEXACT, np.log10),
    "log1p": (masks.INEXACT, np.log1p),
    "log2": (masks.INEXACT, np.log2),
    "logical_not": (masks.ALL, _logical_not),
    "neg": (masks.NUMBERS, np.negative),
    "reciprocal": (masks.INEXACT, _reciprocal),
    "relu": (masks.REAL_NUMBERS, _relu),
    "round": (masks.REAL_NUMBERS, _unless_integer(np.rint)),
    "rsqrt": (masks.INEXACT, _rsqrt),
    "sigmoid": (masks.INEXACT, activations.sigmoid),
    "sign": (masks.REAL, lambda x: x if x.dtype.kind == "b" else np.sign(np.where(x == x, x, 0))),
    "sin": (masks.INEXACT, np.sin),
    "sinh": (masks.INEXACT, np.sinh),
    "sqrt": (masks.INEXACT, np.sqrt),
    "square": (masks.NUMBERS, _square),
    "tan": (masks.INEXACT, np.tan),
    "tanh": (masks.INEXACT, np.tanh),
    **activations.UNARY,
    "trunc": (masks.REAL_NUMBERS, _unless_integer(np.trunc)),
}

KERNELS = {name: (mask, _unary(name, function)) for name, (mask, function) in _FUNCTIONS.items()}
KERNELS["copy"] = (masks.ALL, copy)
KERNELS["where"] = (masks.ALL, where)
