"""The op library: one entry per op, a module for each family. Importing it declares them all."""

import gc
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages

from pullback.ops.table.schema import ENTRIES, Entry, ops

__all__ = ["ENTRIES", "Entry", "ops", "uncollected"]


@contextmanager
def uncollected():
    """Make what stays, so that there is nothing to collect: the garbage collector does not look."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
        if not gc.get_freeze_count():  # to the oldest generation at once, without a traversal
            gc.freeze()
            gc.unfreeze()
    finally:
        if collects:
            gc.enable()


@uncollected()
def _declare_all():
    """Import every module of the library, but for decompositions, which declare no op."""
    for module in walk_packages(__path__, f"{__name__}."):
        if not module.name.startswith("pullback.ops.decompositions."):
            import_module(module.name)


_declare_all()


def __getattr__(name):
    """Return the operators of a namespace of ``pullback.library``: ``pullback.ops.NAMESPACE``."""
    if name == "load_library":
        return _load_library
    if name.startswith("_"):
        raise AttributeError(f"module 'pullback.ops' has no attribute {name!r}")
    import importlib

    return importlib.import_module("pullback.library.operators").namespace(name)


def _load_library(path):
    """Refuse a compiled library, whose operators are for torch; ``library`` defines ours.

    Raises: OSError.
    """
    raise OSError(f"Could not load this library: {path} (its operators are compiled for torch)")
