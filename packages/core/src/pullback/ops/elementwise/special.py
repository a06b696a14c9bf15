"""Special functions, elementwise."""

import math

from pullback.ops.elementwise.bessel import slope_of_order_1
from pullback.ops.elementwise.binary_composite import number_among, xlogy_with
from pullback.ops.rules.arguments import check_float
from pullback.ops.rules.dtypes import require
from pullback.ops.rules.elementwise_util import look_at, no_derivative, wide
from pullback.ops.table.kinks import INFINITY, NAN, POLE, kink
from pullback.ops.table.samples import KINKS, SPECIAL, T, binary, case, fixed, unary
from pullback.ops.table.schema import FLOATING, INTEGRAL, op, ops


def _unless_extreme(name):
    """Return a function of mpmath; NaN where it takes seconds and behaves like a logarithm."""
    return lambda mp, x: getattr(mp, name)(x) if 1e-21 < abs(x) < 2e10 else mp.nan


def _lgamma_digits(mp, x):
    """Return log |gamma(x)| of a number of mpmath."""
    if x < 100:
        return mp.log(abs(_unless_extreme("gamma")(mp, x)))
    return _unless_extreme("loggamma")(mp, x)


def _special(name, vjp, doc, samples, **fields):
    fields = {"inplace": True, "out": True, "ref": f"scipy.special.{name}", **fields}
    op(
        f"{name}(self: Tensor) -> Tensor",
        kernel=name,
        promote="float",
        dtypes=FLOATING,
        vjp={"self": vjp},
        doc=doc,
        samples=samples,
        **fields,
    )


_POLES = [
    case(
        fixed((0.0, -0.0, -1.0, -2.0, float("inf"), float("nan"), 1e-3, 40.0)),
        skip=KINKS,
        only=FLOATING,
    )
]

_special(
    "digamma",
    lambda g, self: g * ops.polygamma(1, self),
    "Return the derivative of lgamma of each element.\n\nNaN at the negative integers.",
    lambda: [*unary(0.3, 5, special=None), case(T(5, low=-2.8, high=-2.2)), *_POLES],
    inplace_function=False,
    elsewhere=("special.digamma", "special.psi"),
    mpmath=_unless_extreme("digamma"),
)
_special(
    "erfc",
    lambda g, self: g * (-(self * self)).exp() * -1.1283791670955126,
    "Return 1 - erf(x) of each element, exact where erf is close to 1.\n\nSource: DLMF 7.2.2.",
    lambda: unary(-3, 3),
    elsewhere=("special.erfc",),
    mpmath="erfc",
)
_special(
    "erfinv",
    lambda g, self: g * ops.square(ops.erfinv(self)).exp() * 0.886226925452758,
    "Return the inverse of erf of each element.\n\nInfinite at -1 and 1, NaN beyond.",
    [
        *unary(-0.9, 0.9, special=(0.0, -0.0, 1.0, -1.0, 1.5, float("nan"))),
        case(T(4, low=0.9, high=0.99)),
    ],
    inplace_function=False,
    elsewhere=("special.erfinv",),
    kinks=[kink([1.0], to=[INFINITY], second=None, outside=POLE)],
    mpmath="erfinv",
    autocast=(None, "float32"),
)
_special(
    "i0",
    lambda g, self: g * ops.i1(self),
    "Return the modified Bessel function of the first kind of order 0 of each element.\n\n"
    "Source: DLMF 10.25.2 and 10.40.1.",
    lambda: [
        *unary(-3, 3, special=(0.0, 1.0, -40.0, 1e-3, float("nan"))),
        case(T(4, low=18, high=22)),
    ],
    elsewhere=("special.i0",),
    mpmath=lambda mp, x: mp.besseli(0, x),
)


def _i1_vjp(g, self, out):
    return g * slope_of_order_1(self, ops.i0(self), out, 1)


_special(
    "i1",
    _i1_vjp,
    "Return the modified Bessel function of order 1 of each element.",
    lambda: [*unary(0.5, 3, special=None), case(T(4, low=18, high=22))],
    inplace=False,
    out=True,
    elsewhere=("special.i1",),
    method=False,
    function=False,
    node="SpecialI1Backward0",
    mpmath=lambda mp, x: mp.besseli(1, x),
)
_special(
    "lgamma",
    lambda g, self: g * ops.digamma(self),
    "Return log |gamma(x)| of each element.\n\nInfinite at 0 and the negative integers.",
    lambda: [*unary(0.3, 5, special=None), case(T(5, low=-2.8, high=-2.2)), *_POLES],
    elsewhere=("special.gammaln",),
    mpmath=_lgamma_digits,
    ref="scipy.special.gammaln",
    inplace_function=False,
)


# -- logit -----------------------------------------------------------------------------------------


def _bounds(eps):
    """Return the bounds that logit clamps to, or None; torch ignores a negative eps."""
    if eps is None:
        return None
    check_float(eps, "logit", "eps")
    return None if eps < 0 else (eps, 1 - eps)


def _logit(self, eps):
    import pullback

    bounds = _bounds(eps)
    if not (self.is_complex() or self.dtype.is_floating_point):
        self = ops.cast(self, pullback.get_default_dtype())
    require("logit", FLOATING, self)
    if bounds is not None:
        low, high = bounds
        self = ops.where(self < low, low, ops.where(self > high, high, self))
    return ops.logit_unit(self)


def _logit_vjp(g, self, eps):
    look_at(eps)
    bounds = _bounds(eps)
    low, high = bounds or (0, 1)
    outside = (self < low) | (self > high)
    derivative = self * (1 - self) + 0.0  # at -0 as at 0: no negative zero
    if not bounds:
        return g / ops.where(outside, math.nan, derivative)
    return ops.where(outside, 0, g) / ops.where(outside, 1, derivative)


op(
    "logit(self: Tensor, eps: float? = None) -> Tensor",
    jvp="pointwise",
    forward=_logit,
    promote="float",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    vjp={"self": _logit_vjp},
    batch="unary",
    elsewhere=("special.logit",),
    doc="Return log(x / (1 - x)) of each element, moved into [eps, 1 - eps] if eps is given.\n\n"
    "Derivative: 0 beyond the bounds; NaN outside [0, 1] without them.",
    kinks=[kink([0.25, 0.75], 0.25, to=[16 / 3, 16 / 3], second=[-128 / 9, 128 / 9])],
    mpmath=lambda mp, x: mp.log(x / (1 - x)),
    samples=lambda: [
        *unary(0.1, 0.9, special=(0.0, 1.0, 0.5, -1.0, 2.0, float("nan"))),
        case(T(2, 3, low=0.3, high=0.7), 0.25),
        case(T(3, low=0.3, high=0.7), eps=0.1),
        case(fixed((0.0, 0.1, 0.25, 0.8, 1.0, 2.0, float("nan"))), 0.25, skip=KINKS, only=FLOATING),
    ],
    ref=lambda np, self, eps=None: _logit_reference(np, self, eps),
)


op(
    "logit_unit(self: Tensor) -> Tensor",
    kernel="logit",
    dtypes=FLOATING,
    method=False,
    function=False,
    vjp={"self": lambda g, self: _logit_vjp(g, self, None)},
    node="LogitBackward0",
    doc="Return log(x / (1 - x)) of each element.",
    samples=lambda: unary(0.1, 0.9, special=(0.0, 1.0, 0.5, -1.0, 2.0, math.nan)),
    ref=lambda np, self: _logit_reference(np, self, None),
    mpmath=lambda mp, x: mp.log(x / (1 - x)),
)


def _logit_reference(np, self, eps):
    self = self if eps is None else np.clip(self, eps, 1 - eps)
    return np.log(self / (1 - self))


# -- of probabilities ------------------------------------------------------------------------------


op(
    "entr(self: Tensor) -> Tensor",
    kernel="entr",
    promote="float",
    dtypes=FLOATING,
    out=True,
    method=False,
    namespace="special",
    ref="scipy.special.entr",
    vjp={"self": lambda g, self: -g * (ops.log(self) + 1)},
    node="SpecialEntrBackward0",
    doc="Return -x log(x) of each element: 0 at 0, -inf below.",
    kinks=[kink([0.0], to=[INFINITY], second=[-INFINITY], outside=POLE)],
    mpmath=lambda mp, x: -x * mp.log(x),
    samples=lambda: unary(0.3, 3, special=(0.0, -0.0, 1.0, -1.0, math.inf, math.nan)),
)
op(
    "ndtr(self: Tensor) -> Tensor",
    dtypes=FLOATING,
    promote="float",
    out=True,
    method=False,
    namespace="special",
    ref="scipy.special.ndtr",
    kernel="ndtr",
    vjp={"self": lambda g, self: g * (-0.5 * ops.square(self)).exp() * 0.3989422804014327},
    node="MulBackward0",
    doc="Return the probability that a standard normal number is below each element.",
    mpmath=lambda mp, x: mp.erfc(-x / mp.sqrt(2)) / 2,
    samples=lambda: unary(-3, 3),
)


def _xlog1py_self_vjp(g, self, other):
    look_at(other)
    if not hasattr(other, "shape"):
        derivative = math.log1p(other) if other > -1 else -math.inf if other == -1 else math.nan
        return ops.where(self == 0, 0, g * derivative) if other <= -1 else g * derivative
    return ops.where((self == 0) & (other <= -1), 0, g * ops.log1p(ops.to(other, g.dtype)))


op(
    "xlog1py(self: Operand, other: Operand) -> Tensor",
    jvp="pointwise",
    promote="float",
    forward=lambda self, other: xlogy_with("xlog1py", ops.log1p, self, other),
    dtypes=FLOATING,
    out=True,
    method=False,
    namespace="special",
    ref="scipy.special.xlog1py",
    vjp={"self": _xlog1py_self_vjp, "other": lambda g, self, other: g * ops.div(self, other + 1)},
    node=lambda self, other: f"SpecialXlog1PyBackward{number_among(self, other)}",
    doc="Return self * log(1 + other), elementwise; 0 where self is 0, unless other is NaN.",
    kinks=[kink([0.0], [-1.0], to=([0.0], [NAN]), second=None, outside=POLE)],
    samples=lambda: [*binary((0.3, 3), (0.3, 3)), case(2, T(3, low=0.3, high=3)), case(0, T(3))],
)


# -- polygamma -------------------------------------------------------------------------------------


def _zeta_vjp(g, self, other):
    look_at(self)
    return g * (-self * ops.zeta(self + 1, other))


op(
    "zeta(self: Operand, other: Operand) -> Tensor",
    kernel="zeta",
    promote="float",
    dtypes=FLOATING,
    vjp={"self": no_derivative("special_zeta", "self"), "other": _zeta_vjp},
    elsewhere=("special.zeta",),
    method=False,
    function=False,
    out=True,
    ref="scipy.special.zeta",
    node=lambda self, other: f"SpecialZetaBackward{number_among(self, other)}",
    doc="Return the Hurwitz zeta function, the sum of 1 / (k + other) ** self for k = 0, 1, ....",
    samples=lambda: (
        [case(n, T(*shape, low=0.3, high=5)) for n in (2.0, 5.0) for shape in ((2, 3), (), (0,))]
        + [case(3.0, T(4, low=20, high=50))]
    ),
)


def _order(n):
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return n


@wide
def _polygamma_of(self, n):
    if n == 0:
        return ops.digamma(self)
    size = math.gamma(n + 1.0) if n <= 170 else math.inf
    return ops.zeta(n + 1.0, self) * (size if n % 2 else -size)


def _polygamma_vjp(g, n, self):
    look_at(n)
    return g * ops.polygamma(n + 1, self)


def _polygamma(n, self):
    return _polygamma_of(self, _order(n))


_ORDERS = [(n, shape) for n in (0, 1, 2, 5) for shape in ((2, 3), (), (0, 3))]

op(
    "polygamma(n: int, self: Tensor) -> Tensor",
    forward=_polygamma,
    promote="float",
    out=True,
    dtypes=FLOATING,
    batch="unary",
    elsewhere=("special.polygamma",),
    method=False,  # the method has the arguments the other way round
    vjp={"self": _polygamma_vjp},
    doc="Return the n-th derivative of digamma of each element.\n\nSource: DLMF 5.15.1.",
    samples=lambda: (
        [case(n, T(*shape, low=0.5, high=4)) for n, shape in _ORDERS]
        + [case(2, T(4, low=-1.8, high=-1.2)), case(3, fixed(SPECIAL), skip=KINKS, only=FLOATING)]
    ),
    ref=lambda np, n, self: _polygamma_reference(n, self),
)
op(
    "polygamma_method(self: Tensor, n: int) -> Tensor",
    method="polygamma",
    function=False,
    composite=lambda self, n: ops.polygamma(n, self),
    promote="float",
    dtypes=FLOATING,
    doc="Return the n-th derivative of digamma of each element.",
    samples=lambda: [case(T(*shape, low=0.5, high=4), n) for n, shape in _ORDERS],
    ref=lambda np, self, n: _polygamma_reference(n, self),
)
op(
    "polygamma_(self: Tensor, n: int) -> Tensor",
    forward=lambda self, n: _polygamma(n, self),
    inplace="only",
    batch="unary",
    function=False,
    dtypes=FLOATING,
    node="PolygammaBackward0",
    vjp={"self": _polygamma_vjp},
    doc="Replace each element by the n-th derivative of digamma; returns self.",
    samples=lambda: [case(T(*shape, low=0.5, high=4), n) for n, shape in _ORDERS],
    ref=lambda np, self, n: _polygamma_reference(n, self),
)


def _polygamma_reference(n, self):
    from scipy.special import gamma, psi, zeta

    return psi(self) if n == 0 else (-1) ** (n + 1) * gamma(n + 1) * zeta(n + 1, self)


_MOST_FACTORS = 1 << 24


def _mvlgamma(self, p):
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if p > _MOST_FACTORS:
        raise RuntimeError(f"mvlgamma(): p must be at most {_MOST_FACTORS}, got {p}")
    if self.dtype.name == "bool":
        raise RuntimeError("mvlgamma(): The input tensor may not be a boolean tensor.")
    require("mvlgamma", INTEGRAL | FLOATING, self)
    return _over_halves(ops.lgamma, self, p) + 0.25 * p * (p - 1) * math.log(math.pi)


def _over_halves(function, self, p):
    """Return the sum of function(self - i / 2) for i = 0 .. p - 1."""
    import pullback

    dtype = self.dtype if self.dtype.is_floating_point else pullback.get_default_dtype()
    halves = ops.arange(0, p, dtype=dtype, device=self.device) * 0.5
    return function(ops.unsqueeze(self, -1) - halves).sum(-1)


def _mvlgamma_vjp(g, self, p):
    look_at(p)
    return g * _over_halves(ops.digamma, self, p)


op(
    "mvlgamma(self: Tensor, p: int) -> Tensor",
    forward=_mvlgamma,
    dtypes=INTEGRAL | FLOATING,
    inplace=True,
    out=True,
    vjp={"self": _mvlgamma_vjp},
    batch="unary",
    out_overlap=True,
    elsewhere=("special.multigammaln",),
    doc="Return the logarithm of the multivariate gamma function of dimension p.\n\n"
    "Source: the definition as a product of gamma functions, DLMF 35.3.4.",
    samples=lambda: [
        case(T(*shape, low=2.5, high=5), p) for p in (1, 2, 4) for shape in ((2, 3), (), (0,))
    ],
    ref=lambda np, self, p: _mvlgamma_reference(np, self, p),
    inplace_function=False,
)


def _mvlgamma_reference(np, self, p):
    from scipy.special import gammaln

    parts = sum(gammaln(self - i / 2) for i in range(p))
    return parts + p * (p - 1) / 4 * np.log(np.pi)
