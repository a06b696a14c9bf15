"""Resizing of images: interpolate and upsample, one dim after the other."""

import functools
import math
import struct
import warnings

from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, dtype_named, unsupported
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, put, run_primitive
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("interpolation")

_UINT8 = 0x002
_MANY = 1 << 20  # elements of a result whose taps take much longer to find than memory

# `taps_by_dim` has for each of the last dims None, where nothing changes, or its taps: pairs
# (indices, weights) with one index and one weight per element of the result. Weights of None are 1.


def _index(self, indices, dim, shape):
    """Return the indices of a tap, expanded to a shape along a dim."""
    import pullback

    found = pullback.tensor(indices, dtype=pullback.int64, device=self.device)
    return found.reshape((-1, *[1] * (len(shape) - dim - 1))).expand(shape)


def _weighted(self, weights, dim):
    import pullback

    if weights is None:
        return self
    found = pullback.tensor(weights, dtype=self.dtype, device=self.device)
    return self * found.reshape((-1, *[1] * (self.ndim - dim - 1)))


@functools.lru_cache(maxsize=64)
def _along(taps, dtype, device):
    """Return indices and weights of taps as the kernels take them."""
    import pullback

    found = [pullback.tensor([indices for indices, _ in taps], dtype=pullback.int64, device=device)]
    if taps[0][1] is not None:
        found.append(pullback.tensor([weights for _, weights in taps], dtype=dtype, device=device))
    return tuple(found)


def _interpolate_forward(self, taps_by_dim, node):
    out = cast_to(self, accumulate_dtype(self.dtype)).contiguous()
    for dim, taps in reversed(list(enumerate(taps_by_dim, self.ndim - len(taps_by_dim)))):
        if taps is not None:
            made = new_empty(out, (*out.shape[:dim], len(taps[0][0]), *out.shape[dim + 1 :]))
            run_primitive("interpolate", (made,), (out, *_along(taps, out.dtype, out.device)), dim)
            out = made
    return put(new_empty(self, self.shape), self) if out is self else cast_to(out, self.dtype)


def _interpolate_backward(self, sizes, taps_by_dim, node):
    out = self.to(accumulate_dtype(self.dtype)).contiguous()
    for dim, taps in enumerate(taps_by_dim, self.ndim - len(taps_by_dim)):
        if taps is not None:
            made = new_empty(out, (*out.shape[:dim], sizes[dim], *out.shape[dim + 1 :]))
            operands = (out, *_along(taps, out.dtype, out.device))
            run_primitive("interpolate_backward", (made,), operands, dim)
            out = made
    return put(new_empty(self, self.shape), self) if out is self else out.to(self.dtype)


# -- without a kernel: gathered or scattered, tap by tap -------------------------------------------


@decomposition("interpolate")
def composed_interpolate(self, taps_by_dim, node):
    out = self if taps_copy(taps_by_dim) else self.to(accumulate_dtype(self.dtype))
    for dim, taps in reversed(list(enumerate(taps_by_dim, self.ndim - len(taps_by_dim)))):
        if taps is None:
            continue
        shape = (*out.shape[:dim], len(taps[0][0]), *out.shape[dim + 1 :])
        total = None
        for indices, weights in taps:
            part = _weighted(ops.gather(out, dim, _index(self, indices, dim, shape)), weights, dim)
            total = part if total is None else total.add_(part)
        out = total
    return put(new_empty(self, self.shape), self) if out is self else out.to(self.dtype)


def taps_copy(taps_by_dim):
    """Return whether elements are only repeated or left out."""
    return all(taps is None or (len(taps) == 1 and taps[0][1] is None) for taps in taps_by_dim)


@decomposition("interpolate_backward")
def composed_interpolate_backward(self, sizes, taps_by_dim, node):
    out = self.to(accumulate_dtype(self.dtype))
    for dim, taps in enumerate(taps_by_dim, self.ndim - len(taps_by_dim)):
        if taps is None:
            continue
        total = new_filled(out, (*out.shape[:dim], sizes[dim], *out.shape[dim + 1 :]))
        for indices, weights in taps:
            total = ops.scatter_add_(
                total, dim, _index(self, indices, dim, out.shape), _weighted(out, weights, dim)
            )
        out = total
    return put(new_empty(self, self.shape), self) if out is self else out.to(self.dtype)


_TAPS = [
    ((2, 4), ((((0, 0, 1, 3, 3), None),),), (2, 5)),
    ((1, 3, 4), ((((0, 1), (0.25, 0.5)), ((1, 2), (0.75, 0.5))), None), (1, 2, 4)),
]
op(
    "_interpolate(self: Tensor, taps_by_dim: any, node: str) -> Tensor",
    jvp="linear",
    forward=_interpolate_forward,
    kernel="interpolate",
    method=False,
    function=False,
    node=lambda node: node,
    vjp={
        "self": lambda g, self_shape, taps_by_dim, node: ops.interpolate_backward(
            g, self_shape, taps_by_dim, node
        )
    },
    doc="Return weighted sums of elements along the last dims.",
    dtypes=_UINT8 | FLOATING,
    ref=references.interpolate_primitive,
    samples=lambda: [
        case(T(*shape), taps_by_dim, "Upsample", only=kinds)
        for (shape, taps_by_dim, _), kinds in zip(_TAPS, (_UINT8 | FLOATING, FLOATING))
    ],
)
op(
    "interpolate_backward(self: Tensor, sizes: int[], taps_by_dim: any, node: str) -> Tensor",
    jvp="linear",
    forward=_interpolate_backward,
    kernel="interpolate_backward",
    method=False,
    function=False,
    node=lambda node: node.replace("Backward0", "BackwardBackward0"),
    vjp={"self": lambda g, taps_by_dim, node: ops._interpolate(g, taps_by_dim, node)},
    doc="Return the derivative of _interpolate times self.",
    dtypes=FLOATING,
    ref=references.interpolate_primitive_backward,
    samples=lambda: [
        case(T(*made), shape, taps_by_dim, "Upsample") for shape, taps_by_dim, made in _TAPS
    ],
)


# -- where elements come from ----------------------------------------------------------------------


def _single(value):
    """Round to float32."""
    return struct.unpack("f", struct.pack("f", value))[0]


def _step(size, count, scale, align_corners):
    """Return how far apart the sources of two neighbours are."""
    if align_corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / count


def _nearest(size, count, scale, shift, rounded):
    """Return the nearest elements; torch's roundings decide which of two equally near ones."""
    step = rounded(_step(size, count, scale, False))
    indices = []
    for number in range(count):
        position = rounded(max(step * (number + shift) - shift, 0.0))
        position = rounded(position + shift)
        indices.append(min(int(_single(position)), size - 1))
    return [(tuple(indices), None)]


def _source(number, step, align_corners):
    return step * number if align_corners else step * (number + 0.5) - 0.5


def _linear(size, count, scale, align_corners):
    step = _step(size, count, scale, align_corners)
    positions = [max(_source(number, step, align_corners), 0.0) for number in range(count)]
    lows = [min(int(position), size - 1) for position in positions]
    above = [min(max(position - low, 0.0), 1.0) for position, low in zip(positions, lows)]
    return [
        (tuple(lows), tuple([1.0 - part for part in above])),
        (tuple([min(low + 1, size - 1) for low in lows]), tuple(above)),
    ]


def cubic_weights(t, a=-0.75):
    """Return the weights of four neighbours, t after the second one.

    Source: R. Keys, Cubic convolution interpolation for digital image processing, 1981, eq. 4.
    """

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _cubic(size, count, scale, align_corners):
    step = _step(size, count, scale, align_corners)
    positions = [_source(number, step, align_corners) for number in range(count)]
    lows = [math.floor(position) for position in positions]
    weights = [cubic_weights(position - low) for position, low in zip(positions, lows)]
    return [
        (
            tuple([min(max(low + tap - 1, 0), size - 1) for low in lows]),
            tuple([row[tap] for row in weights]),
        )
        for tap in range(4)
    ]


# -- antialiasing: the filter grows with the step --------------------------------------------------


def _triangle(x):
    return max(1.0 - abs(x), 0.0)


def _keys(x):
    """Keys' cubic with a = -1/2, which PIL takes too."""
    x = abs(x)
    return 0.0 if x >= 2 else cubic_weights(x, -0.5)[1] if x < 1 else cubic_weights(x - 1, -0.5)[0]


def _lanczos(x):
    """sinc(x) sinc(x / 3); C. Duchon, Lanczos filtering in one and two dimensions, 1979."""
    y = math.pi * x
    return 1.0 if x == 0 else 0.0 if abs(x) >= 3 else math.sin(y) * math.sin(y / 3) * 3 / (y * y)


_FILTERS = {"bilinear": (_triangle, 1.0), "bicubic": (_keys, 2.0), "lanczos": (_lanczos, 3.0)}


def _filtered(size, count, scale, align_corners, kernel, reach):
    """Return the taps of a filter that reaches so many elements, or steps if they are longer."""
    step = _step(size, count, scale, align_corners)
    support, shrink = (reach * step, 1 / step) if step >= 1 else (reach, 1.0)
    rows = []
    for number in range(count):
        center = step * (number + 0.5)  # with aligned corners too, as in torch
        low = max(int(center - support + 0.5), 0)
        high = min(int(center + support + 0.5), size)
        weights = [kernel((position - center + 0.5) * shrink) for position in range(low, high)]
        total = sum(weights) or 1.0
        rows.append((low, [weight / total for weight in weights]))
    taps = max(len(weights) for _, weights in rows)
    equal = [_lengthened(low, weights, taps) for low, weights in rows]
    return [
        (tuple([positions[tap] for positions, _ in equal]), tuple([row[tap] for _, row in equal]))
        for tap in range(taps)
    ]


def _lengthened(low, weights, taps):
    """Return `taps` indices and weights; the last one is split, as zero times infinity is NaN."""
    positions = [low + min(tap, len(weights) - 1) for tap in range(taps)]
    while len(weights) < taps:
        half = weights.pop() / 2
        weights += [half, half]
    return positions, weights


class Taps(tuple):
    """Taps that caches know by identity: to hash millions of positions takes long."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


# -- interpolate -----------------------------------------------------------------------------------

_RANKS = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
    "lanczos": (2,),
}
_NODES = {
    "nearest": "UpsampleNearest{}D",
    "nearest-exact": "UpsampleNearestExact{}D",
    "linear": "UpsampleLinear1D",
    "bilinear": "UpsampleBilinear2D{}",
    "bicubic": "UpsampleBicubic2D{}",
    "trilinear": "UpsampleTrilinear3D",
    "lanczos": "UpsampleLanczos2D{}",
}
_SMOOTH = ("linear", "bilinear", "bicubic", "trilinear", "lanczos")


def _check_mode(ndim, mode, align_corners, antialias):
    rank = ndim - 2
    if mode not in _RANKS or rank not in (1, 2, 3) or (mode == "bicubic" and rank == 3):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the "
            f"modes: {' | '.join(_RANKS)} (got {mode})"
        )
    if align_corners is not None and mode not in _SMOOTH:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: "
            "linear | bilinear | bicubic | trilinear"
        )
    if antialias and (mode not in _FILTERS or rank != 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes "
            "and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if rank not in _RANKS[mode]:
        raise NotImplementedError(
            f"Got {ndim}D input, but {mode} mode needs {_RANKS[mode][0] + 2}D input"
        )


def _mismatch(what, sizes, given):
    """`what` is (short name, how it reads before its value, its form)."""
    short, long, form = what
    return ValueError(
        f"Input and {short} must have the same number of spatial dimensions, but got input with "
        f"spatial dimensions of {list(sizes)} and {long} {given}. Please provide input tensor in "
        f"(N, C, d1, d2, ...,dK) format and {form} format."
    )


_SIZE = ("output", "output size of", "output size in (o1, o2, ...,oK)")
_SCALE = ("scale_factor", "scale_factor of shape", "scale_factor in (s1, s2, ...,sK)")


def _per_dim(value, sizes, what, kind, argument):
    """Return one number per dim of an argument of `interpolate`."""
    many = isinstance(value, (tuple, list))
    if many and len(value) != len(sizes):
        raise _mismatch(what, sizes, tuple(value))
    found = tuple(value) if many else (value,) * len(sizes)
    for item in found:
        if isinstance(item, bool) or not isinstance(item, kind):
            expected = "int" if kind is int else "float"
            raise TypeError(
                f"interpolate(): argument '{argument}' must be {expected} or a tuple "
                f"of them, not {type(item).__name__}"
            )
    return found


def _target(sizes, size, scale_factor, recompute):
    """Return the output sizes, and the scales that the caller asked for."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return _per_dim(size, sizes, _SIZE, int, "size"), (None,) * len(sizes)
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales = _per_dim(scale_factor, sizes, _SCALE, (int, float), "scale_factor")
    if not all(math.isfinite(scale) and size * scale < 2**63 for size, scale in zip(sizes, scales)):
        raise RuntimeError(
            f"value cannot be converted to type int64_t without overflow: scale_factor {scales}"
        )
    counts = tuple(
        [
            math.floor(size * scale) if recompute else int(size * scale)
            for size, scale in zip(sizes, scales)
        ]
    )
    return counts, (None,) * len(sizes) if recompute else scales


@functools.lru_cache(maxsize=64)
def _taps(mode, align_corners, antialias, rounded, size, count, scale):
    if size == count and (scale is None or antialias or "linear" in mode):
        return None  # these at any scale, as in torch
    if antialias:
        return Taps(_filtered(size, count, scale, align_corners, *_FILTERS[mode]))
    if mode.startswith("nearest"):
        return Taps(_nearest(size, count, scale, 0.5 if mode == "nearest-exact" else 0, rounded))
    if size == count and (align_corners or scale == 1):
        return None
    return Taps((_cubic if mode == "bicubic" else _linear)(size, count, scale, align_corners))


@functools.lru_cache(maxsize=512, typed=True)
def _checked(shape, size, scale_factor, mode, align_corners, recompute, antialias):
    """Check the arguments; return the new sizes, the scales, and the node's name but for means."""
    _check_mode(len(shape), mode, align_corners, antialias)
    sizes = shape[2:]
    counts, scales = _target(sizes, size, scale_factor, recompute)
    if mode == "area":
        return counts, scales, None
    if min((*sizes, *counts)) < 1:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input "
            f"{tuple(sizes)} output {counts}"
        )
    if shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {len(shape)}D data tensor expected but got a tensor with "
            f"sizes {list(shape)}"
        )
    kind = len(sizes) if mode not in _SMOOTH else "Aa" if antialias else ""
    return tuple(counts), tuple(scales), _NODES[mode].format(kind) + "Backward0"


@functools.lru_cache(maxsize=512, typed=True)
def _taps_by_dim(shape, counts, scales, mode, align_corners, antialias, rounded):
    return tuple(
        [
            _taps(mode, bool(align_corners), antialias, rounded, n, m, scale)
            for n, m, scale in zip(shape[2:], counts, scales)
        ]
    )


def _interpolate(self, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias):
    many = isinstance(size, (tuple, list)) or isinstance(scale_factor, (tuple, list))
    counts, scales, node = (_checked.__wrapped__ if many else _checked)(
        self.shape, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
    )
    if node is None:
        return getattr(ops, f"adaptive_avg_pool{len(counts)}d")(self, counts)
    smooth_bytes = self.dtype.name == "uint8" and mode in ("bilinear", "bicubic")
    if (
        not smooth_bytes
        and not (_UINT8 | FLOATING if mode.startswith("nearest") else FLOATING) >> self.dtype.code
        & 1
    ):
        kind = "" if mode in _SMOOTH else len(counts)
        raise unsupported(f"upsample_{mode.replace('-', '_')}{kind}d", self.dtype)
    if max(counts) > _MANY:
        # No taps for what no memory can hold.
        new_empty(self, (max(self.shape[0], 1), self.shape[1], *counts))
    rounded = float if self.dtype.itemsize == 8 else _single
    taps_by_dim = _taps_by_dim(self.shape, counts, scales, mode, align_corners, antialias, rounded)
    if smooth_bytes:
        return _interpolate_bytes(self, taps_by_dim, node)
    return ops._interpolate(self, taps_by_dim, node)


def _interpolate_bytes(image, taps_by_dim, node):
    """Return an image of bytes; as in torch, they are bytes again after the pass over each dim."""
    for dim in reversed(range(len(taps_by_dim))):
        alone = tuple(taps if d == dim else None for d, taps in enumerate(taps_by_dim))
        found = ops._interpolate(ops.cast(image, dtype_named("float32")), alone, node)
        image = ops.cast(ops.clamp(ops.floor(found + 0.5), 0, 255), image.dtype)
    return image


def _policy(self, size, scale_factor, mode, *others):
    """Return the policy of autocast, as in torch."""
    return None if mode in ("area", "lanczos") else "float32"


_SIZES = (
    "size: any = None, scale_factor: any = None, mode: str = 'nearest', align_corners: bool? = None"
)
op(
    f"interpolate(self: Tensor, {_SIZES}, recompute_scale_factor: bool? = None, "
    "antialias: bool = False) -> Tensor",
    autocast=(None, _policy),
    composite=_interpolate,
    method=False,
    namespace="functional",
    doc="Return an image, signal or volume of another size.\n\n"
    "Shape: (n, c, ...) with 1 to 3 dims; the new sizes are `size`, or those of the input times "
    "`scale_factor`. Modes: nearest, nearest-exact, area, linear, bilinear, bicubic, trilinear; "
    "and lanczos with antialias.\n\n"
    "Raises: NotImplementedError for a mode that the number of dims lacks.",
    dtypes=_UINT8 | FLOATING,
    ref=references.interpolate,
    samples=lambda: [
        case(T(2, 2, 3), 5),
        case(T(1, 2, 3, 4), (5, 3)),
        case(T(1, 1, 4, 3), None, 1.5, "nearest-exact"),
        case(T(1, 1, 2, 2, 3), scale_factor=2),
        case(T(0, 1, 3), 2),
        *(
            case(T(*shape), *rest, only=FLOATING, **more)
            for shape, rest, more in (
                ((2, 2, 4), (7, None, "linear"), {}),
                ((2, 1, 4), (2, None, "linear", True), {}),
                ((1, 2, 3, 4), (None, (2, 0.5), "bilinear"), {}),
                ((1, 1, 3, 4), (None, 1.7, "bilinear"), {"recompute_scale_factor": True}),
                ((1, 2, 3, 4), ((5, 1), None, "bilinear", True), {}),
                ((1, 1, 4, 3), ((6, 2), None, "bicubic"), {}),
                ((1, 1, 4, 3), ((6, 5), None, "bicubic", True), {}),
                ((1, 1, 2, 3, 2), (4, None, "trilinear"), {}),
                ((1, 2, 5, 4), ((2, 3), None, "area"), {}),
                ((1, 1, 7, 4), ((3, 6), None, "bilinear"), {"antialias": True}),
                ((1, 1, 4, 5), ((2, 3), None, "bicubic", True), {"antialias": True}),
                ((1, 1, 7, 4), ((3, 5), None, "lanczos"), {"antialias": True}),
                ((1, 1, 9, 4), ((3, 4), None, "bicubic"), {"antialias": True}),
            )
        ),
    ],
)


def _deprecated(name):
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        UserWarning,
        stacklevel=3,
    )


def _upsample(self, size, scale_factor, mode, align_corners):
    _deprecated("upsample")
    return ops.interpolate(self, size, scale_factor, mode, align_corners, None, False)


_OLD = "it warns that it is deprecated; the behaviour tests call it"
op(
    f"upsample(self: Tensor, {_SIZES}) -> Tensor",
    composite=_upsample,
    method=False,
    namespace="functional",
    doc="Return interpolate of the same arguments; torch's older name.",
    dtypes=_UINT8 | FLOATING,
    samples=_OLD,
)


def _upsample_in(name, mode, align_corners):
    def run(self, size, scale_factor):
        _deprecated(name)
        return ops.interpolate(self, size, scale_factor, mode, align_corners, None, False)

    return run


for _name, _mode, _corners in (
    ("upsample_nearest", "nearest", None),
    ("upsample_bilinear", "bilinear", True),
):
    op(
        f"{_name}(self: Tensor, size: any = None, scale_factor: any = None) -> Tensor",
        composite=_upsample_in(_name, _mode, _corners),
        method=False,
        namespace="functional",
        dtypes=_UINT8 | FLOATING,
        samples=_OLD,
        doc=f"Return interpolate in mode '{_mode}'{', corners aligned' if _corners else ''}; "
        "torch's older name.",
    )
