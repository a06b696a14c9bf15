"""The choice of the instruction set: which build of the kernels is loaded.

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

from pullback_cpu.runtime.cpuid import ALL_ISAS, supported_isas

VARIABLE = "PULLBACK_CPU_LEVEL"
PROBE = "pullback_cpu.gemm.matmul_loops"  # a module that is compiled for each instruction set


def available_isas() -> list[str]:
    """Return the instruction sets that were built and that this processor has, the widest last."""
    return [isa for isa in supported_isas() if importlib.util.find_spec(f"{PROBE}_{isa}")]


def choose_isa() -> str:
    """Return the instruction set to use.

    Raises: RuntimeError if the environment variable names one that cannot be used here.
    """
    available = available_isas()
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return available[-1]
    if wanted not in available:
        raise RuntimeError(f"{VARIABLE} is {wanted!r}, but here it must be one of {available}")
    return wanted


def isa_of(module: str) -> str | None:
    """Return the instruction set that a module is compiled for, None if it is compiled once."""
    suffix = module.rpartition("_")[2]
    return suffix if suffix in ALL_ISAS else None


def builds_to_load(modules: list[str]) -> list[str]:
    """Return, of modules in a folder, those to load: of each one that is built several times, the
    widest build that is not wider than the chosen instruction set."""
    allowed = ALL_ISAS[: ALL_ISAS.index(ISA) + 1]
    chosen: dict[str, str] = {}
    for module in modules:
        isa = isa_of(module)
        name = module if isa is None else module.removesuffix(f"_{isa}")
        before = isa_of(chosen.get(name, ""))
        if isa is None or (
            isa in allowed and (before is None or allowed.index(before) < allowed.index(isa))
        ):
            chosen[name] = module
    return list(chosen.values())


def load_for_isa(module: str) -> ModuleType:
    """Import a module in its build for the chosen instruction set."""
    return importlib.import_module(f"{module}_{ISA}")


ISA = choose_isa()
