"""Decompositions of activation functions and their derivatives."""

from __future__ import annotations

import math

from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops

_ROOT = math.sqrt(2 / math.pi)


@decomposition("elu")
def elu(self):
    return ops.where(self > 0, self, ops.expm1(ops.where(self > 0, 0, self)))


@decomposition("softplus")
def softplus(self):
    return ops.where(self > 20, self, ops.log1p(ops.exp(self)))


@decomposition("silu")
def silu(self):
    return self * ops.sigmoid(self)


@decomposition("silu_backward")
def silu_backward(grad, self):
    share = ops.sigmoid(self)
    return grad * ops.conj(share * (self * (1 - share) + 1))


@decomposition("gelu")
def gelu(self):
    return self * 0.5 * ops.erfc(self * -math.sqrt(0.5))  # 1 + erf would cancel


@decomposition("gelu_backward")
def gelu_backward(grad, self):
    density = ops.exp(self * self * -0.5) * (0.5 * _ROOT)
    return grad * (ops.erfc(self * -math.sqrt(0.5)) * 0.5 + self * density)


def _angle(self):
    return (self + self * self * self * 0.044715) * _ROOT


@decomposition("gelu_tanh")
def gelu_tanh(self):
    return self * 0.5 * (ops.tanh(_angle(self)) + 1)


@decomposition("gelu_tanh_backward")
def gelu_tanh_backward(grad, self):
    self = ops.clamp(self, -64, 64)  # beyond, it is 0 or 1, and squares may overflow
    size = ops.tanh(_angle(self))
    derivative = (self * self * (3 * 0.044715) + 1) * _ROOT
    return grad * ((size + 1) * 0.5 + self * 0.5 * (1 - size * size) * derivative)


# -- logarithms of sums ----------------------------------------------------------------------------


def above_larger(self, other, part):
    """Return the larger one plus a function of the smaller one's distance from it."""
    high, low = ops.maximum(self, other), ops.minimum(self, other)
    # Two infinities of one sign have no difference.
    return ops.where((self == other) & (ops.abs(self) == math.inf), self, high + part(low - high))


@decomposition("logaddexp")
def logaddexp(self, other):
    if self.is_complex():
        swap = ops.real(self) < ops.real(other)
        high, low = ops.where(swap, other, self), ops.where(swap, self, other)
        return high + ops.log1p(ops.exp(low - high))
    return above_larger(self, other, lambda away: ops.log1p(ops.exp(away)))
