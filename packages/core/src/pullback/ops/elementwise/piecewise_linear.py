"""Piecewise linear activation functions."""

from pullback.ops.elementwise.activations import BOTH, F, activation, activation_samples
from pullback.ops.rules.dtypes import require, unsupported
from pullback.ops.rules.elementwise_util import look_at, number, wide
from pullback.ops.table.kinks import AS_IF_FLAT, JUMP, kink
from pullback.ops.table.samples import T, case
from pullback.ops.table.schema import FLOATING, INTEGRAL, UNSIGNED, op, ops

# -- piecewise linear ------------------------------------------------------------------------------

activation(
    "hardsigmoid",
    wide(lambda self: ops.clamp(self + 3, 0, 6) / 6),
    lambda g, self: ops.where((self > -3) & (self < 3), g / 6, 0),
    lambda np, self: np.clip(self + 3, 0, 6) / 6,
    "Return (x + 3) / 6, moved into [0, 1].\n\nDerivative: 0 at -3 and 3.",
    inplace=True,
    kinks=[kink([-3.0, 3.0], to=[0.0, 0.0])],
)
activation(
    "hardswish",
    wide(lambda self: self * ops.clamp(self + 3, 0, 6) / 6),
    lambda g, self: ops.where(self <= -3, 0, ops.where(self < 3, g * (self / 3 + 0.5), g)),
    lambda np, self: self * np.clip(self + 3, 0, 6) / 6,
    "Return x * hardsigmoid(x).\n\nDerivative: 0 at -3 and 1 at 3.",
    inplace=True,
    kinks=[kink([-3.0, 3.0], to=[0.0, 1.0])],
)
activation(
    "leaky_relu",
    wide(lambda self, slope: ops.where(self > 0, self, self * slope)),
    lambda g, self, negative_slope: ops.depending(ops.where(self > 0, g, g * negative_slope), self),
    lambda np, self, negative_slope=0.01: np.where(self > 0, self, self * negative_slope),
    "Return x, or negative_slope * x of elements up to 0.\n\nDerivative: negative_slope at 0.",
    parameters=(("negative_slope", 0.01),),
    others=((-0.5,), (2,)),
    inplace=True,
    inplace_function=True,
    kinks=[kink([0.0], 0.1, to=[0.1])],
)


def _has_zero(self):
    return (self == 0).any()


def _within(self, lambd):
    look_at(lambd)
    return (self >= -lambd) & (self <= lambd)


activation(
    "hardshrink",
    lambda self, lambd: ops.where(_within(self, lambd), 0, self),
    lambda g, self, lambd: ops.depending(ops.where(_within(self, lambd), 0, g), self),
    lambda np, self, lambd=0.5: np.where((self >= -lambd) & (self <= lambd), 0, self),
    "Return x, or 0 of elements in [-lambd, lambd].",
    parameters=(("lambd", 0.5),),
    others=((1,), (0,), (-1.0,)),
    namespace=BOTH,
    method=True,
    out=True,
    out_dtype="pointwise",
    kinks=[
        kink([-0.5, 0.5], to=[0.0, 0.0], outside=JUMP),
        kink([0.0], 0.0, to=[0.0], outside=AS_IF_FLAT),
    ],
    nonderivative_at=_has_zero,
)


def _softshrink_lambda(self, lambd):
    import pullback

    if not self.dtype.is_floating_point:
        raise unsupported("softshrink", self.dtype)
    limit = pullback.finfo(self.dtype).max
    if not 0 <= number("softshrink", "lambd", lambd, self) <= limit:
        raise RuntimeError(
            f"softshrink(): lambda must be in range [0, {limit:g}] for input dtype "
            f"{self.dtype.name}, but found {lambd:g}"
        )
    return (lambd,)


activation(
    "softshrink",
    wide(lambda self, lambd: ops.where(_within(self, lambd), 0, self - ops.sign(self) * lambd)),
    lambda g, self, lambd: ops.depending(ops.where(_within(self, lambd), 0, g), self),
    lambda np, self, lambd=0.5: np.where(np.abs(self) <= lambd, 0, self - np.sign(self) * lambd),
    "Return each element moved towards 0 by lambd, and 0 of elements in [-lambd, lambd].",
    parameters=(("lambd", 0.5),),
    others=((1,), (0,)),
    check=_softshrink_lambda,
    out=True,
    out_dtype="pointwise",
    kinks=[kink([-0.5, 0.5], to=[0.0, 0.0]), kink([0.0], 0.0, to=[0.0], outside=AS_IF_FLAT)],
    nonderivative_at=_has_zero,
)


# -- bounded and thresholded, of integers too ------------------------------------------------------


def _limits(name, self, low, high):
    """Return bounds as numbers of the tensor's dtype."""
    low, high = number(name, "min_val", low, self), number(name, "max_val", high, self)
    if self.dtype.name == "bool":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if self.is_complex():
        raise NotImplementedError("clamp is not supported for complex types")
    if low > high:
        raise ValueError("min_val cannot be greater than max_val")
    if self.dtype.is_floating_point:
        return low, high
    if self.dtype.kind == "u" and (low < 0 or high < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return int(low), int(high)


_SIGNED_OR_FLOATING = (INTEGRAL | FLOATING) & ~UNSIGNED
_LIMITED = activation_samples((0.0, 6.0), low=-2, high=8)

op(
    "_hardtanh(self: Tensor, low: Scalar, high: Scalar) -> Tensor",
    jvp="pointwise",
    forward=lambda self, low, high: ops.minimum(ops.maximum(self, low), high),
    vjp={
        "self": lambda g, self, low, high: ops.depending(
            ops.where((self <= low) | (self >= high), 0, g), self
        )
    },
    node="HardtanhBackward0",
    dtypes=INTEGRAL | FLOATING,
    inplace=True,
    batch="unary",
    method=False,
    function=False,
    doc="Return hardtanh of checked arguments.",
    samples=lambda: [
        *(made._replace(args=(made.args[0], 0, 6)) for made in _LIMITED),
        case(T(4, 4, low=-3, high=3), -1, 2, only=_SIGNED_OR_FLOATING),
    ],
    ref=lambda np, self, low, high: np.clip(self, low, high),
)


def _hardtanh(self, min_val, max_val, inplace):
    limits = _limits("hardtanh", self, min_val, max_val)
    return (ops._hardtanh_ if inplace else ops._hardtanh)(self, *limits)


op(
    "hardtanh(self: Tensor, min_val: Scalar = -1.0, max_val: Scalar = 1.0, inplace: bool = False) "
    "-> Tensor",
    composite=_hardtanh,
    dtypes=_SIGNED_OR_FLOATING,
    method=False,
    namespace=F,
    doc="Return each element moved into [min_val, max_val].\n\nDerivative: 0 at the bounds.",
    kinks=[kink([-1.0, 1.0], to=[0.0, 0.0])],
    samples=lambda: [
        *activation_samples((), (-2, 1), low=-3, high=3),
        case(T(3), max_val=0.5, only=FLOATING),
    ],
    ref=lambda np, self, min_val=-1, max_val=1: np.clip(self, min_val, max_val),
)
op(
    "hardtanh_(self: Tensor, min_val: Scalar = -1.0, max_val: Scalar = 1.0) -> Tensor",
    composite=lambda self, min_val, max_val: _hardtanh(self, min_val, max_val, True),
    dtypes=_SIGNED_OR_FLOATING,
    method=False,
    namespace=F,
    doc="Replace each element: see `hardtanh`; returns self.",
    samples=lambda: activation_samples((), (-2, 1), low=-3, high=3),
    ref=lambda np, self, min_val=-1, max_val=1: np.clip(self, min_val, max_val),
)
op(
    "relu6(self: Tensor, inplace: bool = False) -> Tensor",
    dtypes=INTEGRAL | FLOATING,
    method=False,
    composite=lambda self, inplace: _hardtanh(self, 0, 6, inplace),
    namespace=F,
    doc="Return each element moved into [0, 6].\n\nDerivative: 0 at the bounds.",
    kinks=[kink([0.0, 6.0], to=[0.0, 0.0])],
    samples=lambda: activation_samples((), low=-2, high=8),
    ref=lambda np, self: np.clip(self, 0, 6),
)


# -- with a value below a threshold ----------------------------------------------------------------


def _threshold_forward(self, threshold, value):
    return ops.masked_fill(self, self <= threshold, value)


op(
    "_threshold(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor",
    jvp="pointwise",
    forward=_threshold_forward,
    dtypes=INTEGRAL | FLOATING,
    node="ThresholdBackward0",
    inplace=True,
    vjp={
        "self": lambda g, self, threshold: ops.depending(ops.where(self <= threshold, 0, g), self)
    },
    batch="unary",
    method=False,
    function=False,
    doc="Return threshold of checked arguments.",
    samples=lambda: activation_samples((1, 7), (0, 2)),
    ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self),
)


def _threshold(self, threshold, value, inplace=False):
    require("threshold", INTEGRAL | FLOATING, self)
    bounds = [
        number("threshold", name, given, self)
        for name, given in (("threshold", threshold), ("value", value))
    ]
    if not self.dtype.is_floating_point:
        bounds = [int(bound) for bound in bounds]
    return (ops._threshold_ if inplace else ops._threshold)(self, *bounds)


_THRESHOLDS = activation_samples((1, 7), (2, 0))

op(
    "threshold(self: Tensor, threshold: Scalar, value: Scalar, inplace: bool = False) -> Tensor",
    composite=_threshold,
    dtypes=INTEGRAL | FLOATING,
    method=False,
    namespace=BOTH,
    out=True,
    doc="Return x, or value of elements up to the threshold.",
    kinks=[kink([0.5], 0.5, 2.0, to=[0.0], outside=JUMP)],
    samples=_THRESHOLDS,
    ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self),
)
op(
    "threshold_(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor",
    method=False,
    composite=lambda self, threshold, value: _threshold(self, threshold, value, True),
    dtypes=INTEGRAL | FLOATING,
    namespace=BOTH,
    samples=_THRESHOLDS,
    doc="Replace elements up to the threshold by value; returns self.",
    ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self),
)
