"""Losses of each element by itself."""

import math
import warnings

from pullback.ops.nn.loss_util import (
    OLD,
    all_hold,
    broadcast,
    checked_reduction,
    numbered_reduction,
    promoted_floats,
    reduced,
    refuse_grad,
    share,
    warn_of_sizes,
)
from pullback.ops.rules.dims import refuse_dtype, type_name
from pullback.ops.table.samples import KINKS, T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, NUMBERS, op, ops

references = references_of("losses")

_PAIR = [case(T(2, 3), T(2, 3)), case(T(2, 3), T(2, 3), reduction="sum"),
         case(T(2, 3), T(2, 3), reduction="none"), case(T(), T()),
         case(T(0, 3), T(0, 3), reduction="sum"), case(T(0), T(0), reduction="none")]


def _reductions(*args, **kwargs):
    return [case(*args, "none", **kwargs), case(*args, "mean", **kwargs),
            case(*args, "sum", **kwargs)]


def _weighted(loss, weight, self, reduction):
    """Return the weighted loss; its mean is over the weights."""
    if weight.shape != self.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


# -- the absolute and the squared difference -------------------------------------------------------

def _l1_loss(self, target, size_average, reduce, reduction, weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    self, target = broadcast(self, target)
    loss = ops.abs(self - target)
    if weight is not None:
        return _weighted(loss, weight, self, reduction)
    return reduced(loss, reduction)


op(f"l1_loss(self: Tensor, target: Tensor, {OLD}, weight: Tensor? = None) -> Tensor",
   composite=_l1_loss, method=False, namespace="functional", dtypes=NUMBERS,
   doc="Return the absolute difference, reduced.", ref=references.l1_loss,
   samples=[case(T(2, 3), T(2, 3), reduction="none"), case(T(2, 3), T(2, 3), reduction="sum"),
            case(T(2, 3), T(2, 3), only=FLOAT_COMPLEX), case(T(), T(), only=FLOAT_COMPLEX),
            case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), only=FLOAT_COMPLEX),
            case(T(0, 3), T(0, 3), reduction="sum")])


def _mse_loss_of(self, target, reduction):
    difference = self - target
    return reduced(difference.mul_(difference), reduction)


op("mse_loss_of(self: Tensor, target: Tensor, reduction: str) -> Tensor", method=False,
   function=False, forward=_mse_loss_of, node="MseLossBackward0", dtypes=FLOATING,
   vjp={"self": lambda g, self, target, reduction: share(g, self, reduction) * 2 * (self - target),
        "target": lambda g, self, target, reduction: share(g, self, reduction) * 2 * (
            target - self)},
   doc="Return mse_loss of two tensors of one shape and dtype.", ref=references.mse_loss,
   samples=_reductions(T(2, 3), T(2, 3)))


def _mse_loss(self, target, size_average, reduce, reduction, weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    self, target = promoted_floats("mse_cpu", *broadcast(self, target))
    if weight is not None:
        return _weighted((self - target) ** 2, weight, self, reduction)
    return ops.mse_loss_of(self, target, reduction)


op(f"mse_loss(self: Tensor, target: Tensor, {OLD}, weight: Tensor? = None) -> Tensor",
   composite=_mse_loss, method=False, namespace="functional", dtypes=FLOATING,
   doc="Return the squared difference, reduced.\n\nThe mean with weights is a weighted one.",
   ref=references.mse_loss,
   samples=[*_PAIR, case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2)),
            case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), reduction="none")])


# -- squared near 0, linear further out ------------------------------------------------------------

def _smooth_l1_of(self, target, reduction, beta):
    size = ops.abs(self - target)
    return reduced(ops.where(size < beta, size * size * 0.5 / beta, size - 0.5 * beta), reduction)


def _smooth_l1_slope(g, self, target, reduction, beta):
    difference = self - target
    slope = ops.where(difference <= -beta, -1.0,
                      ops.where(difference >= beta, 1.0, difference / beta))
    return share(g, self, reduction) * slope


op("smooth_l1_loss_of(self: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor",
   method=False, function=False, forward=_smooth_l1_of, node="SmoothL1LossBackward0",
   vjp={"self": lambda g, self, target, reduction, beta: _smooth_l1_slope(
            g, self, target, reduction, beta),
        "target": lambda g, self, target, reduction, beta: -_smooth_l1_slope(
            g, self, target, reduction, beta)},
   doc="Return smooth_l1_loss of two tensors of one shape and dtype.", dtypes=FLOATING,
   ref=references.smooth_l1_loss,
   samples=[case(T(2, 3), T(2, 3), how, beta) for how, beta in (
       ("none", 1.0), ("mean", 0.5), ("sum", 4.0))])


def _smooth_l1_loss(self, target, size_average, reduce, reduction, beta):
    reduction = checked_reduction(size_average, reduce, reduction)
    warn_of_sizes(self, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    self, target = broadcast(self, target)
    if beta == 0:
        return reduced(ops.abs(self - target), reduction)
    self, target = promoted_floats("smooth_l1_cpu", self, target)
    return ops.smooth_l1_loss_of(self, target, reduction, beta)


op(f"smooth_l1_loss(self: Tensor, target: Tensor, {OLD}, beta: float = 1.0) -> Tensor",
   composite=_smooth_l1_loss, method=False, namespace="functional", dtypes=FLOATING,
   doc="Return the absolute difference, reduced; below beta, the squared one / (2 beta).\n\n"
       "Raises: RuntimeError for a negative beta.", ref=references.smooth_l1_loss,
   samples=[*_PAIR, case(T(2, 3), T(2, 3), beta=0.5), case(T(2, 3), T(2, 3), beta=0)])


def _huber_of(self, target, reduction, delta):
    size = ops.abs(self - target)
    return reduced(ops.where(size <= delta, size * size * 0.5, (size - 0.5 * delta) * delta),
                   reduction)


def _huber_slope(g, self, target, reduction, delta):
    difference = self - target
    slope = ops.where(difference <= -delta, -delta,
                      ops.where(difference >= delta, delta, difference))
    return share(g, self, reduction) * slope


op("huber_loss_of(self: Tensor, target: Tensor, reduction: str, delta: float) -> Tensor",
   method=False, function=False, forward=_huber_of, node="HuberLossBackward0",
   vjp={"self": lambda g, self, target, reduction, delta: _huber_slope(
            g, self, target, reduction, delta),
        "target": lambda g, self, target, reduction, delta: -_huber_slope(
            g, self, target, reduction, delta)},
   doc="Return huber_loss of two tensors of one shape and dtype.", dtypes=FLOATING,
   ref=references.huber_loss,
   samples=[case(T(2, 3), T(2, 3), how, delta) for how, delta in (
       ("none", 1.0), ("mean", 0.5), ("sum", 4.0))])


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
        return reduced(ops.huber_loss_of(self, target, "none", delta) * weight, reduction)
    return ops.huber_loss_of(self, target, reduction, delta).to(dtype)


op("huber_loss(self: Tensor, target: Tensor, reduction: str = 'mean', delta: float = 1.0, "
   "weight: Tensor? = None) -> Tensor", composite=_huber_loss, method=False,
   namespace="functional", dtypes=FLOATING, ref=references.huber_loss,
   doc="Return half the squared difference, reduced; above delta, a linear continuation.\n\n"
       "Raises: RuntimeError unless delta is positive.",
   samples=[*_PAIR, case(T(2, 3), T(2, 3), delta=0.5),
            case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2)),
            case(T(2, 3), T(2, 3), weight=T(2, 3, low=0.5, high=2), reduction="sum")])


# -- probabilities ---------------------------------------------------------------------------------

_LOWEST = -100                          # logarithms count as at least this


def _probability(*shape):
    return T(*shape, low=0.1, high=0.9)


def _logs(self):
    """Return log(p) and log(1 - p), kept from minus infinity."""
    return (ops.clamp(ops.log(self), min=_LOWEST), ops.clamp(ops.log1p(-self), min=_LOWEST))


def _with(weight, loss):
    return loss if weight is None else loss * weight


def _bce_of(self, target, weight, reduction):
    yes, no = _logs(self)
    return reduced(_with(weight, (target - 1) * no - target * yes), reduction)


def _bce_slope(g, self, target, weight, reduction):
    g = _with(weight, share(g, self, reduction))
    return ops.binary_cross_entropy_backward(g, self, target)


def _bce_spread(self):
    """The denominator of the slope, kept from 0."""
    return ops.clamp((1 - self) * self, min=1e-12)


def _bce_curve(g, grad, self, target):
    """The second derivative, kept finite at 0 and 1 as torch does it."""
    spread = (self + 1e-12) * (1 - self + 1e-12)
    return g * grad * ((self * self - 2 * self * target + target) / (spread * spread))


op("binary_cross_entropy_backward(grad: Tensor, self: Tensor, target: Tensor) -> Tensor",
   forward=lambda grad, self, target: grad * ((self - target) / _bce_spread(self)),
   vjp={"grad": lambda g, self, target: ops.binary_cross_entropy_backward(g, self, target),
        "self": _bce_curve, "target": lambda g, grad, self: -g * grad / _bce_spread(self)},
   method=False, function=False, dtypes=FLOATING,
   doc="Return grad times the derivative of binary_cross_entropy by self.",
   ref=lambda np, grad, self, target: grad * (self - target) / np.maximum(
       (1 - self) * self, 1e-12),
   samples=[case(T(2, 3), _probability(2, 3), _probability(2, 3))])


def _bce_target_slope(g, self, weight, reduction):
    # torch does not limit the logarithms here
    return _with(weight, share(g, self, reduction) * (ops.log1p(-self) - ops.log(self)))


_WEIGHT = constant(2, 3, low=0.5, high=2)
op("binary_cross_entropy_of(self: Tensor, target: Tensor, weight: Tensor?, reduction: str) "
   "-> Tensor", method=False, function=False, forward=_bce_of, node="BinaryCrossEntropyBackward0",
   vjp={"self": lambda g, self, target, weight, reduction: _bce_slope(
            g, self, target, weight, reduction),
        "target": lambda g, self, weight, reduction: _bce_target_slope(
            g, self, weight, reduction)},
   doc="Return binary_cross_entropy of checked arguments.", dtypes=FLOATING,
   ref=references.binary_cross_entropy,
   samples=[*_reductions(_probability(2, 3), _probability(2, 3), None),
            *_reductions(_probability(2, 3), _probability(2, 3), _WEIGHT)])


def _binary_cross_entropy(self, target, weight, size_average, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    if target.shape != self.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input "
                         f"size ({self.shape}) is deprecated. Please ensure they have the same "
                         f"size.")
    refuse_dtype("binary_cross_entropy", self, "f")
    for other in (target, weight):
        if other is not None and other.dtype != self.dtype:
            raise RuntimeError(f"Found dtype {type_name(other.dtype)} but expected "
                               f"{type_name(self.dtype)}")
    refuse_grad("binary_cross_entropy", "weight", weight)
    if weight is not None:
        weight = broadcast(weight, target)[0]
    for name, values in (("input", self), ("target", target)):
        if not all_hold((values >= 0) & (values <= 1)):
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    return ops.binary_cross_entropy_of(self, target, weight, reduction)


op(f"binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor? = None, {OLD}) -> Tensor",
   composite=_binary_cross_entropy, method=False, namespace="functional", dtypes=FLOATING,
   doc="Return -(target * log(self) + (1 - target) * log(1 - self)), reduced; logarithms count as "
       "at least -100.\n\nRaises: ValueError for different shapes, RuntimeError for elements "
       "outside [0, 1].", ref=references.binary_cross_entropy,
   samples=[case(_probability(2, 3), _probability(2, 3)), case(_probability(), _probability()),
            case(_probability(2, 3), _probability(2, 3), _WEIGHT, reduction="sum"),
            case(_probability(2, 3), _probability(2, 3), constant(3, low=0.5, high=2)),
            case(_probability(0, 3), _probability(0, 3), reduction="sum"),
            case(fixed((0, 1, 0, 1)), fixed((1, 0, 0, 1)), reduction="none", skip=KINKS)])


def _logits_of(self, target, weight, pos_weight, reduction):
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * self - factor * ops.logsigmoid(self)
    return reduced(_with(weight, loss), reduction)


def _logits_slope(g, self, target, weight, pos_weight, reduction):
    if pos_weight is None:
        slope = ops.sigmoid(self) - target
    else:
        yes = pos_weight * target
        slope = (yes + 1 - target) * ops.sigmoid(self) - yes
    return _with(weight, share(g, self, reduction) * slope)


def _logits_target_slope(g, self, weight, pos_weight, reduction):
    if pos_weight is None:
        slope = -self
    else:
        slope = ops.logsigmoid(-self) - pos_weight * ops.logsigmoid(self)
    return _with(weight, share(g, self, reduction) * slope)


op("logits_loss_of(self: Tensor, target: Tensor, weight: Tensor?, pos_weight: Tensor?, "
   "reduction: str) -> Tensor", method=False, function=False, forward=_logits_of,
   node="BinaryCrossEntropyWithLogitsBackward0",
   vjp={"self": lambda g, self, target, weight, pos_weight, reduction: _logits_slope(
            g, self, target, weight, pos_weight, reduction),
        "target": lambda g, self, weight, pos_weight, reduction: _logits_target_slope(
            g, self, weight, pos_weight, reduction)},
   doc="Return binary_cross_entropy_with_logits of checked arguments.", dtypes=FLOATING,
   ref=references.logits_loss,
   samples=[*_reductions(T(2, 3), _probability(2, 3), None, None),
            *_reductions(T(2, 3), _probability(2, 3), _WEIGHT, constant(3, low=0.5, high=2))])


def _with_logits(self, target, weight, pos_weight, reduction):
    """The checks of both forms."""
    refuse_dtype("log_sigmoid_cpu", self, "f")
    if not target.is_floating_point():
        raise RuntimeError(f"result type Float can't be cast to the desired output type "
                           f"{type_name(target.dtype)}")
    for name, value in (("weight", weight), ("pos_weight", pos_weight)):
        refuse_grad("binary_cross_entropy_with_logits", name, value)
    self, target = promoted_floats("log_sigmoid_cpu", self, target)
    return ops.logits_loss_of(self, target, weight, pos_weight, reduction)


def _functional_with_logits(self, target, weight, size_average, reduce, reduction, pos_weight):
    reduction = checked_reduction(size_average, reduce, reduction)
    if target.shape != self.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size "
                         f"({self.shape})")
    return _with_logits(self, target, weight, pos_weight, reduction)


_LOGITS = [case(T(2, 3), _probability(2, 3)), case(T(), _probability()),
           case(T(2, 3), _probability(2, 3), _WEIGHT),
           case(T(2, 3), _probability(2, 3), pos_weight=constant(3, low=0.5, high=2)),
           case(T(0, 3), _probability(0, 3), reduction="sum"),
           case(fixed((0, 300, -300)), fixed((1, 0, 1)), skip=KINKS)]
op(f"binary_cross_entropy_with_logits(self: Tensor, target: Tensor, weight: Tensor? = None, {OLD}, "
   "pos_weight: Tensor? = None) -> Tensor", composite=_functional_with_logits, method=False,
   namespace="functional", dtypes=FLOATING, ref=references.with_logits,
   doc="Return binary_cross_entropy of sigmoid(self), without overflow; `pos_weight` weighs the "
       "positive part.\n\nRaises: ValueError for different shapes.", samples=_LOGITS)
op("plain_binary_cross_entropy_with_logits(self: Tensor, target: Tensor, weight: Tensor? = None, "
   "pos_weight: Tensor? = None, reduction: int = 0) -> Tensor", method=False,
   function="binary_cross_entropy_with_logits", dtypes=FLOATING,
   composite=lambda self, target, weight, pos_weight, reduction: _with_logits(
       self, target, weight, pos_weight,
       numbered_reduction("binary_cross_entropy_with_logits", reduction)),
   doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
       "(sum).", samples=[case(T(2, 3), _probability(2, 3), reduction=n) for n in (0, 1, 2)],
   ref=lambda np, self, target, reduction: references.with_logits(
       np, self, target, reduction=("none", "mean", "sum")[reduction]))


def _soft_margin_of(self, target, reduction):
    return reduced(ops.log1p(ops.exp(-target * self)), reduction)


def _soft_margin_slope(g, self, target, reduction):
    z = ops.exp(-target * self)
    return share(g, self, reduction) * (-target * z / (z + 1))


op("soft_margin_loss_of(self: Tensor, target: Tensor, reduction: str) -> Tensor", method=False,
   function=False, forward=_soft_margin_of, node="SoftMarginLossBackward0", dtypes=FLOATING,
   vjp={"self": lambda g, self, target, reduction: _soft_margin_slope(g, self, target, reduction)},
   doc="Return soft_margin_loss of checked arguments.", ref=references.soft_margin_loss,
   samples=_reductions(T(2, 3), constant(2, 3)))


def _soft_margin_loss(self, target, size_average, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    if not self.is_floating_point():
        raise RuntimeError(f"result type Float can't be cast to the desired output type "
                           f"{type_name(self.dtype)}")
    refuse_grad("soft_margin_loss", "target", target)
    self, target = broadcast(self, target)
    return ops.soft_margin_loss_of(self, target, reduction)


op(f"soft_margin_loss(self: Tensor, target: Tensor, {OLD}) -> Tensor", composite=_soft_margin_loss,
   method=False, namespace="functional", dtypes=FLOATING, ref=references.soft_margin_loss,
   doc="Return log(1 + exp(-target * self)), reduced; targets are 1 or -1.",
   samples=[case(T(2, 3), constant(2, 3)), case(T(2, 3), constant(2, 3), reduction="sum"),
            case(T(), constant(), reduction="none"), case(T(0), constant(0), reduction="sum")])


# -- distributions ---------------------------------------------------------------------------------

def _divergence(self, target, reduction, log_target):
    for value in (self, target):
        if not value.is_floating_point():
            kind = "Complex" if value.is_complex() else "Integral"
            raise RuntimeError(f"kl_div: {kind} inputs not supported.")
    if log_target:
        loss = ops.exp(target) * (target - self)
    else:
        loss = ops.xlogy(target, target) - target * self
    return reduced(loss, reduction)


def _kl_div(self, target, size_average, reduce, reduction, log_target):
    reduction = checked_reduction(size_average, reduce, reduction, extra=("batchmean",))
    if reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the "
                      "support size.'batchmean' divides only by the batch size, and aligns with "
                      "the KL div math definition.'mean' will be changed to behave the same as "
                      "'batchmean' in the next major release.", UserWarning, stacklevel=2)
    if reduction != "batchmean":
        return _divergence(self, target, reduction, log_target)
    loss = _divergence(self, target, "sum", log_target)
    return loss / self.shape[0] if self.ndim else loss


_DIVERGENCES = [case(T(2, 3), _probability(2, 3), reduction=how)
                for how in ("sum", "batchmean", "none")]
op(f"kl_div(self: Tensor, target: Tensor, {OLD}, log_target: bool = False) -> Tensor",
   composite=_kl_div, method=False, namespace="functional", dtypes=FLOATING, ref=references.kl_div,
   doc="Return target * (log(target) - self), reduced: the Kullback-Leibler divergence; self holds "
       "logarithms, target too with `log_target`.",
   samples=[*_DIVERGENCES, case(T(2, 3), T(2, 3), reduction="sum", log_target=True),
            case(T(2, 3), _probability(3), reduction="none"), case(T(), _probability(),
                                                                   reduction="sum"),
            case(T(3), fixed((0, 1, 0.5)), reduction="none", skip=KINKS)])
op("plain_kl_div(self: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) "
   "-> Tensor", function="kl_div", method=False, dtypes=FLOATING,
   composite=lambda self, target, reduction, log_target: _divergence(
       self, target, numbered_reduction("kl_div", reduction), log_target),
   doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
       "(sum).", samples=[case(T(2, 3), _probability(2, 3), n) for n in (0, 1, 2)],
   ref=lambda np, self, target, reduction: references.kl_div(
       np, self, target, reduction=("none", "mean", "sum")[reduction]))


def _gaussian_nll_loss(self, target, var, full, eps, reduction):
    if not hasattr(var, "shape"):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = ops.full_like(self.detach(), var)
    if var.shape != self.shape:
        if self.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (var.ndim == self.ndim and self.shape[:-1] == var.shape[:-1]
                  and var.shape[-1] == 1):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if not var.is_floating_point():
        raise RuntimeError(f"result type Float can't be cast to the desired output type "
                           f"{type_name(var.dtype)}")
    if not all_hold(var >= 0):
        raise ValueError("var has negative entry/entries")
    var = ops.at_least(var, eps)
    loss = 0.5 * (ops.log(var) + (self - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


op("gaussian_nll_loss(self: Tensor, target: Tensor, var: Operand, full: bool = False, "
   "eps: float = 1e-06, reduction: str = 'mean') -> Tensor", composite=_gaussian_nll_loss,
   method=False, namespace="functional", dtypes=FLOATING, ref=references.gaussian_nll_loss,
   doc="Return -log of a normal density with mean self and variance `var`, which counts as at "
       "least eps, without its constant unless `full`.\n\nRaises: ValueError for negative "
       "variances and wrong shapes.",
   samples=[case(T(2, 3), T(2, 3), T(2, 3, low=0.5, high=2)),
            case(T(2, 3), T(2, 3), T(2, low=0.5, high=2), full=True),
            case(T(2, 3), T(2, 3), T(2, 1, low=0.5, high=2), reduction="sum"),
            case(T(2, 3), T(2, 3), 1.5, reduction="none"),
            case(T(0, 3), T(0, 3), T(0, 3, low=0.5, high=2), reduction="none")])


def _poisson(self, target, log_input, full, eps, reduction):
    if log_input:
        loss = ops.exp(self) - target * self
    else:
        loss = self - target * ops.log(self + eps)
    if full:                            # Stirling's approximation of log(target!)
        large = ops.masked_fill(target, target <= 1, 1)     # log has no slope at 0
        stirling = large * ops.log(large) - large + 0.5 * ops.log(2 * math.pi * large)
        loss = loss + ops.masked_fill(stirling, target <= 1, 0)
    return reduced(loss, reduction)


def _poisson_nll_loss(self, target, log_input, full, size_average, eps, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    return _poisson(self, target, log_input, full, eps, reduction)


op("poisson_nll_loss(self: Tensor, target: Tensor, log_input: bool = True, full: bool = False, "
   "size_average: any = None, eps: float = 1e-08, reduce: any = None, reduction: str = 'mean') "
   "-> Tensor", composite=_poisson_nll_loss, method=False, namespace="functional",
   dtypes=NUMBERS, ref=references.poisson_nll_loss,
   doc="Return -log of a Poisson probability, without log(target!) unless `full`, which adds "
       "Stirling's approximation of it for targets above 1.",
   samples=[case(T(2, 3), T(2, 3)), case(T(2, 3, low=0.5, high=2), T(2, 3), False,
                                    only=FLOATING),
            case(T(2, 3), T(2, 3, low=1.5, high=4), full=True, reduction="none",
                 only=FLOATING),
            case(T(2, 3), T(2, 3), reduction="sum"), case(T(), T()),
            case(T(2), fixed((0, 1)), full=True, reduction="none", skip=KINKS,
                 only=FLOATING)])
op("plain_poisson_nll_loss(self: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, "
   "reduction: int) -> Tensor", method=False, function="poisson_nll_loss", dtypes=NUMBERS,
   composite=lambda self, target, log_input, full, eps, reduction: _poisson(
       self, target, log_input, full, eps, numbered_reduction("poisson_nll_loss", reduction)),
   doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
       "(sum).", samples=[case(T(2, 3), T(2, 3), True, False, 1e-8, n) for n in (0, 1, 2)],
   ref=lambda np, self, target, log_input, full, eps, reduction: references.poisson_nll_loss(
       np, self, target, reduction=("none", "mean", "sum")[reduction]))
