"""Checkpoints, data loading, handles of hooks, DLPack, exchange of tensors."""

from pullback._c.python.tensor_methods import swap_tensors
from pullback.utils import dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks", "swap_tensors"]


def __getattr__(name):
    if name in ("checkpoint", "data"):  # they import what imports this package's hooks
        import importlib

        return importlib.import_module(f"pullback.utils.{name}")
    raise AttributeError(f"module 'pullback.utils' has no attribute {name!r}")
