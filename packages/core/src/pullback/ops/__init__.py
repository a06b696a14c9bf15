"""The op library: one entry per op, a module for each family. Importing it declares them all."""

from importlib import import_module
from pkgutil import walk_packages

from pullback.ops.table.schema import ENTRIES, Entry, ops

__all__ = ["ENTRIES", "Entry", "ops"]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
