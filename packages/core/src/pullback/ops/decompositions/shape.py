"""Decompositions of flip, tril and triu."""

from __future__ import annotations

from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops


@decomposition("flip")
def flip(self, dims):
    out = self
    for d in dims:
        last = self.shape[d] - 1
        out = ops.index_select(out, d, last - ops.arange_like(self, last + 1))
    return out


def _distance(self):
    """Return column - row of every element."""
    rows = ops.arange_like(self, self.shape[-2]).unsqueeze(1)
    return ops.arange_like(self, self.shape[-1]) - rows


@decomposition("tril")
def tril(self, diagonal):
    return ops.where(_distance(self) <= diagonal, self, ops.new_zeros(self, ()))


@decomposition("triu")
def triu(self, diagonal):
    return ops.where(_distance(self) >= diagonal, self, ops.new_zeros(self, ()))
