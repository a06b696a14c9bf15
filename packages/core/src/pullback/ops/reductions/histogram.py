"""Counts and histograms."""

import math

from pullback.ops.reductions.searchsorted import find_positions
from pullback.ops.rules.arguments import as_int, check_number
from pullback.ops.rules.dtypes import (
    accumulate_dtype,
    cast_to,
    check_dtype,
    dtype_named,
    unsupported,
    widest,
)
from pullback.ops.rules.elementwise_util import UNDERIVED, no_derivative
from pullback.ops.rules.operands import is_meta
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import COUNTED, T, at, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, HALF, INTEGRAL, op, ops, result_type

references = references_of("reductions")

_Histogram = result_type("histogram", "hist", "bin_edges")

SINGLE_DOUBLE = FLOATING & ~HALF

# -- counts ----------------------------------------------------------------------------------------


def _bincount(self, weights, minlength):
    check_dtype("bincount", self, "iu")
    if as_int(minlength, "bincount", "minlength") < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and tuple(weights.shape) != tuple(self.shape):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if self.ndim != 1 or (self.numel() and self.min().item() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(int(self.max().item()) + 1 if self.numel() else 0, minlength)
    positions = cast_to(self, dtype_named("int64"))
    if weights is None or not self.numel():
        weights = new_filled(positions, (), 1).expand(positions.shape)
    elif weights.dtype.name not in ("float32", "float64"):
        weights = cast_to(weights, widest(weights.device))
    return ops.scatter_add(ops.new_zeros(weights, (size,)), 0, positions, weights)


op(
    "bincount(self: Tensor, weights: Tensor? = None, minlength: int = 0) -> Tensor",
    forward=_bincount,
    dtypes=INTEGRAL,
    ref=references.bincount,
    node="NotImplemented",
    vjp={"weights": no_derivative("bincount", "weights")},
    doc="Return how often each number from 0 on occurs, or the sum of its weights.\n\n"
    "Shape: as long as the largest number wants, at least `minlength`.\n\nRaises: RuntimeError "
    "for negative numbers and for other than vectors.",
    samples=lambda: [
        case(T(8, low=0, high=5), skip=COUNTED),
        case(T(0), skip=COUNTED),
        case(T(4, low=0, high=3), minlength=7, skip=COUNTED),
        case(T(4, low=0, high=3), fixed((0.5, 1, 2, 4), kind="float32"), skip=COUNTED),
        case(T(4, low=0, high=3), at(4, high=5), skip=COUNTED),
    ],
)


def _limits(name, self, low, high):
    """Return the range of the bins: that of the elements where none is given."""
    if low == high and self.numel():
        low, high = float(self.min().item()), float(self.max().item())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name} range of [{low:g}, {high:g}] is not finite")
    return (low - 1, high + 1) if low == high and name == "torch.histc:" else (low, high)


def _check_bins(bins, dim=0):
    as_int(bins, "histogram", "bins")
    if bins <= 0:
        raise RuntimeError(
            f"torch.histogram(): bins must be > 0, but got {bins} for dimension {dim}"
        )


def _bin_of(self, low, high, bins):
    """Return the bin of each element; all are in the range."""
    import pullback

    if (high - low) * bins > pullback.finfo(self.dtype).max:
        small = 0.5**60  # bins are counted in int64: there are less than 2^60
        self, low, high = self * small, low * small, high * small
    position = ops.div_(ops.mul_(self - low, bins), high - low)
    return ops.clamp_max_(cast_to(position, dtype_named("int64")), bins - 1)


def _histc(self, bins, min, max):
    if not self.dtype.is_floating_point:
        raise unsupported("histogram", self.dtype)
    if self.dtype.itemsize == 2:  # there are more elements than 16 bits can count
        return cast_to(
            _histc(cast_to(self, accumulate_dtype(self.dtype)), bins, min, max), self.dtype
        )
    _check_bins(bins)
    for bound, argument in ((min, "min"), (max, "max")):
        check_number(bound, "histc", argument)
    if max < min:
        raise RuntimeError("torch.histc: max must be larger than min")
    flat = self.reshape(-1)
    out = ops.new_zeros(flat, (bins,))
    if is_meta(flat):
        return out
    low, high = _limits("torch.histc:", flat, float(min), float(max))
    if not flat.numel():
        return out
    one = new_filled(flat, (), 1).expand(flat.shape)
    if min != max:  # otherwise the elements themselves made the range
        inside = (flat >= low) & (flat <= high)
        flat, one = ops.where(inside, flat, low), cast_to(inside, out.dtype)
    return ops.scatter_add(out, 0, _bin_of(flat, low, high, bins), one)


op(
    "histc(self: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor",
    forward=_histc,
    out=True,
    dtypes=FLOATING,
    out_overlap=True,
    out_dtype="exact",
    ref=references.histc,
    doc="Return how many elements fall into each of equal bins between two bounds.\n\nWithout "
    "bounds those of the elements count; elements outside, and NaN, do not.\n\nRaises: "
    "RuntimeError for a range that is not finite.",
    constant=True,
    samples=lambda: [
        case(T(10), 4),
        case(T(3, 4), 5, -2, 2),
        case(T(6), 3, min=-1, max=1),
        case(T(0), 4),
        case(T(), 3),
        case(T(5)),
        case(fixed((0, 0.75, 1.5, 3, 3.1, -1, math.nan)), 4, 0, 3),
        case(fixed((1, 1, 1)), 4),
    ],
)


def _edges(self, bins, range, dim=0):
    """Return the edges of the bins: those given, or equally wide ones over the range."""
    if hasattr(bins, "shape"):
        if bins.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got "
                f"{bins.ndim} dimensions in the bins tensor for dimension {dim}"
            )
        if bins.dtype != self.dtype:
            names = [
                {"float32": "float", "float64": "double"}.get(t.dtype.name, t.dtype.name)
                for t in (self, bins)
            ]
            raise RuntimeError(
                f"torch.histogramdd: input tensor and bins tensors should have the "
                f"same dtype, but got input with dtype {names[0]} and bins for "
                f"dimension {dim} with dtype {names[1]}"
            )
        _check_bins(bins.shape[0] - 1, dim)
        return bins
    _check_bins(bins, dim)
    low, high = (0.0, 1.0) if range is None else (float(range[0]), float(range[1]))
    if range is None and self.numel() and not is_meta(self):
        low, high = float(self.min().item()), float(self.max().item())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(
            f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite"
        )
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max "
            f"{high:g} for dimension {dim}"
        )
    if low == high:
        low, high = low - 0.5, high + 0.5
    steps = cast_to(ops.arange_like(self, bins + 1), self.dtype)
    # From the nearer end, so that both ends are exact.
    return ops.where(
        steps < (bins + 1) // 2,
        low + steps * ((high - low) / bins),
        high - (bins - steps) * ((high - low) / bins),
    )


def _histogram(self, bins, range, weight, density):
    if self.dtype.name not in ("float32", "float64"):
        raise unsupported("histogramdd", self.dtype)
    if weight is not None and weight.shape != self.shape:
        raise RuntimeError(
            f"torch.histogramdd: if weight tensor is provided it should have the "
            f"same shape as the input tensor excluding its innermost dimension, but "
            f"got input with shape {list(self.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    if weight is not None and weight.dtype != self.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and "
            "weight tensor should have the same dtype"
        )
    if hasattr(bins, "shape") and range is not None:
        raise TypeError("histogram() takes a range only with a number of bins")
    flat = self.reshape(-1)
    edges = _edges(flat, bins, range)
    count = edges.shape[0] - 1
    first, last = edges.narrow(0, 0, 1), edges.narrow(0, count, 1)
    inside = (flat >= first) & (flat <= last)
    positions = ops.clamp(find_positions(edges, flat, True) - 1, min=0, max=count - 1)
    share = cast_to(inside, self.dtype)
    if weight is not None:
        share = ops.where(inside, weight.reshape(-1), 0)
    hist = ops.scatter_add(ops.new_zeros(flat, (count,)), 0, positions, share)
    if density:
        hist = hist / hist.sum() / (edges.narrow(0, 1, count) - edges.narrow(0, 0, count))
    return _Histogram(hist, edges)


op(
    "histogram(self: Tensor, bins: any, *, range: any = None, weight: Tensor? = None, "
    "density: bool = False) -> any",
    forward=_histogram,
    out=True,
    dtypes=SINGLE_DOUBLE,
    out_overlap=True,
    out_dtype="exact",
    ref=references.histogram,
    node="NotImplemented",
    vjp={name: no_derivative("histogram", name) for name in ("self", "weight")},
    doc="Return (hist, bin_edges): how many elements fall into each bin, and the bins' edges.\n\n"
    "`bins` is a number of equal bins over `range` (that of the elements where none is given), "
    "or a vector of edges. `weight` counts elements more or less often; `density` divides by "
    "the total and by the widths.",
    samples=lambda: [
        made._replace(skip={**made.skip, **UNDERIVED})
        for made in (
            case(T(10), 4, range=(-2.0, 2.0)),
            case(T(2, 5), fixed((-2.0, 0.0, 0.5, 2.0))),
            case(T(6), 3, skip=COUNTED),
            case(T(0), 2),
            case(fixed((1, 1)), 2, skip=COUNTED),
            case(T(6), 3, range=(-3.0, 3.0), weight=constant(6, low=0, high=2)),
            case(
                T(6),
                fixed((-3.0, 0.0, 3.0)),
                density=True,
                skip={"expanded": "repeated edges leave no width"},
            ),
        )
    ],
)


# -- of points -------------------------------------------------------------------------------------

_HistogramDD = result_type("histogramdd", "hist", "bin_edges")
_SHORT = {"float32": "float", "float64": "double"}


def _check_points(self, weight):
    if not self.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    if self.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if self.dtype.name not in _SHORT:
        raise unsupported("histogramdd", self.dtype)
    if weight is None:
        return
    if weight.shape != self.shape[:-1]:
        raise RuntimeError(
            f"torch.histogramdd: if weight tensor is provided it should have the same shape as the "
            f"input tensor excluding its innermost dimension, but got input with shape "
            f"{list(self.shape)} and weight with shape {list(weight.shape)}"
        )
    if weight.dtype != self.dtype:
        shown = [_SHORT.get(t.dtype.name, t.dtype.name) for t in (self, weight)]
        raise RuntimeError(
            f"torch.histogramdd: if weight tensor is provided, input tensor and weight tensor "
            f"should have the same dtype, but got input({shown[0]}), and weight({shown[1]})"
        )


def _bins_of(bins, dims):
    """Return a number of bins or a vector of edges for each dim."""
    if isinstance(bins, int) and not isinstance(bins, bool):
        return [bins] * dims
    if not isinstance(bins, (tuple, list)) or not all(
        hasattr(one, "narrow") or (isinstance(one, int) and not isinstance(one, bool))
        for one in bins
    ):
        raise TypeError(
            f"histogramdd(): argument 'bins' (position 2) must be int, tuple of ints, or tuple of "
            f"Tensors, not {type(bins).__name__}"
        )
    if len(bins) != dims and bins and hasattr(bins[0], "narrow"):
        raise RuntimeError(
            f"torch.histogramdd: expected {dims} sequences of bin edges for a {dims}-dimensional "
            f"histogram but got {len(bins)}"
        )
    if len(bins) != dims:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    return list(bins)


def _range_of(range, dims):
    if range is None:
        return [None] * dims
    if not isinstance(range, (tuple, list)) or not all(
        isinstance(bound, (int, float)) for bound in range
    ):
        raise TypeError(
            f"histogramdd(): argument 'range' (position 3) must be tuple of floats, not "
            f"{type(range).__name__}"
        )
    if len(range) != 2 * dims:
        raise RuntimeError(
            f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} "
            f"elements, but got {len(range)}"
        )
    return list(zip(range[::2], range[1::2]))


def _histogramdd(self, given, bins, range, weight, density):
    dims = self.shape[-1]
    counts, limits = given or _bins_of(bins, dims), _range_of(range, dims)
    points = self.reshape((-1, dims)) if dims else self.reshape((self.shape[:-1].numel(), 0))
    position, inside, edges, sizes = None, None, [], []
    for dim, (wanted, limit) in enumerate(zip(counts, limits)):
        column = points.select(1, dim)
        edge = _edges(column, wanted, limit, dim)
        size = edge.shape[0] - 1
        here = (column >= edge.narrow(0, 0, 1)) & (column <= edge.narrow(0, size, 1))
        bin_number = ops.clamp(find_positions(edge, column, True) - 1, min=0, max=size - 1)
        position = bin_number if position is None else position * size + bin_number
        inside = here if inside is None else inside & here
        edges.append(edge)
        sizes.append(size)
    if position is None:  # no dims: torch takes no point for one
        return (ops.new_zeros(self, ()),)
    share = cast_to(inside, self.dtype)
    if weight is not None:
        share = ops.where(inside, weight.reshape(-1), 0)
    total = 1
    for size in sizes:
        total *= size
    hist = ops.scatter_add(ops.new_zeros(points, (total,)), 0, position, share)
    hist = hist.reshape(tuple(sizes))
    if density:
        hist = hist / hist.sum()
        for dim, (edge, size) in enumerate(zip(edges, sizes)):
            widths = edge.narrow(0, 1, size) - edge.narrow(0, 0, size)
            hist = hist / widths.reshape((size, *(1,) * (len(sizes) - dim - 1)))
    return (hist, *edges)


def _named(self, bins, range, weight, density):
    _check_points(self, weight)
    counts = _bins_of(bins, self.shape[-1])
    given = counts if counts and all(hasattr(one, "narrow") for one in counts) else []
    hist, *edges = ops._histogramdd(self, given, bins, range, weight, density)
    return _HistogramDD(hist, tuple(edges))


op(
    "_histogramdd(self: Tensor, edges: Tensor[], bins: any, range: any, weight: Tensor?, "
    "density: bool) -> Tensor[]",
    forward=_histogramdd,
    method=False,
    function=False,
    dtypes=SINGLE_DOUBLE,
    ref=lambda np, self, edges, bins, *rest: references.histogramdd(np, self, edges or bins, *rest),
    node="NotImplemented",
    vjp={name: no_derivative("histogramdd", name) for name in ("self", "weight")},
    doc="Return the parts of histogramdd: the histogram, then the edges of each dim.",
    samples=lambda: [
        case(T(8, 2), [], 3, [-3.0, 3.0, -2.0, 2.0], None, False, skip=UNDERIVED),
        case(
            T(6, 2),
            [fixed((-3.0, 0.0, 3.0)), fixed((-2.0, 0.5, 2.0))],
            None,
            None,
            constant(6, low=0.5, high=2),
            False,
            skip=UNDERIVED,
        ),
    ],
)
op(
    "histogramdd(self: Tensor, bins: any, range: any = None, weight: Tensor? = None, "
    "density: bool = False) -> any",
    composite=_named,
    method=False,
    dtypes=SINGLE_DOUBLE,
    ref=references.histogramdd,
    doc="Return (hist, bin_edges): how many points fall into each bin, and the edges of each dim."
    "\n\nShape: points (..., dims) give a hist of dims dims. `bins` is a number of equal bins for "
    "all dims, one for each, or a vector of edges for each; `range` has the first and the last "
    "edge of each dim, one after the other. `weight` counts points more or less often; `density` "
    "divides by the total and by the volumes.\n\nRaises: RuntimeError for bounds that are not "
    "finite.\n\n"
    ">>> import pullback\n"
    ">>> points = pullback.tensor([[0., 1.], [1., 0.], [1., 1.]])\n"
    ">>> pullback.histogramdd(points, 2).hist\n"
    "tensor([[0., 1.],\n"
    "        [1., 1.]])",
    samples=lambda: [
        made._replace(skip={**made.skip, **UNDERIVED})
        for made in (
            case(T(8, 2), 3, [-3.0, 3.0, -2.0, 2.0]),
            case(T(2, 3, 2), [2, 3], [-3.0, 3.0, -3.0, 3.0]),
            case(T(6, 1), 2, skip=COUNTED),
            case(T(6, 2), (fixed((-3.0, 0.0, 3.0)), fixed((-2.0, 0.5, 2.0)))),
            case(
                T(6, 2),
                2,
                [-3.0, 3.0, -3.0, 3.0],
                weight=constant(6, low=0.5, high=2),
                density=True,
            ),
            case(T(0, 2), 2, [0.0, 1.0, 0.0, 2.0]),
        )
    ],
)
