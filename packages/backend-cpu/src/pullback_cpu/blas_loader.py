"""Load SciPy's BLAS when the first large matrix product needs it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

_BLAS = "scipy.linalg.cython_blas"


def load_routines() -> object:
    """Return the capsule with the addresses of the BLAS routines.

    The package ``scipy.linalg`` takes a quarter of a second to import, its module of BLAS wrappers
    a tenth of that. So that module is loaded alone, and taken out of ``sys.modules`` again: a later
    import of it goes through its package as usual.
    """
    borrowed = _BLAS not in sys.modules and _load_alone()
    try:
        from pullback_cpu.kernels.blas import ROUTINES
    finally:
        if borrowed:
            sys.modules.pop(_BLAS, None)
    return ROUTINES


def _load_alone() -> bool:
    """Put the module of BLAS wrappers into ``sys.modules``; false if that does not work."""
    scipy = importlib.util.find_spec("scipy")
    folders = scipy.submodule_search_locations if scipy is not None else None
    for folder in folders or ():
        linalg = os.path.join(folder, "linalg")
        spec = importlib.machinery.PathFinder.find_spec(_BLAS, [linalg])
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules[_BLAS] = module
            spec.loader.exec_module(module)
        except Exception:  # the ordinary import comes next, and reports what is wrong
            sys.modules.pop(_BLAS, None)
            return False
        return True
    return False
