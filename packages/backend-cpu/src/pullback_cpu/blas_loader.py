"""Load SciPy's BLAS when the first large matrix product needs it, and its LAPACK likewise."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_BLAS = "scipy.linalg.cython_blas"
_LAPACK = "scipy.linalg.cython_lapack"
_threads: int | None = None  # how many were asked for, perhaps before BLAS was loaded


def load_routines() -> object:
    """Return the capsule with the addresses of the BLAS routines."""
    blas = _import_with(_BLAS, "blas")
    if _threads is not None:
        blas.set_thread_count(_threads)
    return blas.ROUTINES


def set_threads(count: int) -> None:
    """Let BLAS use at most so many threads; it is told when it is loaded."""
    global _threads
    _threads = count
    blas = sys.modules.get("pullback_cpu.kernels.blas")
    if blas is not None:
        blas.set_thread_count(count)


def load_lapack() -> object:
    """Return the capsule with the addresses of the LAPACK routines."""
    return _import_with(_LAPACK, "lapack").ROUTINES


def _import_with(wrappers: str, module: str) -> Any:
    """Import a module of ours that is linked to one of SciPy's modules of wrappers.

    The package ``scipy.linalg`` takes a quarter of a second to import, its modules of wrappers
    a tenth of that. So such a module is loaded alone, and taken out of ``sys.modules`` again: a
    later import of it goes through its package as usual.
    """
    borrowed = wrappers not in sys.modules and _load_alone(wrappers)
    try:
        return importlib.import_module(f"pullback_cpu.kernels.{module}")
    finally:
        if borrowed:
            sys.modules.pop(wrappers, None)


def _load_alone(wrappers: str) -> bool:
    """Put a module of wrappers into ``sys.modules``; false if that does not work."""
    scipy = importlib.util.find_spec("scipy")
    folders = scipy.submodule_search_locations if scipy is not None else None
    for folder in folders or ():
        linalg = os.path.join(folder, "linalg")
        spec = importlib.machinery.PathFinder.find_spec(wrappers, [linalg])
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules[wrappers] = module
            spec.loader.exec_module(module)
        except Exception:  # the ordinary import comes next, and reports what is wrong
            sys.modules.pop(wrappers, None)
            return False
        return True
    return False
