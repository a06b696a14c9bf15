"""The op library: one entry per op, a module for each family. Importing it declares them all."""

from importlib import import_module
from pkgutil import walk_packages

from pullback.ops.table.schema import ENTRIES, Entry, ops

__all__ = ["ENTRIES", "Entry", "ops"]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)


def __getattr__(name):
    """Return the operators of a namespace of ``pullback.library``: ``pullback.ops.NAMESPACE``."""
    if name.startswith("_"):
        raise AttributeError(f"module 'pullback.ops' has no attribute {name!r}")
    import importlib

    return importlib.import_module("pullback.library.operators").namespace(name)
