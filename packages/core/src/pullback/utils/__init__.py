"""Checkpoints, handles of hooks, DLPack."""

from pullback.utils import dlpack, hooks

__all__ = ["checkpoint", "dlpack", "hooks"]


def __getattr__(name):
    if name == "checkpoint":  # imports autograd, which imports this package's hooks
        import importlib

        return importlib.import_module("pullback.utils.checkpoint")
    raise AttributeError(f"module 'pullback.utils' has no attribute {name!r}")
