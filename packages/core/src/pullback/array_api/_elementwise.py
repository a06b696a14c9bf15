"""Elementwise functions of the standard: ops, and ops behind the standard's promotion."""

from __future__ import annotations

from pullback._c.graph.tensor import Tensor
from pullback.array_api._calls import as_operand, promoted, standard
from pullback.ops import ops

# Ops that do what the standard says: the function is the op.
SAME = {
    name: getattr(ops, {"bitwise_invert": "bitwise_not", "conj": "conj_physical"}.get(name, name))
    for name in (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil"),
        *("conj", "cos", "cosh", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan"),
        *("log", "log10", "log1p", "log2", "logical_not", "negative", "positive", "real"),
        *("reciprocal", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    )
}
globals().update(SAME)

# Functions of two operands: name, op, what is returned, the example's arguments and its result.
BINARY = (
    ("add", "add", "x1 + x2", "[1, 2], 1", "[2, 3]"),
    ("atan2", "atan2", "the angle of the point (x2, x1)", "[0., -0.], [1., 1.]", "[0., -0.]"),
    ("bitwise_and", "bitwise_and", "x1 & x2", "[6, 5], 3", "[2, 1]"),
    ("bitwise_left_shift", "bitwise_left_shift", "x1 << x2", "[6, 5], 1", "[12, 10]"),
    ("bitwise_or", "bitwise_or", "x1 | x2", "[6, 5], 3", "[7, 7]"),
    ("bitwise_right_shift", "bitwise_right_shift", "x1 >> x2", "[6, 5], 1", "[3, 2]"),
    ("bitwise_xor", "bitwise_xor", "x1 ^ x2", "[6, 5], 3", "[5, 6]"),
    ("copysign", "copysign", "x1 with the sign of x2", "[1., 2.], [-1., 0.]", "[-1., 2.]"),
    ("divide", "div", "x1 / x2", "[1., 3.], 2.", "[0.5000, 1.5000]"),
    ("equal", "eq", "x1 == x2", "[1, 2], 1", "[ True, False]"),
    ("greater", "gt", "x1 > x2", "[1, 2], 1", "[False, True]"),
    ("greater_equal", "ge", "x1 >= x2", "[1, 2], 2", "[False, True]"),
    ("hypot", "hypot", "sqrt(x1 ** 2 + x2 ** 2)", "[3., 0.], [4., 2.]", "[5., 2.]"),
    ("less", "lt", "x1 < x2", "[1, 2], 2", "[ True, False]"),
    ("less_equal", "le", "x1 <= x2", "[1, 2], 1", "[ True, False]"),
    ("logaddexp", "logaddexp", "log(exp(x1) + exp(x2))", "[0.], [0.]", "[0.6931]"),
    ("logical_and", "logical_and", "x1 and x2", "[True, False], True", "[ True, False]"),
    ("logical_or", "logical_or", "x1 or x2", "[True, False], True", "[True, True]"),
    ("logical_xor", "logical_xor", "x1 != x2 of bools", "[True, False], True", "[False, True]"),
    ("maximum", "maximum", "the larger of x1 and x2, NaN if one is", "[1, 3], 2", "[2, 3]"),
    ("minimum", "minimum", "the smaller of x1 and x2, NaN if one is", "[1, 3], 2", "[1, 2]"),
    ("multiply", "mul", "x1 * x2", "[1, 2], 3", "[3, 6]"),
    ("nextafter", "nextafter", "the next number after x1 towards x2", "[1.], [1.]", "[1.]"),
    ("not_equal", "ne", "x1 != x2", "[1, 2], 1", "[False, True]"),
    ("pow", "pow", "x1 ** x2", "[1, 2], 3", "[1, 8]"),
    ("subtract", "sub", "x1 - x2", "[1, 2], 1", "[0, 1]"),
)  # fmt: skip


def takes_numbers(op) -> bool:
    """Return True if either of an op's first two arguments may be a number."""
    return [argument.type for argument in op.entry.arguments[:2]] == ["Operand", "Operand"]


def apply_promoted(op, x1, x2):
    """Return op(x1, x2) of operands cast to the dtype that both promote to."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        return op(x1, x2) if x1.dtype is x2.dtype else op(*promoted(x1, x2))
    if takes_numbers(op):
        return op(as_operand(x1), as_operand(x2))
    return op(*promoted(x1, x2))


def _binary(name, op, meaning, arguments, result):
    def function(x1, x2, /):
        return apply_promoted(op, x1, x2)

    first = arguments.index("]") + 1
    second = arguments[first + 2 :]
    second = f"xp.asarray({second})" if second[0] == "[" else second
    function.__name__ = name
    function.__doc__ = f"""Return {meaning}, elementwise, in the dtype that both promote to.

    >>> import pullback.array_api as xp
    >>> xp.{name}(xp.asarray({arguments[:first]}), {second})
    tensor({result})
    """
    return standard(op, 2, numbers=takes_numbers(op))(function)


globals().update({row[0]: _binary(row[0], getattr(ops, row[1]), *row[2:]) for row in BINARY})


def _keeps_infinities(x1, x2):
    """Return floor(x1 / x2) where x1 or x2 is infinite, and the op's result elsewhere.

    The op gives NaN for an infinite dividend and -1 for negative numbers over infinity, as Python.
    """
    infinite = ops.add(ops.sub(x1, x1), ops.sub(x2, x2))  # NaN where an operand is not finite
    limit = ops.floor(ops.div(x1, x2))
    return ops.where(ops.ne(infinite, infinite), limit, ops.floor_divide(x1, x2))


@standard(ops.floor_divide, 2, kinds="bui", numbers=True)
def floor_divide(x1, x2, /):
    """Return x1 // x2, elementwise, in the dtype that both promote to.

    Of infinite operands it is the limit: infinity or zero, as in ``floor(x1 / x2)``.

    >>> import pullback.array_api as xp
    >>> xp.floor_divide(xp.asarray([7., xp.inf]), 2.)
    tensor([3., inf])
    """
    x1, x2 = promoted(x1, x2)
    return _keeps_infinities(x1, x2) if x1.dtype.kind == "f" else ops.floor_divide(x1, x2)


@standard(ops.remainder, 2, kinds="bui", numbers=True)
def remainder(x1, x2, /):
    """Return x1 % x2, elementwise, with the sign of x2, in the dtype that both promote to.

    A zero has the sign of x2 too.

    >>> import pullback.array_api as xp
    >>> xp.remainder(xp.asarray([5., 4.]), -2.)
    tensor([-1., -0.])
    """
    x1, x2 = promoted(x1, x2)
    out = ops.remainder(x1, x2)
    if x1.dtype.kind == "f":
        memory = out.detach()  # only signs of zeros change, and no derivative
        ops.mul_(ops.abs_(memory), ops.sgn(x2.detach()))
    return out


@standard(ops.round, kinds="buif")
def round(x, /):
    """Return the nearest integers, of halves the even one; of both parts of complex numbers.

    >>> import pullback.array_api as xp
    >>> xp.round(xp.asarray([0.5, 1.5]))
    tensor([0., 2.])
    """
    if x.dtype.kind == "c":
        return ops.complex(ops.round(ops.real(x)), ops.round(ops.imag(x)))
    return ops.round(x)


@standard(ops.sgn, kinds="buic")
def sign(x, /):
    """Return -1, 0 or 1, of complex numbers x / abs(x), and NaN of NaN.

    >>> import pullback.array_api as xp
    >>> xp.sign(xp.asarray([-2., xp.nan]))
    tensor([-1., nan])
    """
    return ops.where(ops.isnan(x), x.detach(), ops.sgn(x)) if x.dtype.kind == "f" else ops.sgn(x)


@standard(ops.clamp, kinds="uif", alone=False, bounds=True)
def clip(x, /, min=None, max=None):
    """Return ``x`` with elements below ``min`` or above ``max`` replaced, in the dtype of ``x``.

    The bounds are numbers or tensors, of which ``x`` broadcasts with either.

    >>> import pullback.array_api as xp
    >>> xp.clip(xp.asarray([1, 2, 3]), 2, None)
    tensor([2, 2, 3])
    """
    if min is max is None:
        return ops.clone(x)
    cast, *bounds = promoted(x, *(bound for bound in (min, max) if bound is not None))
    lower = None if min is None else bounds[0]
    upper = None if max is None else bounds[-1]
    return ops.clamp(cast, lower, upper).to(x.dtype)


__all__ = ["clip", "floor_divide", "remainder", "round", "sign"]
__all__.extend((*SAME, *(row[0] for row in BINARY)))
