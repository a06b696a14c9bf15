"""Normalizations: by layer, group, batch and instance, by the mean square, and across channels."""

import functools
import math
from collections import namedtuple

from pullback.ops.nn.loss_util import refuse_grad
from pullback.ops.rules.dims import accumulate_dtype, cast_to, refuse_dtype, unsupported
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import FEW, OWN_DTYPE, new_empty, new_filled, run_primitive
from pullback.ops.table.samples import T, case, constant, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, HALF, op, ops

references = references_of("nn")

# -- the primitives --------------------------------------------------------------------------------


def _standardized(self, view, dims, eps):
    """Return the elements less their mean, over their deviation; and the mean and the variance."""
    wide = cast_to(self, accumulate_dtype(self.dtype)).reshape(view)
    mean = wide.mean(dims, True)
    center = wide - mean
    variance = (center * center).mean(dims, True)
    return center, ops.rsqrt(variance + eps), mean, variance


def _affine(out, weight, bias, shape):
    if weight is not None:
        out = out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def _four_dims(self, view, dims, kind):
    """Return the shape in which fused kernels see a tensor: primitives.py says what it means."""
    if kind == "Layer":
        return _count(view[:dims[0]]), 1, _count(view[dims[0]:]), 1
    groups = view[1]
    return self.shape[0], groups, self.shape[1] // max(groups, 1), _count(self.shape[2:])


def _channel_values(value, like, shape, default):
    """Return a weight or bias, or what stands for one that is missing, of all channels."""
    if value is None:
        return new_filled(like, (1, 1), default).expand(shape[1:3])
    return cast_to(value, like.dtype).reshape(shape[1:3])


def _statistics(mean, variance, eps, shape):
    """Return the mean and the scale of each group, as the fused kernels take them."""
    rows = (mean.numel() // shape[1] if shape[1] else 1, shape[1])
    return mean.reshape(rows), ops.rsqrt(variance.reshape(rows) + eps)


def standard_plan(shape, view, dims, affine, four, eps, given):
    """Return the plan of standardized: its parameters are those of the primitive."""
    found = tuple([1 if d in dims else n for d, n in enumerate(view)])
    return ((shape, found, found), (OWN_DTYPE,) * 3, (*four[1:], eps, given), view, dims, affine)


def _given(weight, bias):
    """Tell a kernel which parameters there are."""
    return (weight is not None) + 2 * (bias is not None)


def _normalized_forward(self, weight, bias, view, dims, affine, eps, kind):
    wide = cast_to(self, accumulate_dtype(self.dtype))
    if kind == "Batch" or not self.numel():
        found = composed_normalized(wide, weight, bias, view, dims, affine, eps, kind)
    else:
        four = _four_dims(self, view, dims, kind)
        found = ops.standardized(
            wide, *[part if part is None else cast_to(part, wide.dtype) for part in (weight, bias)],
            standard_plan(self.shape, view, dims, affine, four, eps, _given(weight, bias)), kind)
    return cast_to(found[0], self.dtype), *found[1:]


def composed_normalized(self, weight, bias, view, dims, affine, eps, kind):
    if self.numel() <= FEW:
        center, scale, mean, variance = _standardized(self, view, dims, eps)
        return (_affine((center * scale).reshape(self.shape), weight, bias, affine), mean,
                variance)
    mean, squares = ops.moments(self.reshape(view), dims)
    variance = squares / _count(view[d] for d in dims)
    shape = _four_dims(self, view, dims, kind)
    out = ops.normalize_channels(
        self.reshape(shape), *_statistics(mean, variance, eps, shape),
        _channel_values(weight, self, shape, 1), _channel_values(bias, self, shape, 0))
    return out.reshape(self.shape), mean, variance


@decomposition("standardize")
def composed_standard(self, weight, bias, plan, kind):
    out, *statistics = composed_normalized(self, weight, bias, *plan[3:], plan[2][3], kind)
    return out.contiguous(), *statistics        # as the kernel's


def _normalize(self, mean, scale, weight, bias):
    out = new_empty(self, self.shape)
    if out.numel():
        run_primitive("normalize", (out,), (self.contiguous(), mean.contiguous(),
                                            scale.contiguous(), weight, bias))
    return out


_Slopes = namedtuple("slopes", ("self", "weight", "bias"))


def _normalize_backward(self, source, mean, scale, weight):
    found = _Slopes(new_empty(source, source.shape), new_empty(source, weight.shape),
                    new_empty(source, weight.shape))
    if weight.numel():
        run_primitive("normalize_backward", tuple(found),
                 (self.contiguous(), source.contiguous(), mean.contiguous(), scale.contiguous(),
                  weight))
    return found


_normalize_backward.fields = _Slopes    # what a decomposition's results become


def _normalized_vjp(gs, self, weight, bias, out1, out2, view, dims, affine, eps, kind):
    from pullback._c.base.state import is_grad_enabled
    g = gs[0]
    if g is None:
        return None, None, None
    if is_grad_enabled() or self.numel() <= FEW:
        return *_recorded_vjp(g, self, weight, view, dims, affine, eps), (
            None if bias is None else _summed(g, affine, bias.shape))
    wide = cast_to(self, accumulate_dtype(self.dtype))
    shape = _four_dims(self, view, dims, kind)
    found = ops.normalize_backward(
        cast_to(g, wide.dtype).reshape(shape), wide.reshape(shape),
        *_statistics(out1, out2, eps, shape), _channel_values(weight, wide, shape, 1))
    return (found[0].reshape(self.shape),
            None if weight is None else found[1].reshape(weight.shape),
            None if bias is None else found[2].reshape(bias.shape))


def _recorded_vjp(g, self, weight, view, dims, affine, eps):
    """Statistics are taken again, as functions of self: so the formula has a derivative too."""
    center, scale, _, _ = _standardized(self, view, dims, eps)
    unit = center * scale
    inner = (g if weight is None else g * weight.reshape(affine)).reshape(view)
    slope = scale * (inner - inner.mean(dims, True) - unit * (inner * unit).mean(dims, True))
    if weight is None:
        return slope.reshape(self.shape), None
    return slope.reshape(self.shape), _summed(g * unit.reshape(self.shape), affine, weight.shape)


def _summed(g, affine, shape):
    return ops.sum_to_size(g, tuple(affine)).reshape(shape)


def _scales(*shape):
    return T(*shape, low=0.5, high=2)


_PARTS = dict.fromkeys(("grad", "gradgrad", "compiled"),
                       "mean and variance are for running statistics, and have no derivative")
# Large enough for the fused kernels.
_LARGE = [case(T(65, 64), _scales(64), T(64), (65, 64), (1,), (1, 64), 1e-5, "Layer", skip=_PARTS),
          case(T(5, 4, 210), _scales(4), T(4), (5, 2, 420), (2,), (1, 4, 1), 1e-5, "Group",
               skip=_PARTS),
          case(T(5, 4, 210), None, T(4), (5, 4, 210), (0, 2), (1, 4, 1), 1e-5, "Batch",
               skip=_PARTS)]
op("normalized(self: Tensor, weight: Tensor?, bias: Tensor?, view: int[], dims: int[], "
   "affine: int[], eps: float, kind: str) -> Tensor[]", forward=_normalized_forward, method=False,
   function=False, node=lambda kind: f"Native{kind}NormBackward0",
   vjp={("self", "weight", "bias"): _normalized_vjp},
   doc="Return self, seen in the shape `view` and standardized over dims, times weight plus bias; "
       "and the mean and variance.\n\nSource: Ba et al., \"Layer normalization\", 2016, "
       "equation 3.",
   dtypes=FLOATING, ref=references.normalized,
   samples=[case(T(2, 3, 4), _scales(3), T(3), (2, 3, 4), (0, 2), (1, 3, 1), 1e-5, "Batch",
                 skip=_PARTS),
            case(T(2, 4), None, None, (2, 2, 2), (2,), (1, 4), 1e-3, "Group", skip=_PARTS),
            *_LARGE])


op("standardized(self: Tensor, weight: Tensor?, bias: Tensor?, plan: any, kind: str) -> Tensor[]",
   forward="planned", kernel="standardize", method=False, function=False,
   node=lambda kind: f"Native{kind}NormBackward0",
   vjp={("self", "weight", "bias"): lambda gs, self, weight, bias, out1, out2, plan, kind:
        _normalized_vjp(gs, self, weight, bias, out1, out2, *plan[3:], plan[2][3], kind)},
   doc="Return what normalized does, by rows of neighbours.", dtypes=FLOATING & ~HALF,
   ref=lambda np, self, weight, bias, plan, kind: references.normalized(
       np, self, weight, bias, *plan[3:], plan[2][3], kind),
   samples=[case(T(2, 4), _scales(4), None, standard_plan(
                (2, 4), (2, 2, 2), (2,), (1, 4), (2, 2, 2, 1), 1e-3, 1), "Group", skip=_PARTS),
            case(T(2, 3, 4), _scales(3, 4), T(3, 4), standard_plan(
                (2, 3, 4), (2, 3, 4), (1, 2), (1, 3, 4), (2, 1, 12, 1), 1e-5, 3), "Layer",
                skip=_PARTS)])


_FUSED = dict(method=False, function=False, dtypes=FLOATING & ~HALF)
_GROUPED = [case(T(2, 3, 4, 5), T(rows, 3), _scales(rows, 3), _scales(3, 4), T(3, 4))
            for rows in (2, 1)]
op("normalize_channels(self: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) "
   "-> Tensor", forward=_normalize, kernel="normalize", **_FUSED,
   doc="Return (self - mean) * scale * weight + bias; the arguments are those of the primitive.",
   ref=references.normalize_channels, samples=_GROUPED)
op("normalize_backward(self: Tensor, source: Tensor, mean: Tensor, scale: Tensor, weight: Tensor) "
   "-> any", forward=_normalize_backward, kernel="normalize_backward", **_FUSED,
   doc="Return the gradients of a normalized tensor, its weight and its bias.",
   ref=references.normalize_backward,
   samples=[case(T(2, 3, 4, 5), *one.args[:4]) for one in _GROUPED])


def _batch_norm_eval(self, weight, bias, mean, variance, shape, eps):
    wide = cast_to(self, accumulate_dtype(self.dtype))
    scale = ops.rsqrt(variance.reshape(shape) + eps)
    out = _affine((wide - mean.reshape(shape)) * scale, weight, bias, shape)
    return cast_to(out, self.dtype)


def _eval_slope(g, weight, variance, shape, eps):
    scale = ops.rsqrt(variance.reshape(shape) + eps)
    return g * (scale if weight is None else scale * weight.reshape(shape))


def _eval_weight_slope(g, self, mean, variance, shape, eps, weight_shape):
    unit = (self - mean.reshape(shape)) * ops.rsqrt(variance.reshape(shape) + eps)
    return _summed(g * unit, shape, weight_shape)


op("batch_norm_eval(self: Tensor, weight: Tensor?, bias: Tensor?, mean: Tensor, variance: Tensor, "
   "shape: int[], eps: float) -> Tensor", forward=_batch_norm_eval, method=False, function=False,
   node="NativeBatchNormBackward0", dtypes=FLOATING,
   vjp={"self": lambda g, weight, variance, shape, eps: _eval_slope(
            g, weight, variance, shape, eps),
        "weight": lambda g, self, mean, variance, shape, eps, weight_shape: _eval_weight_slope(
            g, self, mean, variance, shape, eps, weight_shape),
        "bias": lambda g, shape, bias_shape: _summed(g, shape, bias_shape)},
   doc="Return self less a given mean over a given deviation, times weight plus bias.",
   ref=references.batch_norm_eval,
   samples=[case(T(2, 3), _scales(3), T(3), constant(3), constant(3, low=0.5, high=2), (1, 3),
                 1e-5),
            case(T(2, 3, 2), None, None, constant(3), constant(3, low=0.5, high=2), (1, 3, 1),
                 0.1)])


# -- checks ----------------------------------------------------------------------------------------

def _check_floating(name, self, complex_too=False):
    refuse_dtype(name, self, "fc" if complex_too else "f")


def _check_parameters(self, *parameters):
    """Parameters have the input's dtype; those of 16-bit inputs may have float32."""
    for parameter in parameters:
        if parameter is not None and parameter.dtype != self.dtype and (
                parameter.dtype != accumulate_dtype(self.dtype)):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


def _check_more_than_one(self, count):
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size "
                         f"{self.shape}")


def _count(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


# -- layer and group -------------------------------------------------------------------------------

def _normalized_dims(name, size, normalized_shape, **parameters):
    """Check the trailing shape that is normalized; returns it and its dims."""
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"{name}(): argument 'normalized_shape' (position 2) must be tuple of "
                        f"ints, not {type(normalized_shape).__name__}")
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., "
                           "containing at least one element, but got normalized_shape = []")
    for argument, value in parameters.items():
        if value is not None and value != shape:
            raise RuntimeError(f"Expected {argument} to be of same shape as normalized_shape, but "
                               f"got {argument} of shape {list(value)} and normalized_shape "
                               f"= {list(shape)}")
    if size[max(len(size) - len(shape), 0):] != shape:
        sizes = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape "
                           f"[{sizes}], but got input of size{list(size)}")
    return shape, tuple(range(len(size) - len(shape), len(size)))


def _shape_of(parameter):
    return None if parameter is None else parameter.shape


@functools.lru_cache(maxsize=512)
def _layer_plan(size, normalized_shape, weight, bias, eps):
    """Check shapes; return the plan of standardized."""
    shape, dims = _normalized_dims("layer_norm", size, normalized_shape, weight=weight, bias=bias)
    affine = (1,) * dims[0] + shape
    four = _count(size[:dims[0]]), 1, _count(shape), 1
    return standard_plan(size, size, dims, affine, four, eps, _given(weight, bias))


def _by_plan(self, weight, bias, plan, kernel, kind):
    """Check dtypes; return the normalized tensor."""
    if not FLOATING >> self.dtype.code & 1:
        raise unsupported(kernel, self.dtype)
    _check_parameters(self, weight, bias)
    if HALF >> self.dtype.code & 1 or not self.numel():
        return ops.normalized(self, weight, bias, *plan[3:], plan[2][3], kind)[0]
    return ops.standardized(self, weight, bias, plan, kind)[0]


def _layer_norm(self, normalized_shape, weight, bias, eps):
    given = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    plan = _layer_plan(self.shape, given, _shape_of(weight), _shape_of(bias), eps)
    return _by_plan(self, weight, bias, plan, "LayerNormKernelImpl", "Layer")


_LAYERS = [case(T(2, 3), (3,)), case(T(2, 3), (3,), _scales(3), T(3)),
           case(T(2, 2, 3), [2, 3], _scales(2, 3)), case(T(2, 2, 3), (3,), None, T(3), 0.1),
           case(T(0, 3), (3,)), case(T(3), (3,), _scales(3))]
_NORMALIZED = ("Return self standardized over its last dims, which have the normalized shape, "
               "times weight plus bias.\n\nThe variance is the biased one.")
op("layer_norm(self: Tensor, normalized_shape: int[], weight: Tensor? = None, "
   "bias: Tensor? = None, eps: float = 1e-05) -> Tensor", composite=_layer_norm, method=False,
   namespace="functional", dtypes=FLOATING, ref=references.layer_norm, samples=_LAYERS,
   doc=_NORMALIZED)
op("plain_layer_norm(self: Tensor, normalized_shape: int[], weight: Tensor? = None, "
   "bias: Tensor? = None, eps: float = 1e-05, cudnn_enable: bool = True) -> Tensor", method=False,
   composite=lambda self, normalized_shape, weight, bias, eps, cudnn_enable: _layer_norm(
       self, normalized_shape, weight, bias, eps), function="layer_norm", dtypes=FLOATING,
   ref=references.layer_norm, samples=_LAYERS[:2], doc=_NORMALIZED)


@functools.lru_cache(maxsize=512)
def _group_plan(size, num_groups, weight, bias, eps, checked):
    """Check shapes, for nn.functional more of them; return the plan of standardized."""
    if checked and len(size) >= 2:
        sizes = [size[0] * size[1] // num_groups, *size[2:]]
        if _count(sizes) == 1:
            sizes.insert(1, num_groups)
            raise ValueError(f"Expected more than 1 value per channel when training, got input "
                             f"size {sizes}")
    if len(size) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received "
                           f"{len(size)}")
    count, channels = size[:2]
    inner = _count(size[2:])
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, "
                           f"but got input of shape {list(size)} and num_groups={num_groups}")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value != (channels,):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of "
                               f"channels in input, but got {name} of shape {list(value)} "
                               f"and input of shape {list(size)}")
    each = channels // num_groups
    view = (count, num_groups, each * inner)
    affine = (1, channels, *(1,) * (len(size) - 2))
    return standard_plan(size, view, (2,), affine, (count, num_groups, each, inner), eps,
                         _given(weight, bias))


def _group_norm(self, num_groups, weight, bias, eps, checked=False):
    plan = _group_plan(self.shape, num_groups, _shape_of(weight), _shape_of(bias), eps, checked)
    return _by_plan(self, weight, bias, plan, "GroupNormKernelImpl", "Group")


def _functional_group_norm(self, num_groups, weight, bias, eps):
    return _group_norm(self, num_groups, weight, bias, eps, True)


_GROUPS = [case(T(2, 4, 3), 2), case(T(2, 4, 3), 2, _scales(4), T(4)), case(T(2, 4), 2, _scales(4)),
           case(T(1, 2, 2, 2), 1, None, T(2), 0.1), case(T(0, 4, 3), 2)]
_BY_GROUP = ("Return self standardized over groups of channels (dim 1) and all later dims, times "
             "weight plus bias of each channel.")
op("group_norm(self: Tensor, num_groups: int, weight: Tensor? = None, bias: Tensor? = None, "
   "eps: float = 1e-05) -> Tensor", composite=_functional_group_norm, method=False,
   namespace="functional", dtypes=FLOATING, ref=references.group_norm, samples=_GROUPS,
   doc=_BY_GROUP)
op("plain_group_norm(self: Tensor, num_groups: int, weight: Tensor? = None, bias: Tensor? = None, "
   "eps: float = 1e-05, cudnn_enabled: bool = True) -> Tensor", method=False,
   composite=lambda self, num_groups, weight, bias, eps, cudnn_enabled: _group_norm(
       self, num_groups, weight, bias, eps), function="group_norm", dtypes=FLOATING,
   ref=references.group_norm, samples=_GROUPS[:2], doc=_BY_GROUP)


# -- batch and instance ----------------------------------------------------------------------------

def _check_channels(self, **parameters):
    channels = self.shape[1] if self.ndim > 1 else 0
    for name, value in parameters.items():
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")


def _unbiased(variance, count):
    return variance.detach() * (count / (count - 1) if count > 1 else math.nan)


def _update(running, value, momentum):
    """Move running statistics towards new ones, outside the graph."""
    if running is not None:
        kept = running.detach()
        ops.copy_(kept, kept * (1 - momentum) + value.detach().reshape(kept.shape) * momentum)


def _check_statistics(self, weight, bias, mean, variance):
    refuse_grad("native_batch_norm", "running_mean", mean)
    refuse_grad("native_batch_norm", "running_var", variance)
    _check_channels(self, running_mean=mean, running_var=variance, weight=weight, bias=bias)
    _check_floating("batch_norm", self)
    _check_parameters(self, weight, bias, mean, variance)


def _by_channel(self):
    return (1, self.shape[1], *(1,) * (self.ndim - 2))


def _batch_norm(self, weight, bias, mean, variance, training, momentum, eps):
    if not training:
        for name, value in (("running_mean", mean), ("running_var", variance)):
            if value is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    if self.ndim < 2:
        _check_channels(self, running_mean=mean, running_var=variance, weight=weight, bias=bias)
        if self.ndim and not self.numel():
            return ops.clone(self)
        raise RuntimeError(f"batch_norm: expected at least 2 dims, got {self.ndim}")
    _check_statistics(self, weight, bias, mean, variance)
    shape = _by_channel(self)
    if not training:
        return ops.batch_norm_eval(self, weight, bias, mean, variance, shape, eps)
    dims = tuple(d for d in range(self.ndim) if d != 1)
    out, found, spread = ops.normalized(self, weight, bias, tuple(self.shape), dims, shape, eps,
                                        "Batch")
    count = _count(self.shape[d] for d in dims)
    if count:
        _update(mean, found, momentum)
        _update(variance, _unbiased(spread, count), momentum)
    return out


def _functional_batch_norm(self, running_mean, running_var, weight, bias, training, momentum, eps):
    if training and self.ndim > 1:
        _check_more_than_one(self, _count(self.shape) // max(self.shape[1], 1))
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    if training and (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    return _batch_norm(self, weight, bias, running_mean, running_var, training, momentum, eps)


_GIVEN = constant(3), constant(3, low=0.5, high=2)
# Running statistics are written to, so these samples do without, or do not train.
_BATCHES = [case(T(2, 3, 4), None, None, _scales(3), T(3), True), case(T(4, 3), None, None,
                                                                       training=True),
            case(T(2, 3, 4), *_GIVEN, _scales(3), T(3)), case(T(2, 3), *_GIVEN, eps=0.1),
            case(T(2, 3, 2, 2), None, None, _scales(3), None, True), case(T(0, 3), *_GIVEN)]
op("batch_norm(self: Tensor, running_mean: Tensor?, running_var: Tensor?, weight: Tensor? = None, "
   "bias: Tensor? = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05) "
   "-> Tensor", composite=_functional_batch_norm, method=False, namespace="functional",
   dtypes=FLOATING, ref=references.batch_norm, samples=_BATCHES,
   doc="Return each channel (dim 1) standardized, times weight plus bias.\n\nIn training by its "
       "own mean and biased variance, which move the running ones in place; otherwise by these.\n\n"
       "Raises: ValueError for a single value per channel in training.")
op("plain_batch_norm(self: Tensor, weight: Tensor?, bias: Tensor?, running_mean: Tensor?, "
   "running_var: Tensor?, training: bool, momentum: float, eps: float, cudnn_enabled: bool) "
   "-> Tensor", method=False, function="batch_norm", dtypes=FLOATING,
   composite=lambda self, weight, bias, running_mean, running_var, training, momentum, eps,
   cudnn_enabled: _batch_norm(self, weight, bias, running_mean, running_var, training, momentum,
                              eps),
   ref=lambda np, self, weight, bias, mean, variance, training, momentum, eps, cudnn: (
       references.batch_norm(np, self, mean, variance, weight, bias, training, momentum, eps)),
   samples=[case(T(2, 3, 4), _scales(3), T(3), None, None, True, 0.1, 1e-5, False),
            case(T(2, 3), _scales(3), T(3), *_GIVEN, False, 0.1, 1e-5, False)],
   doc="Return batch normalization; the arguments stand in another order than in nn.functional.")


def _instance_norm(self, weight, bias, mean, variance, use_input_stats, momentum, eps):
    if not use_input_stats and (mean is None or variance is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when "
                           "use_input_stats is false")
    if self.ndim < 2:
        raise RuntimeError(f"instance_norm: expected at least 2 dims, got {self.ndim}")
    _check_statistics(self, weight, bias, mean, variance)
    shape = _by_channel(self)
    if not use_input_stats:
        return ops.batch_norm_eval(self, weight, bias, mean, variance, shape, eps)
    dims = tuple(range(2, self.ndim))
    out, found, spread = ops.normalized(self, weight, bias, tuple(self.shape), dims, shape, eps,
                                        "Batch")
    count = _count(self.shape[2:])
    if self.shape[0] and count:
        _update(mean, found.detach().mean(0), momentum)
        _update(variance, _unbiased(spread, count).mean(0), momentum)
    return out


def _functional_instance_norm(self, running_mean, running_var, weight, bias, use_input_stats,
                              momentum, eps):
    if use_input_stats and _count(self.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size "
                         f"{self.shape}")
    return _instance_norm(self, weight, bias, running_mean, running_var, use_input_stats, momentum,
                          eps)


op("instance_norm(self: Tensor, running_mean: Tensor? = None, running_var: Tensor? = None, "
   "weight: Tensor? = None, bias: Tensor? = None, use_input_stats: bool = True, "
   "momentum: float = 0.1, eps: float = 1e-05) -> Tensor", composite=_functional_instance_norm,
   method=False, namespace="functional", dtypes=FLOATING, ref=references.instance_norm,
   doc="Return each channel (dim 1) of each sample standardized, times weight plus bias of the "
       "channel.\n\nBy its own mean and variance, or by the running ones; the running ones move "
       "towards the average over the samples.",
   samples=[case(T(2, 3, 4)), case(T(2, 3, 4), weight=_scales(3), bias=T(3)),
            case(T(2, 3, 2, 2), eps=0.1), case(T(2, 3, 4), *_GIVEN, _scales(3), T(3), False)])
op("plain_instance_norm(self: Tensor, weight: Tensor?, bias: Tensor?, running_mean: Tensor?, "
   "running_var: Tensor?, use_input_stats: bool, momentum: float, eps: float, "
   "cudnn_enabled: bool) -> Tensor", method=False, function="instance_norm", dtypes=FLOATING,
   composite=lambda self, weight, bias, running_mean, running_var, use_input_stats, momentum, eps,
   cudnn_enabled: _instance_norm(self, weight, bias, running_mean, running_var, use_input_stats,
                                 momentum, eps),
   ref=lambda np, self, weight, bias, mean, variance, use, momentum, eps, cudnn: (
       references.instance_norm(np, self, mean, variance, weight, bias, use, momentum, eps)),
   samples=[case(T(2, 3, 4), _scales(3), T(3), None, None, True, 0.1, 1e-5, False),
            case(T(2, 3), _scales(3), T(3), *_GIVEN, False, 0.1, 1e-5, False)],
   doc="Return instance normalization; the arguments stand in another order than in "
       "nn.functional.")


# -- the mean square, and neighbouring channels ----------------------------------------------------

def _rms_norm(self, normalized_shape, weight, eps):
    import pullback
    _, dims = _normalized_dims("rms_norm", self.shape, normalized_shape, weight=_shape_of(weight))
    _check_floating("rms_norm", self, complex_too=True)
    wide = cast_to(self, accumulate_dtype(self.dtype))
    if eps is None:
        real = wide.dtype.to_real() if wide.is_complex() else wide.dtype
        eps = pullback.finfo(real).eps
    out = wide * ops.rsqrt((wide * wide).mean(dims, True) + eps)
    return (out if weight is None else out * weight).to(self.dtype)


op("rms_norm(self: Tensor, normalized_shape: int[], weight: Tensor? = None, eps: float? = None) "
   "-> Tensor", composite=_rms_norm, method=False, namespace=("", "functional"),
   dtypes=FLOAT_COMPLEX, ref=references.rms_norm,
   doc="Return self over the root of its mean square over the last dims, times weight.\n\n"
       "eps is added to the mean square; the default is that of the dtype.",
   samples=[case(T(2, 3), (3,)), case(T(2, 3), (3,), _scales(3)),
            case(T(2, 2, 3), [2, 3], _scales(2, 3), 0.1), case(T(0, 3), (3,)), case(T(3), (3,))])


def _local_response_norm(self, size, alpha, beta, k):
    if self.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input "
                         f"(got {self.ndim} dimensions)")
    _check_floating("avg_pool3d_out_frame", self)
    if not self.numel():
        return self
    if size <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got {size}")
    square = self * self
    channels = self.shape[1]
    edges = [ops.new_zeros(square, (self.shape[0], width, *self.shape[2:]))
             for width in (size // 2, (size - 1) // 2)]
    padded = ops.cat([edges[0], square, edges[1]], 1)
    total = padded.narrow(1, 0, channels)
    for start in range(1, size):
        total = total + padded.narrow(1, start, channels)
    return self / (total / size * alpha + k) ** beta


op("local_response_norm(self: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, "
   "k: float = 1.0) -> Tensor", composite=_local_response_norm, method=False,
   namespace="functional", dtypes=FLOATING, ref=references.local_response_norm,
   doc="Return self / (k + alpha * the mean square of `size` neighbouring channels) ** beta; "
       "channels are dim 1, and those beyond the ends count as 0.",
   samples=[case(T(2, 3, 4), 2), case(T(2, 4, 2), 3, 0.5), case(T(1, 5, 2, 2), 5, 1.0, 0.5, 2.0),
            case(T(2, 3, 2), 1, 1.0), case(T(2, 2, 2), 7, 1.0), case(T(0, 3, 4), 2)])
