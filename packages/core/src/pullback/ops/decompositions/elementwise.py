"""Decompositions of elementwise ops."""

from __future__ import annotations

import math

from pullback.ops.decompositions import complex as complex_functions
from pullback.ops.rules.elementwise_util import is_tensor
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops

# -- signs and rounding ----------------------------------------------------------------------------


@decomposition("neg")
def neg(self):
    # -0.0 - x is -x for zeros too; 0 - x would lose their sign.
    floating = self.is_floating_point() or self.is_complex()
    return ops.sub(-0.0 if floating else 0, self)


@decomposition("abs")
def abs_(self):
    if not self.is_complex():
        return ops.where(self < 0, -self, self) + 0  # + 0 makes -0.0 positive
    x, y = ops.abs(ops.real(self)), ops.abs(ops.imag(self))
    large, small = ops.maximum(x, y), ops.minimum(x, y)
    ratio = ops.where((large == 0) | (large == math.inf), 0, small / large)
    found = large * ops.sqrt(ratio * ratio + 1)
    return ops.where((x == math.inf) | (y == math.inf), math.inf, found)


@decomposition("sign")
def sign(self):
    if self.dtype.kind == "b":
        return self
    return (self > 0).to(self.dtype) - (self < 0).to(self.dtype)


@decomposition("ceil")
def ceil(self):
    return -ops.floor(-self) if self.is_floating_point() else self


@decomposition("trunc")
def trunc(self):
    if not self.is_floating_point():
        return self
    return ops.where(self < 0, ops.ceil(self), ops.floor(self))


@decomposition("conj")
def conj(self):
    if not self.is_complex():
        return self
    result = self.clone()
    ops.imag(result).neg_()
    return result


# -- comparisons -----------------------------------------------------------------------------------


@decomposition("gt")
def gt(self, other):
    return ops.lt(other, self)


@decomposition("ne")
def ne(self, other):
    return ops.logical_not(ops.eq(self, other))


@decomposition("isfinite")
def isfinite(self):
    return ops.eq(self * 0, 0)


@decomposition("isnan")
def isnan(self):
    return ops.ne(self, self)


@decomposition("logical_not")
def logical_not(self):
    return ops.eq(self, 0)


@decomposition("le")
def le(self, other):
    return ops.lt(self, other) | ops.eq(self, other)


@decomposition("ge")
def ge(self, other):
    return ops.lt(other, self) | ops.eq(self, other)


def _is_nan(value):
    """Return where an operand is NaN; one of two may be a number."""
    return ops.ne(value, value) if is_tensor(value) else value != value


@decomposition("maximum")
def maximum(self, other):
    return ops.where(ops.ge(self, other) | _is_nan(self), self, other)


@decomposition("minimum")
def minimum(self, other):
    return ops.where(ops.le(self, other) | _is_nan(self), self, other)


# -- elementary functions --------------------------------------------------------------------------


@decomposition("cosh")
def cosh(self):
    return (ops.exp(self) + ops.exp(-self)) * 0.5


@decomposition("exp2")
def exp2(self):
    return ops.pow(2, self)


@decomposition("log10")
def log10(self):
    return ops.log(self) * (1 / math.log(10))


@decomposition("log2")
def log2(self):
    return ops.log(self) * (1 / math.log(2))


@decomposition("reciprocal")
def reciprocal(self):
    return ops.div(1, self)


@decomposition("rsqrt")
def rsqrt(self):
    return ops.div(1, ops.sqrt(self))


@decomposition("sigmoid")
def sigmoid(self):
    if self.is_complex():
        return complex_functions.sigmoid(self)
    return ops.div(1, ops.exp(-self) + 1)


@decomposition("sigmoid_backward")
def sigmoid_backward(self, output):
    return self * ops.conj(output * (1 - output))


@decomposition("sinh")
def sinh(self):
    if self.is_complex():
        return complex_functions.sinh(self)
    return (ops.expm1(self) - ops.expm1(-self)) * 0.5


@decomposition("square")
def square(self):
    return self * (self * 1)  # of bools it is int64


@decomposition("tan")
def tan(self):
    if self.is_complex():
        return complex_functions.tan(self)
    return ops.sin(self) / ops.cos(self)


@decomposition("tanh_backward")
def tanh_backward(self, output):
    return self * ops.conj((1 - output) * (1 + output))


@decomposition("log1p")
def log1p(self):
    """The error of 1 + x cancels in the quotient: HP-15C Advanced Functions Handbook, app. 2."""
    if self.is_complex():
        return complex_functions.log1p(self)
    one_more = self + 1
    found = ops.log(one_more) * self / (one_more - 1)
    return ops.where((one_more == 1) | (self == math.inf), self, found)


@decomposition("expm1")
def expm1(self):
    """As log1p; Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1."""
    if self.is_complex():
        return complex_functions.expm1(self)
    power = ops.exp(self)
    less = power - 1
    found = ops.where(power == 1, self, less * self / ops.log(power))
    return ops.where((less == -1) | (power == math.inf), less, found)


@decomposition("tanh")
def tanh(self):
    if self.is_complex():
        return complex_functions.tanh(self)
    x = ops.abs(self)
    less = ops.expm1(x * -2)
    size = ops.where(x > 0.5, 1 - 2 / (ops.exp(x * 2) + 1), -less / (less + 2))
    return ops.where(self < 0, -size, ops.where(self == 0, self, size))


@decomposition("acos")
def acos(self):
    """For real numbers by atan2, which keeps its digits at both ends of [-1, 1]."""
    if self.is_complex():
        return complex_functions.acos(self)
    return ops.atan2(ops.sqrt((1 - self) * (1 + self)), self)


@decomposition("asin")
def asin(self):
    if self.is_complex():
        return complex_functions.asin(self)
    return ops.atan2(self, ops.sqrt((1 - self) * (1 + self)))


@decomposition("relu")
def relu(self):
    return ops.where(self <= 0, 0, self)


# -- of three operands -----------------------------------------------------------------------------


@decomposition("addcdiv")
def addcdiv(self, tensor1, tensor2, value):
    return self + tensor1 * value / tensor2


@decomposition("addcmul")
def addcmul(self, tensor1, tensor2, value):
    return self + tensor1 * value * tensor2


@decomposition("clamp")
def clamp(self, low, high):
    return ops.minimum(ops.maximum(self, low), high)


@decomposition("lerp")
def lerp(self, end, weight):
    difference = end - self
    if hasattr(weight, "shape"):
        return ops.where(
            ops.abs(weight) < 0.5, self + weight * difference, end - difference * (1 - weight)
        )
    return self + difference * weight if abs(weight) < 0.5 else end - difference * (1 - weight)
