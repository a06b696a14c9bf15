"""Decompositions of reductions, cumulative ops and argsort."""

from __future__ import annotations

import math

from pullback.ops.rules.associative_scan import multiply_runs, scan
from pullback.ops.rules.dims import count_of, wrap_dim, wrap_dims
from pullback.ops.rules.dtypes import cast_to, default_dtype, dtype_named
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops


@decomposition("any")
def any_(self, dim, keepdim):
    found = _reduced(self != 0, dim, keepdim)
    return found.to(self.dtype) if self.dtype.name == "uint8" else found


@decomposition("all")
def all_(self, dim, keepdim):
    found = ~_reduced(self == 0, dim, keepdim)
    return found.to(self.dtype) if self.dtype.name == "uint8" else found


def _reduced(found, dim, keepdim):
    """Return where any is found; no dims reduce nothing, where ``sum`` takes them for all."""
    return found if isinstance(dim, tuple | list) and not dim else found.sum(dim, keepdim) > 0


@decomposition("cumprod")
def cumprod(self, dim, dtype):
    if dtype is not None or self.dtype.kind in "biu":
        self = cast_to(self, dtype or dtype_named("int64"))
    if not self.ndim:
        return self.clone()
    return scan(multiply_runs, [self], wrap_dim(dim, self.ndim, "cumprod"))[0]


def _add_logs(left, right):
    """log(exp(left) + exp(right)), from the larger one on; equal infinities give themselves."""
    one, other = left[0], right[0]
    if one.is_complex():
        first = ops.real(one) >= ops.real(other)
        high, low = ops.where(first, one, other), ops.where(first, other, one)
        gap = ops.where(high == low, 0, low - high)
        return [high + ops.log(1 + ops.exp(gap))]
    high, low = ops.maximum(one, other), ops.minimum(one, other)
    return [high + ops.log1p(ops.exp(ops.where(high == low, 0, low - high)))]


@decomposition("logcumsumexp")
def logcumsumexp(self, dim):
    if not self.ndim:
        return self.clone()
    if self.is_complex():  # the logarithm of 0 has no angle
        self = ops.where(ops.real(self) == -math.inf, -math.inf, self)
    (out,) = scan(_add_logs, [self], wrap_dim(dim, self.ndim, "logcumsumexp"))
    return out.clone() if out is self else out


@decomposition("nansum")
def nansum(self, dim, keepdim, dtype):
    if self.is_floating_point():
        self = ops.where(self != self, 0, self)
    return ops.sum(self, dim, keepdim, dtype=dtype)


@decomposition("count_nonzero")
def count_nonzero(self, dim):
    return ops.sum(self != 0, dim)


@decomposition("sum_squares")
def sum_squares(self, dim, keepdim, dtype):
    return ops.sum(self * self, dim, keepdim, dtype=dtype)


@decomposition("moments")
def moments(self, dims):
    mean = ops.mean(self, dims, True) if dims else self.clone()
    off = self - mean
    return mean, ops.sum(off * off, dims, True) if dims else off * off


@decomposition("logsumexp")
def logsumexp(self, dim, keepdim):
    if self.dtype.kind in "biu":
        self = ops.cast(self, default_dtype())
    dims = wrap_dims(dim, self.ndim, "logsumexp")
    if not self.ndim and not self.is_complex():
        return self.clone()
    if not count_of(self, dims):
        return ops.log(ops.sum(ops.exp(self), dims, keepdim))
    peak = ops.amax(ops.real(self), dims, True)
    peak = ops.where(ops.isfinite(peak), peak, 0)
    total = ops.log(ops.sum(ops.exp(self - peak), dims, True)) + peak
    return total if keepdim else total.squeeze(dims)


def _cumulative_extreme(name):
    """Define cummax or cummin by ``maximum`` or ``minimum`` of ever longer runs."""

    @decomposition(name)
    def run(self, dim):
        from pullback._c.ops.clone import contiguous_format

        if not self.ndim:
            return self.clone(), ops.zeros_like(self, dtype=dtype_named("int64"))
        dim = wrap_dim(dim, self.ndim, name)
        join = ops.maximum if name == "cummax" else ops.minimum
        (values,) = scan(lambda left, right: [join(left[0], right[0])], [self], dim)
        shape = [1] * self.ndim
        shape[dim] = self.shape[dim]
        positions = ops.arange_like(self, self.shape[dim]).reshape(tuple(shape))
        records = ops.where((self == values) | (self != self), positions, 0)
        (indices,) = scan(lambda left, right: [ops.maximum(left[0], right[0])], [records], dim)
        return tuple(ops.clone(part, memory_format=contiguous_format) for part in (values, indices))


_cumulative_extreme("cummax")
_cumulative_extreme("cummin")


@decomposition("argsort")
def argsort(self, dim, descending, stable):
    return ops.sort(self, dim, descending)[1]
