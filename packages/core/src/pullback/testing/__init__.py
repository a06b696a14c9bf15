"""Comparing tensors, and checking ops and backends against their references.

>>> import pullback
>>> pullback.testing.assert_close(pullback.ones(2) + 1e-7, pullback.ones(2))
"""

from pullback.testing.compare import assert_close
from pullback.testing.draw import make_tensor

__all__ = ["assert_close", "make_tensor"]
