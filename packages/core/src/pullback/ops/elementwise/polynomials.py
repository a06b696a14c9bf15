"""Orthogonal polynomials and the incomplete gamma functions, elementwise."""

from pullback.ops.rules.dtypes import default_dtype
from pullback.ops.rules.elementwise_util import is_tensor, look_at
from pullback.ops.table.kinks import Fixed, kink
from pullback.ops.table.samples import T, case, constant, references_of
from pullback.ops.table.schema import FLOATING, op, ops

_REF = references_of("polynomials")
EDGE = "the function is not defined on the other side"

_WRITTEN = {"inplace_nested": "the operand that is written has no derivative"}

# -- incomplete gamma functions --------------------------------------------------------------------


def _density(self, other):
    """Return the derivative of P(self, other) by other: DLMF 8.8.13."""
    return ops.exp(ops.xlogy(self - 1, other) - other - ops.lgamma(self))


def _no_derivative(name):
    def formula(g):
        raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")

    return formula


def _igamma_vjp(sign):
    def formula(g, self, other):
        look_at(self)
        look_at(other)
        return g * (_density(self, other) * sign)

    return formula


for _name, _scipy, _which, _sign in (
    ("igamma", "gammainc", "lower incomplete gamma function P", 1),
    ("igammac", "gammaincc", "upper incomplete gamma function Q", -1),
):
    op(
        f"{_name}(self: Tensor, other: Tensor) -> Tensor",
        kernel=_name,
        dtypes=FLOATING,
        vjp={"self": _no_derivative(_name), "other": _igamma_vjp(_sign)},
        inplace=True,
        inplace_function=False,
        out=True,
        elsewhere=(f"special.{_scipy}",),
        doc=f"Return the regularized {_which} of each pair of elements.\n\n"
        "NaN where one is negative. It has a derivative by other alone. Source: DLMF 8.2.4.",
        ref=f"scipy.special.{_scipy}",
        kinks=[kink(Fixed([2.0]), [0.0], to=[0.0], second=None, outside=EDGE)],
        samples=[
            case(constant(*a, low=0.5, high=4), T(*b, low=0.3, high=5), skip=_WRITTEN)
            for a, b in (((2, 3), (2, 3)), ((3,), (2, 1)), ((), ()), ((0,), (1,)))
        ],
    )

# -- orthogonal polynomials ------------------------------------------------------------------------
# By name: a and b of degree 1, which is a x + b; then p[k + 1] = ((A x + B) p[k] - C p[k - 1]) / D,
# where A, B, C and D are functions of k. DLMF 18.9.1 and 18.9.2.
_CHEBYSHEV = (lambda k: 2, lambda k: 0, lambda k: 1, lambda k: 1)
_KINDS = {
    "chebyshev_polynomial_t": ((1, 0), _CHEBYSHEV),
    "chebyshev_polynomial_u": ((2, 0), _CHEBYSHEV),
    "chebyshev_polynomial_v": ((2, -1), _CHEBYSHEV),
    "chebyshev_polynomial_w": ((2, 1), _CHEBYSHEV),
    "hermite_polynomial_h": ((2, 0), (lambda k: 2, lambda k: 0, lambda k: 2 * k, lambda k: 1)),
    "hermite_polynomial_he": ((1, 0), (lambda k: 1, lambda k: 0, lambda k: k, lambda k: 1)),
    "laguerre_polynomial_l": (
        (-1, 1),
        (lambda k: -1, lambda k: 2 * k + 1, lambda k: k, lambda k: k + 1),
    ),
    "legendre_polynomial_p": (
        (1, 0),
        (lambda k: 2 * k + 1, lambda k: 0, lambda k: k, lambda k: k + 1),
    ),
}
_NAMES = tuple(_KINDS)
_MOST_DERIVED = 4096


def _largest_degree(n):
    if not is_tensor(n):
        return int(n)
    if n.device.type == "meta" or n.numel() == 0:
        return 0
    return int(ops.where(n == n, n, 0).max().item())


def _slope(self, n, kind, order):
    """Return a derivative by the recurrence, derived ``order`` times, of all degrees at once."""
    (a, b), (scale, shift, before, divisor) = _KINDS[_NAMES[kind]]
    most = _largest_degree(n)
    if most > _MOST_DERIVED:
        raise NotImplementedError(
            f"{_NAMES[kind]}(): derivatives have degrees up to {_MOST_DERIVED}, got {most}"
        )
    x = self if self.dtype.is_floating_point else ops.cast(self, default_dtype())
    degree = ops.trunc(ops.cast(n, x.dtype)) if is_tensor(n) else int(n)
    x = x + ops.zeros_like(degree) if is_tensor(n) else x
    zero = x * 0
    # Of each polynomial, itself and its derivatives up to the one that is wanted.
    last, now = [zero] * (order + 1), [zero + 1] + [zero] * order
    found = now[order]
    for k in range(max(most, 0)):
        if k == 0:
            following = [a * x + b, zero + a, *[zero] * order][: order + 1]
        else:
            factor = scale(k) * x + shift(k)
            following = [
                (factor * now[m] + (m * scale(k) * now[m - 1] if m else 0) - before(k) * last[m])
                / divisor(k)
                for m in range(order + 1)
            ]
        last, now = now, following
        if is_tensor(degree):
            found = ops.where(degree == k + 1, now[order], found)
        elif k + 1 == degree:
            found = now[order]
    return found


def _slope_vjp(g, self, n, kind, order):
    look_at(n)
    return g * ops.polynomial_slope(self, n, kind, order + 1)


op(
    "polynomial_slope(self: Tensor, n: Operand, kind: int, order: int) -> Tensor",
    forward=_slope,
    jvp="pointwise",
    batch="each",
    promote="float",
    dtypes=FLOATING,
    method=False,
    function=False,
    vjp={"self": _slope_vjp},
    doc="Return a derivative of an orthogonal polynomial of degree n.",
    ref=_REF.slope,
    samples=lambda: (
        [case(T(2, 3, low=-0.9, high=0.9), 3, kind, 1) for kind in range(len(_NAMES))]
        + [case(T(3, low=-0.9, high=0.9), constant(2, 1, low=0, high=6), 7, 2)]
    ),
)


def _vjp_of(kind):
    def formula(g, self, n):
        look_at(n)
        return g * ops.polynomial_slope(self, n, kind, 1)

    return formula


_TITLES = {
    "chebyshev_polynomial_t": "Chebyshev polynomial of the first kind",
    "chebyshev_polynomial_u": "Chebyshev polynomial of the second kind",
    "chebyshev_polynomial_v": "Chebyshev polynomial of the third kind",
    "chebyshev_polynomial_w": "Chebyshev polynomial of the fourth kind",
    "hermite_polynomial_h": "physicist's Hermite polynomial",
    "hermite_polynomial_he": "probabilist's Hermite polynomial",
    "laguerre_polynomial_l": "Laguerre polynomial",
    "legendre_polynomial_p": "Legendre polynomial",
}
_SAMPLES = [
    case(T(2, 3, low=-0.9, high=0.9), 3),
    case(T(3, low=-2, high=2), constant(2, 1, low=0, high=7)),
    case(T(low=-1, high=1), 0),
    case(T(0, 3), 2),
    case(T(2, low=-0.9, high=0.9), -1),
]
for _kind, (_name, _title) in enumerate(_TITLES.items()):
    op(
        f"{_name}(input: Operand, n: Operand) -> Tensor".replace("input", "self"),
        kernel=_name,
        promote="float",
        dtypes=FLOATING,
        vjp={"self": _vjp_of(_kind)},
        out=True,
        method=False,
        namespace="special",
        doc=f"Return the {_title} of degree n of each element.\n\n"
        "n is truncated to an integer; a negative degree gives 0, one above 2**24 NaN. It is "
        "derived by its first argument alone. Source: DLMF 18.9.1.",
        ref=_REF.value.of(_name),
        samples=_SAMPLES,
    )


def _shifted_vjp_of(kind):
    def formula(g, self, n):
        look_at(n)
        return g * (ops.polynomial_slope(self * 2 - 1, n, kind, 1) * 2)

    return formula


for _kind, _name in enumerate(_NAMES[:4]):
    op(
        f"shifted_{_name}(self: Operand, n: Operand) -> Tensor",
        kernel=f"shifted_{_name}",
        vjp={"self": _shifted_vjp_of(_kind)},
        promote="float",
        dtypes=FLOATING,
        out=True,
        method=False,
        namespace="special",
        doc=f"Return the {_TITLES[_name]} of degree n at 2 x - 1, for each element x.\n\n"
        "n is truncated to an integer; a negative degree gives 0, one above 2**24 NaN. It is "
        "derived by its first argument alone. Source: DLMF 18.7.",
        ref=_REF.value.of(_name, True),
        samples=_SAMPLES,
    )
