"""Batches in pinned memory, which accelerators copy from asynchronously."""

from __future__ import annotations

import warnings

import pullback
from pullback._c.graph.tensor import Tensor
from pullback.utils.data._utils.collate import map_leaves

__all__ = ["pin_memory"]


def pin_memory(data, device=None):
    """Return a batch with its tensors in pinned memory; containers keep their class.

    Objects with a method ``pin_memory`` are replaced by what it returns.
    """
    if hasattr(data, "pin_memory"):
        return data.pin_memory() if device is None else data.pin_memory(device)
    return map_leaves(lambda leaf: _pinned_leaf(leaf, device), data)


def _pinned_leaf(leaf, device):
    if isinstance(leaf, Tensor) and device is not None:
        return leaf.pin_memory(device)
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def can_pin(asked: bool, device: str) -> bool:
    """Return whether batches are to be pinned; warns where that was asked for and is impossible."""
    if not asked:
        return False
    if device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{device}'.",
            stacklevel=6,
        )
    if pullback.cuda.is_available():
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        stacklevel=6,
    )
    return False
