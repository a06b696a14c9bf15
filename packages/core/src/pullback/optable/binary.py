"""Elementwise ops of two and three operands. Gradients are summed to each operand's shape later."""

from pullback.optable.schema import (
    ALL, BOOL, FLOAT_COMPLEX, FLOATING, INTEGRAL, NUMBERS, REAL, op, ops,
)


def _binary(name, vjp, doc, *, kernel=None, dtypes=NUMBERS, promote="default", inplace=True,
            **fields):
    op(f"{name}(self: Operand, other: Operand) -> Tensor", kernel=kernel or name, promote=promote,
       dtypes=dtypes, vjp=vjp, inplace=inplace, out=True, doc=doc, **fields)


op("scaled(self: Tensor, factor: Scalar) -> Tensor", forward="scaled", kernel="mul",
   vjp={"self": lambda g, factor: g.scaled(factor)}, method=False, function=False,
   node="MulBackward0", doc="Return factor * self; with the factor 1 the tensor itself.")

op("add(self: Operand, other: Operand, *, alpha: Scalar = 1) -> Tensor", kernel="add", dtypes=ALL,
   vjp={"self": lambda g: g, "other": lambda g, alpha: g.scaled(alpha)},
   inplace=True, out=True, ref="numpy.add",
   doc="Return self + alpha * other, elementwise.")
op("sub(self: Operand, other: Operand, *, alpha: Scalar = 1) -> Tensor", kernel="sub",
   dtypes=NUMBERS, vjp={"self": lambda g: g, "other": lambda g, alpha: -g.scaled(alpha)},
   inplace=True, out=True, aliases=("subtract",), ref="numpy.subtract",
   doc="Return self - alpha * other, elementwise.")
op("rsub(self: Tensor, other: Operand) -> Tensor",
   composite=lambda self, other: ops.sub(other, self), doc="Return other - self, elementwise.")
_binary("mul", {"self": lambda g, other: g * ops.conj(other),
                "other": lambda g, self: g * ops.conj(self)},
        "Return self * other, elementwise.", dtypes=ALL, aliases=("multiply",),
        ref="numpy.multiply")


_binary("div", {"self": lambda g, other: g / ops.conj(other),
                "other": lambda g, other, out: -g * (out / other).conj()},
        "Return self / other, elementwise; integers give floats.", dtypes=FLOAT_COMPLEX,
        promote="float", aliases=("divide", "true_divide"), ref="numpy.true_divide")
_binary("floor_divide", {}, "Return floor(self / other), elementwise.",
        dtypes=INTEGRAL | FLOATING, ref="numpy.floor_divide")
_binary("fmod", {"self": lambda g: g, "other": lambda g, self, other: -g * (self / other).trunc()},
        "Return the remainder with the sign of self, elementwise.", dtypes=INTEGRAL | FLOATING,
        ref="numpy.fmod")
_binary("remainder",
        {"self": lambda g: g, "other": lambda g, self, other: -g * (self / other).floor()},
        "Return the remainder with the sign of other, elementwise.", dtypes=INTEGRAL | FLOATING,
        ref="numpy.remainder")


def _pow_self_vjp(g, self, other):
    if not hasattr(other, "shape"):
        if other == 0:
            return ops.zeros_like(g)
        return g * (other * self ** (other - 1)).conj()
    return ops.where(other == 0, 0, g * (other * self ** (other - 1)).conj())


def _pow_other_vjp(g, self, other, out):
    if not hasattr(self, "shape"):
        if self == 0:
            return ops.where(other >= 0, 0, g * (out * float("-inf")))
        import cmath
        import math
        slope = cmath.log(self) if isinstance(self, complex) else (
            math.log(self) if self > 0 else math.nan)
        return g * (out * slope).conj()
    slope = g * (out * self.log()).conj()
    positive = other >= 0 if not ops.is_complex_operand(other) else other.real >= 0
    return ops.where(ops.bitwise_and(self == 0, positive), 0, slope)


_binary("pow", {"self": _pow_self_vjp, "other": _pow_other_vjp},
        "Return self ** other, elementwise.\n\nDerivative: 0 where the exponent is 0.",
        dtypes=NUMBERS | BOOL, ref="numpy.power", forward="pow")
op("is_complex_operand(self: any) -> bool", method=False, function=False,
   composite=lambda self: isinstance(self, complex) or (
       hasattr(self, "is_complex") and self.is_complex()),
   doc="Return whether a tensor or number is complex.")

_binary("maximum",
        {"self": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self > other, g, 0)),
         "other": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self > other, 0, g))},
        "Return the larger of two operands, elementwise; NaN wins.\n\nDerivative: half to each "
        "where they are equal.", dtypes=REAL, inplace=False, ref="numpy.maximum")
_binary("minimum",
        {"self": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self < other, g, 0)),
         "other": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self < other, 0, g))},
        "Return the smaller of two operands, elementwise; NaN wins.\n\nDerivative: half to each "
        "where they are equal.", dtypes=REAL, inplace=False, ref="numpy.minimum")
_binary("atan2",
        {"self": lambda g, self, other: g * other / (self * self + other * other),
         "other": lambda g, self, other: -g * self / (self * self + other * other)},
        "Return the angle of the point (other, self), elementwise.", dtypes=FLOATING,
        promote="float", aliases=("arctan2",), ref="numpy.arctan2")

for _name, _doc, _kinds in (
        ("eq", "equal", ALL), ("ne", "different", ALL), ("lt", "self < other", REAL),
        ("le", "self <= other", REAL), ("gt", "self > other", REAL),
        ("ge", "self >= other", REAL)):
    _binary(_name, {}, f"Return where the operands are: {_doc}.", promote="bool", dtypes=_kinds,
            aliases={"ne": ("not_equal",), "lt": ("less",), "le": ("less_equal",),
                     "gt": ("greater",), "ge": ("greater_equal",)}.get(_name, ()),
            ref={"eq": "numpy.equal", "ne": "numpy.not_equal", "lt": "numpy.less",
                 "le": "numpy.less_equal", "gt": "numpy.greater",
                 "ge": "numpy.greater_equal"}[_name])

for _name in ("and", "or", "xor"):
    _binary(f"bitwise_{_name}", {}, f"Return the bitwise {_name} of integers or bools.",
            dtypes=BOOL | INTEGRAL, ref=f"numpy.bitwise_{_name}")
_binary("bitwise_left_shift", {}, "Return self with its bits moved left by other.",
        kernel="lshift", dtypes=INTEGRAL, ref="numpy.left_shift")
_binary("bitwise_right_shift", {}, "Return self with its bits moved right by other.",
        kernel="rshift", dtypes=INTEGRAL, ref="numpy.right_shift")


def _as_bool(value):
    return value != 0 if hasattr(value, "shape") else bool(value)


for _name in ("and", "or", "xor"):
    op(f"logical_{_name}(self: Tensor, other: Operand) -> Tensor", inplace=True,
       composite=lambda self, other, _name=_name: getattr(ops, f"bitwise_{_name}")(
           _as_bool(self), _as_bool(other)),
       ref=f"numpy.logical_{_name}", doc=f"Return the logical {_name} of two operands.")

op("where(condition: Tensor, self: Operand, other: Operand) -> Tensor", kernel="where",
   promote="where", dtypes=ALL, method=False,
   vjp={"self": lambda g, condition: ops.where(condition, g, 0),
        "other": lambda g, condition: ops.where(condition, 0, g)},
   ref="numpy.where", doc="Return self where the condition holds, else other.")

op("where_method(self: Operand, condition: Tensor, other: Operand) -> Tensor", function=False,
   composite=lambda self, condition, other: ops.where(condition, self, other), method="where",
   doc="Return self where the condition holds, else other.")


def _masked_fill(self, mask, value):
    if hasattr(value, "shape") and value.ndim > 0:
        raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got "
                           f"tensor with {value.ndim} dimension(s).")
    if str(mask.dtype) != "pullback.bool":
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype "
                           f"{mask.dtype}")
    filled = ops.where(mask, value, self)
    return filled if filled.dtype == self.dtype else filled.to(self.dtype)


op("masked_fill(self: Tensor, mask: Tensor, value: Operand) -> Tensor", composite=_masked_fill,
   inplace=True, doc="Return self with `value` where the mask holds.")
op("clamp(self: Tensor, min: any = None, max: any = None) -> Tensor", inplace=True,
   composite=lambda self, min, max: _clamp(self, min, max), aliases=("clip",), ref="numpy.clip",
   doc="Return each element moved into [min, max].\n\nDerivative: 1 at the bounds.")


def _clamp(self, low, high):
    if low is None and high is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    out = self
    if low is not None:
        out = ops.where(self < low, low, out)
    if high is not None:
        out = ops.where(out > high, high, out)
    return out
