"""Moving, combining and finding elements in other ops, for devices without kernels of their own."""

from __future__ import annotations

from pullback.ops.table.schema import ops


def addcdiv(self, tensor1, tensor2, value):
    return self + tensor1 * value / tensor2


def addcmul(self, tensor1, tensor2, value):
    return self + tensor1 * value * tensor2


def clamp(self, low, high):
    return ops.minimum(ops.maximum(self, low), high)


def lerp(self, end, weight):
    difference = end - self
    if hasattr(weight, "shape"):
        return ops.where(ops.abs(weight) < 0.5, self + weight * difference,
                         end - difference * (1 - weight))
    return self + difference * weight if abs(weight) < 0.5 else end - difference * (1 - weight)


def flip(self, dims):
    out = self
    for d in dims:
        last = self.shape[d] - 1
        out = ops.index_select(out, d, last - ops.arange_like(self, last + 1))
    return out


def argsort(self, dim, descending, stable):
    return ops.sort(self, dim, descending)[1]


def _distance(self):
    """Return column - row of every element."""
    rows = ops.arange_like(self, self.shape[-2]).unsqueeze(1)
    return ops.arange_like(self, self.shape[-1]) - rows


def tril(self, diagonal):
    return ops.where(_distance(self) <= diagonal, self, ops.new_zeros(self, ()))


def triu(self, diagonal):
    return ops.where(_distance(self) >= diagonal, self, ops.new_zeros(self, ()))
