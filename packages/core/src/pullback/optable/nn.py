"""What networks are made of: softmax, losses, dropout."""

from pullback.optable.schema import FLOATING, op, ops


def _dims(self, dim, name):
    ndim = max(self.ndim, 1)
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, "
                         f"{ndim - 1}], but got {dim})")
    return dim % ndim


def _fused(slot, *tensors, dim):
    from pullback._c.create import empty_tensor
    from pullback._c.kernel import run_slot
    like = tensors[0]
    out = empty_tensor(tuple(like.shape), like.dtype, like.device)
    if out.numel():
        flat = like.ndim == 0
        operands = [t.reshape(1) for t in tensors] if flat else list(tensors)
        run_slot(slot, (out.reshape(1) if flat else out,), tuple(operands), dim)
    return out


for _name in ("softmax", "log_softmax"):
    op(f"{_name}_kernel(self: Tensor, dim: int) -> Tensor", method=False, function=False,
       kernel=_name, dtypes=FLOATING, node=_name.title().replace("_", "") + "Backward0",
       forward=lambda self, dim, _name=_name: _fused(_name, self, dim=_dims(self, dim, _name)),
       vjp={"self": eval(f"lambda g, out, dim: ops.{_name}_backward(g, out, dim)", {"ops": ops})},
       doc=f"Return {_name} along a dim of a floating tensor.")

op("softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor", method=False,
   function=False, kernel="softmax_backward",
   forward=lambda self, output, dim: _fused("softmax_backward", self, output,
                                            dim=_dims(self, dim, "softmax")),
   vjp={"self": lambda g, output, dim: ops.softmax_backward(g, output, dim),
        "output": lambda g, self, output, dim: _softmax_backward_output(g, self, output, dim)},
   doc="Return output * (self - sum(self * output)).")


def _softmax_backward_output(g, self, output, dim):
    inner = (self * output).sum(dim, True)
    return g * (self - inner) - (g * output).sum(dim, True) * self


op("log_softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor", method=False,
   function=False, kernel="log_softmax_backward",
   forward=lambda self, output, dim: _fused("log_softmax_backward", self, output,
                                            dim=_dims(self, dim, "log_softmax")),
   vjp={"self": lambda g, output, dim: g - (g * output.exp()).sum(dim, True).expand_as(g),
        "output": lambda g, self, output, dim: -(g * output.exp()) * self.sum(dim, True)},
   doc="Return self - exp(output) * sum(self).")


def _softmax(name):
    def composite(self, dim, dtype):
        if dtype is not None:
            self = self.to(dtype)
        if not self.dtype.is_floating_point:
            raise NotImplementedError(f"\"{name}\" not implemented for '{self.dtype}'")
        return getattr(ops, name + "_kernel")(self, _dims(self, dim, name))
    return composite


for _name, _what in (("softmax", "exp(x) / sum(exp(x))"), ("log_softmax", "log(softmax(x))")):
    op(f"{_name}(self: Tensor, dim: int, dtype: dtype? = None) -> Tensor",
       composite=_softmax(_name), namespace=("", "functional"), ref=f"scipy.special.{_name}",
       doc=f"Return {_what} along a dim, without overflow.")


# -- losses -----------------------------------------------------------------------------------------------------

def _reduced(loss, reduction, name):
    if reduction == "none":
        return loss
    if reduction in ("mean", "sum"):
        return getattr(loss, reduction)()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def _nll_loss(self, target, weight, size_average, ignore_index, reduce, reduction):
    """Pick -self at the target classes (dim 1, or the only dim), weighted."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if str(target.dtype) not in ("pullback.int64", "pullback.uint8"):
        raise RuntimeError(f"expected scalar type Long but found {target.dtype}")
    if self.ndim == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {self.ndim})")
    dim = 1 if self.ndim > 1 else 0
    expected = tuple(self.shape[:dim]) + tuple(self.shape[dim + 1:])
    if tuple(target.shape) != expected:
        if self.ndim > 1 and target.ndim and self.shape[0] != target.shape[0]:
            raise ValueError(f"Expected input batch_size ({self.shape[0]}) to match target "
                             f"batch_size ({target.shape[0]}).")
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target.shape)}")
    classes = self.shape[dim]
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or "
                           f"no classes but got weight tensor of shape: {list(weight.shape)}")
    target = target.to(_dtype("int64"))
    kept = target != ignore_index
    safe = ops.where(kept, target, 0)
    if safe.numel() and bool(((safe < 0) | (safe >= classes)).any()):
        bad = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
        raise IndexError(f"Target {int(bad.reshape(-1)[0])} is out of bounds.")
    picked = -ops.gather(self, dim, safe.unsqueeze(dim)).squeeze(dim)
    scale = kept.to(self.dtype)
    if weight is not None:
        scale = ops.index_select(weight, 0, safe.reshape(-1)).reshape(safe.shape) * scale
    loss = ops.where(kept, picked * scale, 0)
    if reduction == "mean":
        return loss.sum() / scale.sum()
    return _reduced(loss, reduction, "nll_loss")


def _dtype(name):
    import pullback
    return getattr(pullback, name)


op("nll_loss(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
   "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean') -> Tensor",
   composite=_nll_loss, method=False, namespace="functional",
   doc="Return the negative log likelihood of target classes.\n\n"
       "Shape: (n, c, ...) and (n, ...), or (c) and ().")


def _cross_entropy(self, target, weight, size_average, ignore_index, reduce, reduction,
                   label_smoothing):
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    dim = 1 if self.ndim > 1 else 0
    logs = ops.log_softmax(self, dim, None)
    if target.dtype.is_floating_point:
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
        return _reduced(loss, reduction, "cross_entropy")
    if weight is None:
        return loss.sum() / kept.to(loss.dtype).sum()
    safe = ops.where(kept, target, 0)
    picked = ops.index_select(weight, 0, safe.reshape(-1)).reshape(safe.shape)
    return loss.sum() / (picked * kept.to(loss.dtype)).sum()


def _soft_targets(logs, target, weight, reduction, label_smoothing, dim):
    if target.shape != logs.shape:
        raise RuntimeError(f"Expected floating point type for target with class probabilities of "
                           f"shape {list(logs.shape)}, got {list(target.shape)}")
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
    return _reduced(loss, reduction, "cross_entropy")


op("cross_entropy(self: Tensor, target: Tensor, weight: Tensor? = None, size_average: any = None, "
   "ignore_index: int = -100, reduce: any = None, reduction: str = 'mean', "
   "label_smoothing: float = 0.0) -> Tensor", composite=_cross_entropy, method=False,
   namespace="functional",
   doc="Return nll_loss(log_softmax(self), target); target holds classes or probabilities.")


def _mse_loss(self, target, reduction):
    difference = self - target
    return _reduced(difference * difference, reduction, "mse_loss")


op("mse_loss(self: Tensor, target: Tensor, *, reduction: str = 'mean') -> Tensor",
   composite=_mse_loss, method=False, namespace="functional",
   doc="Return the squared difference, reduced.")


def _linear(self, weight, bias):
    out = ops.matmul(self, weight.t())
    return out if bias is None else out + bias


op("linear(self: Tensor, weight: Tensor, bias: Tensor? = None) -> Tensor", composite=_linear,
   method=False, namespace="functional",
   doc="Return self @ weight.T + bias.\n\nShape: (..., in), (out, in), (out) give (..., out).")


# -- dropout ------------------------------------------------------------------------------------------------------

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
   doc="Return self with elements zeroed with probability p and the others scaled by 1 / (1 - p).")
