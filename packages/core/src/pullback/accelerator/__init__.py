"""The accelerator of this machine: CUDA's devices where there are any, else none."""

from __future__ import annotations

from typing import Any

import pullback

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Return whether there is an accelerator.

    >>> import pullback
    >>> pullback.accelerator.is_available() == pullback.cuda.is_available()
    True
    """
    return pullback.cuda.is_available()


def current_accelerator(check_available: bool = False) -> Any:
    """Return the device of the accelerator without an index; None where there is none.

    >>> import pullback
    >>> str(pullback.accelerator.current_accelerator()) in ("cuda", "None")
    True
    """
    return pullback.device("cuda") if is_available() else None


def device_count() -> int:
    """Return how many devices the accelerator has; 0 without one.

    >>> import pullback
    >>> pullback.accelerator.device_count() == pullback.cuda.device_count()
    True
    """
    return pullback.cuda.device_count() if is_available() else 0


def _require() -> None:
    if not is_available():
        raise RuntimeError("Please ensure that an accelerator is available.")


def current_device_index() -> int:
    """Return the index of the current device.

    Raises: RuntimeError without an accelerator.

    >>> import pullback
    >>> if pullback.accelerator.is_available():
    ...     assert pullback.accelerator.current_device_index() == pullback.cuda.current_device()
    """
    _require()
    return pullback.cuda.current_device()


def set_device_index(device: Any, /) -> None:
    """Make a device the current one.

    Raises: RuntimeError without an accelerator.

    >>> import pullback
    >>> if pullback.accelerator.is_available():
    ...     pullback.accelerator.set_device_index(0)
    """
    _require()
    pullback.cuda.set_device(device)


def synchronize(device: Any = None, /) -> None:
    """Wait for the work of a device, the current one unless given.

    Raises: RuntimeError without an accelerator.

    >>> import pullback
    >>> if pullback.accelerator.is_available():
    ...     pullback.accelerator.synchronize()
    """
    _require()
    pullback.cuda.synchronize(device)


current_device_idx = current_device_index
set_device_idx = set_device_index
