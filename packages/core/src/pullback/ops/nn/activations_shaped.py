"""Activation functions with dims or random numbers: glu, prelu, rrelu, softmin."""

import warnings

from pullback.ops.rules.dims import implicit_dim, wrap_dim
from pullback.ops.rules.dtypes import require, unsupported
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import T, case, constant
from pullback.ops.table.schema import FLOATING, op, ops

F, BOTH = "functional", ("", "functional")


# -- glu -------------------------------------------------------------------------------------------


def _halves(self, dim):
    size = self.shape[dim] // 2
    return ops.narrow(self, dim, 0, size), ops.narrow(self, dim, size, size)


def _glu(self, dim):
    if not self.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = wrap_dim(dim, self.ndim, "glu")
    require("glu", FLOATING, self)
    if self.shape[dim] % 2:
        raise RuntimeError(
            f"glu(): Halving dimension must be even, but dimension {dim} is size {self.shape[dim]}"
        )
    first, second = _halves(self, dim)
    return first * ops.sigmoid(second)


def _glu_vjp(g, self, dim):
    first, second = _halves(self, dim % self.ndim)
    share = ops.sigmoid(second)
    return ops.cat([g * share, g * (first * (share * (1 - share)))], dim)


def _glu_reference(np, self, dim=-1):
    first, second = np.split(self, 2, dim)
    return first / (1 + np.exp(-second))


op(
    "glu(self: Tensor, dim: int = -1) -> Tensor",
    forward=_glu,
    vjp={"self": _glu_vjp},
    dtypes=FLOATING,
    batch="along",
    method=False,
    namespace=F,
    ref=_glu_reference,
    doc="Return a * sigmoid(b) of the two halves a and b along a dim.\n\n"
    "Source: Dauphin et al., Language Modeling with Gated Convolutional Networks (2017).",
    samples=lambda: [
        case(T(2, 4)),
        case(T(4, 3), 0),
        case(T(2, 6, 3), dim=-2),
        case(T(2)),
        case(T(0)),
        case(T(2, 0)),
        case(T(0, 2), 1),
    ],
)


# -- prelu -----------------------------------------------------------------------------------------

op(
    "_prelu_kernel(self: Tensor, weight: Tensor) -> Tensor",
    method=False,
    function=False,
    forward=lambda self, weight: ops.where(self > 0, self, self * weight),
    dtypes=FLOATING,
    vjp={
        "self": lambda g, self, weight: ops.depending(ops.where(self > 0, g, g * weight), self),
        "weight": lambda g, self: ops.where(self > 0, 0, g * self),
    },
    doc="Return self, or weight * self of elements up to 0.",
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(1)),
        case(T(2, 3, 2), T(3, 1)),
        case(T(), T()),
        case(T(0, 3), T(3)),
    ],
    ref=lambda np, self, weight: np.where(self > 0, self, self * weight),
)


def _prelu(self, weight):
    require("prelu", FLOATING, self)
    if self.dtype != weight.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {self.dtype.name} and {weight.dtype.name}"
        )
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.numel() == 1:
        return ops._prelu_kernel(self, ops.reshape(weight, (1,) * self.ndim))
    if not self.ndim:
        raise RuntimeError("prelu: Not allow zero-dim input tensor.")
    channels = self.shape[1] if self.ndim > 1 else 1
    if weight.numel() != channels:
        raise RuntimeError(
            f"prelu: Mismatch of parameter numbers and input channel size. Found "
            f"parameter numbers = {weight.numel()} and channel size = {channels}."
        )
    return ops._prelu_kernel(self, ops.reshape(weight, (-1,) + (1,) * (self.ndim - 2)))


def _prelu_reference(np, self, weight):
    weight = weight.reshape((-1,) + (1,) * (self.ndim - 2) if weight.size > 1 else ())
    return np.where(self > 0, self, self * weight)


op(
    "prelu(self: Tensor, weight: Tensor) -> Tensor",
    autocast="lower",
    composite=_prelu,
    dtypes=FLOATING,
    namespace=BOTH,
    ref=_prelu_reference,
    doc="Return x, or weight * x of elements up to 0; one weight, or one for each channel (dim 1).",
    kinks=[
        kink(
            [0.0],
            [0.25],
            to=([0.25], [0.0]),
            second=([1.0], [1.0]),
            differs="torch's second derivative is 0, although its slope is the weight",
        )
    ],
    samples=lambda: [
        case(T(2, 3), T(1)),
        case(T(2, 3), T()),
        case(T(2, 3), T(3)),
        case(T(2, 3, 2), T(3)),
        case(T(3), T(1)),
        case(T(0, 3), T(3)),
        case(T(), T(1), skip={"devices": "the weight is one number"}),
    ],
)


# -- rrelu -----------------------------------------------------------------------------------------

op(
    "rrelu_with_noise(self: Tensor, noise: Tensor) -> Tensor",
    batch="pointwise",
    method=False,
    function=False,
    forward=lambda self, noise: self * noise,
    dtypes=FLOATING,
    inplace=True,
    node="RreluWithNoiseBackward0",
    vjp={"self": lambda g, noise: g * noise},
    doc="Return each element times the slope drawn for it.",
    samples=lambda: [case(T(*shape), constant(*shape)) for shape in ((2, 3), (), (0, 3))],
    ref=lambda np, self, noise: self * noise,
)


def _rrelu(self, lower, upper, training, inplace=False):
    require("rrelu", FLOATING, self)
    for name, bound in (("lower", lower), ("upper", upper)):
        if not isinstance(bound, (int, float)):
            raise TypeError(
                f"rrelu(): argument '{name}' must be Number, not {type(bound).__name__}"
            )
    if not lower <= upper:
        raise RuntimeError("rrelu(): Lower bound should be less than or equal to the upper bound")
    if training:
        slope = ops.uniform_(ops.empty_like(self.detach()), lower, upper)
        noise = ops.where(self.detach() <= 0, slope, 1)
    else:
        slope = ops.full((), (lower + upper) / 2, dtype=self.dtype, device=self.device)
        noise = ops.where(self.detach() > 0, 1, slope)
    return (ops.rrelu_with_noise_ if inplace else ops.rrelu_with_noise)(self, noise)


_SLOPES = "lower: float = 0.125, upper: float = 0.3333333333333333, training: bool = False"
_RANDOM_SLOPES = [
    case(T(2, 3)),
    case(T(), 0.25, 0.5),
    case(T(0, 3)),
    case(T(3), 0.5, 0.5, True),
    case(T(3, 4), 0.1, 0.1),
]


def _rrelu_reference(np, self, lower=1 / 8, upper=1 / 3, training=False):
    return np.where(self > 0, self, self * (lower + upper) / 2)


op(
    f"rrelu(self: Tensor, {_SLOPES}, inplace: bool = False) -> Tensor",
    composite=_rrelu,
    dtypes=FLOATING,
    method=False,
    namespace=BOTH,
    ref=_rrelu_reference,
    kinks=[kink([0.0], 0.25, 0.25, to=[0.25])],
    samples=_RANDOM_SLOPES,
    doc="Return x, or x times a slope of elements up to 0.\n\nThe slope is drawn from [lower, "
    "upper) for each element in training, else their mean.",
)
op(
    f"rrelu_(self: Tensor, {_SLOPES}) -> Tensor",
    dtypes=FLOATING,
    method=False,
    namespace=BOTH,
    composite=lambda self, lower, upper, training: _rrelu(self, lower, upper, training, True),
    doc="Replace each element: see `rrelu`; returns self.",
    samples=_RANDOM_SLOPES,
    ref=_rrelu_reference,
)


# -- softmin, gumbel_softmax -----------------------------------------------------------------------


def _softmin(self, dim, _stacklevel, dtype):
    if dim is None:
        dim = implicit_dim("softmin", self, _stacklevel)
    return ops.softmax(-self, dim, dtype=dtype)


def _softmin_reference(np, self, dim, dtype=None):
    from scipy.special import softmax

    return softmax(-self, dim) if self.ndim else np.ones_like(self)


op(
    "softmin(self: Tensor, dim: int? = None, _stacklevel: int = 3, dtype: dtype? = None) -> Tensor",
    composite=_softmin,
    dtypes=FLOATING,
    method=False,
    namespace=F,
    ref=_softmin_reference,
    doc="Return softmax(-x) along a dim.",
    samples=lambda: [case(T(2, 3), 0), case(T(2, 3), -1), case(T(2, 3, 2), dim=1), case(T(), 0)],
)


def _gumbel_softmax(self, tau, hard, eps, dim):
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    if not self.dtype.is_floating_point:
        raise unsupported("gumbel_softmax", self.dtype)
    dim = wrap_dim(dim, self.ndim, "gumbel_softmax")
    # Minus the logarithm of an exponential variable is one of Gumbel's distribution: Jang et al.,
    # Categorical Reparameterization with Gumbel-Softmax (2017)..
    drawn = ops.rand_like(self.detach())
    exponential = ops.clamp_min(-ops.log1p(-drawn), 2.0**-24)
    soft = ops.softmax((self - ops.log(exponential)) / tau, dim)
    if not hard:
        return soft
    largest = ops.argmax(soft.detach(), dim, True) if soft.numel() else None
    if largest is None:
        return soft
    picked = ops.scatter(ops.zeros_like(soft.detach()), dim, largest, 1.0)
    return picked - soft.detach() + soft


op(
    "gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, "
    "dim: int = -1) -> Tensor",
    composite=_gumbel_softmax,
    dtypes=FLOATING,
    method=False,
    namespace=F,
    doc="Return a random sample of the categories along a dim: soft, or hard with the soft one's "
    "derivative.\n\nSource: Jang et al., Categorical Reparameterization with Gumbel-Softmax "
    "(2017).",
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), 0.5, dim=0),
        case(T()),
        case(T(3), 2),
        case(
            T(2, 3),
            hard=True,
            skip={"grad": "it is a step with a slope", "gradgrad": "it is a step with a slope"},
        ),
    ],
)
