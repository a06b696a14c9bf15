"""Load SciPy's Fourier transforms when the first one comes."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from pullback_cpu.runtime.blas_loader import load_alone

# The second since SciPy 1.18: ducc0, with the same functions.
_NAMES = ("scipy.fft._pocketfft.pypocketfft", "scipy.fft._duccfft.pyduccfft")


def load_transforms() -> tuple[Any, Any, Any]:
    """Return the functions that transform complex to complex, real to complex and back.

    The package ``scipy.fft`` takes a seventh of a second to import, this module of it a
    millisecond. An import of the package takes the module that is loaded.
    """
    for name in _NAMES:
        if name in sys.modules or load_alone(name):
            break
    module = importlib.import_module(name)
    return module.c2c, module.r2c, module.c2r
