"""Helpers of losses: reductions, checks of arguments, deprecated arguments."""

import warnings

from pullback.ops.rules.dtypes import unsupported
from pullback.ops.rules.shapes import broadcast_shape

REDUCTIONS = ("none", "mean", "sum")  # as primitives number them
OLD = "size_average: any = None, reduce: any = None, reduction: str = 'mean'"


def reduced(loss, reduction):
    """Return the loss as it is, its mean or its sum."""
    return loss if reduction == "none" else getattr(loss, reduction)()


def checked_reduction(size_average, reduce, reduction, extra=()):
    """Check a reduction, or derive it from size_average and reduce."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead.",
            UserWarning,
            stacklevel=4,
        )
    if reduction not in REDUCTIONS and reduction not in extra:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def numbered_reduction(name, number):
    """Return the reduction that torch's functions outside nn.functional name by a number."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name}(): argument 'reduction' must be int, not {type(number).__name__}")
    return {1: "mean", 2: "sum"}.get(number, "none")


def share(g, self, reduction):
    """Return the part of the gradient of a reduced loss that belongs to each of its terms."""
    return g / self.numel() if reduction == "mean" else g


def warn_of_sizes(self, target):
    """Warn as torch does when a target is broadcast."""
    if target.shape != self.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({self.shape}). This will likely lead to incorrect results due to "
            f"broadcasting. Please ensure they have the same size.",
            UserWarning,
            stacklevel=4,
        )


def broadcast(self, target):
    """Return two tensors in their common shape."""
    if self.shape == target.shape:
        return self, target
    shape = broadcast_shape(self.shape, target.shape)
    return self.expand(shape), target.expand(shape)


def promoted_floats(kernel, self, target):
    """Return two tensors in their common dtype, which must be a real floating one."""
    import pullback

    dtype = pullback.promote_types(self.dtype, target.dtype)
    if not dtype.is_floating_point:
        raise unsupported(kernel, dtype)
    return self.to(dtype), target.to(dtype)


def check_no_grad(name, argument, value):
    """Raise RuntimeError for an argument by which torch does not differentiate."""
    if value is not None and value.requires_grad:
        raise RuntimeError(
            f"The function '{name}' is not differentiable with respect to argument "
            f"'{argument}'. This input cannot have requires_grad True."
        )
