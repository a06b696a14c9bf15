"""Comparing tensors, and checking ops and backends against their references.

>>> import pullback
>>> pullback.testing.assert_close(pullback.ones(2) + 1e-7, pullback.ones(2))
"""

from pullback.testing.compare import assert_allclose, assert_close
from pullback.testing.comparison import BackendComparison, Finding, compare_backends
from pullback.testing.draw import make_tensor
from pullback.testing.requirements import Requirements

__all__ = [
    "BackendComparison",
    "Finding",
    "Requirements",
    "assert_allclose",
    "assert_close",
    "compare_backends",
    "make_tensor",
]
