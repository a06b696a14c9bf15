"""What the core runs where a device has no kernel for a slot: the same in other ops.

One function for each slot that is not ``required``, called with the arguments of the op whose slot
it is, below autograd. 16-bit numbers come in as float32, and integers as floats where the op
computes in floats. Each function may use every op but its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pullback.ops.decompositions import activations, moving, special
from pullback.ops.decompositions.losses import composed_nll, composed_nll_adjoint
from pullback.ops.decompositions.pooling import (
    composed_max,
    composed_mean,
    composed_mean_adjoint,
)
from pullback.ops.indexing.scatter import combine_by_scan
from pullback.ops.nn.convolution import composed_adjoint, composed_map, composed_weight
from pullback.ops.nn.interpolation import composed_resample, composed_resample_adjoint
from pullback.ops.nn.normalization import composed_standard
from pullback.ops.reductions.histogram import halve_ranges
from pullback.ops.rules.dims import (
    cast_to,
    count_of,
    default_dtype,
    dtype_named,
    multiply_runs,
    scan,
    wrap_dim,
    wrap_dims,
)
from pullback.ops.table.schema import ops


def running_extreme(name: str) -> Callable:
    """Return cummax or cummin by ``maximum`` or ``minimum`` of ever longer runs."""
    def run(self, dim):
        from pullback._c.ops.clone import contiguous_format

        if not self.ndim:
            return self.clone(), ops.zeros_like(self, dtype=dtype_named("int64"))
        dim = wrap_dim(dim, self.ndim, name)
        join = ops.maximum if name == "cummax" else ops.minimum
        values, = scan(lambda left, right: [join(left[0], right[0])], [self], dim)
        shape = [1] * self.ndim
        shape[dim] = self.shape[dim]
        places = ops.arange_like(self, self.shape[dim]).reshape(tuple(shape))
        records = ops.where((self == values) | (self != self), places, 0)
        indices, = scan(lambda left, right: [ops.maximum(left[0], right[0])], [records], dim)
        return tuple(ops.clone(part, memory_format=contiguous_format) for part in (values, indices))

    return run


DECOMPOSITIONS: dict[str, Callable] = {
    "cummax": running_extreme("cummax"), "cummin": running_extreme("cummin"),
    "conv": composed_map, "conv_adjoint": composed_adjoint, "conv_weight": composed_weight,
    "cosh": lambda self: (ops.exp(self) + ops.exp(-self)) * 0.5,
    "exp2": lambda self: ops.exp(self * math.log(2)),
    "gt": lambda self, other: ops.lt(other, self),
    "isfinite": lambda self: ops.eq(self * 0, 0),
    "isnan": lambda self: ops.ne(self, self),
    "log10": lambda self: ops.log(self) * (1 / math.log(10)),
    "log2": lambda self: ops.log(self) * (1 / math.log(2)),
    "log_softmax_backward": lambda self, output, dim: self - output.exp() * self.sum(dim, True),
    "logical_not": lambda self: ops.eq(self, 0),
    "max_windows": composed_max, "mean_windows": composed_mean,
    "mean_windows_adjoint": composed_mean_adjoint,
    "ne": lambda self, other: ops.logical_not(ops.eq(self, other)),
    "nll_loss": composed_nll, "nll_loss_adjoint": composed_nll_adjoint,
    "reciprocal": lambda self: ops.div(1, self),
    "resample": composed_resample, "resample_adjoint": composed_resample_adjoint,
    "relu": lambda self: ops.where(self <= 0, 0, self),
    "scatter_reduce": combine_by_scan,
    "searchsorted": halve_ranges,
    "standardize": composed_standard,
    "rsqrt": lambda self: ops.div(1, ops.sqrt(self)),
    "sigmoid": lambda self: ops.div(1, ops.exp(-self) + 1),
    "sigmoid_backward": lambda self, output: self * ops.conj(output * (1 - output)),
    "sinh": lambda self: (ops.expm1(self) - ops.expm1(-self)) * 0.5,
    "softmax_backward": lambda self, output, dim: output * (
        self - (self * output).sum(dim, True)),
    "square": lambda self: self * (self * 1),       # of bools it is int64
    "tan": lambda self: ops.sin(self) / ops.cos(self),
    "tanh_backward": lambda self, output: self * ops.conj(1 - output * output),
    **{name: getattr(activations, name) for name in (
        "elu", "gelu", "gelu_backward", "gelu_tanh", "gelu_tanh_backward", "logaddexp", "silu",
        "silu_backward", "softplus")},
    **{name: getattr(moving, name) for name in (
        "addcdiv", "addcmul", "argsort", "clamp", "flip", "lerp", "tril", "triu")},
    **{name: getattr(special, name) for name in (
        "acosh", "asinh", "atanh", "digamma", "erfc", "erfinv", "gcd", "hypot", "i0", "i1",
        "lgamma", "zeta")},
}


def _part(function):
    """Enter a function under its name; the names of slots are those of builtins, hence the end."""
    DECOMPOSITIONS[function.__name__.removesuffix("_")] = function
    return function


# -- signs and rounding ----------------------------------------------------------------------------

@_part
def neg(self):
    # -0.0 - x is -x for zeros too; 0 - x would lose their sign.
    floating = self.is_floating_point() or self.is_complex()
    return ops.sub(-0.0 if floating else 0, self)


@_part
def abs_(self):
    if not self.is_complex():
        return ops.where(self < 0, -self, self) + 0     # + 0 makes -0.0 positive
    x, y = ops.abs(ops.real(self)), ops.abs(ops.imag(self))
    large, small = ops.maximum(x, y), ops.minimum(x, y)
    ratio = ops.where((large == 0) | (large == math.inf), 0, small / large)
    found = large * ops.sqrt(ratio * ratio + 1)
    return ops.where((x == math.inf) | (y == math.inf), math.inf, found)


@_part
def sign(self):
    if self.dtype.kind == "b":
        return self
    return (self > 0).to(self.dtype) - (self < 0).to(self.dtype)


@_part
def ceil(self):
    return -ops.floor(-self) if self.is_floating_point() else self


@_part
def trunc(self):
    if not self.is_floating_point():
        return self
    return ops.where(self < 0, ops.ceil(self), ops.floor(self))


@_part
def conj(self):
    if not self.is_complex():
        return self
    result = self.clone()
    ops.imag(result).neg_()
    return result


# -- comparisons -----------------------------------------------------------------------------------

@_part
def le(self, other):
    return ops.lt(self, other) | ops.eq(self, other)


@_part
def ge(self, other):
    return ops.lt(other, self) | ops.eq(self, other)


@_part
def maximum(self, other):
    return ops.where(ops.ge(self, other) | ops.ne(self, self), self, other)


@_part
def minimum(self, other):
    return ops.where(ops.le(self, other) | ops.ne(self, self), self, other)


# -- elementary functions --------------------------------------------------------------------------

@_part
def log1p(self):
    """The error of 1 + x cancels in the quotient: HP-15C Advanced Functions Handbook, app. 2."""
    one_more = self + 1
    if self.is_complex():
        return ops.log(one_more)
    found = ops.log(one_more) * self / (one_more - 1)
    return ops.where((one_more == 1) | (self == math.inf), self, found)


@_part
def expm1(self):
    """As log1p; Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1."""
    power = ops.exp(self)
    less = power - 1
    if self.is_complex():
        return less
    found = ops.where(power == 1, self, less * self / ops.log(power))
    return ops.where((less == -1) | (power == math.inf), less, found)


@_part
def tanh(self):
    if self.is_complex():
        double = ops.exp(self * -2)
        return (1 - double) / (1 + double)
    less = ops.expm1(ops.abs(self) * -2)
    size = -less / (less + 2)
    return ops.where(self < 0, -size, ops.where(self == 0, self, size))


@_part
def acos(self):
    """DLMF 4.24.16 for complex numbers; atan2 keeps its digits at both ends of [-1, 1]."""
    if not self.is_complex():
        return ops.atan2(ops.sqrt((1 - self) * (1 + self)), self)
    return math.pi / 2 - asin(self)


@_part
def asin(self):
    if not self.is_complex():
        return ops.atan2(self, ops.sqrt((1 - self) * (1 + self)))
    return ops.log(self * 1j + ops.sqrt(1 - self) * ops.sqrt(1 + self)) * -1j    # DLMF 4.23.19


# -- over dims -------------------------------------------------------------------------------------

@_part
def any_(self, dim, keepdim):
    found = (self != 0).sum(dim, keepdim) > 0
    return found.to(self.dtype) if self.dtype.name == "uint8" else found


@_part
def all_(self, dim, keepdim):
    found = (self == 0).sum(dim, keepdim) == 0
    return found.to(self.dtype) if self.dtype.name == "uint8" else found


@_part
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


@_part
def logcumsumexp(self, dim):
    if not self.ndim:
        return self.clone()
    if self.is_complex():               # the logarithm of 0 has no angle
        self = ops.where(ops.real(self) == -math.inf, -math.inf, self)
    out, = scan(_add_logs, [self], wrap_dim(dim, self.ndim, "logcumsumexp"))
    return out.clone() if out is self else out


@_part
def nansum(self, dim, keepdim, dtype):
    if self.is_floating_point():
        self = ops.where(self != self, 0, self)
    return ops.sum(self, dim, keepdim, dtype=dtype)


@_part
def count_nonzero(self, dim):
    return ops.sum(self != 0, dim)


@_part
def sum_squares(self, dim, keepdim, dtype):
    return ops.sum(self * self, dim, keepdim, dtype=dtype)


@_part
def moments(self, dims):
    mean = ops.mean(self, dims, True) if dims else self.clone()
    off = self - mean
    return mean, ops.sum(off * off, dims, True) if dims else off * off


@_part
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


@_part
def normalize(self, mean, scale, weight, bias):
    mean, scale = (part.unsqueeze(2).unsqueeze(3) for part in (mean, scale))
    return (self - mean) * scale * weight.unsqueeze(2) + bias.unsqueeze(2)


@_part
def normalize_backward(self, source, mean, scale, weight):
    dims = (2, 3) if mean.shape[0] == source.shape[0] else (0, 2, 3)
    mean, scale = (part.unsqueeze(2).unsqueeze(3) for part in (mean, scale))
    unit = (source - mean) * scale
    inner = self * weight.unsqueeze(2)
    slope = scale * (inner - inner.mean(dims, True) - unit * (inner * unit).mean(dims, True))
    return slope.contiguous(), (self * unit).sum((0, 3)), self.sum((0, 3))


@_part
def softmax(self, dim):
    powers = ops.exp(_shifted(self, dim))
    return powers / powers.sum(dim, True)


@_part
def log_softmax(self, dim):
    shifted = _shifted(self, dim)
    return shifted - shifted.exp().sum(dim, True).log()


def _shifted(self, dim):
    """Subtract the largest element, so that no power overflows."""
    return self - ops.amax(self, dim, True) if self.numel() else self
