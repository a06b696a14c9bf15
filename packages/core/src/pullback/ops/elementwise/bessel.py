"""Airy and Bessel functions, and functions of the normal distribution, elementwise."""

import math

from pullback.ops.rules.dtypes import default_dtype, dtype_named, require
from pullback.ops.table.kinks import AS_IF_FLAT, INFINITY, POLE, kink
from pullback.ops.table.samples import T, case, unary
from pullback.ops.table.schema import FLOATING, op, ops


def slope_of_order_1(self, zero, first, sign):
    """Return the derivative of I1 (sign 1) or J1 (sign -1), given the functions of both orders.

    Near 0, where further derivatives of that expression cancel, it is the series' derivative.
    """
    away = ops.abs(self) > 0.1
    return ops.where(away, zero - first / ops.where(away, self, 1), _series(self, away, sign))


def _series(self, away, sign):
    square = ops.where(away, 0, self) ** 2 * sign
    found = 7 / 18432 + square * (9 / 1474560)
    return 0.5 + square * (3 / 16 + square * (5 / 384 + square * found))


def _special(name, vjp, doc, samples, **fields):
    op(
        f"{name}(self: Tensor) -> Tensor",
        **{
            "kernel": name,
            "promote": "float",
            "dtypes": FLOATING,
            "vjp": {"self": vjp},
            "out": True,
            "method": False,
            "namespace": "special",
            "node": "Special" + "".join(part.title() for part in name.split("_")) + "Backward0",
            "doc": doc,
            "samples": samples,
            **fields,
        },
    )


# -- of the first and second kind ------------------------------------------------------------------
_special(
    "airy_ai",
    lambda g, self: g * ops.airy_ai_prime(self),
    "Return the Airy function Ai of each element.\n\nNaN at both infinities. Source: DLMF 9.2.",
    unary(-3, 3),
    ref=lambda np, self: _airy_reference(self, 0),
    mpmath="airyai",
)
_special(
    "airy_ai_prime",
    lambda g, self: g * (self * ops.airy_ai(self)),
    "Return the derivative of the Airy function Ai of each element.",
    unary(-3, 3),
    function=False,
    namespace=("",),
    out=False,
    ref=lambda np, self: _airy_reference(self, 1),
)


def _airy_reference(self, which):
    from scipy.special import airy

    return airy(self)[which]


_special(
    "bessel_j0",
    lambda g, self: g * -ops.bessel_j1(self),
    "Return the Bessel function of the first kind of order 0 of each element.\n\n"
    "NaN at infinity. Source: DLMF 10.2.2.",
    unary(-3, 3),
    ref="scipy.special.j0",
    mpmath=lambda mp, x: mp.besselj(0, x),
)
_special(
    "bessel_j1",
    lambda g, self, out: g * slope_of_order_1(self, ops.bessel_j0(self), out, -1),
    "Return the Bessel function of the first kind of order 1 of each element.\n\n"
    "NaN at infinity. Source: DLMF 10.2.2.",
    unary(0.5, 3),
    ref="scipy.special.j1",
    mpmath=lambda mp, x: mp.besselj(1, x),
)
_special(
    "bessel_y0",
    lambda g, self: g * -ops.bessel_y1(self),
    "Return the Bessel function of the second kind of order 0 of each element.\n\n"
    "-inf at 0, NaN below and at infinity. Source: DLMF 10.8.2.",
    unary(0.5, 3),
    ref="scipy.special.y0",
    mpmath=lambda mp, x: mp.bessely(0, x) if x > 0 else mp.nan,
)
_special(
    "bessel_y1",
    lambda g, self, out: g * (ops.bessel_y0(self) - out / self),
    "Return the Bessel function of the second kind of order 1 of each element.\n\n"
    "-inf at 0, NaN below and at infinity. Source: DLMF 10.8.1.",
    unary(0.5, 3),
    ref="scipy.special.y1",
    mpmath=lambda mp, x: mp.bessely(1, x) if x > 0 else mp.nan,
)


def _at_least_single(self):
    return ops.cast(self, dtype_named("float32")) if self.dtype.itemsize < 4 else self


def _spherical(self):
    """Return sin(x) / x: 1 at 0, and 0 at infinity."""
    if not (self.is_complex() or self.dtype.is_floating_point):
        self = ops.cast(self, default_dtype())
    dtype = require("spherical_bessel_j0", FLOATING, self).dtype
    x = _at_least_single(self)
    found = ops.where(x == 0, 1, ops.sin(x) / x)
    return ops.cast(ops.where(ops.abs(x) == math.inf, 0, found), dtype)


def _spherical_vjp(g, self):
    """(cos(x) - sin(x) / x) / x; near 0 its series, so that further derivatives keep digits."""
    x = _at_least_single(self)
    near = ops.abs(x) < 0.5
    inner = ops.where(near, x, 0)
    square = ops.square(inner)
    series = 1
    for k in range(8, 0, -1):
        series = 1 - square * series / (2 * k * (2 * k + 3))
    end = ops.abs(x) == math.inf
    away = ops.where(near | end, 1, x)
    far = ops.where(end, 0, (ops.cos(away) - ops.sin(away) / away) / away)
    return g * ops.cast(ops.where(near, inner * series / -3, far), self.dtype)


op(
    "spherical_bessel_j0(self: Tensor) -> Tensor",
    forward=_spherical,
    jvp="pointwise",
    vjp={"self": _spherical_vjp},
    batch="pointwise",
    node="SpecialSphericalBesselJ0Backward0",
    promote="float",
    dtypes=FLOATING,
    out=True,
    method=False,
    namespace="special",
    doc="Return the spherical Bessel function of order 0, sin(x) / x, of each element.\n\n"
    "1 at 0, and 0 at infinity. Source: DLMF 10.49.3.",
    samples=lambda: unary(0.6, 3),
    ref=lambda np, self: np.where(
        np.isinf(self), 0, np.where(self == 0, 1, np.sin(self) / np.where(self == 0, 1, self))
    ),
    mpmath=lambda mp, x: mp.sinc(x),
)

# -- modified --------------------------------------------------------------------------------------
for _order in (0, 1):
    op(
        f"modified_bessel_i{_order}(self: Tensor) -> Tensor",
        composite=(lambda self: ops.i1(self)) if _order else (lambda self: ops.i0(self)),
        promote="float",
        dtypes=FLOATING,
        out=True,
        method=False,
        namespace="special",
        ref=f"scipy.special.i{_order}",
        doc=f"Return the modified Bessel function of the first kind of order {_order} of each "
        "element.\n\nNaN at infinity. Source: DLMF 10.25.2.",
        samples=lambda: unary(0.5, 3, special=None),
    )
_special(
    "i0e",
    lambda g, self, out: g * (ops.i1e(self) - ops.sign(self) * out),
    "Return exp(-|x|) i0(x) of each element, which does not overflow.\n\nSource: DLMF 10.25.2.",
    unary(0.5, 3),
    ref="scipy.special.i0e",
    node="SpecialI0EBackward0",
    kinks=[kink([0.0], to=[0.0], second=[0.5], outside=AS_IF_FLAT)],
)


def _i1e_vjp(g, self, out):
    away = ops.abs(self) > 0.1
    near = _series(self, away, 1) * ops.exp(-ops.abs(ops.where(away, 0, self)))
    far = ops.i0e(self) - out / ops.where(away, self, 1)
    return g * (ops.where(away, far, near) - ops.sign(self) * out)


_special(
    "i1e",
    _i1e_vjp,
    "Return exp(-|x|) i1(x) of each element, which does not overflow.\n\nSource: DLMF 10.25.2.",
    unary(0.5, 3),
    ref="scipy.special.i1e",
    node="SpecialI1EBackward0",
    kinks=[kink([0.0], to=[0.5], second=[0.0])],
)
_SECOND = (
    "Return the modified Bessel function of the second kind of order {} of each element{}.\n\n"
    "Infinite at 0, NaN below. Source: DLMF 10.27.4."
)
_special(
    "modified_bessel_k0",
    lambda g, self: g * -ops.modified_bessel_k1(self),
    _SECOND.format(0, ""),
    unary(0.5, 3),
    ref="scipy.special.k0",
    mpmath=lambda mp, x: mp.besselk(0, x) if x > 0 else mp.nan,
)
_special(
    "modified_bessel_k1",
    lambda g, self, out: g * -(ops.modified_bessel_k0(self) + out / self),
    _SECOND.format(1, ""),
    unary(0.5, 3),
    ref="scipy.special.k1",
    mpmath=lambda mp, x: mp.besselk(1, x) if x > 0 else mp.nan,
)
_special(
    "scaled_modified_bessel_k0",
    lambda g, self, out: g * (out - ops.scaled_modified_bessel_k1(self)),
    _SECOND.format(0, ", times exp(x)"),
    unary(0.5, 3),
    ref="scipy.special.k0e",
    mpmath=lambda mp, x: mp.besselk(0, x) * mp.exp(x) if x > 0 else mp.nan,
)
_special(
    "scaled_modified_bessel_k1",
    lambda g, self, out: g * (out - out / self - ops.scaled_modified_bessel_k0(self)),
    _SECOND.format(1, ", times exp(x)"),
    unary(0.5, 3),
    ref="scipy.special.k1e",
    mpmath=lambda mp, x: mp.besselk(1, x) * mp.exp(x) if x > 0 else mp.nan,
)

# -- of the normal distribution --------------------------------------------------------------------
_TERMS = 20  # of series in 1 / x**2, of which the last is below the rounding from x = 10 on


def _alternating(square, first):
    """Return the sum of (-1)^n (2n - first)!! y^n, for double factorials of odd numbers."""
    found = 1
    for n in range(_TERMS, 0, -1):
        found = 1 - (2 * n - first) * square * found
    return found


def _erfcx_vjp(g, self, out):
    """2 x erfcx(x) - 2 / sqrt(pi); the derived series (DLMF 7.12.1) where it would cancel."""
    far = self > 10
    inverse = 1 / ops.where(far, self, 10)
    square = inverse * inverse
    series = -_alternating(square / 2, -1) * square / math.sqrt(math.pi)
    near = 2 * ops.where(far, 0, self) * out - 2 / math.sqrt(math.pi)
    return g * ops.where(far, series, near)


_special(
    "erfcx",
    _erfcx_vjp,
    "Return exp(x * x) erfc(x) of each element, which does not underflow.\n\nSource: DLMF 7.2.2.",
    unary(-2, 3),
    ref="scipy.special.erfcx",
    mpmath=lambda mp, x: mp.exp(x * x) * mp.erfc(x),
)


def _log_ndtr_vjp(g, self, out):
    """The density over the probability; neither of both underflows."""
    below, far = self < 0, self < -10
    scaled = ops.erfcx(ops.where(below & ~far, self, 0) * -math.sqrt(0.5))
    inverse = -1 / ops.where(far, self, -10)
    ratio = 1 / (inverse * _alternating(inverse * inverse, 1))  # DLMF 7.12.1
    low = ops.where(far, ratio, math.sqrt(2 / math.pi) / scaled)
    x = ops.where(below, 0, self)
    high = ops.exp(-0.5 * (x * x) - ops.where(below, 0, out)) / math.sqrt(2 * math.pi)
    return g * ops.where(below, low, high)


_special(
    "log_ndtr",
    _log_ndtr_vjp,
    "Return the logarithm of the probability that a standard normal number is below each element.",
    unary(-3, 3),
    ref="scipy.special.log_ndtr",
    mpmath=lambda mp, x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
)
_special(
    "ndtri",
    lambda g, out: g * math.sqrt(2 * math.pi) * ops.exp(0.5 * (out * out)),
    "Return the number below which a standard normal number is with the probability of each "
    "element.\n\nInfinite at 0 and 1, NaN beyond.",
    [
        *unary(0.1, 0.9, special=(0.0, -0.0, 1.0, -1.0, 1.5, math.nan)),
        case(T(4, low=0.9, high=0.99)),
    ],
    ref="scipy.special.ndtri",
    kinks=[kink([1.0], to=[INFINITY], second=None, outside=POLE)],
    mpmath=lambda mp, x: mp.sqrt(2) * mp.erfinv(2 * x - 1),
)
