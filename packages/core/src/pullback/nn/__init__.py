"""Modules, their parameters and initial values, and functions of neural networks.

``pullback.nn.functional`` is filled from the op table; everything else is imported on first use.
"""

from pullback._help import explain_names as _explain_names
from pullback.nn import functional

_PACKAGES = ("attention", "init", "modules", "parallel", "parameter", "utils")

__all__ = ["functional"]


def _load():
    """Import all modules and parameters; return them by name."""
    from pullback.nn import modules, parallel, parameter

    names = {"DataParallel": parallel.DataParallel}
    for source in (parameter, modules):
        names.update((name, getattr(source, name)) for name in source.__all__)
    names.pop("UninitializedTensorMixin")
    names.pop("is_lazy")
    globals().update(names)
    return names


def _find(name):
    if name in _PACKAGES:
        import importlib

        return importlib.import_module(f"pullback.nn.{name}")
    if not name.startswith("__"):
        found = _load().get(name)
        if found is not None:
            return found
    return None


_explain_names(globals(), _find)


def __dir__():
    return sorted({*globals(), *_PACKAGES, *_load()})
