"""Normalizations of each sample: by layer, by group, by the mean square."""

import functools

from pullback.ops.nn.normalization.checks import (
    check_floating,
    check_more_than_one,
    check_parameters,
)
from pullback.ops.nn.normalization.standardize import given, scale_samples, standardize_spec
from pullback.ops.rules.arguments import check_sequence
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, unsupported
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, HALF, op, ops

references = references_of("normalization")


# -- layer and group -------------------------------------------------------------------------------


def _normalized_dims(name, size, normalized_shape, **parameters):
    """Check the trailing shape that is normalized; returns it and its dims."""
    check_sequence(normalized_shape, name, "normalized_shape", 2)
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., "
            "containing at least one element, but got normalized_shape = []"
        )
    for argument, value in parameters.items():
        if value is not None and value != shape:
            raise RuntimeError(
                f"Expected {argument} to be of same shape as normalized_shape, but "
                f"got {argument} of shape {list(value)} and normalized_shape "
                f"= {list(shape)}"
            )
    if size[max(len(size) - len(shape), 0) :] != shape:
        sizes = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[{sizes}], but got input of size{list(size)}"
        )
    return shape, tuple(range(len(size) - len(shape), len(size)))


def shape_of(parameter):
    return None if parameter is None else parameter.shape


@functools.lru_cache(maxsize=512)
def _layer_norm_spec(size, normalized_shape, weight, bias, eps):
    """Check shapes; return the output spec of standardized."""
    shape, dims = _normalized_dims("layer_norm", size, normalized_shape, weight=weight, bias=bias)
    affine = (1,) * dims[0] + shape
    four = product(size[: dims[0]]), 1, product(shape), 1
    return standardize_spec(size, size, dims, affine, four, eps, given(weight, bias))


def _standardized(self, weight, bias, spec, kernel, kind):
    """Check dtypes; return the normalized tensor."""
    if not FLOATING >> self.dtype.code & 1:
        raise unsupported(kernel, self.dtype)
    check_parameters(self, weight, bias)
    if HALF >> self.dtype.code & 1 or not self.numel():
        return ops.normalized(self, weight, bias, *spec[3:], spec[2][3], kind)[0]
    return ops.standardized(self, weight, bias, spec, kind)[0]


def layer_norm(self, normalized_shape, weight, bias, eps):
    given = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    spec = _layer_norm_spec(self.shape, given, shape_of(weight), shape_of(bias), eps)
    return _standardized(self, weight, bias, spec, "LayerNormKernelImpl", "Layer")


_LAYERS = [
    case(T(2, 3), (3,)),
    case(T(2, 3), (3,), scale_samples(3), T(3)),
    case(T(2, 2, 3), [2, 3], scale_samples(2, 3)),
    case(T(2, 2, 3), (3,), None, T(3), 0.1),
    case(T(0, 3), (3,)),
    case(T(3), (3,), scale_samples(3)),
]
_NORMALIZED = (
    "Return self standardized over its last dims, which have the normalized shape, "
    "times weight plus bias.\n\nThe variance is the biased one."
)
op(
    "layer_norm(self: Tensor, normalized_shape: int[], weight: Tensor? = None, "
    "bias: Tensor? = None, eps: float = 1e-05) -> Tensor",
    composite=layer_norm,
    autocast=(None, "float32"),
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.layer_norm,
    samples=_LAYERS,
    doc=_NORMALIZED,
)
op(
    "layer_norm.top(self: Tensor, normalized_shape: int[], weight: Tensor? = None, "
    "bias: Tensor? = None, eps: float = 1e-05, cudnn_enable: bool = True) -> Tensor",
    autocast=(None, "float32"),
    method=False,
    composite=lambda self, normalized_shape, weight, bias, eps, cudnn_enable: layer_norm(
        self, normalized_shape, weight, bias, eps
    ),
    function="layer_norm",
    dtypes=FLOATING,
    ref=references.layer_norm,
    samples=_LAYERS[:2],
    doc=_NORMALIZED,
)


@functools.lru_cache(maxsize=512)
def _group_norm_spec(size, num_groups, weight, bias, eps, checked):
    """Check shapes, for nn.functional more of them; return the output spec of standardized."""
    if checked and len(size) >= 2:
        sizes = [size[0] * size[1] // num_groups, *size[2:]]
        check_more_than_one([sizes[0], num_groups, *sizes[1:]], product(sizes))
    if len(size) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(size)}"
        )
    count, channels = size[:2]
    inner = product(size[2:])
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {list(size)} and num_groups={num_groups}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value != (channels,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of "
                f"channels in input, but got {name} of shape {list(value)} "
                f"and input of shape {list(size)}"
            )
    each = channels // num_groups
    view = (count, num_groups, each * inner)
    affine = (1, channels, *(1,) * (len(size) - 2))
    return standardize_spec(
        size, view, (2,), affine, (count, num_groups, each, inner), eps, given(weight, bias)
    )


def group_norm(self, num_groups, weight, bias, eps, checked=False):
    spec = _group_norm_spec(self.shape, num_groups, shape_of(weight), shape_of(bias), eps, checked)
    return _standardized(self, weight, bias, spec, "GroupNormKernelImpl", "Group")


def _functional_group_norm(self, num_groups, weight, bias, eps):
    return group_norm(self, num_groups, weight, bias, eps, True)


_GROUPS = [
    case(T(2, 4, 3), 2),
    case(T(2, 4, 3), 2, scale_samples(4), T(4)),
    case(T(2, 4), 2, scale_samples(4)),
    case(T(1, 2, 2, 2), 1, None, T(2), 0.1),
    case(T(0, 4, 3), 2),
]
_BY_GROUP = (
    "Return self standardized over groups of channels (dim 1) and all later dims, times "
    "weight plus bias of each channel."
)
op(
    "group_norm(self: Tensor, num_groups: int, weight: Tensor? = None, bias: Tensor? = None, "
    "eps: float = 1e-05) -> Tensor",
    autocast=(None, "float32"),
    composite=_functional_group_norm,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.group_norm,
    samples=_GROUPS,
    doc=_BY_GROUP,
)
op(
    "group_norm.top(self: Tensor, num_groups: int, weight: Tensor? = None, bias: Tensor? = None, "
    "eps: float = 1e-05, cudnn_enabled: bool = True) -> Tensor",
    autocast=(None, "float32"),
    method=False,
    composite=lambda self, num_groups, weight, bias, eps, cudnn_enabled: group_norm(
        self, num_groups, weight, bias, eps
    ),
    function="group_norm",
    dtypes=FLOATING,
    ref=references.group_norm,
    samples=_GROUPS[:2],
    doc=_BY_GROUP,
)


# -- the mean square, and neighbouring channels ----------------------------------------------------


def _rms_norm(self, normalized_shape, weight, eps):
    import pullback

    _, dims = _normalized_dims("rms_norm", self.shape, normalized_shape, weight=shape_of(weight))
    check_floating("rms_norm", self, complex_too=True)
    wide = cast_to(self, accumulate_dtype(self.dtype))
    if eps is None:
        real = wide.dtype.to_real() if wide.is_complex() else wide.dtype
        eps = pullback.finfo(real).eps
    out = wide * ops.rsqrt((wide * wide).mean(dims, True) + eps)
    return (out if weight is None else out * weight).to(self.dtype)


op(
    "rms_norm(self: Tensor, normalized_shape: int[], weight: Tensor? = None, eps: float? = None) "
    "-> Tensor",
    autocast=(None, "float32"),
    composite=_rms_norm,
    method=False,
    namespace=("", "functional"),
    dtypes=FLOAT_COMPLEX,
    ref=references.rms_norm,
    doc="Return self over the root of its mean square over the last dims, times weight.\n\n"
    "eps is added to the mean square; the default is that of the dtype.",
    kinks=[kink([0.0, 0.0], (2,), to=[2.0**26, 2.0**26], outside="it turns 1e-8 away from there")],
    samples=lambda: [
        case(T(2, 3), (3,)),
        case(T(2, 3), (3,), scale_samples(3)),
        case(T(2, 2, 3), [2, 3], scale_samples(2, 3), 0.1),
        case(T(0, 3), (3,)),
        case(T(3), (3,)),
    ],
)
