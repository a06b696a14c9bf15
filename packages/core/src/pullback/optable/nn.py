"""What networks are made of: softmax, losses, dropout."""

import warnings

from pullback.optable import references
from pullback.optable.cases import T, case, constant, fixed
from pullback.optable.schema import FLOAT_COMPLEX, FLOATING, NUMBERS, op, ops


def _labels(*classes):
    return fixed(classes, kind="int64")


_ALONG_DIM = [case(T(2, 3), 0), case(T(2, 3), 1), case(T(2, 3, 2), -2), case(T(3), 0), case(T(), 0),
              case(T(0, 3), 1),
              case(T(2, 0), 1, skip={"value": "SciPy wants elements"}),
              case(fixed((0.0, 700.0, -700.0)), 0)]
_TWO_ALONG_DIM = [case(T(2, 3), T(2, 3), 0), case(T(2, 3), T(2, 3), -1), case(T(), T(), 0),
                  case(T(0, 3), T(0, 3), 1)]


for _name in ("softmax", "log_softmax"):
    op(f"{_name}_kernel(self: Tensor, dim: int) -> Tensor", method=False, function=False,
       kernel=_name, dtypes=FLOATING, node=_name.title().replace("_", "") + "Backward0",
       forward="along_dim",
       vjp={"self": eval(f"lambda g, out, dim: ops.{_name}_backward(g, out, dim)", {"ops": ops})},
       doc=f"Return {_name} along a dim of a floating tensor.",
       samples=_ALONG_DIM, ref=f"scipy.special.{_name}")

op("softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor", method=False,
   function=False, kernel="softmax_backward",
   forward="along_dim",
   vjp={"self": lambda g, output, dim: ops.softmax_backward(g, output, dim),
        "output": lambda g, self, output, dim: _softmax_backward_output(g, self, output, dim)},
   doc="Return output * (self - sum(self * output)).", dtypes=FLOATING, samples=_TWO_ALONG_DIM,
   ref=references.softmax_backward)


def _softmax_backward_output(g, self, output, dim):
    inner = (self * output).sum(dim, True)
    return g * (self - inner) - (g * output).sum(dim, True) * self


op("log_softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor", method=False,
   function=False, kernel="log_softmax_backward",
   forward="along_dim",
   vjp={"self": lambda g, output, dim: g - (g * output.exp()).sum(dim, True).expand_as(g),
        "output": lambda g, self, output, dim: -(g * output.exp()) * self.sum(dim, True)},
   doc="Return self - exp(output) * sum(self).", dtypes=FLOATING, samples=_TWO_ALONG_DIM,
   ref=references.log_softmax_backward)


for _name, _what in (("softmax", "exp(x) / sum(exp(x))"), ("log_softmax", "log(softmax(x))")):
    op(f"{_name}(self: Tensor, dim: int, dtype: dtype? = None) -> Tensor",
       composite="softmax", namespace=("", "functional"), ref=f"scipy.special.{_name}",
       doc=f"Return {_what} along a dim, without overflow.", dtypes=FLOATING, samples=_ALONG_DIM)


# -- losses ----------------------------------------------------------------------------------------

def _reduced(loss, reduction):
    return loss if reduction == "none" else getattr(loss, reduction)()


def _reduction(size_average, reduce, reduction):
    """Check a reduction, or make one of torch's two older arguments."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(f"size_average and reduce args will be deprecated, please use "
                      f"reduction='{reduction}' instead.", UserWarning, stacklevel=4)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _pick(self, classes, dim):
    """Return the elements of the given classes, which lie along a dim."""
    from pullback._c.create import empty_tensor
    from pullback._c.kernel import run_slot
    out = empty_tensor(tuple(classes.shape), self.dtype, self.device)
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
            return _reduced(-_pick(self, target, dim), reduction)
        except IndexError:
            pass                        # perhaps only of samples to ignore
    try:
        kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
        loss = ops.where(kept, -_pick(self, classes, dim) * weights, 0)
    except IndexError:
        _refuse_classes(target, self.shape[dim], ignore_index)
    return loss.sum() / weights.sum() if reduction == "mean" else _reduced(loss, reduction)


def _nll_loss_backward(self, size, target, weight, reduction, ignore_index):
    from pullback._c.create import empty_tensor, fill_tensor
    from pullback._c.kernel import run_slot
    dim = 1 if len(size) > 1 else 0
    kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
    share = -self * weights
    if reduction == "mean":
        share = ops.where(kept, share / weights.sum(), 0)
    out = fill_tensor(empty_tensor(tuple(size), self.dtype, self.device), 0)
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
    reduction = _reduction(size_average, reduce, reduction)
    if self.ndim == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {self.ndim})")
    if not self.dtype.is_floating_point:
        raise NotImplementedError(f"\"nll_loss\" not implemented for '{self.dtype}'")
    if target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(f"expected target dtype to be int64 or uint8, but got {target.dtype}")
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
    return ops.nll_loss_forward(self, target.to(_dtype("int64")), weight, reduction, ignore_index)


def _check_weight(weight, classes, dtype):
    if weight.ndim != 1 or weight.shape[0] != classes:
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or "
                           f"no classes but got weight tensor of shape: {list(weight.shape)}")
    if weight.dtype != dtype:
        raise RuntimeError(f"expected scalar type {dtype} but found {weight.dtype}")
    if weight.requires_grad:
        raise RuntimeError("The function 'nll_loss_forward' is not differentiable with respect to "
                           "argument 'weight'. This input cannot have requires_grad True.")


def _dtype(name):
    import pullback
    return getattr(pullback, name)


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
    reduction = _reduction(size_average, reduce, reduction)
    dim = 1 if self.ndim > 1 else 0
    logs = ops.log_softmax(self, dim, None)
    if target.dtype.is_floating_point and target.shape == self.shape:
        return _soft_targets(logs, target, weight, reduction, label_smoothing, dim)
    hard = _nll_loss(logs, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0:
        return hard
    return hard * (1 - label_smoothing) + label_smoothing * _smooth(
        logs, target, weight, ignore_index, reduction, dim)


def _smooth(logs, target, weight, ignore_index, reduction, dim):
    """The part of label smoothing that spreads over all classes; torch's cross_entropy page."""
    classes = logs.shape[dim]
    shape = [1] * logs.ndim
    shape[dim] = classes
    spread = -logs if weight is None else -logs * weight.reshape(shape)
    kept = target != ignore_index
    loss = ops.where(kept, spread.sum(dim), 0) / classes
    if reduction != "mean":
        return _reduced(loss, reduction)
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
    return _reduced(loss, reduction)


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


def _mse_loss(self, target, reduction):
    difference = self - target
    return _reduced(difference * difference, _reduction(None, None, reduction))


op("mse_loss(self: Tensor, target: Tensor, *, reduction: str = 'mean') -> Tensor",
   composite=_mse_loss, method=False, namespace="functional",
   doc="Return the squared difference, reduced.", dtypes=FLOAT_COMPLEX, ref=references.mse_loss,
   samples=[case(T(2, 3), T(2, 3)), case(T(2, 3), T(2, 3), reduction="sum"),
            case(T(2, 3), T(2, 3), reduction="none"), case(T(), T())])


def _linear(self, weight, bias):
    if self.ndim == 2 and bias is not None:
        return ops.addmm(bias, self, weight.t())
    out = ops.matmul(self, weight.t())
    return out if bias is None else out + bias


op("linear(self: Tensor, weight: Tensor, bias: Tensor? = None) -> Tensor", composite=_linear,
   method=False, namespace="functional",
   doc="Return self @ weight.T + bias.\n\nShape: (..., in), (out, in), (out) give (..., out).",
   dtypes=NUMBERS, samples=[case(T(2, 3), T(4, 3), T(4)), case(T(2, 3), T(4, 3)),
                            case(T(3), T(4, 3), T(4)),
                            case(T(2, 2, 3), T(4, 3), T(4)), case(T(0, 3), T(2, 3), T(2))],
   ref=lambda np, self, weight, bias=0: self @ weight.T + bias)


# -- dropout ---------------------------------------------------------------------------------------

def _dropout(self, p, training, inplace):
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return self
    if p == 1:
        scale = ops.zeros_like(self)
    else:
        import pullback
        keep = pullback.rand(self.shape, dtype=_real(self.dtype), device=self.device) >= p
        scale = keep.to(self.dtype) / (1 - p)
    return ops.mul_(self, scale) if inplace else self * scale


def _real(dtype):
    return dtype.to_real() if dtype.is_complex else (
        dtype if dtype.is_floating_point else _dtype("float32"))


op("dropout(self: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor",
   composite=_dropout, method=False, namespace=("", "functional"),
   doc="Return self with elements zeroed with probability p and the others scaled by 1 / (1 - p).",
   samples=[case(T(4, 5)), case(T(), 0.2), case(T(2, 3), 0.0), case(T(2, 3), 1.0),
                                  case(T(2, 3), 0.5, False), case(T(0, 3))])
