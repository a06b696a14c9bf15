"""Losses that compare scores or distances with a margin."""

from pullback.ops.nn.losses.util import (
    OLD,
    check_no_grad,
    checked_reduction,
    numbered_reduction,
    reduced,
)
from pullback.ops.rules.dtypes import check_dtype, dtype_named, type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import Fixed, kink
from pullback.ops.table.samples import KINKS, T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, HALF, NUMBERS, OPTIONAL, REAL, op, ops

references = references_of("losses")

UINT8 = 0x002
_NUMBERED = (
    "Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) "
    "or 2 (sum)."
)
_WORDS = ("none", "mean", "sum")


def _above(self, low=0):
    return ops.clamp(self, min=low)


def _is(target, value):
    return target == value


# -- pairs -----------------------------------------------------------------------------------------


def _cosine_embedding(input1, input2, target, margin, reduction):
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    wanted = target.ndim + 1
    if input1.ndim != wanted or input2.ndim != wanted:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {wanted}D input tensors, but "
            f"found inputs with sizes {list(input1.shape)} and "
            f"{list(input2.shape)}."
        )
    product = ops.sum(input1 * input2, -1)
    squares = [ops.sum(x * x, -1) + 1e-12 for x in (input1, input2)]
    cosine = product / ops.sqrt(squares[0] * squares[1])
    loss = ops.where(_is(target, 1), 1 - cosine, 0) + ops.where(
        _is(target, -1), _above(cosine - margin), 0
    )
    return reduced(loss, reduction)


_SIGNS = fixed((1, -1, -1), kind="int64")
_EMBEDDED = [
    case(T(3, 4), T(3, 4), _SIGNS),
    case(T(3, 4), T(3, 4), _SIGNS, 0.5, reduction="none"),
    case(
        T(4),
        T(4),
        fixed((-1,), shape=(), kind="int64"),
        skip={"devices": "the operand beside the target has no dims"},
    ),
    case(T(3, 4), T(3, 4), fixed((1, 0, -1), kind="int64"), reduction="sum"),
]
op(
    f"cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, "
    f"{OLD}) -> Tensor",
    autocast="float32",
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    promote="float",
    composite=lambda input1, input2, target, margin, size_average, reduce, reduction: (
        _cosine_embedding(
            input1, input2, target, margin, checked_reduction(size_average, reduce, reduction)
        )
    ),
    doc="Return 1 - cos(input1, input2) where the target is 1, and by how much it is above the "
    "margin where the target is -1, reduced.",
    kinks=[
        kink(
            [[1.0, 0.0]],
            [[0.0, 1.0]],
            Fixed([-1.0]),
            to=([[0.0, 1.0 - 1e-12]], [[1.0 - 1e-12, 0.0]]),
            second=None,
        )
    ],
    samples=_EMBEDDED,
    ref=references.cosine_embedding_loss,
)
op(
    "cosine_embedding_loss.top(input1: Tensor, input2: Tensor, target: Tensor, "
    "margin: float = 0.0, reduction: int = 0) -> Tensor",
    autocast="float32",
    method=False,
    function="cosine_embedding_loss",
    dtypes=FLOATING,
    promote="float",
    composite=lambda input1, input2, target, margin, reduction: _cosine_embedding(
        input1, input2, target, margin, numbered_reduction("cosine_embedding_loss", reduction)
    ),
    doc=_NUMBERED,
    samples=lambda: [case(T(3, 4), T(3, 4), _SIGNS, 0.2, n) for n in (0, 1, 2)],
    ref=lambda np, input1, input2, target, margin, reduction: references.cosine_embedding_loss(
        np, input1, input2, target, margin, _WORDS[reduction]
    ),
)


def _ranking(input1, input2, target, margin, reduction):
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension "
            f"but got sizes: input1: {input1.shape}, input2: {input2.shape}, "
            f"target: {target.shape} "
        )
    return reduced(_above(-target * (input1 - input2) + float(margin)), reduction)


op(
    f"margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, "
    f"{OLD}) "
    "-> Tensor",
    autocast="float32",
    method=False,
    namespace="functional",
    dtypes=NUMBERS & REAL & ~OPTIONAL,
    composite=lambda input1, input2, target, margin, size_average, reduce, reduction: _ranking(
        input1, input2, target, margin, checked_reduction(size_average, reduce, reduction)
    ),
    doc="Return by how much the first of two scores is not above the second by a margin, reduced; "
    "the other way round where the target is -1.",
    ref=references.margin_ranking_loss,
    kinks=[kink([1.0], [1.0], Fixed([1.0]), to=([-1.0], [1.0]))],
    samples=lambda: [
        case(T(3), T(3), _SIGNS),
        case(T(3), T(3), _SIGNS, 0.5, reduction="none"),
        case(T(2, 3), T(2, 1), fixed((1, -1, 1), shape=(1, 3), kind="int64")),
        case(T(0), T(0), fixed((), kind="int64"), reduction="sum"),
    ],
)
op(
    "margin_ranking_loss.top(input1: Tensor, input2: Tensor, target: Tensor, margin: float = "
    "0.0, reduction: int = 0) -> Tensor",
    autocast="float32",
    method=False,
    function="margin_ranking_loss",
    dtypes=NUMBERS & REAL & ~OPTIONAL,
    composite=lambda input1, input2, target, margin, reduction: _ranking(
        input1, input2, target, margin, numbered_reduction("margin_ranking_loss", reduction)
    ),
    doc=_NUMBERED,
    samples=lambda: [case(T(3), T(3), _SIGNS, 0.25, n) for n in (0, 1, 2)],
    ref=lambda np, input1, input2, target, margin, reduction: references.margin_ranking_loss(
        np, input1, input2, target, margin, _WORDS[reduction]
    ),
)


def _hinge(self, target, margin, reduction):
    if not (self.is_floating_point() or self.is_complex()):
        margin = int(margin)  # torch cuts it in the dtype of the scores
        if reduction == "mean":
            raise RuntimeError(
                f"mean(): could not infer output dtype. Input dtype must be either "
                f"a floating point or complex dtype. Got: {type_name(self.dtype)}"
            )
    loss = ops.where(_is(target, 1), 0, _above(margin - self)) + ops.where(_is(target, -1), 0, self)
    return reduced(loss, reduction)


op(
    f"hinge_embedding_loss(self: Tensor, target: Tensor, margin: float = 1.0, {OLD}) -> Tensor",
    autocast="float32",
    method=False,
    namespace="functional",
    dtypes=NUMBERS & REAL,
    composite=lambda self, target, margin, size_average, reduce, reduction: _hinge(
        self, target, margin, checked_reduction(size_average, reduce, reduction)
    ),
    doc="Return self where the target is 1, and what it lacks of the margin where the target is "
    "-1, reduced.",
    ref=references.hinge_embedding_loss,
    kinks=[kink([1.0], Fixed([-1.0]), to=[-1.0])],
    samples=lambda: [
        case(T(3), _SIGNS, only=FLOATING),
        case(T(2, 3), _SIGNS, 2.0, reduction="none", only=FLOATING),
        case(T(3), fixed((1, 0, -1), kind="int64"), reduction="sum", only=FLOATING),
        case(fixed((0, 1, 2)), _SIGNS, 2.0, reduction="none", skip=KINKS),
    ],
)
op(
    "hinge_embedding_loss.top(self: Tensor, target: Tensor, margin: float = 1.0, "
    "reduction: int = 0) -> Tensor",
    autocast="float32",
    method=False,
    function="hinge_embedding_loss",
    dtypes=NUMBERS & REAL,
    composite=lambda self, target, margin, reduction: _hinge(
        self, target, margin, numbered_reduction("hinge_embedding_loss", reduction)
    ),
    doc=_NUMBERED,
    samples=lambda: [
        case(fixed((0, 1, 2)), _SIGNS, 2.0, 2, skip=KINKS),
        *(case(T(3), _SIGNS, 2.0, n, only=FLOATING) for n in (0, 1, 2)),
    ],
    ref=lambda np, self, target, margin, reduction: references.hinge_embedding_loss(
        np, self, target, margin, _WORDS[reduction]
    ),
)


# -- triplets --------------------------------------------------------------------------------------


def _check_triplet(anchor, positive, negative):
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the "
            f"same number of dimensions, but got: anchor {anchor.ndim}D, positive "
            f"{positive.ndim}D, and negative {negative.ndim}D inputs"
        )


def _triplet(anchor, positive, negative, margin, distance, swap, reduction):
    near, away = distance(anchor, positive), distance(anchor, negative)
    if swap:
        away = ops.minimum(away, distance(positive, negative))
    return reduced(_above(margin + near - away), reduction)


def _positive_margin(margin):
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")


def _triplet_margin_loss(
    anchor, positive, negative, margin, p, eps, swap, size_average, reduce, reduction
):
    reduction = checked_reduction(size_average, reduce, reduction)
    _positive_margin(margin)
    return _triplet_margin(anchor, positive, negative, margin, p, eps, swap, reduction)


def _triplet_margin(anchor, positive, negative, margin, p, eps, swap, reduction):
    _check_triplet(anchor, positive, negative)
    return _triplet(
        anchor,
        positive,
        negative,
        margin,
        lambda a, b: ops.pairwise_distance(a, b, p, eps),
        swap,
        reduction,
    )


_THREE = T(2, 3), T(2, 3), T(2, 3)
_WIDE = NUMBERS & ~HALF & ~UINT8  # bytes wrap around: too large for the tolerance
_CANCELS = {"value": "16-bit distances are rounded before they are compared"}
op(
    "triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, "
    f"p: float = 2, eps: float = 1e-06, swap: bool = False, {OLD}) -> Tensor",
    autocast="float32",
    composite=_triplet_margin_loss,
    method=False,
    namespace="functional",
    dtypes=NUMBERS & ~OPTIONAL,
    doc="Return by how much the negative is not further from the anchor than the positive by a "
    "margin, reduced.\n\nWith `swap`, its distance from the positive counts if it is smaller.",
    ref=references.triplet_margin_loss,
    kinks=[kink([[0.0]], [[1.0]], [[2.0]], eps=0.0, to=([[0.0]], [[1.0]], [[-1.0]]))],
    samples=lambda: [
        case(*_THREE, skip=_CANCELS),
        case(*_THREE, only=_WIDE),
        case(*_THREE, 2.0, 1, swap=True, only=_WIDE),
        case(*_THREE, reduction="none", only=_WIDE),
        case(T(3), T(3), T(3), p=3, reduction="sum", only=_WIDE),
    ],
)
op(
    "triplet_margin_loss.top(anchor: Tensor, positive: Tensor, negative: Tensor, "
    "margin: float = 1.0, p: float = 2, eps: float = 1e-06, swap: bool = False, reduction: int = "
    "0) -> Tensor",
    autocast="float32",
    method=False,
    function="triplet_margin_loss",
    dtypes=NUMBERS & ~OPTIONAL,
    composite=lambda anchor, positive, negative, margin, p, eps, swap, reduction: _triplet_margin(
        anchor,
        positive,
        negative,
        margin,
        p,
        eps,
        swap,
        numbered_reduction("triplet_margin_loss", reduction),
    ),
    doc=_NUMBERED,
    samples=lambda: [
        case(*_THREE, skip=_CANCELS),
        *(case(*_THREE, reduction=n, only=_WIDE) for n in (0, 1, 2)),
    ],
    ref=lambda np, anchor, positive, negative, reduction=0: references.triplet_margin_loss(
        np, anchor, positive, negative, reduction=_WORDS[reduction]
    ),
)


def _by_distance(anchor, positive, negative, distance_function, margin, swap, reduction):
    if reduction not in _WORDS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    _positive_margin(margin)
    _check_triplet(anchor, positive, negative)
    return _triplet(
        anchor,
        positive,
        negative,
        margin,
        distance_function or ops.pairwise_distance,
        swap,
        reduction,
    )


op(
    "triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, "
    "distance_function: any = None, margin: float = 1.0, swap: bool = False, "
    "reduction: str = 'mean') -> Tensor",
    composite=_by_distance,
    method=False,
    namespace="functional",
    dtypes=NUMBERS & ~OPTIONAL,
    doc="Return triplet_margin_loss with any distance, a function of two tensors.",
    kinks=[kink([[0.0]], [[0.5]], [[1.5]], to=([[0.0]], [[1.0]], [[-1.0]]))],
    samples=lambda: [
        case(*_THREE, skip=_CANCELS),
        case(*_THREE, only=_WIDE),
        case(*_THREE, margin=2.0, swap=True, reduction="none", only=_WIDE),
    ],
    ref=references.triplet_margin_loss,
)


# -- classes ---------------------------------------------------------------------------------------


def _multilabel_soft(self, target, weight, size_average, reduce, reduction):
    if size_average is not None or reduce is not None:
        reduction = checked_reduction(size_average, reduce, reduction)
    if reduction not in _WORDS:
        raise ValueError(f"{reduction} is not valid")
    check_dtype("log_sigmoid_cpu", self, "f")
    loss = -(target * ops.logsigmoid(self) + (1 - target) * ops.logsigmoid(-self))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / self.shape[-1], reduction)


op(
    f"multilabel_soft_margin_loss(self: Tensor, target: Tensor, weight: Tensor? = None, {OLD}) "
    "-> Tensor",
    composite=_multilabel_soft,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.multilabel_soft_margin_loss,
    doc="Return binary_cross_entropy_with_logits, averaged over the classes and reduced.",
    samples=lambda: [
        case(T(2, 3), T(2, 3, low=0, high=1)),
        case(T(3), T(3, low=0, high=1)),
        case(T(2, 3), T(2, 3, low=0, high=1), constant(3, low=0.5, high=2), reduction="none"),
        case(T(2, 3), T(2, 3, low=0, high=1), reduction="sum"),
    ],
)


def _check_scores(self):
    if self.ndim > 2 or (self.ndim and not self.shape[-1]):
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, "
            f"but got: {list(self.shape)}"
        )
    check_dtype("multi_margin_loss", self, "f")


def _check_labels(target):
    if target.dtype != dtype_named("int64"):
        raise RuntimeError(f"expected scalar type Long but found {type_name(target.dtype)}")


def _multi_margin(self, target, p, margin, weight, size_average, reduce, reduction):
    reduction = checked_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight must be one-dimensional, got {weight.ndim} dimensions.")
    _check_scores(self)
    check_no_grad("multi_margin_loss", "weight", weight)
    single = self.ndim < 2
    scores, labels = (self.reshape((1, -1)), target.reshape(-1)) if single else (self, target)
    count, classes = scores.shape
    if target.ndim > 1 or labels.shape[0] != count:
        raise RuntimeError(
            f"multi_margin_loss: target tensor should be 1-D with size equal to the "
            f"number of input samples (batch size). Expected target size [{count}], "
            f"but got {list(target.shape)}. Input has shape {list(self.shape)}."
        )
    _check_labels(target)
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    check_all((labels >= 0) & (labels < classes), RuntimeError("target out of range"))
    labels = labels.unsqueeze(1)
    gaps = margin - ops.gather(scores, 1, labels) + scores
    counted = (gaps > 0) & (ops.arange_like(scores, classes) != labels)
    gaps = ops.where(counted, gaps, 0)
    if p == 2:
        gaps = gaps * gaps
    if weight is not None:
        gaps = gaps * ops.index_select(weight, 0, labels.squeeze(1)).unsqueeze(1)
    loss = gaps.sum(1) / classes
    return reduced(loss.reshape(()) if single else loss, reduction)


_CLASSES = fixed((0, 2), kind="int64")
op(
    "multi_margin_loss(self: Tensor, target: Tensor, p: Scalar = 1, margin: float = 1.0, "
    f"weight: Tensor? = None, {OLD}) -> Tensor",
    autocast="float32",
    composite=_multi_margin,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.multi_margin_loss,
    doc="Return the mean over the classes of how much each score is not below the target's by a "
    "margin, to the power p, reduced.\n\nRaises: RuntimeError for a class out of range.",
    kinks=[kink([[1.0, 0.0]], Fixed([0]), to=[[0.0, 0.0]])],
    samples=lambda: [
        case(T(2, 3), _CLASSES),
        case(T(2, 3), _CLASSES, 2),
        case(T(2, 3), _CLASSES, 1, 0.5, constant(3, low=0.5, high=2), reduction="none"),
        case(T(3), fixed((1,), shape=(), kind="int64"), reduction="sum"),
        case(T(3), fixed((1,), kind="int64"), reduction="none"),
        case(T(), fixed((0,), shape=(), kind="int64")),
    ],
)


def _multilabel_margin(self, target, size_average, reduce, reduction):
    """Every pair of a wanted class and another one; the first -1 ends the list of wanted ones."""
    reduction = checked_reduction(size_average, reduce, reduction)
    _check_scores(self)
    if target.shape != self.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(self.shape)}"
        )
    _check_labels(target)
    classes = self.shape[-1] if self.ndim else 1
    error = RuntimeError("argument #2 'target' is out of range")
    check_all((target >= -1) & (target < classes), error)
    scores, labels = self.reshape((-1, classes)), target.reshape((-1, classes))
    listed = ops.cumsum(labels == -1, 1) == 0
    labels = ops.where(listed, labels, 0)
    numbers = ops.arange_like(scores, classes)
    wanted = ops.any((labels.unsqueeze(2) == numbers) & listed.unsqueeze(2), 1)
    gaps = 1 - ops.gather(scores, 1, labels).unsqueeze(2) + scores.unsqueeze(1)
    counted = (gaps > 0) & listed.unsqueeze(2) & ~wanted.unsqueeze(1)
    loss = ops.where(counted, gaps, 0).sum((1, 2)) / classes
    return reduced(loss.reshape(()) if self.ndim < 2 else loss, reduction)


op(
    f"multilabel_margin_loss(self: Tensor, target: Tensor, {OLD}) -> Tensor",
    autocast="float32",
    composite=_multilabel_margin,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.multilabel_margin_loss,
    doc="Return how much each score of another class is not below each of a wanted one by 1, "
    "summed "
    "and divided by the number of classes, reduced.\n\nThe target lists the wanted classes; the "
    "first -1 ends it.",
    kinks=[kink([[1.0, 0.0]], Fixed([[0, -1]]), to=[[0.0, 0.0]])],
    samples=lambda: [
        case(T(2, 3), fixed((0, 2, -1, 1, -1, 0), shape=(2, 3), kind="int64")),
        case(T(2, 3), fixed((0, 2, -1, 1, -1, 0), shape=(2, 3), kind="int64"), reduction="none"),
        case(T(3), fixed((-1, 0, 0), kind="int64"), reduction="sum", skip=KINKS),
        case(T(3), fixed((1, 0, -1), kind="int64")),
        case(T(), fixed((0,), shape=(), kind="int64")),
    ],
)
