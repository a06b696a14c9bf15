"""Tools around tensors: hooks, DLPack."""

from pullback.utils import dlpack, hooks

__all__ = ["dlpack", "hooks"]
