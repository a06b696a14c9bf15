"""Which of the builds of the kernels is used.

Kernels that gain from wide vectors are compiled from one source for several instruction sets, and
their modules are named after them: ``unary_baseline`` runs everywhere, ``unary_avx2`` and
``unary_avx512`` are there on x86-64. The widest one that the processor has is taken, or the one
that the environment variable ``PULLBACK_CPU_LEVEL`` names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from pullback_cpu._processor import supported_levels

VARIABLE = "PULLBACK_CPU_LEVEL"


def available_levels() -> list[str]:
    """Return the levels that were built and that this processor can run, the widest last."""
    return [level for level in supported_levels()
            if importlib.util.find_spec(f"{__package__}.copy_{level}") is not None]


def choose_level() -> str:
    """Return the level to use.

    Raises: RuntimeError if the environment variable names one that cannot be used here.
    """
    available = available_levels()
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return available[-1]
    if wanted not in available:
        raise RuntimeError(f"{VARIABLE} is {wanted!r}, but here it must be one of {available}")
    return wanted


def load_kernels(name: str) -> ModuleType:
    """Import a module of kernels, as it was built for the chosen level."""
    return importlib.import_module(f"{__package__}.{name}_{LEVEL}")


LEVEL = choose_level()
