"""Why a row misses its budget or its floor, where that has been measured: RESULTS.md quotes it.

A key is a pattern of row keys (``class/operands/expression``) or a figure's title; the first that
fits counts. An entry says what was measured, and is removed when the row is within its budget.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_MEMORY = "both run at the memory's speed"
_ARITHMETIC = "arithmetic, for at most 1.05 units in the last place"
_LOOKUPS = "a cache miss for each look-up, in both"
_TILES = "copies of both factors are 4 to 10 % of it; the tiles run at 88 % of the peak"
_SMALL = "parsing, a node and a tensor: nothing stands out in a profile"
_PYTHON = "passes through Python: transforms and several engine passes"

REASONS: dict[str, str] = {
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
    "linalg/Fourier transforms/*": "SciPy's pocketfft has 128-bit vectors, oneMKL the widest; "
    "one dim alone has none in pocketfft",
    "linalg/half precision/h*": "six jobs of conversions and products, each ending with a wait",
    "linalg/half precision/q*": "copies of both factors are 23 % of it",
    "linalg/*complex*": "OpenBLAS's complex product",
    "linalg/*z*": "OpenBLAS's complex product",
    "linalg/*b5*": "16 MB of results are written: at the memory's speed",
    "linalg/*b3*": "sums of 64 terms: the beginning and end of a tile cost a tenth",
    "linalg/*.T": "one factor is transposed while it is copied: a tenth of the time",
    "linalg/*": _TILES,
    "neural/normalisation and losses/nll_loss*": "1.1 of 1.9 us before the kernel: arguments, a "
    "plan",
    "neural/normalisation and losses/linear*": "the weight is transposed while it is copied",
    "neural/pooling and resampling/adaptive_avg_pool2d*": "11 us of work: at best 0.8 with two "
    "threads, else a thread that has to be woken",
    "movement/1M writes and selections/*index_put*": "each thread looks at all positions, so that "
    "writes to one element are in order",
    "neural/attention/*": "the two products alone, at the speed of large ones, take 0.83 of it",
    "neural/*/*conv2d*": "the direct loop's share of the peak",
    "derivatives/*": _PYTHON,
    "Largest float32 error: sigmoid": "one division of a rounded sum; 1.5 is what torch was "
    "measured with",
    "training/conv_net": "its convolutions: the direct loop's share of the peak",
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
