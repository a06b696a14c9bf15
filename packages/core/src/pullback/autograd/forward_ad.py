"""Forward mode: dual tensors, whose tangents every op propagates.

A tangent exists until its level ends. It needs no graph, and has a history itself where recording
is on, so forward and reverse mode compose.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from pullback._c.device.handoff import carry
from pullback._c.graph import levels as _levels
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import tangents as _tangents
from pullback.autograd.grad_mode import Mode

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """The result of :func:`unpack_dual`.

    ``primal`` is the tensor without its tangent; ``tangent`` has its shape, dtype and device, or is
    None.

    >>> import pullback
    >>> pullback.autograd.forward_ad.unpack_dual(pullback.ones(1))
    UnpackedDualTensor(primal=tensor([1.]), tangent=None)
    """

    primal: Tensor
    tangent: Tensor | None


class _Open(threading.local):
    """The thread's level: its number among all open ones, 0 when none is open."""

    level = 0


_open = carry(_Open())


def __getattr__(name):
    if name == "_current_level":  # torch's name for the open level, which user code reads
        return 0 if _open.level else -1
    raise AttributeError(f"module 'pullback.autograd.forward_ad' has no attribute {name!r}")


def enter_dual_level() -> int:
    """Open a level of forward mode on this thread and return its number, 0.

    Raises: RuntimeError when one is open already. :func:`pullback.func.jvp` nests.

    >>> import pullback.autograd.forward_ad as forward_ad
    >>> forward_ad.enter_dual_level()
    0
    >>> forward_ad.exit_dual_level()
    """
    if _open.level:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _open.level = _levels.enter_level()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close this thread's level, and drop every tangent that was made in it.

    Raises: RuntimeError when none is open, or when ``level`` is not the open one's number.

    >>> import pullback.autograd.forward_ad as forward_ad
    >>> forward_ad.exit_dual_level()
    Traceback (most recent call last):
    RuntimeError: Dual level must be a positive number: no level is open.
    """
    if not _open.level:
        raise RuntimeError("Dual level must be a positive number: no level is open.")
    if level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was "
            "created. This is not supported."
        )
    number, _open.level = _open.level, 0
    _levels.exit_level(number)


def _number(level: int | None, name: str) -> int:
    """Return the number, among all open levels, of a user's level."""
    if level not in (None, 0) or not _open.level:
        raise RuntimeError(f"Invalid level given to {name}")
    return _open.level


def _check_tensor(value: object, name: str, argument: str, position: int) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {position}) must be Tensor, "
            f"not {type(value).__name__}"
        )


def check_dtypes(primal: Tensor, tangent: Tensor) -> None:
    """Raise ValueError unless both dtypes are differentiable."""
    for name, value in (("primal", primal), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(
                f"Expected {name} to be floating point or complex, but got: {value.dtype}"
            )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a dual tensor: an alias of ``tensor`` with the tangent ``tangent``.

    ``tangent`` has the shape of ``tensor``. It is copied unless it has its dtype and strides, too.

    Raises: RuntimeError without an open level, for another shape, and for a tensor that has a
    tangent; ValueError for a dtype without derivatives.

    >>> import pullback
    >>> import pullback.autograd.forward_ad as forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(pullback.tensor([1., 2.]), pullback.tensor([1., 0.]))
    ...     forward_ad.unpack_dual(x * x).tangent
    tensor([2., 0.])
    """
    _check_tensor(tensor, "make_dual", "tensor", 1)
    _check_tensor(tangent, "make_dual", "tangent", 2)
    if level is None and not _open.level:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, "
            "make sure to enter_dual_level() first."
        )
    check_dtypes(tensor, tangent)
    return _tangents.make_dual(tensor, tangent, _number(level, "make_dual"))


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return ``(primal, tangent)`` of a tensor; the tangent is None where there is none.

    Raises: RuntimeError for a level that is not open; TypeError for anything but a tensor.

    >>> import pullback
    >>> import pullback.autograd.forward_ad as forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(pullback.ones(1), pullback.tensor([5.]))
    ...     forward_ad.unpack_dual(x * 2)
    UnpackedDualTensor(primal=tensor([2.]), tangent=tensor([10.]))
    """
    _check_tensor(tensor, "unpack_dual", "tensor", 1)
    if level is None and not _open.level:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*_tangents.unpack_dual(tensor, _number(level, "unpack_dual")))


class dual_level(Mode):
    """A context manager, or a decorator, that opens a level of forward mode and closes it.

    Raises: RuntimeError when one is open already.

    >>> import pullback.autograd.forward_ad as forward_ad
    >>> with forward_ad.dual_level() as level:
    ...     print(level)
    0
    """

    __slots__ = ("level",)

    def __enter__(self) -> int:
        self.level = enter_dual_level()
        return self.level

    def __exit__(self, kind, error, traceback) -> None:
        exit_dual_level(level=self.level)
