"""Why a row misses its budget or its floor, where that has been measured: RESULTS.md quotes it.

A key is a pattern of row keys (``class/operands/expression``) or a figure's title; the first that
fits counts. An entry tells what was measured, and goes when the row no longer misses.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

REASONS: dict[str, str] = {}
FLOOR_REASONS: dict[str, str] = {}


def reason_for(key: str, about: str = "budget") -> str:
    """Return the reason for a miss of a row or a figure; empty where none is known."""
    table = FLOOR_REASONS if about == "floor" else REASONS
    return next((text for pattern, text in table.items() if fnmatchcase(key, pattern)), "")
