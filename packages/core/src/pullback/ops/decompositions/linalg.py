"""Decompositions of primitives of linear algebra."""

from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops


@decomposition("svdvals")
def svdvals(self):
    """Leave the vectors out."""
    _, values, _, info = ops.svd_batch(self, False)
    return values, info
