"""Indices in sorted elements: searchsorted and bucketize."""

from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named, type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, INTEGRAL, UNSIGNED, op, ops

references = references_of("reductions")


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
    error = RuntimeError("torch.searchsorted(): sorter index out of range")
    check_all((sorter >= 0) & (sorter < bounds.shape[-1]), error)


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
    samples=lambda: [
        case(_TABLE, T(2, 4, low=0, high=7, step=1), right, True) for right in (True, False)
    ],
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
_REAL = INTEGRAL & ~UNSIGNED | FLOATING  # the bounds are no unsigned numbers
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
    samples=lambda: [
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
    samples=lambda: [
        case(T(2, 3), _BOUNDS, only=_REAL),
        case(T(4, step=1), _BOUNDS, right=True, only=_REAL),
        case(1, _BOUNDS, only=_REAL),
        case(T(3), T(0)),
        case(T(), _BOUNDS, out_int32=True, only=_REAL),
    ],
)
