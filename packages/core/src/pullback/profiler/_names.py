"""Look-up of names of the package pullback-profiler, at their first use."""

from __future__ import annotations

from importlib import import_module


def look_up(module: str, home: str, name: str):
    """Return the attribute of a module of the profiler for ``name`` of a module of ours.

    Raises: ImportError with the package to install.
    """
    try:
        found = import_module(home)
    except ImportError as error:
        if error.name != "pullback_profiler":
            raise
        raise ImportError(
            f"{module}.{name} needs the package pullback-profiler: install it with "
            f"'pip install pullback-profiler' (or pullback[profiler])"
        ) from None
    try:
        return getattr(found, name)
    except AttributeError:
        raise ImportError(
            f"{module}.{name} needs a newer pullback-profiler than is installed"
        ) from None
