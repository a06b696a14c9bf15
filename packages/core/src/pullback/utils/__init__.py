"""Checkpoints, data loading, handles of hooks, DLPack."""

from pullback.utils import dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks"]


def __getattr__(name):
    if name in ("checkpoint", "data"):  # they import what imports this package's hooks
        import importlib

        return importlib.import_module(f"pullback.utils.{name}")
    raise AttributeError(f"module 'pullback.utils' has no attribute {name!r}")
