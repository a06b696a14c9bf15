"""Elementwise ops of one operand that are composed of other ops."""

import math

from pullback.ops.rules.dtypes import require
from pullback.ops.rules.elementwise_util import within_a_turn
from pullback.ops.table.kinks import INFINITY, JUMP, kink
from pullback.ops.table.samples import KINKS, SPECIAL, T, case, fixed, unary
from pullback.ops.table.schema import (
    ALL,
    COMPLEX,
    FLOAT_COMPLEX,
    FLOATING,
    NUMBERS,
    OPTIONAL,
    REAL,
    op,
    ops,
)

# -- angles in degrees -----------------------------------------------------------------------------


def _scaled_by(name, factor):
    def forward(self):
        if self.is_complex():
            raise RuntimeError(f"{name} is not supported for complex tensors.")
        return self * factor

    return forward


def _times(factor):
    return lambda g: g * factor


for _name, _factor, _node, _doc in (
    ("deg2rad", math.pi / 180, "Deg2RadBackward0", "degrees in radians"),
    ("rad2deg", 180 / math.pi, "Rad2DegBackward0", "radians in degrees"),
):
    op(
        f"{_name}(self: Tensor) -> Tensor",
        forward=_scaled_by(_name, _factor),
        promote="float",
        dtypes=FLOATING,
        node=_node,
        inplace=True,
        out=True,
        batch="unary",
        ref=f"numpy.{_name}",
        vjp={"self": _times(_factor)},
        jvp="pointwise",
        doc=f"Return each element's {_doc}.",
        mpmath=lambda mp, x, _factor=_factor: x * mp.mpf(_factor),
    )


# -- parts and replacements ------------------------------------------------------------------------

op(
    "frac(self: Tensor) -> Tensor",
    jvp="pointwise",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    forward=lambda self: require("frac", FLOATING, self) - ops.trunc(self),
    vjp={"self": lambda g: g},
    batch="unary",
    out_dtype="pointwise",
    doc="Return x - trunc(x) of each element, with the sign of x.",
    kinks=[kink([1.0, -1.0], to=[1.0, 1.0], outside=JUMP)],
    samples=lambda: (
        [case(T(*shape, low=0.1, high=0.9)) for shape in ((2, 3), (), (0,))]
        + [case(fixed(SPECIAL), skip=KINKS)]
    ),
    ref=lambda np, self: self - np.trunc(self),
)


def _positive(self):
    if self.dtype.name == "bool":
        raise RuntimeError("positive(): The `+` operator, on a bool tensor is not supported.")
    return self


op(
    "positive(self: Tensor) -> Tensor",
    composite=_positive,
    dtypes=NUMBERS,
    doc="Return the very tensor, which must not be bool.",
    ref="numpy.positive",
)


def _replacement(name, value, default):
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"nan_to_num(): argument '{name}' must be float, not {type(value).__name__}"
        )
    return value


def _nan_to_num(self, nan, posinf, neginf):
    import pullback

    nan = _replacement("nan", nan, 0)
    posinf, neginf = _replacement("posinf", posinf, None), _replacement("neginf", neginf, None)
    if self.is_complex():
        parts = ops.view_as_real(ops.clone(self))
        return ops.view_as_complex(_nan_to_num(parts, nan, posinf, neginf))
    if not self.dtype.is_floating_point:
        return ops.clone(self)
    limits = pullback.finfo(self.dtype)
    out = ops.where(self != self, nan, self)
    out = ops.where(out == math.inf, limits.max if posinf is None else posinf, out)
    return ops.where(self == -math.inf, limits.min if neginf is None else neginf, out)


def _nan_to_num_vjp(g, self):
    if self.is_complex():
        finite = ops.isfinite(ops.view_as_real(self.resolve_conj()))
        parts = ops.where(finite, ops.view_as_real(g.resolve_conj()), 0)
        return ops.view_as_complex(parts.contiguous())
    return ops.where(ops.isfinite(self), g, 0)


op(
    "nan_to_num(self: Tensor, nan: float? = 0.0, posinf: float? = None, neginf: float? = None) "
    "-> Tensor",
    jvp="pointwise",
    forward=_nan_to_num,
    dtypes=ALL,
    vjp={"self": _nan_to_num_vjp},
    inplace=True,
    out=True,
    batch="unary",
    out_dtype="pointwise",
    doc="Return self with NaN and the infinities replaced; by 0 and the dtype's limits if nothing "
    "else is given.\n\nDerivative: 0 where an element is replaced.",
    kinks=[
        kink([INFINITY, -INFINITY, 1.0], to=[0.0, 0.0, 1.0], outside="the argument is infinite")
    ],
    samples=lambda: [
        *unary(-3, 3, special=None),
        case(T(3), 5),
        case(T(3), 1, 2, 3),
        *(
            case(fixed(SPECIAL), *values, only=FLOATING, skip=KINKS)
            for values in ((0.5, 7.0, -7.0), (None, 1, 2))
        ),
        case(fixed((0.5, math.inf, math.nan)), posinf=3.0, neginf=2, only=FLOATING, skip=KINKS),
    ],
    ref=lambda np, self, nan=0.0, posinf=None, neginf=None: np.nan_to_num(
        self, nan=nan or 0, posinf=posinf, neginf=neginf
    ),
)


# -- sinc ------------------------------------------------------------------------------------------


def _sinc_vjp(g, self):
    """(cos(pi x) - sinc(x)) / x; close to 0 its Taylor series, which any derivative may follow."""
    near = ops.abs(self) < 0.03
    angle = ops.where(near, self * math.pi, 0)
    square = angle * angle
    series = -1 / 3 + square * (
        1 / 30 + square * (-1 / 840 + square * (1 / 45360 - square / 3991680))
    )
    away = ops.where(near, 1, self)
    turned = within_a_turn(away) * math.pi
    far = (ops.cos(turned) - ops.sin(turned) / math.pi / away) / away
    return g * ops.where(near, angle * series * math.pi, far).conj()


op(
    "sinc(self: Tensor) -> Tensor",
    kernel="sinc",
    promote="float",
    dtypes=FLOAT_COMPLEX & ~OPTIONAL,
    vjp={"self": _sinc_vjp},
    inplace=True,
    out=True,
    batch="unary",
    elsewhere=("special.sinc",),
    mpmath="sincpi",
    ref="numpy.sinc",
    doc="Return sin(pi x) / (pi x) of each element, and 1 at 0.",
)


# -- questions -------------------------------------------------------------------------------------


def _isinf(self):
    if self.is_complex():  # the size of large parts may overflow
        return ops.logical_or(_isinf(ops.real(self)), _isinf(ops.imag(self)))
    if self.dtype.is_floating_point:
        return ops.abs(self) == math.inf
    return ops.isnan(self)  # no integer is either


def _is_infinity(name, infinity):
    def forward(self):
        if self.is_complex():
            raise RuntimeError(f"{name} does not support complex inputs.")
        return self == infinity if self.dtype.is_floating_point else ops.isnan(self)

    return forward


def _isreal(self):
    if self.is_complex():
        return ops.imag(self) == 0
    import pullback

    return ops.ones_like(self, dtype=pullback.bool)


op(
    "isinf(self: Tensor) -> Tensor",
    forward=_isinf,
    promote="bool",
    batch="unary",
    ref="numpy.isinf",
    doc="Return whether each element is infinite; of complex ones, whether a part is.",
    samples=lambda: [
        *unary(-3, 3, special=None),
        case(fixed(SPECIAL), only=FLOATING),
        case(fixed((1 + 2j, complex(math.inf, 1), complex(math.nan, -math.inf))), only=COMPLEX),
    ],
)
for _name, _infinity, _what in (("isposinf", math.inf, "inf"), ("isneginf", -math.inf, "-inf")):
    op(
        f"{_name}(self: Tensor) -> Tensor",
        forward=_is_infinity(_name, _infinity),
        promote="bool",
        dtypes=REAL,
        out=True,
        batch="unary",
        out_dtype="bool",
        ref=f"numpy.{_name}",
        doc=f"Return whether each element is {_what}.",
        samples=lambda: [*unary(-3, 3, special=None), case(fixed(SPECIAL), only=FLOATING)],
    )
op(
    "isreal(self: Tensor) -> Tensor",
    forward=_isreal,
    promote="bool",
    batch="unary",
    ref="numpy.isreal",
    doc="Return whether the imaginary part of each element is 0.",
    samples=lambda: [
        *unary(-3, 3),
        case(fixed((1 + 0j, 2j, complex(0, math.nan), -0j)), only=COMPLEX),
    ],
)


def _is_nonzero(self):
    if self.numel() != 1:
        raise RuntimeError(
            f"is_nonzero(): Boolean value of Tensor with "
            f"{'more than one' if self.numel() else 'no'} value"
            f"{'' if self.numel() else 's'} is ambiguous"
        )
    return bool(self)


op(
    "is_nonzero(self: Tensor) -> bool",
    composite=_is_nonzero,
    doc="Return whether the only element is not 0.\n\nRaises: RuntimeError unless there is one.",
    samples="it returns no tensor; its own tests cover it",
)
