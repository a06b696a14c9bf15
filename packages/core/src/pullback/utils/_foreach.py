"""Functions of lists of tensors: torch's ``_foreach_`` functions, which optimizers call.

Each calls an op for every tensor of the list. A function whose name ends with an underscore writes
into the tensors and returns them as a list; the others return a tuple of new tensors.

>>> import pullback
>>> pullback._foreach_add([pullback.ones(2), pullback.zeros(1)], 1.0, alpha=2)
(tensor([3., 3.]), tensor([2.]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from pullback import Tensor

_UNARY = (
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "
    "log2 max neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero"
).split()
_BINARY = "add clamp_max clamp_min copy div lerp maximum minimum mm mul pow sub".split()
_TERNARY = ["addcdiv", "addcmul"]
_ONLY_NEW = ("clone", "max", "mm", "norm", "powsum")
_ONLY_WRITING = ("copy", "zero")
_METHODS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # which take numbers, too


def _checked(name: str, tensors: Any) -> list[Tensor] | tuple[Tensor, ...]:
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        kind = type(tensors).__name__
        raise TypeError(
            f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {kind}"
        )
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tensors


def _for_each(tensors: Any, other: Any) -> Iterable[Any]:
    """Return an argument for each tensor: the members of a list, or one for all."""
    if not isinstance(other, (list, tuple)):
        return repeat(other)
    if len(other) != len(tensors):
        if other and isinstance(other[0], Tensor):
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, got "
                f"{len(tensors)} and {len(other)}"
            )
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")
    return other


def _unary(name: str, method: Callable[..., Tensor], collect: Any) -> Callable[..., Any]:
    def function(self):
        return collect([method(t) for t in _checked(name, self)])

    return function


def _binary(name: str, method: Callable[..., Tensor], collect: Any) -> Callable[..., Any]:
    def function(self, other, *others, **options):
        _checked(name, self)
        lists = [_for_each(self, given) for given in (other, *others)]
        return collect([method(*given, **options) for given in zip(self, *lists)])

    return function


def _pow(name: str, method: Callable[..., Tensor], collect: Any) -> Callable[..., Any]:
    of_lists = _binary(name, method, collect)

    def function(self, exponent):
        if isinstance(self, (int, float, complex)):
            return collect([self**t for t in _checked(name, exponent)])
        return of_lists(self, exponent)

    return function


def _ternary(name: str, method: Callable[..., Tensor], collect: Any) -> Callable[..., Any]:
    def function(self, tensor1, tensor2, value=1):
        _checked(name, self)
        if isinstance(value, Tensor):
            value = value.tolist() if value.dim() else value.item()
        lists = (_for_each(self, tensor1), _for_each(self, tensor2), _for_each(self, value))
        return collect([method(t, a, b, value=v) for t, a, b, v in zip(self, *lists)])

    return function


def _foreach_norm(self, ord=2, dtype=None):
    """Return the norm of all elements of each tensor, of order 2 unless given.

    >>> import pullback
    >>> pullback._foreach_norm([pullback.tensor([3.0, 4.0])])
    (tensor(5.),)
    """
    from pullback.linalg import vector_norm

    return tuple(vector_norm(t, ord, dtype=dtype) for t in _checked("_foreach_norm", self))


def _foreach_powsum(self, ord=2, dtype=None):
    """Return the sum of the magnitudes' powers of each tensor.

    >>> import pullback
    >>> pullback._foreach_powsum([pullback.tensor([3.0, -4.0])], 3)
    (tensor(91.),)
    """
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in _checked("_foreach_powsum", self))


def _define(base: str, make: Callable[..., Any]) -> None:
    for suffix, collect in (("", tuple), ("_", list)):
        if base in (_ONLY_NEW if suffix else _ONLY_WRITING):
            continue
        name = f"_foreach_{base}{suffix}"
        function = make(name, getattr(Tensor, _METHODS.get(base, base) + suffix), collect)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"Call ``Tensor.{base}{suffix}`` for each tensor of a list."
        globals()[name] = function


for _names, _make in ((_UNARY, _unary), (_BINARY, _binary), (_TERNARY, _ternary)):
    for _base in _names:
        _define(_base, _pow if _base == "pow" else _make)
