"""Elementwise ops of two operands that are composed of other ops, and those of integers."""

import math

from pullback.ops.decompositions.activations import above_larger
from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.rules.elementwise_util import (
    UNDERIVED,
    common_dtype,
    is_tensor,
    look_at,
    no_derivative,
    promoted,
    wide,
)
from pullback.ops.table.kinks import NAN, POLE, kink
from pullback.ops.table.samples import SPECIAL, T, binary, case, fixed
from pullback.ops.table.schema import (
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    REAL,
    op,
    ops,
)

# -- the larger and the smaller, numbers before NaN ------------------------------------------------


def _extreme(name, wins):
    def forward(self, other):
        self, other = promoted(name, REAL, self, other)
        return ops.where(wins(self, other) | ops.isnan(other), self, other)

    return forward


def _extreme_vjp(wins):
    return {
        "self": lambda g, self, other: ops.where(wins(self, other) | ops.isnan(other), g, 0),
        "other": lambda g, self, other: ops.where(wins(self, other) | ops.isnan(other), 0, g),
    }


for _name, _wins, _what in (
    ("fmax", lambda self, other: self >= other, "larger"),
    ("fmin", lambda self, other: self <= other, "smaller"),
):
    op(
        f"{_name}(self: Tensor, other: Tensor) -> Tensor",
        forward=_extreme(_name, _wins),
        dtypes=REAL,
        out=True,
        batch="pointwise",
        ref=f"numpy.{_name}",
        vjp=_extreme_vjp(_wins),
        jvp="pointwise",
        doc=f"Return the {_what} of two operands, elementwise; a number wins over NaN.\n\n"
        "Derivative: to self where they are equal.",
        kinks=[kink([2.0], [2.0], to=([1.0], [0.0]))],
        samples=lambda: binary(ties=True, numbers=False),
    )


def _heaviside(self, values):
    if self.is_complex() or values.is_complex():
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if self.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return ops.where(self == 0, values, ops.cast(self > 0, self.dtype))


op(
    "heaviside(self: Tensor, values: Tensor) -> Tensor",
    forward=_heaviside,
    dtypes=REAL,
    inplace=True,
    out=True,
    node="NotImplemented",
    batch="pointwise",
    out_dtype="pointwise",
    ref="numpy.heaviside",
    vjp={name: no_derivative("heaviside", name) for name in ("self", "values")},
    doc="Return 0 where self is negative, values where it is 0, else 1; 0 for NaN.",
    samples=lambda: (
        [made._replace(skip=UNDERIVED) for made in binary(ties=True, numbers=False, special=None)]
        + [case(fixed(SPECIAL[:-1]), fixed(SPECIAL[:-1]), only=FLOATING, skip=UNDERIVED)]
    ),
)


# -- integers --------------------------------------------------------------------------------------


def _lcm(self, other):
    dtype = common_dtype("lcm", INTEGRAL, self, other)
    # As in C, which torch is written in: narrow products do not overflow before the absolute value.
    compute = dtype if dtype.itemsize > 2 else dtype_named("int32")
    self, other = ops.cast(self, compute), ops.cast(other, compute)
    divisor = ops.gcd(self, other)
    product = ops.floor_divide(self, ops.where(divisor == 0, 1, divisor)) * other
    return ops.cast(ops.abs(product), dtype)


op(
    "gcd(self: Tensor, other: Tensor) -> Tensor",
    kernel="gcd",
    dtypes=INTEGRAL,
    inplace=True,
    out=True,
    ref="numpy.gcd",
    doc="Return the greatest common divisor; 0 of two zeros.",
    samples=lambda: binary((-30, 30), (-30, 30), special=None, numbers=False),
    inplace_function=True,
)
op(
    "lcm(self: Tensor, other: Tensor) -> Tensor",
    forward=_lcm,
    dtypes=INTEGRAL,
    inplace=True,
    out=True,
    batch="pointwise",
    ref="numpy.lcm",
    doc="Return the least common multiple; 0 if one of the two is 0.",
    samples=lambda: binary((-9, 9), (-9, 9), special=None, numbers=False),
    inplace_function=True,
)


# -- roots and powers ------------------------------------------------------------------------------

op(
    "hypot(self: Tensor, other: Tensor) -> Tensor",
    kernel="hypot",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    ref="numpy.hypot",
    vjp={
        "self": lambda g, self, out: g * (self / out),
        "other": lambda g, other, out: g * (other / out),
    },
    doc="Return sqrt(self ** 2 + other ** 2), elementwise, without overflow.\n\n"
    "Derivative: NaN at the origin.",
    kinks=[kink([0.0], [0.0], to=([NAN], [NAN]), second=None, outside="a quotient of zeros")],
    samples=lambda: binary((0.3, 3), (-3, -0.3), numbers=False),
)


def _cast(value, dtype):
    return ops.to(value, dtype) if is_tensor(value) else value


def _float_power(self, exponent):
    if not (is_tensor(self) or is_tensor(exponent)):
        raise TypeError("float_power(): expected at least one Tensor, got two numbers")
    dtype = _power_dtype(self, exponent)
    return ops.pow(_cast(self, dtype), _cast(exponent, dtype))


def _power_dtype(*values):
    wide = any(
        value.is_complex() if is_tensor(value) else isinstance(value, complex) for value in values
    )
    return dtype_named("complex128" if wide else "float64")


def _float_power_(self, exponent):
    dtype = _power_dtype(self, exponent)
    if self.dtype != dtype:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype.name} but the "
            f"operation's result requires dtype {dtype.name}"
        )
    return ops.pow_(self, _cast(exponent, dtype))


op(
    "float_power(self: Operand, exponent: Operand) -> Tensor",
    composite=_float_power,
    out=True,
    out_dtype="pointwise",
    ref=lambda np, self, exponent: np.float_power(self, exponent),
    doc="Return self ** exponent computed in float64 or complex128.",
    kinks=[kink([0.0], [1.0], to=([1.0], [0.0]), second=None)],
    samples=lambda: [*binary((0.3, 3), (-2, 3)), case(2, T(3)), case(T(3, low=0.3, high=3), 0)],
)
op(
    "float_power_(self: Tensor, exponent: Operand) -> Tensor",
    composite=_float_power_,
    function=False,
    dtypes=0xA00,
    doc="Raise a float64 or complex128 tensor to a power; returns self.",
    samples=lambda: [
        case(T(2, 3, low=0.3, high=3), 2),
        case(T(3, low=0.3, high=3), T(3)),
        case(T(0, 3), T(3)),
    ],
    ref="numpy.power",
)


def _power_of_two(other, dtype):
    """Return 2 ** other for a dtype; of integers in float32 at least, as they may be large."""
    if other.dtype.is_floating_point or other.dtype.is_complex:
        return ops.exp2(ops.to(other, dtype))
    return ops.exp2(ops.to(other, dtype if dtype.itemsize > 2 else dtype_named("float32")))


def _ldexp(self, other):
    dtype = common_dtype("ldexp", FLOAT_COMPLEX, self, other, floats=True)
    return ops.cast(self * _power_of_two(other, dtype), dtype)


def _ldexp_vjp(g, other):
    return g * _power_of_two(other, g.dtype).conj()


op(
    "ldexp(self: Tensor, other: Tensor) -> Tensor",
    forward=_ldexp,
    promote="float",
    dtypes=FLOAT_COMPLEX,
    inplace=True,
    out=True,
    vjp={"self": _ldexp_vjp, "other": lambda g, out: g * (out * 0.6931471805599453).conj()},
    batch="pointwise",
    out_overlap=True,
    doc="Return self * 2 ** other, elementwise.",
    kinks=[kink([0.0], [1.0], to=([2.0], [0.0]), second=None)],
    samples=lambda: binary(
        numbers=False, special=(0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
    ),
    ref=lambda np, self, other: self * 2.0**other,
    inplace_function=True,
)


# -- logarithms ------------------------------------------------------------------------------------


def _logaddexp2(self, other):
    return _logaddexp2_of(*promoted("logaddexp2", FLOATING, self, other))


@wide
def _logaddexp2_of(self, other):
    return above_larger(self, other, lambda away: ops.log1p(ops.exp2(away)) * 1.4426950408889634)


def _share(one, other):
    """Return e^one / (e^one + e^other). Neither it nor its derivatives overflow."""
    if one.is_complex():  # whose sigmoid does
        return ops.exp(one - ops.logaddexp(one, other))
    return ops.sigmoid(one - other)


op(
    "logaddexp(self: Tensor, other: Tensor) -> Tensor",
    kernel="logaddexp",
    promote="default",
    jvp="pointwise",
    dtypes=FLOAT_COMPLEX,
    out=True,
    vjp={
        "self": lambda g, self, other: g * _share(self, other).conj(),
        "other": lambda g, self, other: g * _share(other, self).conj(),
    },
    doc="Return log(exp(self) + exp(other)), elementwise, without overflow.",
    samples=lambda: binary(ties=True, numbers=False),
    ref=lambda np, self, other: _logaddexp_reference(np, self, other),
)


def _logaddexp_reference(np, self, other):
    """The imaginary part is that of the larger one, moved; it may leave (-pi, pi]."""
    if self.dtype.kind != "c":
        return np.logaddexp(self, other)
    swap = self.real < other.real
    high, low = np.where(swap, other, self), np.where(swap, self, other)
    return high + np.log1p(np.exp(low - high))


op(
    "logaddexp2(self: Tensor, other: Tensor) -> Tensor",
    jvp="pointwise",
    forward=_logaddexp2,
    dtypes=FLOATING,
    out=True,
    vjp={
        "self": lambda g, self, other: g * ops.sigmoid((self - other) * math.log(2)),
        "other": lambda g, self, other: g * ops.sigmoid((other - self) * math.log(2)),
    },
    batch="pointwise",
    doc="Return log2(2 ** self + 2 ** other), elementwise, without overflow.",
    samples=lambda: binary(ties=True, numbers=False),
    ref="numpy.logaddexp2",
)


def xlogy_with(name, log, self, other):
    """Return self * log(other); 0 where self is 0, unless other is NaN."""
    self, other = promoted(name, FLOATING, self, other, floats=True)
    if not is_tensor(other):
        other = ops.full((), other, dtype=self.dtype, device=self.device)
    if not is_tensor(self):
        product = log(other) * self if self else ops.zeros_like(other)
    else:
        product = ops.where(self == 0, 0, self * log(other))
    return ops.where(other != other, math.nan, product)


def number_among(self, other):
    """Return which of the two is a number, 1 or 2; kept tensors arrive as None."""
    return 1 if self is not None else 2 if other is not None else 0


def _xlogy_self_vjp(g, self, other):
    look_at(other)
    if not is_tensor(other):
        derivative = math.log(other) if other > 0 else -math.inf if other == 0 else math.nan
        return ops.where(self == 0, 0, g * derivative) if other <= 0 else g * derivative
    return ops.where((self == 0) & (other <= 0), 0, g * ops.log(ops.to(other, g.dtype)))


op(
    "xlogy(self: Operand, other: Operand) -> Tensor",
    jvp="pointwise",
    forward=lambda self, other: xlogy_with("xlogy", ops.log, self, other),
    promote="float",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    batch="pointwise",
    elsewhere=("special.xlogy",),
    ref="scipy.special.xlogy",
    vjp={"self": _xlogy_self_vjp, "other": lambda g, self, other: g * ops.div(self, other)},
    node=lambda self, other: f"XlogyBackward{number_among(self, other)}",
    doc="Return self * log(other), elementwise; 0 where self is 0, unless other is NaN.\n\n"
    "Derivative by self: 0 where self is 0 and other not positive.",
    kinks=[
        kink([0.0], [2.0], to=([math.log(2.0)], [0.0]), second=([0.5], [0.5])),
        kink([0.0], [0.0], to=([0.0], [NAN]), second=None, outside=POLE),
    ],
    samples=lambda: [*binary((0.3, 3), (0.3, 3)), case(2, T(3, low=0.3, high=3)), case(0, T(3))],
    inplace_function=True,
)
