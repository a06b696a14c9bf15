"""torch's functions of Python numbers (symbolic there), and predicates of tensors."""

from __future__ import annotations

import builtins
import math

from pullback._c.graph.tensor import Tensor

__all__ = [
    "is_conj",
    "is_inference",
    "is_neg",
    "is_same_size",
    "is_signed",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
    "typename",
]

_NUMBERS = (builtins.int, builtins.float)


# ---- numbers -------------------------------------------------------------------------------------


def sym_float(a):
    """Return ``float(a)``."""
    return builtins.float(a)


def sym_int(a):
    """Return ``int(a)``, truncated."""
    return builtins.int(a)


def sym_not(a):
    """Return ``not a``."""
    return not a


def _number(value):
    if not isinstance(value, _NUMBERS):
        raise AssertionError(f"expected int or float, got {type(value)}")
    return value


def _of_one_type(function, a, b):
    """Return max or min; a float if one of them is."""
    found = function(_number(a), _number(b))
    floats = isinstance(a, builtins.float) or isinstance(b, builtins.float)
    return builtins.float(found) if floats else found


def sym_max(a, b):
    """Return the larger of two numbers, a float if one of them is."""
    return _of_one_type(max, a, b)


def sym_min(a, b):
    """Return the smaller of two numbers, a float if one of them is."""
    return _of_one_type(min, a, b)


def sym_sum(*args):
    """Return the sum of numbers, or of one sequence of them."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args)


def sym_sqrt(a):
    """Return the square root of a number.

    Raises: ValueError for negative numbers.
    """
    return math.sqrt(a)


def sym_ite(b, t, f):
    """Return ``t if b else f``.

    Raises: AssertionError unless b is a bool, and t and f are of one type.
    """
    if not isinstance(b, builtins.bool):
        raise AssertionError(f"expected bool, got {type(b)}")
    if type(t) is not type(f):
        raise AssertionError(f"type mismatch: {type(t)} vs {type(f)}")
    return t if b else f


# ---- tensors -------------------------------------------------------------------------------------


def _tensor(function, value, argument="input"):
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{function}(): argument '{argument}' must be Tensor, not {type(value).__name__}"
        )
    return value


def is_signed(input):
    """Return whether the tensor's dtype has negative numbers."""
    return _tensor("is_signed", input).is_signed()


def is_inference(input):
    """Return whether the tensor was made in inference mode.

    Raises: TypeError for anything but a tensor.

    >>> import pullback
    >>> with pullback.inference_mode():
    ...     x = pullback.ones(1)
    >>> pullback.is_inference(x)
    True
    """
    return _tensor("is_inference", input).is_inference()


def is_same_size(input, other):
    """Return whether two tensors have one shape."""
    return _tensor("is_same_size", input).shape == _tensor("is_same_size", other, "other").shape


def is_conj(input):
    """Return whether the elements are the conjugates of the values in the tensor's memory."""
    return _tensor("is_conj", input).is_conj()


def is_neg(input):
    """Return whether the elements are the negatives of the values in the tensor's memory."""
    return _tensor("is_neg", input).is_neg()


def typename(obj):
    """Return the name of an object's type; of tensors that of torch's legacy type."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in ("builtins", None) else f"{module}.{named.__qualname__}"
