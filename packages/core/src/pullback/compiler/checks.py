"""Checks that torch's compilers learn from; here they check, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pullback
from pullback import Tensor

__all__ = [
    "_assert",
    "_assert_async",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_shape_as_tensor",
]

Message = Callable[[], str] | None


def _assert(condition: Any, message: str) -> None:
    """Raise AssertionError with a message unless a condition holds.

    >>> import pullback
    >>> pullback._assert(1 < 2, "numbers")
    """
    assert condition, message


def _assert_async(self: Tensor, assert_msg: str | None = None) -> None:
    """Raise RuntimeError if the one element of a tensor is zero.

    >>> import pullback
    >>> pullback._assert_async(pullback.tensor(True))
    """
    if self.numel() > 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    if self.numel() == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    if not self:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_with(error_type: type[Exception], cond: bool, message: Message) -> None:
    """Raise an error of a class unless a condition holds; ``message`` returns its text.

    Raises: TypeError for a condition that is no bool, and a message that cannot be called.

    >>> import pullback
    >>> pullback._check_with(KeyError, 1 < 2, lambda: "numbers")
    """
    if not isinstance(cond, bool):
        if isinstance(cond, Tensor):
            raise TypeError(
                "cond must be a bool, but got a Tensor. For tensor conditions, use "
                "pullback._check_tensor_all() to assert that all elements are true."
            )
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        _fail(error_type, message)


def _fail(error_type: type[Exception], message: Message) -> None:
    if message is None:
        raise error_type("Expected cond to be True, but got False.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: bool, message: Message = None) -> None:
    """Raise RuntimeError unless a condition holds.

    >>> import pullback
    >>> pullback._check(2 < 1, lambda: "not in order")
    Traceback (most recent call last):
    RuntimeError: not in order
    """
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """Raise IndexError unless a condition holds.

    >>> import pullback
    >>> pullback._check_index(1 < 2)
    """
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """Raise ValueError unless a condition holds.

    >>> import pullback
    >>> pullback._check_value(1 < 2)
    """
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """Raise TypeError unless a condition holds.

    >>> import pullback
    >>> pullback._check_type(1 < 2)
    """
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """Raise NotImplementedError unless a condition holds.

    >>> import pullback
    >>> pullback._check_not_implemented(1 < 2)
    """
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """Raise RuntimeError for a negative number, or one above ``max``.

    >>> import pullback
    >>> pullback._check_is_size(3)
    """
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Message = None
) -> None:
    """Raise an error of a class unless all elements of a bool tensor are True.

    Raises: TypeError for anything but a tensor of bools.

    >>> import pullback
    >>> pullback._check_tensor_all_with(ValueError, pullback.ones(2) > 0)
    """
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != pullback.bool:
        raise TypeError(f"cond tensor must have dtype pullback.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """Raise RuntimeError unless all elements of a bool tensor are True.

    >>> import pullback
    >>> pullback._check_tensor_all(pullback.ones(2) > 0)
    """
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(self: Tensor) -> Tensor:
    """Return the sizes as an int64 tensor.

    >>> import pullback
    >>> pullback._shape_as_tensor(pullback.ones(2, 3))
    tensor([2, 3])
    """
    return pullback.tensor(list(self.shape), dtype=pullback.int64)
