"""torch's lower-level functions of networks: numbers for modes, and statistics beside results."""

from pullback.ops.nn.grid_sample import check_grid_dims, grid_sampler
from pullback.ops.nn.normalization.batch_norm import batch_norm
from pullback.ops.nn.normalization.layer_norm import group_norm, layer_norm
from pullback.ops.nn.normalization.standardize import scale_samples
from pullback.ops.nn.pooling import adaptive_spec, max_pool_spec, nested
from pullback.ops.rules.dtypes import (
    accumulate_dtype,
    cast_to,
    check_takes_floats,
    dtype_named,
    require,
)
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import NO_PART, T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("native")


# -- pooling ---------------------------------------------------------------------------------------


def _adaptive_max_pool1d(self, output_size):
    spec = adaptive_spec(self, "adaptive_max_pool1d", output_size, max_pool_spec)
    require("adaptive_max_pool1d", FLOATING, self)
    return ops.max_pool(self, spec, "AdaptiveMaxPool2DBackward0")


op(
    "adaptive_max_pool1d.top(self: Tensor, output_size: any) -> Tensor[]",
    composite=_adaptive_max_pool1d,
    method=False,
    function="adaptive_max_pool1d",
    dtypes=FLOATING,
    doc="Return the largest elements of windows that give this many, and their indices.",
    ref=references.adaptive_max_pool1d,
    samples=lambda: [case(T(2, 1, 5), 2), case(T(2, 5), (3,)), case(T(0, 2, 5), 2)],
    kinks=[kink(nested([2.0, 2.0], 1), 1, to=nested([1.0, 0.0], 1))],
)


# -- images at points ------------------------------------------------------------------------------

_POINTS = (-0.83, 0.21, 0.37, -0.59, 1.13, 0.07, -0.71, 0.44, 0.62, 0.35, 0.11, -0.29)


def _grid_sampler_of(rank):
    def run(self, grid, interpolation_mode, padding_mode, align_corners):
        check_grid_dims(self, grid, rank + 2)
        return grid_sampler(self, grid, interpolation_mode, padding_mode, align_corners)

    return run


for _rank, _image, _grid in (
    (2, (1, 2, 3, 4), (1, 2, 3, 2)),
    (3, (1, 1, 2, 3, 2), (1, 1, 2, 2, 3)),
):
    op(
        f"grid_sampler_{_rank}d(self: Tensor, grid: Tensor, interpolation_mode: int, "
        f"padding_mode: int, align_corners: bool) -> Tensor",
        autocast=("float32", "promote"),
        composite=_grid_sampler_of(_rank),
        method=False,
        dtypes=FLOATING,
        doc=f"Return grid_sample of images of {_rank} dims, with numbers for the modes.",
        ref=references.grid_sampler,
        samples=[
            case(T(*_image), fixed(_POINTS, shape=_grid), mode, padding, corners)
            for mode, padding, corners in ((0, 0, False), (1, 1, True))
        ],
        kinks=[
            kink(
                [[[[1.0, 2.0], [3.0, 5.0]]]],
                [[[[-0.5, -0.5]]]],
                0,
                0,
                False,
                to=([[[[1.0, 0.0], [0.0, 0.0]]]], [[[[1.0, 2.0]]]]),
                second=None,
            )
        ]
        if _rank == 2
        else [
            kink(
                [[[[[1.0, 2.0]]]]],
                [[[[[-0.5, 0.0, 0.0]]]]],
                0,
                0,
                False,
                to=([[[[[1.0, 0.0]]]]], [[[[[1.0, -0.5, -0.5]]]]]),
                second=None,
            )
        ],
    )


# -- normalization ---------------------------------------------------------------------------------


def _with_statistics(out, self, view, dims, shape, eps):
    """Return the result, and mean and 1 / sqrt(variance + eps) in a shape, with derivatives."""
    wide = cast_to(self, accumulate_dtype(self.dtype)).reshape(view)
    count = product(view[d] for d in dims)
    mean = ops.mean(wide, dims, True)
    gap = wide - mean
    variance = ops.sum(gap * gap, dims, True) / max(count, 1)
    scale = ops.rsqrt(variance + eps)
    return (out, *(cast_to(part.reshape(shape), self.dtype) for part in (mean, scale)))


def _native_layer_norm(self, normalized_shape, weight, bias, eps):
    out = layer_norm(self, normalized_shape, weight, bias, eps)
    outer = self.ndim - len(tuple(normalized_shape))
    shape = (*self.shape[:outer], *(1,) * (self.ndim - outer))
    return _with_statistics(out, self, self.shape, tuple(range(outer, self.ndim)), shape, eps)


op(
    "native_layer_norm(self: Tensor, normalized_shape: int[], weight: Tensor?, bias: Tensor?, "
    "eps: float) -> Tensor[]",
    autocast=(None, "float32"),
    composite=_native_layer_norm,
    method=False,
    dtypes=FLOATING,
    doc="Return layer_norm, the mean, and 1 / sqrt(variance + eps).",
    ref=references.native_layer_norm,
    samples=lambda: [
        case(T(2, 3), (3,), scale_samples(3), T(3), 1e-5),
        case(T(2, 2, 3), [2, 3], None, None, 0.1),
    ],
)


def _native_group_norm(self, weight, bias, N, C, HxW, group, eps):
    if self.numel() != N * C * HxW:
        raise RuntimeError(
            f"native_group_norm(): Expected N * C * HxW = {N * C * HxW} elements, but got "
            f"{self.numel()}"
        )
    if self.ndim < 2 or self.shape[:2] != (N, C):
        self = self.reshape((N, C, HxW))
    out = group_norm(self, group, weight, bias, eps)
    view = (N, group, C // group * HxW)
    return _with_statistics(out, self, view, (2,), (N, group), eps)


op(
    "native_group_norm(self: Tensor, weight: Tensor?, bias: Tensor?, N: int, C: int, HxW: int, "
    "group: int, eps: float) -> Tensor[]",
    composite=_native_group_norm,
    method=False,
    dtypes=FLOATING,
    doc="Return group_norm of N samples of C channels of HxW elements, the mean, and "
    "1 / sqrt(variance + eps).\n\nRaises: RuntimeError for other numbers of elements.",
    ref=references.native_group_norm,
    samples=lambda: [
        case(T(2, 4, 3), scale_samples(4), T(4), 2, 4, 3, 2, 1e-5),
        case(T(1, 2, 2, 2), None, None, 1, 2, 4, 1, 0.1),
    ],
)


def _native_batch_norm(self, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        out = batch_norm(self, weight, bias, running_mean, running_var, False, momentum, eps)
        return out, ops.new_empty(self, (0,)), ops.new_empty(self, (0,))
    out = batch_norm(self, weight, bias, running_mean, running_var, True, momentum, eps)
    dims = tuple([d for d in range(self.ndim) if d != 1])
    return _with_statistics(out, self, self.shape, dims, (self.shape[1],), eps)


_GIVEN = constant(3), constant(3, low=0.5, high=2)
op(
    "native_batch_norm(self: Tensor, weight: Tensor?, bias: Tensor?, running_mean: Tensor?, "
    "running_var: Tensor?, training: bool, momentum: float, eps: float) -> Tensor[]",
    composite=_native_batch_norm,
    method=False,
    dtypes=FLOATING,
    doc="Return batch_norm, and in training the mean and 1 / sqrt(variance + eps) of each channel; "
    "otherwise two empty tensors.",
    ref=references.native_batch_norm,
    samples=lambda: [
        case(T(2, 3, 4), scale_samples(3), T(3), None, None, True, 0.1, 1e-5),
        case(T(2, 3), scale_samples(3), T(3), *_GIVEN, False, 0.1, 1e-5, skip=NO_PART),
    ],
)


# -- dropout ---------------------------------------------------------------------------------------


def _native_dropout(self, p, train):
    if train is not None and not train:
        return self.clone(), ops.ones_like(self, dtype=dtype_named("bool"))
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={1 - p:g}")
    check_takes_floats(self)
    import pullback

    wide = accumulate_dtype(self.dtype)
    mask = pullback.rand(self.shape, dtype=wide, device=self.device) >= p
    return self * (mask * (1 / (1 - p) if p < 1 else 0.0)).to(self.dtype), mask


op(
    "native_dropout(self: Tensor, p: float, train: bool?) -> Tensor[]",
    composite=_native_dropout,
    method=False,
    dtypes=FLOATING,
    doc="Return dropout, and True where an element was kept; train=None means training.\n\n"
    "Raises: RuntimeError for a probability outside of [0, 1].",
    kinks=[kink([1.0], 1.0, True, to=[0.0])],
    samples=lambda: [
        case(T(4, 5), 0.5, True),
        case(T(2, 3), 0.5, False),
        case(T(2, 3), 1.0, None),
        case(T(0, 3), 0.2, True),
    ],
)
