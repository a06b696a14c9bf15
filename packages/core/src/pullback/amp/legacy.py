"""Deprecated functions that have a device type in their name; ``pullback`` has them too."""

from __future__ import annotations

import warnings

from pullback._c.transforms.autocast import (
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

__all__ = [
    "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_cpu_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_gpu_dtype",
]


def _warn(old, new):
    warnings.warn(
        f"pullback.{old} is deprecated. Please use pullback.{new} instead.",
        DeprecationWarning,
        stacklevel=3,
    )


def is_autocast_cpu_enabled():
    """Return ``is_autocast_enabled("cpu")``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.is_autocast_cpu_enabled()
    False
    """
    _warn("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled):
    """Call ``set_autocast_enabled("cpu", enabled)``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.set_autocast_cpu_enabled(False)
    """
    if type(enabled) is not bool:
        raise TypeError(f"enabled must be a bool (got {type(enabled).__name__})")
    _warn("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    """Return ``get_autocast_dtype("cpu")``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.get_autocast_cpu_dtype()
    pullback.bfloat16
    """
    _warn("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype):
    """Call ``set_autocast_dtype("cpu", dtype)``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.set_autocast_cpu_dtype(pb.bfloat16)
    """
    _warn("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype():
    """Return ``get_autocast_dtype("cuda")``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.get_autocast_gpu_dtype()
    pullback.float16
    """
    _warn("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype):
    """Call ``set_autocast_dtype("cuda", dtype)``. Deprecated.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.set_autocast_gpu_dtype(pb.float16)
    """
    _warn("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)
