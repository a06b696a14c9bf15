"""``compare_backends``: which op, and which node of backward, computes something else elsewhere.

``sides.py`` runs the function on copies, ``watch.py`` records ops and gives one side the other's
values, ``functions.py`` lets it see into custom Functions, ``nodes.py`` does the same for nodes,
``parts.py`` finds what is compared in results and inputs, ``measure.py`` compares two values,
``result.py`` has what users get, ``program.py`` writes the program that shows one difference, and
``compare.py`` puts them together.
"""

from pullback.testing.comparison.compare import compare_backends
from pullback.testing.comparison.result import BackendComparison, Finding

__all__ = ["BackendComparison", "Finding", "compare_backends"]
