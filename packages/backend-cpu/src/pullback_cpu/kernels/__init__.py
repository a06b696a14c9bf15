"""Kernels for host memory: one for every primitive, as a capsule with the dtypes it is good for.

Modules stand in folders by family. One that defines ``KERNELS`` is found here, in the build for
the chosen instruction set where there are several (see runtime/isa.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from pullback_cpu.kernels.common.executor import offer as offer_executors
from pullback_cpu.runtime.isa import builds_to_load

__all__ = ["KERNELS", "OPTIONAL", "TAKES_CONJ", "load_modules", "offer_executors"]


def load_modules() -> Iterator[ModuleType]:
    """Import the compiled modules of all families."""
    for family in iter_modules(__path__, f"{__name__}."):
        folder = import_module(family.name)
        found = [module.name for module in iter_modules(folder.__path__, f"{family.name}.")]
        for module in builds_to_load(found):
            yield import_module(module)


#: The kernel of each primitive, and the dtypes it is good for.
KERNELS: dict[str, tuple[int, object]] = {}
#: Kernels of other dtypes for some of them: uint16, uint32 and uint64.
OPTIONAL: dict[str, tuple[int, object]] = {}
#: Primitives whose kernels take conjugates as they are stored.
TAKES_CONJ: set[str] = set()
for _module in load_modules():
    KERNELS.update(getattr(_module, "KERNELS", {}))
    OPTIONAL.update(getattr(_module, "OPTIONAL", {}))
    TAKES_CONJ.update(getattr(_module, "TAKES_CONJ", ()))
