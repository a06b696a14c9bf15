"""Checkpoints, data loading, handles of hooks, DLPack, exchange of tensors, nested containers."""

import sys

from pullback._c.python.tensor_methods import swap_tensors
from pullback.utils import dlpack, hooks

__all__ = [
    "checkpoint",
    "data",
    "deterministic",
    "dlpack",
    "hooks",
    "model_zoo",
    "pytree",
    "swap_tensors",
]

_LATE = {name: name for name in ("checkpoint", "data", "deterministic", "model_zoo", "pytree")}
_LATE["_pytree"] = "pytree"


def __getattr__(name):
    if name in _LATE:  # they import what imports this package's hooks, or are seldom used
        import importlib

        found = importlib.import_module(f"pullback.utils.{_LATE[name]}")
        sys.modules[f"pullback.utils.{name}"] = found
        return found
    from pullback._help.names import missing

    raise missing("pullback.utils", name)
