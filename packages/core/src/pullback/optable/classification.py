"""Losses of classes: nll_loss and cross_entropy."""

from pullback.optable import references
from pullback.optable.axes import dtype_named, refuse_dtype, type_name
from pullback.optable.below import new_empty, new_filled, run_slot
from pullback.optable.cases import T, case, constant, fixed
from pullback.optable.loss_parts import checked_reduction, reduced
from pullback.optable.schema import FLOATING, op, ops


def _labels(*classes):
    return fixed(classes, kind="int64")


def _pick(self, classes, dim):
    """Return the elements of the given classes, which lie along a dim."""
    out = new_empty(self, classes.shape)
    if out.numel():
        run_slot("gather", (out.unsqueeze(dim),), (self, classes.unsqueeze(dim)), dim)
    return out


def _samples(target, weight, ignore_index, dtype):
    """Return which samples count, their classes (0 for the others), and their weights."""
    kept = target != ignore_index
    classes = ops.where(kept, target, 0)
    if weight is None:
        return kept, classes, kept.to(dtype)
    weights = ops.index_select(weight, 0, classes.reshape(-1)).reshape(classes.shape)
    return kept, classes, ops.where(kept, weights, 0)


def _refuse_classes(target, count, ignore_index):
    wrong = ((target < 0) | (target >= count)) & (target != ignore_index)
    raise IndexError(f"Target {target[wrong].reshape(-1)[0].item()} is out of bounds.")


def _nll_loss_forward(self, target, weight, reduction, ignore_index):
    dim = 1 if self.ndim > 1 else 0
    if weight is None and ignore_index < 0:
        try:
            return reduced(-_pick(self, target, dim), reduction)
        except IndexError:
            pass                        # perhaps only of samples to ignore
    try:
        kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
        loss = ops.where(kept, -_pick(self, classes, dim) * weights, 0)
    except IndexError:
        _refuse_classes(target, self.shape[dim], ignore_index)
    return loss.sum() / weights.sum() if reduction == "mean" else reduced(loss, reduction)


def _nll_loss_backward(self, size, target, weight, reduction, ignore_index):
    dim = 1 if len(size) > 1 else 0
    kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
    share = -self * weights
    if reduction == "mean":
        share = ops.where(kept, share / weights.sum(), 0)
    out = new_filled(self, size)
    if share.numel():
        run_slot("scatter", (out,), (classes.unsqueeze(dim), share.unsqueeze(dim)), dim)
    return out


op("nll_loss_forward(self: Tensor, target: Tensor, weight: Tensor?, reduction: str, "
   "ignore_index: int) -> Tensor", forward=_nll_loss_forward, method=False, function=False,
   vjp={"self": lambda g, self_shape, target, weight, reduction, ignore_index:
        ops.nll_loss_backward(g, self_shape, target, weight, reduction, ignore_index)},
   node=lambda self_shape: f"NllLoss{'2D' if len(self_shape) > 2 else ''}Backward0",
   doc="Return nll_loss of checked arguments.", dtypes=FLOATING,
   samples=[case(T(3, 4), _labels(0, 3, 1), None, "mean", -100),
            case(T(3, 4), _labels(0, 2, 1), constant(4, low=0.5, high=2), "sum", 2),
            case(T(3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2), "none", -100),
            case(T(2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64"), None, "none", -100)],
   ref=lambda np, self, target, weight, reduction, ignore_index: references.nll_loss(
       np, self, target, weight, reduction=reduction, ignore_index=ignore_index))
op("nll_loss_backward(self: Tensor, size: int[], target: Tensor, weight: Tensor?, "
   "reduction: str, ignore_index: int) -> Tensor", forward=_nll_loss_backward, method=False,
   function=False,
   vjp={"self": lambda g, target, weight, reduction, ignore_index: ops.nll_loss_forward(
       g, target, weight, reduction, ignore_index)},
   doc="Return the derivative of nll_loss, times self.", dtypes=FLOATING,
   samples=[case(T(), (3, 4), _labels(0, 3, 1), None, "mean", -100),
            case(T(), (3, 4), _labels(0, 2, 1), constant(4, low=0.5, high=2), "sum", 2),
            case(T(3), (3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2), "none", -100)])


def _nll_loss(self, target, weight, size_average, ignore_index, reduce, reduction):
    """Pick -self at the target classes (dim 1, or the only dim), weighted."""
    reduction = checked_reduction(size_average, reduce, reduction)
    if self.ndim == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {self.ndim})")
    refuse_dtype("nll_loss", self, "f")
    if target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got "
                           f"{type_name(target.dtype)}")
    if self.ndim == 1 and target.shape == (1,):
        target = target.reshape(())
    dim = 1 if self.ndim > 1 else 0
    expected = [*self.shape[:dim], *self.shape[dim + 1:]]
    if list(target.shape) != expected:
        size = target.shape[0] if target.ndim else 0
        if self.ndim > 1 and self.shape[0] != size:
            raise ValueError(f"Expected input batch_size ({self.shape[0]}) to match target "
                             f"batch_size ({size}).")
        raise RuntimeError(f"Expected target size {expected}, got {list(target.shape)}")
    if weight is not None:
        _check_weight(weight, self.shape[dim], self.dtype)
    return ops.nll_loss_forward(self, target.to(dtype_named("int64")), weight, reduction,
                                ignore_index)


def _check_weight(weight, classes, dtype):
    if weight.ndim != 1 or weight.shape[0] != classes:
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or "
                           f"no classes but got weight tensor of shape: {list(weight.shape)}")
    if weight.dtype != dtype:
        raise RuntimeError(f"expected scalar type {type_name(dtype)} but found "
                           f"{type_name(weight.dtype)}")
    if weight.requires_grad:
        raise RuntimeError("The function 'nll_loss_forward' is not differentiable with respect to "
                           "argument 'weight'. This input cannot have requires_grad True.")


op("nll_loss(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
   "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean') -> Tensor",
   composite=_nll_loss, method=False, namespace="functional",
   doc="Return the negative log likelihood of target classes.\n\n"
       "Shape: (n, c, ...) and (n, ...), or (c) and ().", dtypes=FLOATING, ref=references.nll_loss,
   samples=[case(T(3, 4), _labels(0, 3, 1)),
            case(T(3, 4), _labels(0, 3, 1), constant(4, low=0.5, high=2)),
            case(T(3, 4), _labels(0, -100, 1)), case(T(3, 4), _labels(0, 2, 1), ignore_index=2),
            case(T(4), fixed((2,), shape=(), kind="int64")),
            case(T(3, 4), _labels(0, 3, 1), reduction="sum"),
            case(T(3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2), reduction="none"),
            case(T(2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64"))])


def _cross_entropy(self, target, weight, size_average, ignore_index, reduce, reduction,
                   label_smoothing):
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    reduction = checked_reduction(size_average, reduce, reduction)
    dim = 1 if self.ndim > 1 else 0
    logs = ops.log_softmax(self, dim)
    if target.shape == self.shape:
        if not target.dtype.is_floating_point:
            raise RuntimeError(f"Expected floating point type for target with class probabilities, "
                               f"got {type_name(target.dtype)}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        _check_class_weight(weight, self.shape[dim] if self.ndim else 0)
        return _soft_targets(logs, target, weight, reduction, label_smoothing, dim)
    hard = _nll_loss(logs, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0:
        return hard
    return hard * (1 - label_smoothing) + label_smoothing * _smooth(
        logs, target, weight, ignore_index, reduction, dim)


def _check_class_weight(weight, classes):
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(f"cross_entropy: weight tensor should be defined either for all "
                           f"{classes} classes or no classes but got weight tensor of shape: "
                           f"{list(weight.shape)}")


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


op("cross_entropy(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
   "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean', "
   "label_smoothing: float = 0.0) -> Tensor", composite=_cross_entropy, method=False,
   namespace="functional",
   doc="Return nll_loss(log_softmax(self), target); target holds classes or probabilities.",
   dtypes=FLOATING, ref=references.cross_entropy,
   samples=[case(T(3, 4), _labels(0, 3, 1)),
            case(T(3, 4), _labels(0, -100, 1), constant(4, low=0.5, high=2)),
            case(T(4), fixed((2,), shape=(), kind="int64")),
            case(T(3, 4), _labels(0, 3, 1), reduction="sum"),
            case(T(3, 4), _labels(0, 3, -100), label_smoothing=0.1),
            case(T(3, 4), _labels(0, 3, 1), constant(4, low=0.5, high=2), label_smoothing=0.1),
            case(T(3, 4), T(3, 4, low=0, high=1)), case(T(3, 4), T(3, 4), reduction="none"),
            case(T(3, 4), T(3, 4), T(4, low=0.5, high=2), label_smoothing=0.1),
            case(T(2, 3, 2), fixed((0, 1, 2, 1), shape=(2, 2), kind="int64"), reduction="none")])
