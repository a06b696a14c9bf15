"""Elementwise ops of one operand."""

from pullback.ops.rules.dtypes import require
from pullback.ops.table.kinks import INFINITY, JUMP, POLE, kink
from pullback.ops.table.samples import T, case, references_of, unary
from pullback.ops.table.schema import (
    ALL,
    BOOL,
    COMPLEX,
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    NUMBERS,
    REAL,
    op,
    ops,
)

references = references_of("elementwise")


def _unary(name, vjp, doc, *, dtypes=FLOAT_COMPLEX, promote="float", inplace=True, **fields):
    op(
        f"{name}(self: Tensor) -> Tensor",
        kernel=name,
        promote=promote,
        dtypes=dtypes,
        vjp={} if vjp is None else {"self": vjp},
        inplace=inplace,
        out=True,
        doc=doc,
        **fields,
    )


# 16-bit products are rounded before they are rounded to integers.
HALF_WAY = {"value": "which of two neighbours is nearer depends on the digits of the dtype"}


def _zero_derivative(g):
    return ops.zeros_like(g)


def _abs_vjp(g, self):
    return ops.real(g) * ops.sgn(self)  # g is complex after an in-place abs of complex numbers


_PAIRS = [case(T(2, 3), T(2, 3)), case(T(3), T(2, 3)), case(T(), T()), case(T(0), T(0))]


def _acosh_vjp(g, self):
    """Two roots keep the branch of complex numbers; for real ones one will do."""
    if self.is_complex():
        return g * ((self - 1).rsqrt() * (self + 1).rsqrt()).conj()
    return g * (self * self - 1).rsqrt()


def _sgn(self):
    """x / |x|, and 0 at 0."""
    if not self.is_complex():
        return ops.sign(self)
    size = ops.abs(self)
    origin = size == 0
    return ops.where(origin, 0, self / ops.where(origin, 1, size))


_unary(
    "abs",
    _abs_vjp,
    "Return the absolute value of each element.\n\nDerivative: sign(x), 0 at 0.",
    dtypes=NUMBERS,
    promote="real",
    out_dtype="real_parts",
    aliases=("absolute",),
    kinks=[kink([0.0], to=[0.0]), kink([-0.0], to=[0.0])],
    operators=("__abs__",),
    ref="numpy.abs",
)
_unary(
    "acos",
    lambda g, self: g * -(1 - self * self).rsqrt().conj(),
    "Return the arccosine of each element.",
    aliases=("arccos",),
    ref="numpy.arccos",
    kinks=[kink([1.0], to=[-INFINITY], second=None, outside=POLE)],
    mpmath="acos",
    samples=lambda: unary(-0.9, 0.9),
    autocast=(None, "float32"),
)
_unary(
    "acosh",
    lambda g, self: _acosh_vjp(g, self),
    "Return the inverse hyperbolic cosine of each element.",
    aliases=("arccosh",),
    ref="numpy.arccosh",
    kinks=[kink([1.0], to=[INFINITY], second=None, outside=POLE)],
    mpmath="acosh",
    samples=lambda: unary(1.1, 4),
)
_unary(
    "asin",
    lambda g, self: g * (1 - self * self).rsqrt().conj(),
    "Return the arcsine of each element.",
    aliases=("arcsin",),
    ref="numpy.arcsin",
    kinks=[kink([1.0], to=[INFINITY], second=None, outside=POLE)],
    mpmath="asin",
    samples=lambda: unary(-0.9, 0.9),
    autocast=(None, "float32"),
)
_unary(
    "asinh",
    lambda g, self: g * (self * self + 1).rsqrt().conj(),
    "Return the inverse hyperbolic sine of each element.",
    aliases=("arcsinh",),
    mpmath="asinh",
    ref="numpy.arcsinh",
)
_unary(
    "atan",
    lambda g, self: g / (self * self + 1).conj(),
    "Return the arctangent of each element.",
    aliases=("arctan",),
    mpmath="atan",
    ref="numpy.arctan",
)
_unary(
    "atanh",
    lambda g, self: g / (1 - self * self).conj(),
    "Return the inverse hyperbolic tangent of each element.",
    aliases=("arctanh",),
    ref="numpy.arctanh",
    kinks=[kink([1.0], to=[INFINITY], second=None, outside=POLE)],
    mpmath="atanh",
    samples=lambda: unary(-0.9, 0.9),
)
_unary(
    "bitwise_not",
    None,
    "Return the bits of each element flipped; logical not of bools.",
    dtypes=BOOL | INTEGRAL,
    promote="default",
    out_dtype="pointwise",
    operators=("__invert__",),
    ref="numpy.invert",
    inplace_function=False,
)
_unary(
    "ceil",
    _zero_derivative,
    "Return each element rounded up.",
    dtypes=INTEGRAL | FLOATING,
    promote="default",
    out_dtype="pointwise",
    kinks=[kink([0.0, 1.0], to=[0.0, 0.0], outside=JUMP)],
    ref="numpy.ceil",
)
op(
    "depending(self: Tensor, other: Tensor) -> Tensor",
    composite="depending",
    method=False,
    function=False,
    dtypes=FLOATING,
    ref=lambda np, self, other: self,
    samples=lambda: [case(T(2, 3), T(2, 3)), case(T(), T()), case(T(0), T(0))],
    doc="Return self, with the derivative 0 by other: the derivative of a piecewise linear "
    "function.",
)
_unary(
    "cos",
    lambda g, self: g * -self.sin().conj(),
    "Return the cosine of each element.",
    mpmath="cos",
    ref="numpy.cos",
)
_unary(
    "cosh",
    lambda g, self: g * self.sinh().conj(),
    "Return the hyperbolic cosine of each element.",
    mpmath="cosh",
    ref="numpy.cosh",
    autocast=(None, "float32"),
)
_unary(
    "erf",
    lambda g, self: g * (-(self * self)).exp() * 1.1283791670955126,
    "Return the error function of each element.\n\nSource: DLMF 7.2.1.",
    dtypes=FLOATING,
    elsewhere=("special.erf",),
    mpmath="erf",
    ref="scipy.special.erf",
)
_unary(
    "exp",
    lambda g, out: g * out.conj(),
    "Return e to the power of each element.",
    mpmath="exp",
    ref="numpy.exp",
    autocast=(None, "float32"),
)
_unary(
    "exp2",
    lambda g, out: g * (out * 0.6931471805599453).conj(),
    "Return 2 to the power of each element.",
    elsewhere=("special.exp2",),
    ref=lambda np, self: np.exp2(self) if self.dtype.kind != "c" else np.power(2, self),
    mpmath=lambda mp, x: mp.mpf(2) ** x,
    samples=lambda: unary(-3, 3),
)
_unary(
    "expm1",
    lambda g, out: g * (out + 1).conj(),
    "Return e**x - 1 of each element.",
    elsewhere=("special.expm1",),
    mpmath="expm1",
    ref="numpy.expm1",
    autocast=(None, "float32"),
)
_unary(
    "floor",
    _zero_derivative,
    "Return each element rounded down.",
    dtypes=INTEGRAL | FLOATING,
    promote="default",
    out_dtype="pointwise",
    kinks=[kink([0.0, 1.0], to=[0.0, 0.0], outside=JUMP)],
    ref="numpy.floor",
)
_unary(
    "isfinite",
    None,
    "Return whether each element is neither infinite nor NaN.",
    dtypes=REAL | COMPLEX,
    promote="bool",
    inplace=False,
    ref="numpy.isfinite",
)
_unary(
    "isnan",
    None,
    "Return whether each element is NaN.",
    dtypes=REAL | COMPLEX,
    promote="bool",
    inplace=False,
    ref="numpy.isnan",
)
_unary(
    "log",
    lambda g, self: g / self.conj(),
    "Return the natural logarithm of each element.",
    ref="numpy.log",
    kinks=[kink([0.0], to=[INFINITY], second=[-INFINITY], outside=POLE)],
    mpmath="log",
    samples=lambda: unary(0.1, 4),
    autocast=(None, "float32"),
)
_unary(
    "log10",
    lambda g, self: g / (self.conj() * 2.302585092994046),
    "Return the base-10 logarithm of each element.",
    ref="numpy.log10",
    mpmath="log10",
    samples=lambda: unary(0.1, 4),
    autocast=(None, "float32"),
)
_unary(
    "log1p",
    lambda g, self: g / (self + 1).conj(),
    "Return log(1 + x) of each element.",
    node="Log1PBackward0",
    elsewhere=("special.log1p",),
    ref="numpy.log1p",
    mpmath="log1p",
    samples=lambda: unary(-0.9, 3),
    autocast=(None, "float32"),
)
_unary(
    "log2",
    lambda g, self: g / (self.conj() * 0.6931471805599453),
    "Return the base-2 logarithm of each element.",
    ref="numpy.log2",
    mpmath=lambda mp, x: mp.log(x, 2),
    samples=lambda: unary(0.1, 4),
    autocast=(None, "float32"),
)
_unary(
    "logical_not",
    None,
    "Return whether each element is 0.",
    dtypes=REAL | COMPLEX,
    promote="bool",
    ref="numpy.logical_not",
    inplace_function=False,
)
_unary(
    "neg",
    lambda g: -g,
    "Return the negative of each element.",
    dtypes=NUMBERS,
    promote="default",
    out_dtype="pointwise",
    aliases=("negative",),
    operators=("__neg__",),
    bool_error="Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
    "to invert a mask, use the `~` or `logical_not()` operator instead.",
    ref="numpy.negative",
)
_unary(
    "reciprocal",
    lambda g, out: -g * (out * out).conj(),
    "Return 1 / x of each element.",
    ref="numpy.reciprocal",
    mpmath=lambda mp, x: 1 / x,
    samples=lambda: unary(0.5, 3),
    autocast=(None, "float32"),
)
_unary(
    "relu",
    lambda g, out: ops.depending(ops.where(out <= 0, 0, g), out),
    "Return the larger of each element and 0.\n\nDerivative: 0 at 0.",
    dtypes=INTEGRAL | FLOATING,
    promote="default",
    elsewhere=("functional.relu_",),
    kinks=[kink([0.0], to=[0.0])],
    ref=lambda np, self: np.maximum(self, 0),
)
op(
    "functional_relu(self: Tensor, inplace: bool = False) -> Tensor",
    composite="relu",
    kernel="relu",
    method=False,
    function="relu",
    namespace="functional",
    dtypes=INTEGRAL | FLOATING,
    doc="Return the larger of each element and 0; `inplace` replaces it.\n\nDerivative: 0 at 0.",
    samples=lambda: unary(-3, 3),
    ref=lambda np, self: np.maximum(self, 0),
)
_unary(
    "round",
    _zero_derivative,
    "Return each element rounded to the nearest integer, half to even.",
    dtypes=INTEGRAL | FLOATING,
    promote="default",
    out_dtype="pointwise",
    overload="round.decimals",
    elsewhere=("special.round",),
    kinks=[kink([0.5, 1.5], to=[0.0, 0.0], outside=JUMP)],
    ref="numpy.round",
)


def _round_decimals(self, decimals):
    self = require("round", FLOATING, self)
    power = 10.0 ** abs(decimals)
    return ops.round(self * power) / power if decimals >= 0 else ops.round(self / power) * power


op(
    "round.decimals(self: Tensor, *, decimals: int) -> Tensor",
    forward=_round_decimals,
    jvp="pointwise",
    vjp={"self": _zero_derivative},
    node="RoundBackward1",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    out_dtype="pointwise",
    method=False,
    function=False,
    doc="Return each element rounded to a number of decimals, which may be negative.\n\n"
    "Raises: NotImplementedError for integers.",
    samples=lambda: [
        case(T(*shape, low=-3, high=3), decimals=decimals, skip=HALF_WAY)
        for shape, decimals in (((2, 3), 1), ((), 0), ((0, 3), 2), ((3,), -1))
    ],
    ref=lambda np, self, decimals: np.round(self, decimals),
)
_unary(
    "rsqrt",
    lambda g, out: g * (out * out * out * -0.5).conj(),
    "Return 1 / sqrt(x) of each element.",
    kinks=[kink([0.0], to=[-INFINITY], second=[INFINITY], outside=POLE)],
    mpmath=lambda mp, x: 1 / mp.sqrt(x),
    samples=lambda: unary(0.2, 4),
    ref=lambda np, self: 1 / np.sqrt(self),
    autocast=(None, "float32"),
)
op(
    "sgn(self: Tensor) -> Tensor",
    composite=_sgn,
    inplace=True,
    out=True,
    out_dtype="pointwise",
    doc="Return x / |x| of each element, and 0 of 0.",
    kinks=[kink([0.0, 1.0], to=[0.0, 0.0], outside=JUMP)],
    ref=references.sign,
    inplace_function=False,
)
_unary(
    "sigmoid",
    lambda g, out: ops.sigmoid_backward(g, out),
    "Return the logistic function 1 / (1 + e**-x) of each element.",
    elsewhere=("special.expit",),
    ref=lambda np, self: 1 / (1 + np.exp(-self)),
    namespace=("", "functional"),
    mpmath=lambda mp, x: 1 / (1 + mp.exp(-x)),
    samples=lambda: unary(-2.5, 2.5),
)
op(
    "sigmoid_backward(self: Tensor, output: Tensor) -> Tensor",
    kernel="sigmoid_backward",
    method=False,
    function=False,
    dtypes=FLOAT_COMPLEX,
    samples=_PAIRS,
    vjp={
        "self": lambda g, output: ops.sigmoid_backward(g, output.conj()),
        "output": lambda g, self, output: g.conj() * self * (1 - output * 2).conj(),
    },
    ref=lambda np, self, output: self * np.conj(output * (1 - output)),
    doc="Return self * conj(output * (1 - output)): the derivative of sigmoid, by its result.",
)
_unary(
    "sign",
    _zero_derivative,
    "Return -1, 0 or 1 by the sign of each element.",
    dtypes=REAL,
    promote="default",
    out_dtype="pointwise",
    kinks=[kink([0.0, 1.0], to=[0.0, 0.0], outside=JUMP)],
    ref=references.sign,
    inplace_function=False,
)
_unary(
    "sin",
    lambda g, self: g * self.cos().conj(),
    "Return the sine of each element.",
    mpmath="sin",
    ref="numpy.sin",
)
_unary(
    "sinh",
    lambda g, self: g * self.cosh().conj(),
    "Return the hyperbolic sine of each element.",
    mpmath="sinh",
    ref="numpy.sinh",
    autocast=(None, "float32"),
)
_unary(
    "sqrt",
    lambda g, out: g / (out * 2).conj(),
    "Return the square root of each element.",
    ref="numpy.sqrt",
    kinks=[kink([0.0], to=[INFINITY], second=[-INFINITY], outside=POLE)],
    mpmath="sqrt",
    samples=lambda: unary(0.1, 4),
)
_unary(
    "square",
    lambda g, self: g * (self * 2).conj(),
    "Return the square of each element.",
    dtypes=ALL,
    promote="default",
    node="PowBackward0",
    forward="square",
    batch="unary",
    mpmath=lambda mp, x: x**2,
    jvp="pointwise",
    ref=lambda np, self: np.square(self * 1),
    autocast=(None, "float32"),
)
_unary(
    "tan",
    lambda g, out: g * (out * out + 1).conj(),
    "Return the tangent of each element.",
    ref="numpy.tan",
    mpmath="tan",
    samples=lambda: unary(-1.2, 1.2),
    autocast=(None, "float32"),
)
_unary(
    "tanh",
    lambda g, out: ops.tanh_backward(g, out),
    "Return the hyperbolic tangent of each element.",
    ref="numpy.tanh",
    namespace=("", "functional"),
    mpmath="tanh",
    samples=lambda: unary(-1.5, 1.5),
)
op(
    "tanh_backward(self: Tensor, output: Tensor) -> Tensor",
    kernel="tanh_backward",
    method=False,
    function=False,
    dtypes=FLOAT_COMPLEX,
    samples=_PAIRS,
    vjp={
        "self": lambda g, output: ops.tanh_backward(g, output.conj()),
        "output": lambda g, self, output: g.conj() * self * (output * -2).conj(),
    },
    ref=lambda np, self, output: self * np.conj(1 - output * output),
    doc="Return self * conj(1 - output**2): the derivative of tanh, by its result.",
)
_unary(
    "trunc",
    _zero_derivative,
    "Return each element rounded towards 0.",
    dtypes=INTEGRAL | FLOATING,
    promote="default",
    out_dtype="pointwise",
    aliases=("fix",),
    kinks=[kink([1.0, -1.0], to=[0.0, 0.0], outside=JUMP)],
    ref="numpy.trunc",
)
