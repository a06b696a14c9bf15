"""Losses of differences: absolute, squared, and between the two."""

from pullback.ops.nn.losses.util import (
    OLD,
    broadcast,
    checked_reduction,
    promoted_floats,
    reduced,
    share,
    warn_of_sizes,
)
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, NUMBERS, op, ops

references = references_of("losses")

PAIRS = [
    case(T(2, 3), T(2, 3)),
    case(T(2, 3), T(2, 3), reduction="sum"),
    case(T(2, 3), T(2, 3), reduction="none"),
    case(T(), T()),
    case(T(0, 3), T(0, 3), reduction="sum"),
    case(T(0), T(0), reduction="none"),
]


def reduction_samples(*args, **kwargs):
    return [
        case(*args, "none", **kwargs),
        case(*args, "mean", **kwargs),
        case(*args, "sum", **kwargs),
    ]


def _weighted(loss, weight, self, reduction):
    """Return the weighted loss; its mean is over the weights."""
    if weight.shape != self.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


# -- the absolute and the squared difference -------------------------------------------------------


def _float32_unless_weighted(*arguments):
    """Return the policy of autocast, as in torch: the weight is last."""
    return "float32" if arguments[-1] is None else None


def _l1_loss(self, target, size_average, reduce, reduction, weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    self, target = broadcast(self, target)
    loss = ops.abs(self - target)
    if weight is not None:
        return _weighted(loss, weight, self, reduction)
    return reduced(loss, reduction)


op(
    f"l1_loss(self: Tensor, target: Tensor, {OLD}, weight: Tensor? = None) -> Tensor",
    autocast=_float32_unless_weighted,
    composite=_l1_loss,
    method=False,
    namespace="functional",
    dtypes=NUMBERS,
    doc="Return the absolute difference, reduced.",
    ref=references.l1_loss,
    kinks=[kink([1.0], [1.0], to=([0.0], [0.0]))],
    samples=lambda: [
        case(T(2, 3), T(2, 3), reduction="none"),
        case(T(2, 3), T(2, 3), reduction="sum"),
        case(T(2, 3), T(2, 3), only=FLOAT_COMPLEX),
        case(T(), T(), only=FLOAT_COMPLEX),
        case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), only=FLOAT_COMPLEX),
        case(T(0, 3), T(0, 3), reduction="sum"),
    ],
)


def _mse_loss_of(self, target, reduction):
    difference = self - target
    return reduced(difference.mul_(difference), reduction)


op(
    "_mse_loss(self: Tensor, target: Tensor, reduction: str) -> Tensor",
    method=False,
    function=False,
    forward=_mse_loss_of,
    node="MseLossBackward0",
    dtypes=FLOATING,
    vjp={
        "self": lambda g, self, target, reduction: share(g, self, reduction) * 2 * (self - target),
        "target": lambda g, self, target, reduction: (
            share(g, self, reduction) * 2 * (target - self)
        ),
    },
    doc="Return mse_loss of two tensors of one shape and dtype.",
    ref=references.mse_loss,
    samples=lambda: reduction_samples(T(2, 3), T(2, 3)),
)


def _mse_loss(self, target, size_average, reduce, reduction, weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    self, target = promoted_floats("mse_cpu", *broadcast(self, target))
    if weight is not None:
        return _weighted((self - target) ** 2, weight, self, reduction)
    return ops._mse_loss(self, target, reduction)


op(
    f"mse_loss(self: Tensor, target: Tensor, {OLD}, weight: Tensor? = None) -> Tensor",
    autocast=_float32_unless_weighted,
    composite=_mse_loss,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return the squared difference, reduced.\n\nThe mean with weights is a weighted one.",
    ref=references.mse_loss,
    samples=lambda: [
        *PAIRS,
        case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2)),
        case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), reduction="none"),
    ],
)


# -- squared near 0, linear further out ------------------------------------------------------------


def _smooth_l1_of(self, target, reduction, beta):
    size = ops.abs(self - target)
    return reduced(ops.where(size < beta, size * size * 0.5 / beta, size - 0.5 * beta), reduction)


def _smooth_l1_backward(g, self, target, reduction, beta):
    difference = self - target
    derivative = ops.where(
        difference <= -beta, -1.0, ops.where(difference >= beta, 1.0, difference / beta)
    )
    return share(g, self, reduction) * derivative


op(
    "_smooth_l1_loss(self: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor",
    method=False,
    function=False,
    forward=_smooth_l1_of,
    node="SmoothL1LossBackward0",
    vjp={
        "self": lambda g, self, target, reduction, beta: _smooth_l1_backward(
            g, self, target, reduction, beta
        ),
        "target": lambda g, self, target, reduction, beta: (
            -_smooth_l1_backward(g, self, target, reduction, beta)
        ),
    },
    doc="Return smooth_l1_loss of two tensors of one shape and dtype.",
    dtypes=FLOATING,
    ref=references.smooth_l1_loss,
    samples=lambda: [
        case(T(2, 3), T(2, 3), how, beta)
        for how, beta in (("none", 1.0), ("mean", 0.5), ("sum", 4.0))
    ],
)


def _smooth_l1_loss(self, target, size_average, reduce, reduction, beta):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    self, target = broadcast(self, target)
    if beta == 0:
        return reduced(ops.abs(self - target), reduction)
    self, target = promoted_floats("smooth_l1_cpu", self, target)
    return ops._smooth_l1_loss(self, target, reduction, beta)


op(
    f"smooth_l1_loss(self: Tensor, target: Tensor, {OLD}, beta: float = 1.0) -> Tensor",
    autocast="float32",
    composite=_smooth_l1_loss,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return the absolute difference, reduced; below beta, the squared one / (2 beta).\n\n"
    "Raises: RuntimeError for a negative beta.",
    ref=references.smooth_l1_loss,
    kinks=[kink([1.0], [1.0], beta=0.0, to=([0.0], [0.0])), kink([1.0], [0.0], to=([1.0], [-1.0]))],
    samples=lambda: [*PAIRS, case(T(2, 3), T(2, 3), beta=0.5), case(T(2, 3), T(2, 3), beta=0)],
)


def _huber_of(self, target, reduction, delta):
    size = ops.abs(self - target)
    return reduced(
        ops.where(size <= delta, size * size * 0.5, (size - 0.5 * delta) * delta), reduction
    )


def _huber_backward(g, self, target, reduction, delta):
    difference = self - target
    derivative = ops.where(
        difference <= -delta, -delta, ops.where(difference >= delta, delta, difference)
    )
    return share(g, self, reduction) * derivative


op(
    "_huber_loss(self: Tensor, target: Tensor, reduction: str, delta: float) -> Tensor",
    method=False,
    function=False,
    forward=_huber_of,
    node="HuberLossBackward0",
    vjp={
        "self": lambda g, self, target, reduction, delta: _huber_backward(
            g, self, target, reduction, delta
        ),
        "target": lambda g, self, target, reduction, delta: (
            -_huber_backward(g, self, target, reduction, delta)
        ),
    },
    doc="Return huber_loss of two tensors of one shape and dtype.",
    dtypes=FLOATING,
    ref=references.huber_loss,
    samples=lambda: [
        case(T(2, 3), T(2, 3), how, delta)
        for how, delta in (("none", 1.0), ("mean", 0.5), ("sum", 4.0))
    ],
)


def _huber_loss(self, target, reduction, delta, weight):
    reduction = checked_reduction(None, None, reduction)
    warn_of_sizes(self, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    dtype = self.dtype
    self, target = promoted_floats("huber_cpu", *broadcast(self, target))
    if weight is not None:
        if weight.shape != self.shape:
            raise ValueError("Weights and input must have the same size.")
        return reduced(ops._huber_loss(self, target, "none", delta) * weight, reduction)
    return ops._huber_loss(self, target, reduction, delta).to(dtype)


op(
    "huber_loss(self: Tensor, target: Tensor, reduction: str = 'mean', delta: float = 1.0, "
    "weight: Tensor? = None) -> Tensor",
    autocast="float32",
    composite=_huber_loss,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.huber_loss,
    doc="Return half the squared difference, reduced; above delta, a linear continuation.\n\n"
    "Raises: RuntimeError unless delta is positive.",
    kinks=[kink([1.0], [0.0], to=([1.0], [-1.0]))],
    samples=lambda: [
        *PAIRS,
        case(T(2, 3), T(2, 3), delta=0.5),
        case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2)),
        case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), reduction="sum"),
    ],
)
