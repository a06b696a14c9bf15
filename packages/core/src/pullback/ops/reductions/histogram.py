"""Histograms, counts, and searchsorted."""

import math

from pullback.ops.rules.arguments import as_int, check_number
from pullback.ops.rules.dtypes import (
    accumulate_dtype,
    cast_to,
    check_dtype,
    dtype_named,
    type_name,
    unsupported,
)
from pullback.ops.rules.elementwise_util import UNDERIVED, no_derivative
from pullback.ops.rules.operands import is_meta
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, run_primitive
from pullback.ops.table.samples import COUNTED, T, at, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, HALF, INTEGRAL, op, ops, result_type

references = references_of("reductions")

_Histogram = result_type("histogram", "hist", "bin_edges")

SINGLE_DOUBLE = FLOATING & ~HALF

# -- indices in sorted elements --------------------------------------------------------------------


def _check_sorter(bounds, sorter):
    if sorter.shape != bounds.shape:
        raise RuntimeError(
            f"torch.searchsorted(): boundary and sorter must have the same size, "
            f"but got boundary tensor {list(bounds.shape)} and got sorter tensor "
            f"{list(sorter.shape)}"
        )
    if sorter.dtype.name != "int64":
        raise RuntimeError(
            f"torch.searchsorted(): sorter must be a tensor of long dtype but got "
            f"dtype {type_name(sorter.dtype)}"
        )
    if (
        sorter.numel()
        and not is_meta(sorter)
        and ((sorter < 0) | (sorter >= bounds.shape[-1])).any().item()
    ):
        raise RuntimeError("torch.searchsorted(): sorter index out of range")


def _check_bounds(bounds, values, is_number):
    if not bounds.ndim:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive "
            "dimension, but got 0 dimension"
        )
    if bounds.ndim == 1:
        return
    if is_number or not values.ndim:
        raise RuntimeError(
            f"torch.searchsorted(): input value can be a scalar only when "
            f"boundaries tensor dimension is 1, but we got boundaries tensor "
            f"dim({bounds.ndim}) and input value's dim({values.ndim}) numel"
            f"({values.numel()})"
        )
    if bounds.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            f"torch.searchsorted(): boundaries tensor should be 1 dimension or the "
            f"first N-1 dimensions of boundaries tensor and input value tensor must "
            f"match, but we got boundaries tensor {list(bounds.shape)} and input "
            f"value tensor {list(values.shape)}"
        )


@decomposition("searchsorted")
def halve_ranges(self, values, right, nan_last):
    """Return searchsorted by halving the range of each value's index."""
    low = ops.zeros_like(values, dtype=dtype_named("int64"))
    count = self.shape[-1]
    high = ops.full_like(low, count)
    for _ in range(count.bit_length()):
        middle = ops.bitwise_right_shift(low + high, 1)
        bound = ops.gather(self, -1, ops.minimum(middle, count - 1))
        found = bound > values if right else bound >= values
        if nan_last:
            found = found | (bound != bound)
        ahead = ~found & (low < high)
        low, high = ops.where(ahead, middle + 1, low), ops.where(ahead, high, middle)
    return low


def _positions(self, values, right, nan_last):
    out = new_empty(values, values.shape, dtype_named("int64"))
    if out.numel():
        run_primitive("searchsorted", (out,), (self, values), int(right), int(nan_last))
    return out


_TABLE = fixed((1, 3, 5, 2, 2, 6), shape=(2, 3))
op(
    "find_in_rows(self: Tensor, values: Tensor, right: bool, nan_last: bool) -> Tensor",
    forward=_positions,
    kernel="searchsorted",
    method=False,
    function=False,
    dtypes=INTEGRAL | FLOATING,
    doc="Return the indices of values in sorted rows; both have two dims and one dtype.",
    samples=[case(_TABLE, T(2, 4, low=0, high=7, step=1), right, True) for right in (True, False)],
    ref=lambda np, self, values, right, nan_last: references.searchsorted(
        np, self, values, right=right
    ),
)


def find_positions(bounds, values, right, nan_last=False):
    """Return the position of every value in the sorted last dim of bounds.

    torch takes NaN among the bounds for smaller than everything; with ``nan_last`` it is larger.
    """
    import pullback

    common = pullback.promote_types(bounds.dtype, values.dtype)
    count, shape = bounds.shape[-1], values.shape
    rows = 1
    for size in bounds.shape[:-1]:
        rows *= size
    width = values.numel() // max(rows, 1)
    found = ops.find_in_rows(
        cast_to(bounds, common).reshape((rows, count)),
        cast_to(values, common).reshape((rows, width)),
        right,
        nan_last,
    )
    return found.reshape(shape)


def _search(sorted_sequence, self, out_int32, right, side, sorter):
    if side not in (None, "left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got "
            "side of left while right was True"
        )
    bounds, is_number = sorted_sequence, not hasattr(self, "shape")
    values = self
    if is_number:
        values = ops.new_full(bounds, (), self, dtype=_dtype_of_number(bounds, self))
    for tensor in (bounds, values):
        check_dtype("searchsorted", tensor, "iuf")
    _check_bounds(bounds, values, is_number)
    if sorter is not None:
        _check_sorter(bounds, sorter)
        bounds = ops.gather(bounds, -1, sorter)
    found = find_positions(bounds, values, right or side == "right")
    return cast_to(found, dtype_named("int32")) if out_int32 else found


def _dtype_of_number(bounds, value):
    if isinstance(value, float) and bounds.dtype.kind != "f":
        return dtype_named("float64")
    return bounds.dtype


_BOUNDS = fixed((-2, -1, 0, 0, 2))
_REAL = INTEGRAL & ~0x002 | FLOATING  # the bounds are no unsigned numbers
op(
    "searchsorted(sorted_sequence: Tensor, self: Operand, *, out_int32: bool = False, "
    "right: bool = False, side: str? = None, sorter: Tensor? = None) -> Tensor",
    forward=_search,
    out_dtype="exact",
    method=False,
    out=True,
    dtypes=INTEGRAL | FLOATING,
    ref=references.searchsorted,
    doc="Return where elements belong in the sorted last dim of a tensor, so that it stays sorted."
    "\n\nBefore equal elements, or after them with `right` or side='right'. `sorter` holds the "
    "indices that sort a sequence that is not sorted.\n\nRaises: RuntimeError for shapes that "
    "do not go together.",
    samples=[
        case(_BOUNDS, T(2, 3), only=_REAL),
        case(_BOUNDS, T(4, step=1), right=True, only=_REAL),
        case(_BOUNDS, T(3, step=1), side="left", only=_REAL),
        case(_BOUNDS, T(3, step=1), side="right", only=_REAL),
        case(_BOUNDS, 1, only=_REAL),
        case(fixed((1, 3, 5, 2, 2, 6), shape=(2, 3)), T(2, 4, low=0, high=7, step=1)),
        case(
            fixed((5, 1, 3)),
            T(4, low=0, high=6),
            sorter=fixed((1, 2, 0), kind="int64"),
            skip={"expanded": "a repeated element is in another order"},
        ),
        case(T(0), T(3)),
        case(_BOUNDS, T(), only=_REAL),
        case(_BOUNDS, T(0), only=_REAL),
        case(_BOUNDS, T(2), out_int32=True, only=_REAL),
    ],
)


def _bucketize(self, boundaries, out_int32, right):
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return _search(boundaries, self, out_int32, right, None, None)


op(
    "bucketize(self: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) "
    "-> Tensor",
    forward=_bucketize,
    out_dtype="exact",
    method=False,
    out=True,
    dtypes=INTEGRAL | FLOATING,
    ref=lambda np, self, boundaries, out_int32=False, right=False: np.searchsorted(
        boundaries, self, side="right" if right else "left"
    ),
    doc="Return the number of the bucket between sorted boundaries that each element falls into."
    "\n\nA boundary belongs to the bucket before it, with `right` to the one after.",
    samples=[
        case(T(2, 3), _BOUNDS, only=_REAL),
        case(T(4, step=1), _BOUNDS, right=True, only=_REAL),
        case(1, _BOUNDS, only=_REAL),
        case(T(3), T(0)),
        case(T(), _BOUNDS, out_int32=True, only=_REAL),
    ],
)


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
        weights = cast_to(weights, dtype_named("float64"))
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
    samples=[
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


def _check_bins(bins):
    as_int(bins, "histogram", "bins")
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")


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
    samples=[
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


def _edges(self, bins, range):
    """Return the edges of the bins: those given, or equally wide ones over the range."""
    if hasattr(bins, "shape"):
        if bins.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got "
                f"{bins.ndim} dimensions in the bins tensor for dimension 0"
            )
        if bins.dtype != self.dtype:
            names = [
                {"float32": "float", "float64": "double"}.get(t.dtype.name, t.dtype.name)
                for t in (self, bins)
            ]
            raise RuntimeError(
                f"torch.histogramdd: input tensor and bins tensors should have the "
                f"same dtype, but got input with dtype {names[0]} and bins for "
                f"dimension 0 with dtype {names[1]}"
            )
        _check_bins(bins.shape[0] - 1)
        return bins
    _check_bins(bins)
    low, high = (0.0, 1.0) if range is None else (float(range[0]), float(range[1]))
    if range is None and self.numel() and not is_meta(self):
        low, high = float(self.min().item()), float(self.max().item())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(
            f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite"
        )
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max "
            f"{high:g} for dimension 0"
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
    samples=[
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
