"""Why a row misses its budget or its floor, where that has been measured: RESULTS.md quotes it.

A key is a pattern of row keys (``class/operands/expression``) or a figure's title; the first that
fits counts. An entry tells what was measured, and goes when the row no longer misses.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_MEMORY = "both run at the memory's speed"
_ARITHMETIC = "arithmetic, for at most 1.05 units in the last place"
_LOOKUPS = "a cache miss for each look-up, in both"
_TILES = "copies of the factors into panels: see the floors for the share of the peak"
_SMALL = "parsing, a node and a tensor: nothing stands out in a profile"
_PYTHON = "passes through Python: transforms and several engine passes"

REASONS: dict[str, str] = {
    "elementwise/*/erfc*": "in double: in float32 the errors were 1.5 to 2.2 units",
    "elementwise/*/p[*][*]*": "in double, as its digits demand",
    "elementwise/*/gelu*": _ARITHMETIC,
    "elementwise/*/*tanh*": _ARITHMETIC,
    "elementwise/*/*sigmoid*": _ARITHMETIC,
    "elementwise/*/*sin*": _ARITHMETIC,
    "elementwise/*/*cos*": _ARITHMETIC,
    "elementwise/*/*tan*": _ARITHMETIC,
    "elementwise/*/*log*": _ARITHMETIC,
    "elementwise/*/*exp*": _ARITHMETIC,
    "elementwise/*/erf*": _ARITHMETIC,
    "elementwise/*/hypot*": "in double, against overflow",
    "elementwise/*/lgamma*": "three logarithms in double: half a unit, also below zero",
    "elementwise/4M integers/*//*": "one division an element: none divides vectors of integers",
    "elementwise/2048 x 2048, awkward layouts/*": _MEMORY,
    "elementwise/4M*": _MEMORY,
    "elementwise/1M elements, forward and backward/*": _MEMORY,
    "elementwise/1024 x 1024, forward and backward/*": _MEMORY,
    "elementwise/2M float64/*": _MEMORY,
    "elementwise/100k elements/sqrt*": "the divider, which both wait for",
    "elementwise/8 elements/*": _SMALL,
    "reductions/4M elements, normalised or running/*": _MEMORY,
    "reductions/*": _MEMORY,
    "movement/*look-ups*": _LOOKUPS,
    "creation/1M random numbers/randperm*": "sorts random keys; torch swaps elements",
    "linalg/half precision/q*": "widened to float32; torch has the processor's bfloat16 products",
    "linalg/half precision/h*": "widened to float32",
    "linalg/*": _TILES,
    "neural/tiny/conv2d*": "4.2 us of a kernel for large images",
    "neural/normalisation and losses/scaled_dot_product_attention*": "two products and a softmax, "
    "not fused",
    "neural/*/*conv2d*": "the direct loop's share of the peak",
    "overhead/8 elements, recorded/a.softmax(1)": "40 % of it in the kernel",
    "overhead/8 elements, recorded/*": _SMALL,
    "derivatives/*": _PYTHON,
    "Largest float32 error: sigmoid": "one division of a rounded sum; 1.5 is what torch was "
    "measured with",
    "training/transformer": _TILES,
    "training/mlp": _TILES,
}
FLOOR_REASONS: dict[str, str] = {
    "elementwise/1M complex64/*": "arithmetic of complex numbers in double or by the C library",
    "elementwise/*, awkward layouts/*t*": "rows across pages: each needs its own address look-up",
    "elementwise/4M integers/*[/%][/ ]*": "one division an element",
    "elementwise/4M integers/*": "32 MB arrays do not stay in a cache that 16 MB fit into",
    "elementwise/*/d * p + d": "two passes",
    "elementwise/*/x * y + x": "two passes",
    "elementwise/*/*": "arithmetic",
    "linalg/*": "copies of the factors into panels, small against 2048 x 2048",
}


def reason_for(key: str, about: str = "budget") -> str:
    """Return the reason for a miss of a row or a figure; empty where none is known."""
    table = FLOOR_REASONS if about == "floor" else REASONS
    return next((text for pattern, text in table.items() if fnmatchcase(key, pattern)), "")
