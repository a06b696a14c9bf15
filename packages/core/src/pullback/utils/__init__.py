"""Checkpoints, data loading, handles of hooks, DLPack, exchange of tensors, nested containers."""

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

_LATE = ("_pytree", "checkpoint", "data", "deterministic", "model_zoo", "pytree")


def _find(name):
    if name in _LATE:  # they import what imports this package's hooks, or are seldom used
        import importlib

        return importlib.import_module(f"pullback.utils.{name}")
    return None


_explain_names(globals(), _find)
