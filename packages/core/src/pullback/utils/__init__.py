"""Tools around tensors: hooks."""

from pullback.utils import hooks

__all__ = ["hooks"]
