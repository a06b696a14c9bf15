"""Activations and their derivatives, as functions of NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import masks, special
from .arrays import Array

_ROOT = math.sqrt(2 / math.pi)
_Entries = dict[str, tuple[int, Callable[..., Any]]]


def sigmoid(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), np.where(np.isnan(x), x, decay / (1 + decay)))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _probability(x: Array) -> Array:
    """Return how probable it is that a normal number is at most x."""
    return special.erfc(-x * math.sqrt(0.5)) / 2


def _gelu_backward(grad: Array, x: Array) -> Array:
    return grad * (_probability(x) + x * (np.exp(-x * x / 2) * (_ROOT / 2)))


def _angle(x: Array) -> Array:
    return (x + 0.044715 * x * x * x) * _ROOT


def _gelu_tanh_backward(grad: Array, x: Array) -> Array:
    x = np.clip(x, -64, 64)  # beyond, it is 0 or 1, and squares may overflow
    size = np.tanh(_angle(x))
    derivative = (1 + 3 * 0.044715 * x * x) * _ROOT
    return grad * ((1 + size) / 2 + x / 2 * ((1 - size * size) * derivative))


def _silu_backward(grad: Array, x: Array) -> Array:
    share = sigmoid(x)
    return grad * np.conj(share * (1 + x * (1 - share)))


def _logaddexp(x: Array, y: Array) -> Array:
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    swap = x.real < y.real
    high, low = np.where(swap, y, x), np.where(swap, x, y)
    return high + np.log1p(np.exp(low - high))


UNARY: _Entries = {
    "elu": (masks.FLOATING, _elu),
    "gelu": (masks.FLOATING, lambda x: x * _probability(x)),
    "gelu_tanh": (masks.FLOATING, lambda x: x / 2 * (1 + np.tanh(_angle(x)))),
    "silu": (masks.INEXACT, lambda x: x * sigmoid(x)),
    "softplus": (masks.FLOATING, lambda x: np.where(x > 20, x, np.log1p(np.exp(x)))),
}
BINARY: _Entries = {
    "gelu_backward": (masks.FLOATING, _gelu_backward),
    "gelu_tanh_backward": (masks.FLOATING, _gelu_tanh_backward),
    "logaddexp": (masks.INEXACT, _logaddexp),
    "sigmoid_backward": (masks.INEXACT, lambda x, y: x * np.conj(y * (1 - y))),
    "silu_backward": (masks.INEXACT, _silu_backward),
    "tanh_backward": (masks.INEXACT, lambda x, y: x * np.conj(1 - y * y)),
}
