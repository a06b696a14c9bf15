"""The op library: one entry per op, a module for each family. Importing it declares them all."""

import gc
import os
from contextlib import contextmanager
from importlib import import_module

from pullback.ops.table.schema import ENTRIES, Entry, ops, result_type

__all__ = ["ENTRIES", "Entry", "ops", "result_type", "uncollected"]


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
def _declare_all(folder, package):
    """Import every module of a folder, but for decompositions, which declare no op."""
    for name in sorted(os.listdir(folder)):  # `pkgutil` takes ten times as long
        module = f"{package}.{name.removesuffix('.py')}"
        if name.endswith(".py") and name != "__init__.py":
            import_module(module)
        elif name.isidentifier() and name not in ("__pycache__", "decompositions"):
            import_module(module)
            _declare_all(os.path.join(folder, name), module)


_declare_all(os.path.dirname(__file__), __name__)


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
