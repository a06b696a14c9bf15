"""Elementwise ops of two operands. The engine sums gradients to each operand's shape."""

import cmath
import math

from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.elementwise_util import (
    UNDERIVED,
    is_tensor,
    look_at,
    no_derivative,
    promoted,
)
from pullback.ops.table.kinks import INFINITY, JUMP, POLE, kink
from pullback.ops.table.samples import SPECIAL, T, binary, case
from pullback.ops.table.schema import (
    ALL,
    COMPLEX,
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    NUMBERS,
    REAL,
    op,
    ops,
)


def binary_op(
    name, vjp, doc, *, kernel=None, dtypes=NUMBERS, promote="default", inplace=True, **fields
):
    op(
        f"{name}(self: Operand, other: Operand) -> Tensor",
        kernel=kernel or name,
        promote=promote,
        dtypes=dtypes,
        vjp=vjp,
        inplace=inplace,
        out=True,
        doc=doc,
        **fields,
    )


op(
    "scaled(self: Tensor, factor: Scalar) -> Tensor",
    forward="scaled",
    kernel="mul",
    vjp={"self": lambda g, factor: ops.scaled(g, ops.conj(factor))},
    batch="unary",
    method=False,
    function=False,
    node="MulBackward0",
    doc="Return factor * self; with the factor 1 the tensor itself.",
    jvp="pointwise",
    samples=lambda: [
        case(T(2, 3), 1),
        case(T(2, 3), 2),
        case(T(), 0),
        case(T(0), 3),
        case(T(3), 0.5, only=FLOAT_COMPLEX),
    ],
    ref=lambda np, self, factor: self * factor,
)

op(
    "add(self: Operand, other: Operand, *, alpha: Scalar = 1) -> Tensor",
    kernel="add",
    dtypes=ALL,
    vjp={"self": lambda g: g, "other": lambda g, alpha: ops.scaled(g, ops.conj(alpha))},
    inplace=True,
    out=True,
    doc="Return self + alpha * other, elementwise.",
    operators=("__add__", "__radd__"),
    samples=lambda: [
        *binary(),
        case(T(2, 3), T(3), alpha=2),
        case(T(2, 3), 3, alpha=-1, only=FLOAT_COMPLEX),
        case(2, T(3), only=NUMBERS),
        case(T(3), T(2, 1), alpha=0.5, only=FLOAT_COMPLEX),
    ],
    ref=lambda np, self, other, alpha=1: np.add(self, other if alpha == 1 else other * alpha),
)
op(
    "sub(self: Operand, other: Operand, *, alpha: Scalar = 1) -> Tensor",
    forward="sub",
    kernel="sub",
    dtypes=NUMBERS,
    vjp={"self": lambda g: g, "other": lambda g, alpha: -ops.scaled(g, ops.conj(alpha))},
    inplace=True,
    out=True,
    aliases=("subtract",),
    doc="Return self - alpha * other, elementwise.",
    operators=("__sub__",),
    jvp="pointwise",
    samples=lambda: [
        *binary(),
        case(T(2, 3), T(3), alpha=2),
        case(T(2, 3), 3, alpha=-1, only=FLOAT_COMPLEX),
        case(2, T(3)),
        case(T(3), T(2, 1), alpha=0.5, only=FLOAT_COMPLEX),
    ],
    ref=lambda np, self, other, alpha=1: np.subtract(self, other if alpha == 1 else other * alpha),
)
op(
    "rsub(self: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor",
    forward="rsub",
    method=False,
    kernel="sub",
    dtypes=NUMBERS,
    vjp={"self": lambda g, alpha: -ops.scaled(g, ops.conj(alpha)), "other": lambda g: g},
    node=lambda other_shape: f"RsubBackward{0 if isinstance(other_shape, tuple) else 1}",
    doc="Return other - alpha * self, elementwise.",
    operators=("__rsub__",),
    jvp="pointwise",
    samples=lambda: [
        *binary(),
        case(T(2, 3), T(3), alpha=2),
        case(T(3), 2, alpha=0.5, only=FLOAT_COMPLEX),
    ],
    ref=lambda np, self, other, alpha=1: np.subtract(other, self if alpha == 1 else self * alpha),
)
binary_op(
    "mul",
    {"self": lambda g, other: g * ops.conj(other), "other": lambda g, self: g * ops.conj(self)},
    "Return self * other, elementwise.",
    dtypes=ALL,
    aliases=("multiply",),
    ref="numpy.multiply",
    operators=("__mul__", "__rmul__"),
    samples=lambda: [*binary(), case(2, T(3)), case(T(3), T(3), only=COMPLEX)],
)


binary_op(
    "div",
    {
        "self": lambda g, other: g / ops.conj(other),
        "other": lambda g, self, other: -g * (ops.div(self, other) / other).conj(),
    },
    "Return self / other, elementwise; integers give floats.",
    dtypes=FLOAT_COMPLEX,
    promote="float",
    aliases=("divide", "true_divide"),
    ref="numpy.true_divide",
    overload="div_rounded",
    kinks=[
        kink([4.0], [2.0], rounding_mode="floor", to=([0.0], [0.0]), outside=JUMP),
        kink([4.0], [2.0], rounding_mode="trunc", to=([0.0], [0.0]), outside=JUMP),
    ],
    operators=("__truediv__",),
    samples=lambda: [*binary(second=(0.5, 3)), case(2, T(3, low=0.5, high=3))],
)


def _div_rounded(self, other, rounding_mode):
    if rounding_mode is None:
        return ops.div(self, other)
    check_str(rounding_mode, "div", "rounding_mode")
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' "
            f"but found '{rounding_mode}'"
        )
    self, other = promoted(f"div_{rounding_mode}_cpu", INTEGRAL | FLOATING, self, other)
    if rounding_mode == "floor":
        return ops.floor_divide(self, other)
    if (self if is_tensor(self) else other).dtype.is_floating_point:
        return ops.trunc(ops.div(self, other))
    return ops.floor_divide(self - ops.fmod(self, other), other)  # leaves nothing to round


_EXACT = tuple(value for value in SPECIAL if value != 1e-3)  # have whole quotients in any dtype


def _unless_rounded(g, rounding_mode, derivative):
    look_at(rounding_mode)
    return derivative() if rounding_mode is None else ops.zeros_like(g)


op(
    "div_rounded(self: Operand, other: Operand, *, rounding_mode: str?) -> Tensor",
    forward=_div_rounded,
    jvp="pointwise",
    dtypes=INTEGRAL | FLOATING,
    node="DivBackward2",
    vjp={
        "self": lambda g, other, rounding_mode: _unless_rounded(
            g, rounding_mode, lambda: g / ops.conj(other)
        ),
        "other": lambda g, self, other, rounding_mode: _unless_rounded(
            g, rounding_mode, lambda: -g * (ops.div(self, other) / other).conj()
        ),
    },
    inplace=True,
    out=True,
    batch="pointwise",
    method=False,
    function="div",
    namespace=(),
    doc="Return div with its result rounded to 0 ('trunc') or down ('floor').\n\n"
    "Raises: RuntimeError for other modes, and where an integer is divided by 0.",
    samples=lambda: [
        made._replace(kwargs={"rounding_mode": mode}, only=made.only & kinds)
        for mode, kinds in (("trunc", ALL), ("floor", ALL), (None, FLOATING))
        for made in binary(second=(0.5, 3), special=_EXACT)
    ],
    ref=lambda np, self, other, rounding_mode=None: {
        None: np.true_divide,
        "floor": np.floor_divide,
        "trunc": lambda x, y: np.trunc(np.true_divide(x, y)).astype(np.result_type(x, y)),
    }[rounding_mode](self, other),
)
binary_op(
    "floor_divide",
    {name: no_derivative("floor_divide", name) for name in ("self", "other")},
    "Return floor(self / other), elementwise.",
    dtypes=INTEGRAL | FLOATING,
    ref="numpy.floor_divide",
    node="NotImplemented",
    samples=lambda: [
        made._replace(skip={**made.skip, **UNDERIVED}) for made in binary(second=(0.5, 3))
    ],
)


def _of_tensor_or_number(name):
    """torch counts an op with a number as the first overload."""
    return lambda other_shape: f"{name}Backward{1 if isinstance(other_shape, tuple) else 0}"


def _whole_quotient(self, other, rounding_mode):
    """Its derivative is 0, even where that of the quotient overflows."""
    return ops.div_rounded(self, other, rounding_mode=rounding_mode)


binary_op(
    "fmod",
    {
        "self": lambda g: g,
        "other": lambda g, self, other: -g * _whole_quotient(self, other, "trunc"),
    },
    "Return the remainder with the sign of self, elementwise.",
    dtypes=INTEGRAL | FLOATING,
    ref="numpy.fmod",
    node=_of_tensor_or_number("Fmod"),
    kinks=[kink([4.0], [2.0], to=([1.0], [-2.0]), outside=JUMP)],
    samples=lambda: binary(second=(0.5, 3)),
)
binary_op(
    "remainder",
    {
        "self": lambda g: g,
        "other": lambda g, self, other: -g * _whole_quotient(self, other, "floor"),
    },
    "Return the remainder with the sign of other, elementwise.",
    dtypes=INTEGRAL | FLOATING,
    ref="numpy.remainder",
    node=_of_tensor_or_number("Remainder"),
    kinks=[kink([4.0], [2.0], to=([1.0], [-2.0]), outside=JUMP)],
    samples=lambda: binary(second=(0.5, 3)),
)


def _pow_self_vjp(g, self, other):
    if not hasattr(other, "shape"):
        if other == 0:
            return ops.zeros_like(g)
        if other == 1:
            return g
        if other == 2:
            return g * (self * 2).conj()
        return g * (other * self ** (other - 1)).conj()
    flat = (other == 0) & ~ops.isfinite(1 / self)  # elsewhere, 0 * x ** -1 says its derivative
    base = ops.where(flat, 1, self)
    return ops.where(flat, 0, g) * (other * base ** (other - 1)).conj()


def _pow_other_vjp(g, self, other, out):
    if not hasattr(self, "shape"):
        if self == 0:
            flat = _vanishes_at_zero(other)
            return ops.where(flat, 0, g * (ops.where(flat, 0, out) * -math.inf).conj())
        derivative = (
            cmath.log(self)
            if isinstance(self, complex) or other.is_complex()
            else math.log(self)
            if self > 0
            else math.nan
        )
        return g * (out * derivative).conj()
    base = ops.cast(self, out.dtype) if out.is_complex() and not self.is_complex() else self
    flat = (self == 0) & _vanishes_at_zero(other)
    return ops.where(flat, 0, g) * (out * ops.where(flat, 1, base).log()).conj()


def _vanishes_at_zero(exponent):
    """Return where 0 ** exponent has the derivative 0 by the exponent: as torch, at 0 ** 0 too."""
    if not ops.is_complex_operand(exponent):
        return exponent >= 0
    return (exponent.real > 0) | (exponent == 0)


def _pow_node(self, other):  # kept tensors arrive as None
    return f"PowBackward{2 if self is not None else 1 if other is None else 0}"


binary_op(
    "pow",
    {"self": _pow_self_vjp, "other": _pow_other_vjp},
    "Return self ** other, elementwise.\n\nDerivative: 0 where the exponent is 0.",
    dtypes=NUMBERS,
    ref="numpy.power",
    forward="pow",
    node=_pow_node,
    kinks=[
        kink([0.0], 0.5, to=[INFINITY], second=[-INFINITY], outside=POLE),
        kink([0.0], 1, to=[1.0]),
        kink([0.0], 0, to=[0.0]),
        kink([0.0], [0.0], to=([0.0], [0.0]), second=None, outside=JUMP),
        kink([0.0], [2.0], to=([0.0], [0.0]), second=None),
        kink([0.0], [0.5], to=([INFINITY], [0.0]), second=None, outside=POLE),
    ],
    operators=("__pow__",),
    jvp="pointwise",
    samples=lambda: [
        *binary((0.3, 3), (0, 3)),
        case(2, T(3, low=0, high=3)),
        case(T(3), 0),
        case(T(3), 3, only=NUMBERS),
        case(T(2, 3, low=0.3, high=3), T(3, low=-2, high=2), only=FLOAT_COMPLEX),
        case(T(3, low=0.3, high=2), -1.5, only=FLOAT_COMPLEX),
        case(T(3), 2, only=NUMBERS),
    ],
    autocast=(None, "float32"),
)
op(
    "is_complex_operand(self: any) -> bool",
    method=False,
    function=False,
    composite=lambda self: (
        isinstance(self, complex) or (hasattr(self, "is_complex") and self.is_complex())
    ),
    doc="Return whether a tensor or number is complex.",
    samples="it answers a question of derivatives and returns no tensor",
)

binary_op(
    "maximum",
    {
        "self": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self < other, 0, g)
        ),
        "other": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self > other, 0, g)
        ),
    },
    "Return the larger of two operands, elementwise; NaN wins.\n\nDerivative: half to each "
    "where they are equal.",
    dtypes=REAL,
    inplace=False,
    ref="numpy.maximum",
    kinks=[kink([2.0], [2.0], to=([0.5], [0.5]))],
    samples=lambda: binary(ties=True),
)
binary_op(
    "minimum",
    {
        "self": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self > other, 0, g)
        ),
        "other": lambda g, self, other: ops.where(
            self == other, g / 2, ops.where(self < other, 0, g)
        ),
    },
    "Return the smaller of two operands, elementwise; NaN wins.\n\nDerivative: half to each "
    "where they are equal.",
    dtypes=REAL,
    inplace=False,
    ref="numpy.minimum",
    kinks=[kink([2.0], [2.0], to=([0.5], [0.5]))],
    samples=lambda: binary(ties=True),
)


def _turn(g, self, other):
    """g divided by the squared distance from the origin; 0 at the origin, as in torch."""
    square = self * self + other * other
    origin = square == 0
    return ops.where(origin, 0, g) / ops.where(origin, 1, square)


op(
    "atan2(self: Tensor, other: Tensor) -> Tensor",
    autocast=(None, "promote"),
    kernel="atan2",
    promote="float",
    dtypes=FLOATING,
    vjp={
        "self": lambda g, self, other: _turn(g * other, self, other),
        "other": lambda g, self, other: _turn(-g * self, self, other),
    },
    inplace=True,
    out=True,
    aliases=("arctan2",),
    ref="numpy.arctan2",
    doc="Return the angle of the point (other, self), elementwise.\n\nDerivative: 0 at the origin.",
    kinks=[kink([0.0], [0.0], to=([0.0], [0.0]), second=None, outside=JUMP)],
    samples=lambda: binary(ties=True, numbers=False),
)
