"""What kernels return: whether it fits an output."""

from __future__ import annotations

from typing import Any

from pullback._c.device.py_kernel import kind_of

__all__ = ["kind_of", "misfit"]


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
