"""Normalizations of each channel, by batch and instance, and across channels."""

import math

from pullback.ops.nn.losses.util import check_no_grad
from pullback.ops.nn.normalization.checks import (
    check_channels,
    check_floating,
    check_more_than_one,
    check_parameters,
    check_two_dims,
)
from pullback.ops.nn.normalization.standardize import scale_samples
from pullback.ops.rules.shapes import product
from pullback.ops.table.primitives_api import is_batched
from pullback.ops.table.samples import T, case, constant, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("normalization")


# -- batch and instance ----------------------------------------------------------------------------


def _unbiased(variance, count):
    return variance.detach() * count / (count - 1 if count > 1 else math.nan)


def _update(running, value, momentum):
    """Move running statistics towards new ones, outside the graph."""
    if running is not None:
        kept = running.detach()
        ops.copy_(kept, kept * (1 - momentum) + value.detach().reshape(kept.shape) * momentum)


def _check_statistics(self, weight, bias, mean, variance):
    check_no_grad("native_batch_norm", "running_mean", mean)
    check_no_grad("native_batch_norm", "running_var", variance)
    check_channels(self, running_mean=mean, running_var=variance, weight=weight, bias=bias)
    check_floating("batch_norm", self)
    check_parameters(self, weight, bias, mean, variance)


def _by_channel(self):
    return (1, self.shape[1], *(1,) * (self.ndim - 2))


def _check_batches(found, *statistics):
    """Raise where vmap would write running statistics that are the same for the whole batch."""
    written = [value for value in statistics if value is not None]
    if written and is_batched(found) and not all(map(is_batched, written)):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched.\nIf you are using a module and do not "
            "need eval mode, please set `track_running_stats` to be False, or use "
            "pullback.func.replace_all_batch_norm_modules_."
        )


def batch_norm(self, weight, bias, mean, variance, training, momentum, eps):
    if not training:
        for name, value in (("running_mean", mean), ("running_var", variance)):
            if value is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    if self.ndim < 2:
        check_channels(self, running_mean=mean, running_var=variance, weight=weight, bias=bias)
        if self.ndim and not self.numel():
            return ops.clone(self)
    check_two_dims("batch_norm", self)
    _check_statistics(self, weight, bias, mean, variance)
    shape = _by_channel(self)
    if not training:
        return ops.batch_norm_eval(self, weight, bias, mean, variance, shape, eps)
    dims = tuple(d for d in range(self.ndim) if d != 1)
    out, found, spread = ops.normalized(
        self, weight, bias, tuple(self.shape), dims, shape, eps, "Batch"
    )
    count = product(self.shape[d] for d in dims)
    if count:
        _check_batches(found, mean, variance)
        _update(mean, found, momentum)
        _update(variance, _unbiased(spread, count), momentum)
    return out


def _functional_batch_norm(self, running_mean, running_var, weight, bias, training, momentum, eps):
    if training and self.ndim > 1:
        check_more_than_one(self.shape, product(self.shape) // max(self.shape[1], 1))
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    if training and (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    return batch_norm(self, weight, bias, running_mean, running_var, training, momentum, eps)


_GIVEN = constant(3), constant(3, low=0.5, high=2)
# Running statistics are written to, so these samples do without, or do not train.
_BATCHES = [
    case(T(2, 3, 4), None, None, scale_samples(3), T(3), True),
    case(T(4, 3), None, None, training=True),
    case(T(2, 3, 4), *_GIVEN, scale_samples(3), T(3)),
    case(T(2, 3), *_GIVEN, eps=0.1),
    case(T(2, 3, 2, 2), None, None, scale_samples(3), None, True),
    case(T(0, 3), *_GIVEN),
]
op(
    "batch_norm(self: Tensor, running_mean: Tensor?, running_var: Tensor?, weight: Tensor? = None, "
    "bias: Tensor? = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05) "
    "-> Tensor",
    composite=_functional_batch_norm,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.batch_norm,
    samples=_BATCHES,
    doc="Return each channel (dim 1) standardized, times weight plus bias.\n\nIn training by its "
    "own mean and biased variance, which move the running ones in place; otherwise by these.\n\n"
    "Raises: ValueError for a single value per channel in training.",
)
op(
    "batch_norm.top(self: Tensor, weight: Tensor?, bias: Tensor?, running_mean: Tensor?, "
    "running_var: Tensor?, training: bool, momentum: float, eps: float, cudnn_enabled: bool) "
    "-> Tensor",
    method=False,
    function="batch_norm",
    dtypes=FLOATING,
    composite=lambda self, weight, bias, mean, variance, training, momentum, eps, cudnn_enabled: (
        batch_norm(self, weight, bias, mean, variance, training, momentum, eps)
    ),
    ref=lambda np, self, weight, bias, mean, variance, training, momentum, eps, cudnn: (
        references.batch_norm(np, self, mean, variance, weight, bias, training, momentum, eps)
    ),
    samples=lambda: [
        case(T(2, 3, 4), scale_samples(3), T(3), None, None, True, 0.1, 1e-5, False),
        case(T(2, 3), scale_samples(3), T(3), *_GIVEN, False, 0.1, 1e-5, False),
    ],
    doc="Return batch normalization; the arguments stand in another order than in nn.functional.",
)


def _instance_norm(self, weight, bias, mean, variance, use_input_stats, momentum, eps):
    if not use_input_stats and (mean is None or variance is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    check_two_dims("instance_norm", self)
    _check_statistics(self, weight, bias, mean, variance)
    shape = _by_channel(self)
    if not use_input_stats:
        return ops.batch_norm_eval(self, weight, bias, mean, variance, shape, eps)
    dims = tuple(range(2, self.ndim))
    out, found, spread = ops.normalized(
        self, weight, bias, tuple(self.shape), dims, shape, eps, "Batch"
    )
    count = product(self.shape[2:])
    if self.shape[0] and count:
        _update(mean, found.detach().mean(0), momentum)
        _update(variance, _unbiased(spread, count).mean(0), momentum)
    return out


def _functional_instance_norm(
    self, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
):
    if use_input_stats and product(self.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {self.shape}"
        )
    return _instance_norm(
        self, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )


op(
    "instance_norm(self: Tensor, running_mean: Tensor? = None, running_var: Tensor? = None, "
    "weight: Tensor? = None, bias: Tensor? = None, use_input_stats: bool = True, "
    "momentum: float = 0.1, eps: float = 1e-05) -> Tensor",
    composite=_functional_instance_norm,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.instance_norm,
    doc="Return each channel (dim 1) of each sample standardized, times weight plus bias of the "
    "channel.\n\nBy its own mean and variance, or by the running ones; the running ones move "
    "towards the average over the samples.",
    samples=lambda: [
        case(T(2, 3, 4)),
        case(T(2, 3, 4), weight=scale_samples(3), bias=T(3)),
        case(T(2, 3, 2, 2), eps=0.1),
        case(T(2, 3, 4), *_GIVEN, scale_samples(3), T(3), False),
    ],
)
op(
    "instance_norm.top(self: Tensor, weight: Tensor?, bias: Tensor?, running_mean: Tensor?, "
    "running_var: Tensor?, use_input_stats: bool, momentum: float, eps: float, "
    "cudnn_enabled: bool) -> Tensor",
    method=False,
    function="instance_norm",
    dtypes=FLOATING,
    composite=lambda self, weight, bias, mean, variance, use_input_stats, momentum, eps, cudnn: (
        _instance_norm(self, weight, bias, mean, variance, use_input_stats, momentum, eps)
    ),
    ref=lambda np, self, weight, bias, mean, variance, use, momentum, eps, cudnn: (
        references.instance_norm(np, self, mean, variance, weight, bias, use, momentum, eps)
    ),
    samples=lambda: [
        case(T(2, 3, 4), scale_samples(3), T(3), None, None, True, 0.1, 1e-5, False),
        case(T(2, 3), scale_samples(3), T(3), *_GIVEN, False, 0.1, 1e-5, False),
    ],
    doc="Return instance normalization; the arguments stand in another order than in "
    "nn.functional.",
)


# -- the mean square, and neighbouring channels ----------------------------------------------------


def _float32_of_volumes(self, *others):
    """Return the policy of autocast, as in torch, where the means of volumes have it."""
    return "float32" if self.ndim > 3 and self.numel() else None


def _float32_unless_empty(self, *others):
    return "float32" if self.numel() else None


def _local_response_norm(self, size, alpha, beta, k):
    if self.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input "
            f"(got {self.ndim} dimensions)"
        )
    check_floating("avg_pool3d_out_frame", self)
    if not self.numel():
        return self
    if size <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got {size}")
    square = self * self
    channels = self.shape[1]
    edges = [
        ops.new_zeros(square, (self.shape[0], width, *self.shape[2:]))
        for width in (size // 2, (size - 1) // 2)
    ]
    padded = ops.cat([edges[0], square, edges[1]], 1)
    total = padded.narrow(1, 0, channels)
    for start in range(1, size):
        total = total + padded.narrow(1, start, channels)
    return self / (total / size * alpha + k) ** beta


op(
    "local_response_norm(self: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, "
    "k: float = 1.0) -> Tensor",
    autocast=(_float32_of_volumes, _float32_unless_empty),
    composite=_local_response_norm,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.local_response_norm,
    doc="Return self / (k + alpha * the mean square of `size` neighbouring channels) ** beta; "
    "channels are dim 1, and those beyond the ends count as 0.",
    samples=lambda: [
        case(T(2, 3, 4), 2),
        case(T(2, 4, 2), 3, 0.5),
        case(T(1, 5, 2, 2), 5, 1.0, 0.5, 2.0),
        case(T(2, 3, 2), 1, 1.0),
        case(T(2, 2, 2), 7, 1.0),
        case(T(0, 3, 4), 2),
    ],
)
