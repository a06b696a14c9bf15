"""Load SciPy's pocketfft when the first Fourier transform comes."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from pullback_cpu.runtime.blas_loader import load_alone

_NAME = "scipy.fft._pocketfft.pypocketfft"


def load_transforms() -> tuple[Any, Any, Any]:
    """Return the functions that transform complex to complex, real to complex and back.

    The package ``scipy.fft`` takes a seventh of a second to import, this module of it a
    millisecond. An import of the package takes the module that is loaded.
    """
    if _NAME not in sys.modules:
        load_alone(_NAME)
    pocketfft = importlib.import_module(_NAME)
    return pocketfft.c2c, pocketfft.r2c, pocketfft.c2r
