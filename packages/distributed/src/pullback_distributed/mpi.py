"""The names of ``mpi4py.MPI``, which is imported when one of them is first used.

That import starts MPI, which fails where programs may not use it, such as the front ends of some
clusters; a script that only imports this package must run there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Return a name of ``mpi4py.MPI``.

    Raises: ImportError if there is no MPI library.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            "process groups need an MPI library: the system's, or that of "
            f"'pip install pullback-distributed[mpich]' ({error})"
        ) from error
    globals().update((key, value) for key, value in vars(module).items() if key[:2] != "__")
    return getattr(module, name)
