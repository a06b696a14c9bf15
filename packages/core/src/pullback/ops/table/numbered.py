"""Names and parameters of primitives by number: those of the table, then those of programs.

``NAMES`` and ``PARAMS`` are the lists that compiled code reads: they only grow.
"""

from __future__ import annotations

import threading

from pullback.ops.table.primitives import PRIMITIVES

__all__ = ["NAMES", "PARAMS", "number_primitive"]

NAMES: list[str] = list(PRIMITIVES)
PARAMS: list[list[str]] = [
    [param.partition(":")[0] for param in one.params] for one in PRIMITIVES.values()
]
_adding = threading.Lock()


def number_primitive(name: str, params: list[str]) -> int:
    """Give a primitive that a program defines the next number; the same for the same name."""
    with _adding:
        if name in NAMES:
            return NAMES.index(name)
        PARAMS.append(params)
        NAMES.append(name)
        return len(NAMES) - 1
