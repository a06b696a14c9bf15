"""The primitives of normalizations: differences from the mean in standard deviations."""

from pullback.ops.rules.dtypes import accumulate_dtype, cast_to
from pullback.ops.rules.shapes import product
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import FEW, OWN_DTYPE, new_empty, new_filled, run_primitive
from pullback.ops.table.samples import T, case, constant, references_of
from pullback.ops.table.schema import FLOATING, HALF, op, ops, result_type

references = references_of("normalization")


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
        return product(view[: dims[0]]), 1, product(view[dims[0] :]), 1
    groups = view[1]
    return self.shape[0], groups, self.shape[1] // max(groups, 1), product(self.shape[2:])


def _channel_values(value, like, shape, default):
    """Return a weight or bias, or what stands for one that is missing, of all channels."""
    if value is None:
        return new_filled(like, (1, 1), default).expand(shape[1:3])
    return cast_to(value, like.dtype).reshape(shape[1:3])


def _statistics(mean, variance, eps, shape):
    """Return the mean and the scale of each group, as the fused kernels take them."""
    rows = (mean.numel() // shape[1] if shape[1] else 1, shape[1])
    return mean.reshape(rows), ops.rsqrt(variance.reshape(rows) + eps)


def standardize_spec(shape, view, dims, affine, four, eps, given):
    """Return the output spec of standardized: its parameters are those of the primitive."""
    found = tuple([1 if d in dims else n for d, n in enumerate(view)])
    return ((shape, found, found), (OWN_DTYPE,) * 3, (*four[1:], eps, given), view, dims, affine)


def spec_arguments(spec, kind):
    """Return what `normalized` takes after the bias: (view, dims, affine, eps, kind)."""
    _, _, (*_, eps, _), view, dims, affine = spec
    return view, dims, affine, eps, kind


def given(weight, bias):
    """Return a number for which of the parameters are given: bit 0 the weight, bit 1 the bias."""
    return (weight is not None) + 2 * (bias is not None)


def _normalized_forward(self, weight, bias, view, dims, affine, eps, kind):
    wide = cast_to(self, accumulate_dtype(self.dtype))
    if kind == "Batch" or not self.numel():
        found = composed_normalized(wide, weight, bias, view, dims, affine, eps, kind)
    else:
        four = _four_dims(self, view, dims, kind)
        found = ops.standardized(
            wide,
            *[part if part is None else cast_to(part, wide.dtype) for part in (weight, bias)],
            standardize_spec(self.shape, view, dims, affine, four, eps, given(weight, bias)),
            kind,
        )
    return cast_to(found[0], self.dtype), *found[1:]


def composed_normalized(self, weight, bias, view, dims, affine, eps, kind):
    if self.numel() <= FEW:
        center, scale, mean, variance = _standardized(self, view, dims, eps)
        return (_affine((center * scale).reshape(self.shape), weight, bias, affine), mean, variance)
    mean, squares = ops.moments(self.reshape(view), dims)
    variance = squares / product(view[d] for d in dims)
    shape = _four_dims(self, view, dims, kind)
    out = ops.normalize_channels(
        self.reshape(shape),
        *_statistics(mean, variance, eps, shape),
        _channel_values(weight, self, shape, 1),
        _channel_values(bias, self, shape, 0),
    )
    return out.reshape(self.shape), mean, variance


@decomposition("standardize")
def composed_standard(self, weight, bias, spec, kind):
    out, *statistics = composed_normalized(self, weight, bias, *spec_arguments(spec, kind))
    return out.contiguous(), *statistics  # as the kernel's


def _normalize(self, mean, scale, weight, bias):
    out = new_empty(self, self.shape)
    if out.numel():
        run_primitive(
            "normalize",
            (out,),
            (self.contiguous(), mean.contiguous(), scale.contiguous(), weight, bias),
        )
    return out


_Gradients = result_type("_gradients", "self", "weight", "bias")


def _normalize_backward(self, source, mean, scale, weight):
    found = _Gradients(
        new_empty(source, source.shape),
        new_empty(source, weight.shape),
        new_empty(source, weight.shape),
    )
    if weight.numel():
        run_primitive(
            "normalize_backward",
            tuple(found),
            (self.contiguous(), source.contiguous(), mean.contiguous(), scale.contiguous(), weight),
        )
    return found


def _normalize_backward_input(self, source, mean, scale, weight):
    out = new_empty(source, source.shape)
    if out.numel():
        run_primitive(
            "normalize_backward_input",
            (out,),
            (self.contiguous(), source.contiguous(), mean.contiguous(), scale.contiguous(), weight),
        )
    return out


def _normalized_vjp(gs, self, weight, bias, out1, out2, view, dims, affine, eps, kind):
    from pullback._c.base.state import is_grad_enabled

    g = gs[0]
    if g is None:
        return None, None, None
    if is_grad_enabled() or self.numel() <= FEW:
        return *_recorded_vjp(g, self, weight, view, dims, affine, eps), (
            None if bias is None else _summed(g, affine, bias.shape)
        )
    wide = cast_to(self, accumulate_dtype(self.dtype))
    shape = _four_dims(self, view, dims, kind)
    operands = (
        cast_to(g, wide.dtype).reshape(shape),
        wide.reshape(shape),
        *_statistics(out1, out2, eps, shape),
        _channel_values(weight, wide, shape, 1),
    )
    if weight is None and bias is None and operands[2].shape[0] == shape[0]:
        return ops.normalize_backward_input(*operands).reshape(self.shape), None, None
    found = ops.normalize_backward(*operands)
    return (
        found[0].reshape(self.shape),
        None if weight is None else found[1].reshape(weight.shape),
        None if bias is None else found[2].reshape(bias.shape),
    )


def _recorded_vjp(g, self, weight, view, dims, affine, eps):
    """Statistics are taken again, as functions of self: so the formula has a derivative too."""
    center, scale, _, _ = _standardized(self, view, dims, eps)
    unit = center * scale
    inner = (g if weight is None else g * weight.reshape(affine)).reshape(view)
    derivative = scale * (inner - inner.mean(dims, True) - unit * (inner * unit).mean(dims, True))
    if weight is None:
        return derivative.reshape(self.shape), None
    return derivative.reshape(self.shape), _summed(
        g * unit.reshape(self.shape), affine, weight.shape
    )


def _summed(g, affine, shape):
    return ops.sum_to_size(g, tuple(affine)).reshape(shape)


def scale_samples(*shape):
    return T(*shape, low=0.5, high=2)


_PARTS = dict.fromkeys(
    ("grad", "gradgrad", "compiled"),
    "mean and variance are for running statistics, and have no derivative",
)
# Large enough for the fused kernels.
_LARGE = [
    case(T(65, 64), scale_samples(64), T(64), (65, 64), (1,), (1, 64), 1e-5, "Layer", skip=_PARTS),
    case(
        T(5, 4, 210),
        scale_samples(4),
        T(4),
        (5, 2, 420),
        (2,),
        (1, 4, 1),
        1e-5,
        "Group",
        skip=_PARTS,
    ),
    case(T(5, 4, 210), None, T(4), (5, 4, 210), (0, 2), (1, 4, 1), 1e-5, "Batch", skip=_PARTS),
]
op(
    "normalized(self: Tensor, weight: Tensor?, bias: Tensor?, view: int[], dims: int[], "
    "affine: int[], eps: float, kind: str) -> Tensor[]",
    forward=_normalized_forward,
    method=False,
    function=False,
    node=lambda kind: f"Native{kind}NormBackward0",
    vjp={("self", "weight", "bias"): _normalized_vjp},
    doc="Return self, seen in the shape `view` and standardized over dims, times weight plus bias; "
    'and the mean and variance.\n\nSource: Ba et al., "Layer normalization", 2016, '
    "equation 3.",
    dtypes=FLOATING,
    ref=references.normalized,
    samples=lambda: [
        case(
            T(2, 3, 4),
            scale_samples(3),
            T(3),
            (2, 3, 4),
            (0, 2),
            (1, 3, 1),
            1e-5,
            "Batch",
            skip=_PARTS,
        ),
        case(T(2, 4), None, None, (2, 2, 2), (2,), (1, 4), 1e-3, "Group", skip=_PARTS),
        *_LARGE,
    ],
)


op(
    "standardized(self: Tensor, weight: Tensor?, bias: Tensor?, spec: any, kind: str) -> Tensor[]",
    forward="structured",
    kernel="standardize",
    method=False,
    function=False,
    node=lambda kind: f"Native{kind}NormBackward0",
    vjp={
        ("self", "weight", "bias"): lambda gs, self, weight, bias, out1, out2, spec, kind: (
            _normalized_vjp(gs, self, weight, bias, out1, out2, *spec_arguments(spec, kind))
        )
    },
    doc="Return what normalized does, by rows of neighbours.",
    dtypes=FLOATING & ~HALF,
    ref=lambda np, self, weight, bias, spec, kind: references.normalized(
        np, self, weight, bias, *spec_arguments(spec, kind)
    ),
    samples=lambda: [
        case(
            T(2, 4),
            scale_samples(4),
            None,
            standardize_spec((2, 4), (2, 2, 2), (2,), (1, 4), (2, 2, 2, 1), 1e-3, 1),
            "Group",
            skip=_PARTS,
        ),
        case(
            T(2, 3, 4),
            scale_samples(3, 4),
            T(3, 4),
            standardize_spec((2, 3, 4), (2, 3, 4), (1, 2), (1, 3, 4), (2, 1, 12, 1), 1e-5, 3),
            "Layer",
            skip=_PARTS,
        ),
    ],
)


_FUSED = dict(method=False, function=False, dtypes=FLOATING & ~HALF)
_GROUPED = [
    case(T(2, 3, 4, 5), T(rows, 3), scale_samples(rows, 3), scale_samples(3, 4), T(3, 4))
    for rows in (2, 1)
]
op(
    "normalize_channels(self: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) "
    "-> Tensor",
    forward=_normalize,
    kernel="normalize",
    **_FUSED,
    doc="Return (self - mean) * scale * weight + bias; the arguments are those of the primitive.",
    ref=references.normalize_channels,
    samples=_GROUPED,
)
op(
    "normalize_backward(self: Tensor, source: Tensor, mean: Tensor, scale: Tensor, weight: Tensor) "
    "-> any",
    forward=_normalize_backward,
    kernel="normalize_backward",
    results=_Gradients.type,
    **_FUSED,
    doc="Return the gradients of a normalized tensor, its weight and its bias.",
    ref=references.normalize_backward,
    samples=lambda: [case(T(2, 3, 4, 5), *one.args[:4]) for one in _GROUPED],
)
op(
    "normalize_backward_input(self: Tensor, source: Tensor, mean: Tensor, scale: Tensor, "
    "weight: Tensor) -> Tensor",
    forward=_normalize_backward_input,
    kernel="normalize_backward_input",
    **_FUSED,
    doc="Return the gradient of a tensor of which each sample was normalized by itself.",
    ref=references.normalize_backward_input,
    samples=lambda: [case(T(2, 3, 4, 5), *_GROUPED[0].args[:4])],
)


def _batch_norm_eval(self, weight, bias, mean, variance, shape, eps):
    wide = cast_to(self, accumulate_dtype(self.dtype))
    scale = ops.rsqrt(variance.reshape(shape) + eps)
    out = _affine((wide - mean.reshape(shape)) * scale, weight, bias, shape)
    return cast_to(out, self.dtype)


def _eval_backward(g, weight, variance, shape, eps):
    scale = ops.rsqrt(variance.reshape(shape) + eps)
    return g * (scale if weight is None else scale * weight.reshape(shape))


def _eval_weight_backward(g, self, mean, variance, shape, eps, weight_shape):
    unit = (self - mean.reshape(shape)) * ops.rsqrt(variance.reshape(shape) + eps)
    return _summed(g * unit, shape, weight_shape)


op(
    "batch_norm_eval(self: Tensor, weight: Tensor?, bias: Tensor?, mean: Tensor, variance: Tensor, "
    "shape: int[], eps: float) -> Tensor",
    forward=_batch_norm_eval,
    method=False,
    function=False,
    node="NativeBatchNormBackward0",
    dtypes=FLOATING,
    vjp={
        "self": lambda g, weight, variance, shape, eps: _eval_backward(
            g, weight, variance, shape, eps
        ),
        "weight": lambda g, self, mean, variance, shape, eps, weight_shape: _eval_weight_backward(
            g, self, mean, variance, shape, eps, weight_shape
        ),
        "bias": lambda g, shape, bias_shape: _summed(g, shape, bias_shape),
    },
    doc="Return self less a given mean over a given deviation, times weight plus bias.",
    ref=references.batch_norm_eval,
    samples=lambda: [
        case(
            T(2, 3), scale_samples(3), T(3), constant(3), constant(3, low=0.5, high=2), (1, 3), 1e-5
        ),
        case(T(2, 3, 2), None, None, constant(3), constant(3, low=0.5, high=2), (1, 3, 1), 0.1),
    ],
)
