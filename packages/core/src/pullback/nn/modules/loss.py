"""Losses as modules; each calls its namesake of ``nn.functional``, which has its formula.

``reduction`` is "mean", "sum" or "none" for the loss of each element; ``size_average`` and
``reduce`` are its older form.
"""

from __future__ import annotations

import warnings

from pullback.nn import functional as F
from pullback.nn.modules.distance import PairwiseDistance
from pullback.nn.modules.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Loss(Module):
    __constants__ = ("reduction",)

    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        if size_average is not None or reduce is not None:
            self.reduction = _reduction_of(size_average, reduce)
        else:
            self.reduction = reduction


def _reduction_of(size_average, reduce):
    """Return the reduction that the two older arguments stand for."""
    mean = size_average is None or size_average
    reduction = ("mean" if mean else "sum") if reduce is None or reduce else "none"
    warnings.warn(
        "size_average and reduce args will be deprecated, please use "
        f"reduction='{reduction}' instead.",
        stacklevel=4,
    )
    return reduction


class _WeightedLoss(_Loss):
    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """abs(input - target), reduced.

    >>> import pullback
    >>> pullback.nn.L1Loss()(pullback.ones(3), pullback.zeros(3))
    tensor(1.)
    """

    def forward(self, input, target):
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target) ** 2, reduced.

    >>> import pullback
    >>> pullback.nn.MSELoss()(pullback.ones(3), pullback.full((3,), 3.0))
    tensor(4.)
    """

    def forward(self, input, target):
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared below ``beta`` and absolute above: the loss of R. Girshick (2015).

    >>> import pullback
    >>> pullback.nn.SmoothL1Loss()(pullback.ones(3), pullback.full((3,), 3.0))
    tensor(1.5000)
    """

    def __init__(self, size_average=None, reduce=None, reduction="mean", beta=1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input, target):
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Half the square below ``delta``, and the tangent there above. P. J. Huber (1964).

    >>> import pullback
    >>> pullback.nn.HuberLoss()(pullback.ones(3), pullback.full((3,), 3.0))
    tensor(1.5000)
    """

    __constants__ = ("reduction", "delta")

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input, target):
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# ---- of classes ----------------------------------------------------------------------------------


class CrossEntropyLoss(_WeightedLoss):
    """The negative log likelihood of softmax(input), for logits (n, classes, ...).

    ``target`` has classes (n, ...) as int64, or probabilities of the shape of the input.
    ``weight`` is one number for each class; targets of ``ignore_index`` count nothing;
    ``label_smoothing`` in [0, 1] mixes the target with the uniform distribution.

    >>> import pullback
    >>> pullback.nn.CrossEntropyLoss()(pullback.zeros(2, 4), pullback.tensor([1, 3]))
    tensor(1.3863)
    """

    __constants__ = ("ignore_index", "reduction", "label_smoothing")

    def __init__(
        self,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input, target):
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """The negative of the log probability of the target class; inputs are (n, classes, ...).

    >>> import pullback
    >>> pullback.nn.NLLLoss()(pullback.tensor([[-1., -2.]]), pullback.tensor([1]))
    tensor(2.)
    """

    __constants__ = ("ignore_index", "reduction")

    def __init__(
        self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input, target):
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """NLLLoss under an older name."""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, **options):
        warnings.warn(
            "NLLLoss2d has been deprecated. Please use NLLLoss instead as a drop-in replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, **options)


class BCELoss(_WeightedLoss):
    """-(target * log(input) + (1 - target) * log(1 - input)), for probabilities; logs are >= -100.

    >>> import pullback
    >>> pullback.nn.BCELoss()(pullback.tensor([0.5]), pullback.tensor([1.]))
    tensor(0.6931)
    """

    def forward(self, input, target):
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(input), for logits; ``pos_weight`` multiplies the term of target 1.

    >>> import pullback
    >>> pullback.nn.BCEWithLogitsLoss()(pullback.zeros(1), pullback.ones(1))
    tensor(0.6931)
    """

    def __init__(
        self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        return F.binary_cross_entropy_with_logits(
            input,
            target,
            self.weight,
            pos_weight=self.pos_weight,
            reduction=self.reduction,
        )


class KLDivLoss(_Loss):
    """target * (log(target) - input), for log probabilities ``input``.

    With ``log_target`` the target has log probabilities, too. Reduction "batchmean" divides the sum
    by the number of rows. S. Kullback and R. Leibler (1951).

    >>> import pullback
    >>> loss = pullback.nn.KLDivLoss(reduction="batchmean")
    >>> loss(pullback.tensor([[0.5, 0.5]]).log(), pullback.tensor([[1., 0.]]))
    tensor(0.6931)
    """

    def __init__(self, size_average=None, reduce=None, reduction="mean", log_target=False):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input, target):
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """exp(input) - target * input, for the log of a rate; input - target * log(input) without.

    ``log_input`` says that the input is a log; ``full`` adds Stirling's formula for log(target!).

    >>> import pullback
    >>> pullback.nn.PoissonNLLLoss()(pullback.zeros(1), pullback.ones(1))
    tensor(1.)
    """

    __constants__ = ("log_input", "full", "eps", "reduction")

    def __init__(
        self, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input, target):
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """(log(var) + (input - target) ** 2 / var) / 2, with variances of at least eps.

    ``full`` adds log(2 pi) / 2.

    >>> import pullback
    >>> pullback.nn.GaussianNLLLoss()(pullback.ones(1), pullback.zeros(1), pullback.ones(1))
    tensor(0.5000)
    """

    __constants__ = ("full", "eps", "reduction")

    def __init__(self, *, full=False, eps=1e-6, reduction="mean"):
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input, target, var):
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification: log probabilities (steps, n, classes) and targets.

    ``blank`` is the class between labels; ``zero_infinity`` makes impossible alignments count
    nothing. A. Graves et al. (2006).

    >>> import pullback
    >>> log_probs = pullback.full((2, 1, 2), 0.5).log()
    >>> one = pullback.tensor([1])
    >>> pullback.nn.CTCLoss(reduction="sum")(log_probs, one[None], one + 1, one).exp()
    tensor(1.3333)
    """

    __constants__ = ("blank", "reduction")

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


# ---- of margins ----------------------------------------------------------------------------------


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), for targets of 1 and -1.

    >>> import pullback
    >>> pullback.nn.SoftMarginLoss()(pullback.zeros(1), pullback.ones(1))
    tensor(0.6931)
    """

    def forward(self, input, target):
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """input where target is 1, max(0, margin - input) where it is -1.

    >>> import pullback
    >>> pullback.nn.HingeEmbeddingLoss()(pullback.zeros(1), -pullback.ones(1))
    tensor(1.)
    """

    __constants__ = ("margin", "reduction")

    def __init__(self, margin=1.0, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input, target):
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Margins between target classes and others; targets (n, classes) end at -1.

    >>> import pullback
    >>> x, y = pullback.tensor([[0.1, 0.2, 0.4, 0.8]]), pullback.tensor([[3, 0, -1, 1]])
    >>> pullback.nn.MultiLabelMarginLoss()(x, y)
    tensor(0.8500)
    """

    def forward(self, input, target):
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean of BCEWithLogitsLoss over the classes; targets (n, classes) are 0 and 1.

    >>> import pullback
    >>> pullback.nn.MultiLabelSoftMarginLoss()(pullback.zeros(1, 3), pullback.ones(1, 3))
    tensor(0.6931)
    """

    def forward(self, input, target):
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """The mean over other classes of max(0, margin - input[target] + input) ** p; p is 1 or 2.

    Raises: ValueError for another p or a weight of more than one dim.

    >>> import pullback
    >>> pullback.nn.MultiMarginLoss()(pullback.tensor([[0.1, 0.2]]), pullback.tensor([1]))
    tensor(0.4500)
    """

    __constants__ = ("p", "margin", "reduction")

    def __init__(
        self,
        p=1,
        margin=1.0,
        weight=None,
        size_average=None,
        reduce=None,
        reduction="mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D "
                "instead"
            )
        self.p = p
        self.margin = margin

    def forward(self, input, target):
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin), for targets of 1 and -1.

    >>> import pullback
    >>> pullback.nn.MarginRankingLoss()(pullback.zeros(1), pullback.ones(1), pullback.ones(1))
    tensor(1.)
    """

    __constants__ = ("margin", "reduction")

    def __init__(self, margin=0.0, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1, input2, target):
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class CosineEmbeddingLoss(_Loss):
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1.

    >>> import pullback
    >>> x = pullback.ones(1, 2)
    >>> pullback.nn.CosineEmbeddingLoss()(x, -x, pullback.ones(1))
    tensor(2.)
    """

    __constants__ = ("margin", "reduction")

    def __init__(self, margin=0.0, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1, input2, target):
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), with p-norm distances.

    ``swap`` takes the distance of positive and negative where it is smaller.
    V. Balntas et al. (2016).

    Raises: ValueError unless margin > 0.

    >>> import pullback
    >>> x = pullback.ones(1, 2)
    >>> pullback.nn.TripletMarginLoss()(x, x, x)
    tensor(1.)
    """

    __constants__ = ("margin", "p", "eps", "swap", "reduction")

    def __init__(
        self,
        margin=1.0,
        p=2.0,
        eps=1e-6,
        swap=False,
        size_average=None,
        reduce=None,
        reduction="mean",
    ):
        super().__init__(size_average, reduce, reduction)
        _check_margin("TripletMarginLoss", margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance function of two tensors, by default PairwiseDistance().

    >>> import pullback
    >>> loss = pullback.nn.TripletMarginWithDistanceLoss(
    ...     distance_function=lambda a, b: (a - b).abs().sum(-1))
    >>> x = pullback.ones(1, 2)
    >>> loss(x, x, x + 0.25)
    tensor(0.5000)
    """

    __constants__ = ("margin", "swap", "reduction")

    def __init__(self, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        super().__init__(reduction=reduction)
        _check_margin("TripletMarginWithDistanceLoss", margin)
        self.distance_function = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def _check_margin(name, margin):
    if margin <= 0:
        raise ValueError(f"{name}: expected margin to be greater than 0, got {margin} instead")
