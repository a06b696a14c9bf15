"""Losses of probabilities or scores of two classes."""

from pullback.ops.nn.losses.regression import reduction_samples
from pullback.ops.nn.losses.util import (
    OLD,
    broadcast,
    check_no_grad,
    checked_reduction,
    numbered_reduction,
    promoted_floats,
    reduced,
    share,
)
from pullback.ops.rules.dtypes import check_dtype, check_takes_floats, type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import POLE, Fixed, kink
from pullback.ops.table.samples import KINKS, T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("losses")


_LOWEST = -100  # logarithms count as at least this


def probability(*shape):
    return T(*shape, low=0.1, high=0.9)


def _logs(self):
    """Return log(p) and log(1 - p), kept from minus infinity."""
    return (ops.clamp(ops.log(self), min=_LOWEST), ops.clamp(ops.log1p(-self), min=_LOWEST))


def _with(weight, loss):
    return loss if weight is None else loss * weight


def _bce_of(self, target, weight, reduction):
    yes, no = _logs(self)
    return reduced(_with(weight, (target - 1) * no - target * yes), reduction)


def _bce_backward(g, self, target, weight, reduction):
    g = _with(weight, share(g, self, reduction))
    return ops.binary_cross_entropy_backward(g, self, target)


def _bce_spread(self):
    """The denominator of the derivative, kept from 0."""
    return ops.clamp((1 - self) * self, min=1e-12)


def _bce_curve(g, grad, self, target):
    """The second derivative, kept finite at 0 and 1 as torch does it."""
    spread = (self + 1e-12) * (1 - self + 1e-12)
    return g * grad * ((self * self - 2 * self * target + target) / (spread * spread))


op(
    "binary_cross_entropy_backward(grad: Tensor, self: Tensor, target: Tensor) -> Tensor",
    forward=lambda grad, self, target: grad * ((self - target) / _bce_spread(self)),
    vjp={
        "grad": lambda g, self, target: ops.binary_cross_entropy_backward(g, self, target),
        "self": _bce_curve,
        "target": lambda g, grad, self: -g * grad / _bce_spread(self),
    },
    method=False,
    function=False,
    dtypes=FLOATING,
    doc="Return grad times the derivative of binary_cross_entropy by self.",
    ref=lambda np, grad, self, target: (
        grad * (self - target) / np.maximum((1 - self) * self, 1e-12)
    ),
    samples=lambda: [case(T(2, 3), probability(2, 3), probability(2, 3))],
)


def _bce_target_backward(g, self, weight, reduction):
    # torch does not limit the logarithms here
    return _with(weight, share(g, self, reduction) * (ops.log1p(-self) - ops.log(self)))


_WEIGHT = constant(2, 3, low=0.5, high=2)
op(
    "_binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor?, reduction: str) "
    "-> Tensor",
    method=False,
    function=False,
    forward=_bce_of,
    node="BinaryCrossEntropyBackward0",
    vjp={
        "self": lambda g, self, target, weight, reduction: _bce_backward(
            g, self, target, weight, reduction
        ),
        "target": lambda g, self, weight, reduction: _bce_target_backward(
            g, self, weight, reduction
        ),
    },
    doc="Return binary_cross_entropy of checked arguments.",
    dtypes=FLOATING,
    ref=references.binary_cross_entropy,
    samples=lambda: [
        *reduction_samples(probability(2, 3), probability(2, 3), None),
        *reduction_samples(probability(2, 3), probability(2, 3), _WEIGHT),
    ],
)


def _binary_cross_entropy(self, target, weight, size_average, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    if target.shape != self.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input "
            f"size ({self.shape}) is deprecated. Please ensure they have the same "
            f"size."
        )
    check_dtype("binary_cross_entropy", self, "f")
    for other in (target, weight):
        if other is not None and other.dtype != self.dtype:
            raise RuntimeError(
                f"Found dtype {type_name(other.dtype)} but expected {type_name(self.dtype)}"
            )
    check_no_grad("binary_cross_entropy", "weight", weight)
    if weight is not None:
        weight = broadcast(weight, target)[0]
    for name, values in (("input", self), ("target", target)):
        error = RuntimeError(f"all elements of {name} should be between 0 and 1")
        check_all((values >= 0) & (values <= 1), error)
    return ops._binary_cross_entropy(self, target, weight, reduction)


_UNSAFE = (
    "error: pullback.nn.functional.binary_cross_entropy and pullback.nn.BCELoss are unsafe to "
    "autocast.\nMany models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using "
    "pullback.nn.functional.binary_cross_entropy_with_logits\nor pullback.nn.BCEWithLogitsLoss.  "
    "binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast."
)
op(
    f"binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor? = None, {OLD}) -> Tensor",
    autocast=("float32", _UNSAFE),
    composite=_binary_cross_entropy,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return -(target * log(self) + (1 - target) * log(1 - self)), reduced; logarithms count as "
    "at least -100.\n\nRaises: ValueError for different shapes, RuntimeError for elements "
    "outside [0, 1].",
    ref=references.binary_cross_entropy,
    kinks=[
        kink([0.0], Fixed([0.0]), to=[0.0], outside=POLE),
        kink([1.0], Fixed([1.0]), to=[0.0], outside=POLE),
    ],
    samples=lambda: [
        case(probability(2, 3), probability(2, 3)),
        case(probability(), probability()),
        case(probability(2, 3), probability(2, 3), _WEIGHT, reduction="sum"),
        case(probability(2, 3), probability(2, 3), constant(3, low=0.5, high=2)),
        case(probability(0, 3), probability(0, 3), reduction="sum"),
        case(fixed((0, 1, 0, 1)), fixed((1, 0, 0, 1)), reduction="none", skip=KINKS),
    ],
)


def _logits_of(self, target, weight, pos_weight, reduction):
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * self - factor * ops.logsigmoid(self)
    return reduced(_with(weight, loss), reduction)


def _logits_backward(g, self, target, weight, pos_weight, reduction):
    if pos_weight is None:
        derivative = ops.sigmoid(self) - target
    else:
        yes = pos_weight * target
        derivative = (yes + 1 - target) * ops.sigmoid(self) - yes
    return _with(weight, share(g, self, reduction) * derivative)


def _logits_target_backward(g, self, weight, pos_weight, reduction):
    if pos_weight is None:
        derivative = -self
    else:
        derivative = ops.logsigmoid(-self) - pos_weight * ops.logsigmoid(self)
    return _with(weight, share(g, self, reduction) * derivative)


op(
    "_binary_cross_entropy_with_logits(self: Tensor, target: Tensor, weight: Tensor?, pos_weight: "
    "Tensor?, reduction: str) -> Tensor",
    method=False,
    function=False,
    forward=_logits_of,
    node="BinaryCrossEntropyWithLogitsBackward0",
    vjp={
        "self": lambda g, self, target, weight, pos_weight, reduction: _logits_backward(
            g, self, target, weight, pos_weight, reduction
        ),
        "target": lambda g, self, weight, pos_weight, reduction: _logits_target_backward(
            g, self, weight, pos_weight, reduction
        ),
    },
    doc="Return binary_cross_entropy_with_logits of checked arguments.",
    dtypes=FLOATING,
    ref=references.logits_loss,
    samples=lambda: [
        *reduction_samples(T(2, 3), probability(2, 3), None, None),
        *reduction_samples(T(2, 3), probability(2, 3), _WEIGHT, constant(3, low=0.5, high=2)),
    ],
)


def _with_logits(self, target, weight, pos_weight, reduction):
    """The checks of both forms."""
    check_dtype("log_sigmoid_cpu", self, "f")
    check_takes_floats(target)
    for name, value in (("weight", weight), ("pos_weight", pos_weight)):
        check_no_grad("binary_cross_entropy_with_logits", name, value)
    self, target = promoted_floats("log_sigmoid_cpu", self, target)
    return ops._binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction)


def _functional_with_logits(self, target, weight, size_average, reduce, reduction, pos_weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    if target.shape != self.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({self.shape})"
        )
    return _with_logits(self, target, weight, pos_weight, reduction)


_LOGITS = [
    case(T(2, 3), probability(2, 3)),
    case(T(), probability()),
    case(T(2, 3), probability(2, 3), _WEIGHT),
    case(T(2, 3), probability(2, 3), pos_weight=constant(3, low=0.5, high=2)),
    case(T(0, 3), probability(0, 3), reduction="sum"),
    case(fixed((0, 300, -300)), fixed((1, 0, 1)), skip=KINKS),
]
op(
    f"binary_cross_entropy_with_logits(self: Tensor, target: Tensor, weight: Tensor? = None, "
    f"{OLD}, "
    "pos_weight: Tensor? = None) -> Tensor",
    autocast="float32",
    composite=_functional_with_logits,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.with_logits,
    doc="Return binary_cross_entropy of sigmoid(self), without overflow; `pos_weight` weighs the "
    "positive part.\n\nRaises: ValueError for different shapes.",
    samples=_LOGITS,
)
op(
    "binary_cross_entropy_with_logits.top(self: Tensor, target: Tensor, weight: Tensor? = None, "
    "pos_weight: Tensor? = None, reduction: int = 0) -> Tensor",
    autocast="float32",
    method=False,
    function="binary_cross_entropy_with_logits",
    dtypes=FLOATING,
    composite=lambda self, target, weight, pos_weight, reduction: _with_logits(
        self,
        target,
        weight,
        pos_weight,
        numbered_reduction("binary_cross_entropy_with_logits", reduction),
    ),
    doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
    "(sum).",
    samples=lambda: [case(T(2, 3), probability(2, 3), reduction=n) for n in (0, 1, 2)],
    ref=lambda np, self, target, reduction: references.with_logits(
        np, self, target, reduction=("none", "mean", "sum")[reduction]
    ),
)


def _soft_margin_of(self, target, reduction):
    return reduced(ops.log1p(ops.exp(-target * self)), reduction)


def _soft_margin_backward(g, self, target, reduction):
    z = ops.exp(-target * self)
    return share(g, self, reduction) * (-target * z / (z + 1))


op(
    "_soft_margin_loss(self: Tensor, target: Tensor, reduction: str) -> Tensor",
    method=False,
    function=False,
    forward=_soft_margin_of,
    node="SoftMarginLossBackward0",
    dtypes=FLOATING,
    vjp={
        "self": lambda g, self, target, reduction: _soft_margin_backward(g, self, target, reduction)
    },
    doc="Return soft_margin_loss of checked arguments.",
    ref=references.soft_margin_loss,
    samples=lambda: reduction_samples(T(2, 3), constant(2, 3)),
)


def _soft_margin_loss(self, target, size_average, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    check_takes_floats(self)
    check_no_grad("soft_margin_loss", "target", target)
    self, target = broadcast(self, target)
    return ops._soft_margin_loss(self, target, reduction)


op(
    f"soft_margin_loss(self: Tensor, target: Tensor, {OLD}) -> Tensor",
    autocast="float32",
    composite=_soft_margin_loss,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.soft_margin_loss,
    doc="Return log(1 + exp(-target * self)), reduced; targets are 1 or -1.",
    samples=lambda: [
        case(T(2, 3), constant(2, 3)),
        case(T(2, 3), constant(2, 3), reduction="sum"),
        case(T(), constant(), reduction="none"),
        case(T(0), constant(0), reduction="sum"),
    ],
)
