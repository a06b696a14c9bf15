"""What kernels return: whether it fits an output."""

from __future__ import annotations

from typing import Any

__all__ = ["kind_of", "misfit"]

_KINDS = {"bool": "bool", "int": "int", "uint": "int", "float": "float", "bfloat": "float"}


def kind_of(dtype: Any) -> str:
    """Return the kind of a dtype of any library, from its name: "bool", "int", "float", ...

    >>> import numpy
    >>> from pullback.backend.results import kind_of
    >>> kind_of(numpy.dtype("uint8")), kind_of("bfloat16"), kind_of("mlx.core.complex64")
    ('int', 'float', 'complex')
    """
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2].rstrip("0123456789_")
    return _KINDS.get(name, name)


def misfit(value: Any, shape: Any, dtype: Any) -> str | None:
    """Return why an array is no result for an output of a shape and dtype; None if it is one."""
    found = getattr(value, "shape", None)
    shape = tuple(shape)
    if found is None or tuple(found) != shape:
        what = type(value).__name__ if found is None else f"shape {tuple(found)}"
        return f"it returned {what} for an output of shape {shape}"
    given = getattr(value, "dtype", dtype)
    if kind_of(given) == kind_of(dtype):
        return None
    return f"it returned {given} for an output of {dtype}"
