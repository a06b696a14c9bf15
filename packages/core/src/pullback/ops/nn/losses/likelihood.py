"""Divergences and negative log likelihoods of distributions."""

import math
import warnings

from pullback.ops.nn.losses.binary_cross_entropy import probability
from pullback.ops.nn.losses.util import (
    OLD,
    checked_reduction,
    numbered_reduction,
    reduced,
)
from pullback.ops.rules.dtypes import check_takes_floats
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import JUMP, NAN, POLE, Fixed, kink
from pullback.ops.table.samples import KINKS, T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, NUMBERS, op, ops

references = references_of("losses")


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
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the "
            "support size.'batchmean' divides only by the batch size, and aligns with "
            "the KL div math definition.'mean' will be changed to behave the same as "
            "'batchmean' in the next major release.",
            UserWarning,
            stacklevel=2,
        )
    if reduction != "batchmean":
        return _divergence(self, target, reduction, log_target)
    loss = _divergence(self, target, "sum", log_target)
    return loss / self.shape[0] if self.ndim else loss


_DIVERGENCES = [
    case(T(2, 3), probability(2, 3), reduction=how) for how in ("sum", "batchmean", "none")
]
op(
    f"kl_div(self: Tensor, target: Tensor, {OLD}, log_target: bool = False) -> Tensor",
    autocast="float32",
    composite=_kl_div,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.kl_div,
    doc="Return target * (log(target) - self), reduced: the Kullback-Leibler divergence; self "
    "holds logarithms, target too with `log_target`.",
    kinks=[kink([0.5], [0.0], reduction="sum", to=([0.0], [NAN]), second=None, outside=POLE)],
    samples=lambda: [
        *_DIVERGENCES,
        case(T(2, 3), T(2, 3), reduction="sum", log_target=True),
        case(T(2, 3), probability(3), reduction="none"),
        case(T(), probability(), reduction="sum"),
        case(T(3), fixed((0, 1, 0.5)), reduction="none", skip=KINKS),
    ],
)
op(
    "kl_div.top(self: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) "
    "-> Tensor",
    autocast="float32",
    function="kl_div",
    method=False,
    dtypes=FLOATING,
    composite=lambda self, target, reduction, log_target: _divergence(
        self, target, numbered_reduction("kl_div", reduction), log_target
    ),
    doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
    "(sum).",
    samples=lambda: [case(T(2, 3), probability(2, 3), n) for n in (0, 1, 2)],
    ref=lambda np, self, target, reduction: references.kl_div(
        np, self, target, reduction=("none", "mean", "sum")[reduction]
    ),
)


def _gaussian_nll_loss(self, target, var, full, eps, reduction):
    if not hasattr(var, "shape"):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = ops.full_like(self.detach(), var)
    if var.shape != self.shape:
        if self.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (
            var.ndim == self.ndim and self.shape[:-1] == var.shape[:-1] and var.shape[-1] == 1
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    check_takes_floats(var)
    check_all(var >= 0, ValueError("var has negative entry/entries"))
    var = ops.at_least(var, eps)
    loss = 0.5 * (ops.log(var) + (self - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


op(
    "gaussian_nll_loss(self: Tensor, target: Tensor, var: Operand, full: bool = False, "
    "eps: float = 1e-06, reduction: str = 'mean') -> Tensor",
    composite=_gaussian_nll_loss,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.gaussian_nll_loss,
    doc="Return -log of a normal density with mean self and variance `var`, which counts as at "
    "least eps, without its constant unless `full`.\n\nRaises: ValueError for negative "
    "variances and wrong shapes.",
    kinks=[
        kink(
            [1.0],
            Fixed([1.0]),
            [1e-6],
            eps=1e-6,
            to=([0.0], [5e5]),
            second=None,
            outside="smaller variances are refused",
        )
    ],
    nonderivative_at=lambda *arrays: (arrays[-1] < 1e-6).any(),
    samples=lambda: [
        case(T(2, 3), T(2, 3), T(2, 3, low=0.5, high=2)),
        case(T(2, 3), T(2, 3), T(2, low=0.5, high=2), full=True),
        case(T(2, 3), T(2, 3), T(2, 1, low=0.5, high=2), reduction="sum"),
        case(T(2, 3), T(2, 3), 1.5, reduction="none"),
        case(T(0, 3), T(0, 3), T(0, 3, low=0.5, high=2), reduction="none"),
    ],
)


def _poisson(self, target, log_input, full, eps, reduction):
    if log_input:
        loss = ops.exp(self) - target * self
    else:
        loss = self - target * ops.log(self + eps)
    if full:  # Stirling's approximation of log(target!)
        large = ops.masked_fill(target, target <= 1, 1)  # log has no derivative at 0
        stirling = large * ops.log(large) - large + 0.5 * ops.log(2 * math.pi * large)
        loss = loss + ops.masked_fill(stirling, target <= 1, 0)
    return reduced(loss, reduction)


def _poisson_nll_loss(self, target, log_input, full, size_average, eps, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    return _poisson(self, target, log_input, full, eps, reduction)


op(
    "poisson_nll_loss(self: Tensor, target: Tensor, log_input: bool = True, full: bool = False, "
    "size_average: any = None, eps: float = 1e-08, reduce: any = None, reduction: str = 'mean') "
    "-> Tensor",
    autocast="float32",
    composite=_poisson_nll_loss,
    method=False,
    namespace="functional",
    dtypes=NUMBERS,
    ref=references.poisson_nll_loss,
    doc="Return -log of a Poisson probability, without log(target!) unless `full`, which adds "
    "Stirling's approximation of it for targets above 1.",
    kinks=[
        kink([2.0], [1.0], full=True, to=([math.exp(2.0) - 1], [-2.0]), second=None, outside=JUMP)
    ],
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3, low=0.5, high=2), T(2, 3), False, only=FLOATING),
        case(T(2, 3), T(2, 3, low=1.5, high=4), full=True, reduction="none", only=FLOATING),
        case(T(2, 3), T(2, 3), reduction="sum"),
        case(T(), T()),
        case(T(2), fixed((0, 1)), full=True, reduction="none", skip=KINKS, only=FLOATING),
    ],
)
op(
    "poisson_nll_loss.top(self: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, "
    "reduction: int) -> Tensor",
    autocast="float32",
    method=False,
    function="poisson_nll_loss",
    dtypes=NUMBERS,
    composite=lambda self, target, log_input, full, eps, reduction: _poisson(
        self, target, log_input, full, eps, numbered_reduction("poisson_nll_loss", reduction)
    ),
    doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
    "(sum).",
    samples=lambda: [case(T(2, 3), T(2, 3), True, False, 1e-8, n) for n in (0, 1, 2)],
    ref=lambda np, self, target, log_input, full, eps, reduction: references.poisson_nll_loss(
        np, self, target, reduction=("none", "mean", "sum")[reduction]
    ),
)
