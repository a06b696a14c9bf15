"""Losses of classes: nll_loss and cross_entropy."""

import functools

from pullback.ops.nn.losses.util import REDUCTIONS, checked_reduction, reduced
from pullback.ops.rules.dtypes import dtype_named, type_name, unsupported
from pullback.ops.table.primitives_api import OWN_DTYPE
from pullback.ops.table.samples import T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("losses")


def _labels(*classes):
    return fixed(classes, kind="int64")


def nll_loss_spec(shape, ignore_index, reduction):
    """Return the output spec of nll_loss_forward, or of nll_loss_backward."""
    return (shape,), (OWN_DTYPE,), (ignore_index, reduction)


_NLL = [
    ((3, 4), _labels(0, 3, 1), None, -100, 1),
    ((3, 4), _labels(0, 2, 1), constant(4, low=0.5, high=2), 2, 2),
    ((3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2), -100, 0),
    ((2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64"), None, -100, 0),
]
op(
    "nll_loss_forward(self: Tensor, target: Tensor, weight: Tensor?, spec: any) -> Tensor",
    forward="structured",
    kernel="nll_loss",
    method=False,
    function=False,
    vjp={
        "self": lambda g, self_shape, target, weight, spec: ops.nll_loss_backward(
            g, target, weight, nll_loss_spec(self_shape, *spec[2])
        )
    },
    node=lambda self_shape: f"NllLoss{'2D' if len(self_shape) > 2 else ''}Backward0",
    doc="Return nll_loss of checked arguments.",
    dtypes=FLOATING,
    ref=references.nll_loss_primitive,
    samples=lambda: [
        case(T(*shape), target, weight, nll_loss_spec(target.shape if not how[1] else (), *how))
        for shape, target, weight, *how in _NLL
    ],
)
op(
    "nll_loss_backward(self: Tensor, target: Tensor, weight: Tensor?, spec: any) -> Tensor",
    forward="structured",
    kernel="nll_loss_backward",
    method=False,
    function=False,
    vjp={
        "self": lambda g, self_shape, target, weight, spec: ops.nll_loss_forward(
            g, target, weight, nll_loss_spec(self_shape, *spec[2])
        )
    },
    doc="Return the derivative of nll_loss, times self.",
    dtypes=FLOATING,
    samples=lambda: [
        case(T(*(target.shape if not how[1] else ())), target, weight, nll_loss_spec(shape, *how))
        for shape, target, weight, *how in _NLL
    ],
)


@functools.lru_cache(maxsize=512)
def _checked_nll_loss(dtype, size, kind, target, weight, ignore_index, reduction):
    """Check dtypes and shapes; return the output spec of nll_loss_forward.

    None for a target that is to be converted first.
    """
    if size and not (len(size) == 2 and len(target) > 1):  # which has its error below
        if kind.name not in ("int64", "uint8"):
            raise RuntimeError(
                f"expected target dtype to be Long or Byte, but got {type_name(kind)}"
            )
        if kind.name == "uint8" or (len(size) == 1 and target == (1,)):
            return None
    if not size:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if dtype.kind != "f":
        raise unsupported("nll_loss", dtype)
    dim = 1 if len(size) > 1 else 0
    expected = (*size[:dim], *size[dim + 1 :])
    if target != expected:
        if len(size) == 2 and len(target) > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        count = target[0] if target else 0
        if dim and size[0] != count:
            raise ValueError(
                f"Expected input batch_size ({size[0]}) to match target batch_size ({count})."
            )
        if not dim and len(target) == 1:
            raise ValueError(
                f"For 1D input, 1D target must have size 1, but got target size: {count}"
            )
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target)}")
    if weight is not None and weight != (size[dim],):
        raise RuntimeError(
            f"weight tensor should be defined either for all {size[dim]} classes or "
            f"no classes but got weight tensor of shape: {list(weight)}"
        )
    number = REDUCTIONS.index(checked_reduction(None, None, reduction))
    return nll_loss_spec(() if number else target, ignore_index, number)


def _nll_loss(self, target, weight, size_average, ignore_index, reduce, reduction):
    """Pick -self at the target classes (dim 1, or the only dim), weighted."""
    if size_average is not None or reduce is not None:
        reduction = checked_reduction(size_average, reduce, reduction)
    size = None if weight is None else weight.shape
    spec = _checked_nll_loss(
        self.dtype, self.shape, target.dtype, target.shape, size, ignore_index, reduction
    )
    if spec is None:
        target = target.to(dtype_named("int64"))
        if self.ndim == 1:
            target = target.reshape(())
        spec = _checked_nll_loss(
            self.dtype, self.shape, target.dtype, target.shape, size, ignore_index, reduction
        )
    if weight is not None:
        _check_weight(weight, self.dtype)
    return ops.nll_loss_forward(self, target, weight, spec)


def _check_weight(weight, dtype):
    if weight.dtype != dtype:
        raise RuntimeError(
            f"expected scalar type {type_name(dtype)} but found {type_name(weight.dtype)}"
        )
    if weight.requires_grad:
        raise RuntimeError(
            "The function 'nll_loss_forward' is not differentiable with respect to "
            "argument 'weight'. This input cannot have requires_grad True."
        )


op(
    "nll_loss(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
    "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean') -> Tensor",
    autocast="float32",
    composite=_nll_loss,
    method=False,
    namespace="functional",
    doc="Return the negative log likelihood of target classes.\n\n"
    "Shape: (n, c, ...) and (n, ...), or (c) and ().",
    dtypes=FLOATING,
    ref=references.nll_loss,
    samples=lambda: [
        case(T(3, 4), _labels(0, 3, 1)),
        case(T(3, 4), _labels(0, 3, 1), constant(4, low=0.5, high=2)),
        case(T(3, 4), _labels(0, -100, 1)),
        case(T(3, 4), _labels(0, 2, 1), ignore_index=2),
        case(T(4), fixed((2,), shape=(), kind="int64")),
        case(T(3, 4), _labels(0, 3, 1), reduction="sum"),
        case(T(3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2), reduction="none"),
        case(T(2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64")),
    ],
)


def _cross_entropy(
    self, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
):
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    reduction = checked_reduction(size_average, reduce, reduction)
    dim = 1 if self.ndim > 1 else 0
    logs = ops.log_softmax(self, dim)
    if target.shape == self.shape:
        if not target.dtype.is_floating_point:
            raise RuntimeError(
                f"Expected floating point type for target with class probabilities, "
                f"got {type_name(target.dtype)}"
            )
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        _check_class_weight(weight, self.shape[dim] if self.ndim else 0)
        return _soft_targets(logs, target, weight, reduction, label_smoothing, dim)
    hard = _nll_loss(logs, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0:
        return hard
    return hard * (1 - label_smoothing) + label_smoothing * _smooth(
        logs, target, weight, ignore_index, reduction, dim
    )


def _check_class_weight(weight, classes):
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all "
            f"{classes} classes or no classes but got weight tensor of shape: "
            f"{list(weight.shape)}"
        )


def _smooth(logs, target, weight, ignore_index, reduction, dim):
    """The part of label smoothing that spreads over all classes; torch's cross_entropy page."""
    classes = logs.shape[dim]
    shape = [1] * logs.ndim
    shape[dim] = classes
    spread = -logs if weight is None else -logs * weight.reshape(shape)
    kept = target != ignore_index
    loss = ops.where(kept, spread.sum(dim), 0) / classes
    if reduction != "mean":
        return reduced(loss, reduction)
    if weight is None:
        return loss.sum() / kept.to(loss.dtype).sum()
    safe = ops.where(kept, target, 0)
    picked = ops.index_select(weight, 0, safe.reshape(-1)).reshape(safe.shape)
    return loss.sum() / (picked * kept.to(loss.dtype)).sum()


def _soft_targets(logs, target, weight, reduction, label_smoothing, dim):
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / logs.shape[dim]
    terms = -(logs * target)
    if weight is not None:
        shape = [1] * logs.ndim
        shape[dim] = logs.shape[dim]
        terms = terms * weight.reshape(shape)
    loss = terms.sum(dim)
    if reduction == "mean":
        return loss.sum() / (logs.numel() // logs.shape[dim])
    return reduced(loss, reduction)


op(
    "cross_entropy(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
    "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean', "
    "label_smoothing: float = 0.0) -> Tensor",
    autocast="float32",
    composite=_cross_entropy,
    method=False,
    namespace="functional",
    doc="Return nll_loss(log_softmax(self), target); target holds classes or probabilities.",
    dtypes=FLOATING,
    ref=references.cross_entropy,
    samples=lambda: [
        case(T(3, 4), _labels(0, 3, 1)),
        case(T(3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2)),
        case(T(4), fixed((2,), shape=(), kind="int64")),
        case(T(3, 4), _labels(0, 3, 1), reduction="sum"),
        case(T(3, 4), _labels(0, 3, -100), label_smoothing=0.1),
        case(T(3, 4), _labels(0, 3, 1), constant(4, low=0.5, high=2), label_smoothing=0.1),
        case(T(3, 4), T(3, 4, low=0, high=1)),
        case(T(3, 4), T(3, 4), reduction="none"),
        case(T(3, 4), T(3, 4), T(4, low=0.5, high=2), label_smoothing=0.1),
        case(T(2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64"), reduction="none"),
    ],
)
