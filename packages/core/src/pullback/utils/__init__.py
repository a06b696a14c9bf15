"""Checkpoints, data loading, handles of hooks, DLPack, exchange of tensors, nested containers."""

import sys
from typing import TYPE_CHECKING

from pullback._c.python.tensor_methods import swap_tensors
from pullback._help import explain_names as _explain_names
from pullback.utils import dlpack, hooks

if TYPE_CHECKING:  # they are imported at their first use
    from pullback.utils import checkpoint, data, deterministic, model_zoo, pytree

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


def _find(name):
    if name in _LATE:  # they import what imports this package's hooks, or are seldom used
        import importlib

        found = importlib.import_module(f"pullback.utils.{_LATE[name]}")
        sys.modules[f"pullback.utils.{name}"] = found
        return found
    return None


_explain_names(globals(), _find)
