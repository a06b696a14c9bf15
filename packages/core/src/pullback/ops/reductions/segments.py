"""Reductions of consecutive segments along a dim."""

import math

from pullback.ops.reductions.searchsorted import find_positions
from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import cast_to, dtype_named, unsupported
from pullback.ops.rules.operands import check_all, is_meta
from pullback.ops.table.kinks import Fixed, kink
from pullback.ops.table.primitives_api import whole_batch
from pullback.ops.table.samples import KINKS, T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("reductions")

_REDUCTIONS = ("sum", "prod", "mean", "max", "min", "amax", "amin")
_EMPTY = {"sum": 0.0, "prod": 1.0, "mean": math.nan, "max": -math.inf, "min": math.inf}


def _check(data, reduce, lengths, indices, offsets, axis):
    check_str(reduce, "segment_reduce", "reduce")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if reduce not in _REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if data.dtype.kind != "f":
        raise unsupported("_segment_reduce_cpu", data.dtype)
    name, given = ("offsets", offsets) if offsets is not None else ("lengths", lengths)
    if given.dtype.name not in ("int64", "int32"):
        raise unsupported(f"_segment_reduce_{name}_cpu_kernel1", given.dtype)
    if data.ndim < given.ndim:
        raise RuntimeError(
            f"segment_reduce(): Expected data to have at least the {given.ndim} dims of {name}, "
            f"but it has {data.ndim}"
        )
    if axis != given.ndim - 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}."
        )
    if data.shape[:axis] != given.shape[:axis]:
        raise RuntimeError(
            f"segment_reduce(): Expected data and {name} to have the same sizes before axis, but "
            f"got {list(data.shape)} and {list(given.shape)}"
        )


def _check_lengths(lengths, size):
    if is_meta(lengths) or not lengths.numel():
        return
    lengths = whole_batch(lengths)
    check_all(lengths >= 0, RuntimeError("lengths contains negative value!"))
    error = RuntimeError(
        "segment_reduce(): Expected all rows of lengths along axis to sum to "
        "data.size(lengths.dim()-1) when !unsafe."
    )
    check_all(ops.sum(lengths, -1) == size, error)


def _bounds(lengths, offsets):
    """Return the start of each segment, and the end of the last, in the last dim."""
    if offsets is not None:
        return cast_to(offsets, dtype_named("int64"))
    ends = ops.cumsum(cast_to(lengths, dtype_named("int64")), -1)
    return ops.cat([ops.new_zeros(ends, (*ends.shape[:-1], 1)), ends], -1)


def _segments_of(data, bounds, axis):
    """Return the segment of each element along the axis; their number for elements in none."""
    count = bounds.shape[-1] - 1
    position = ops.arange_like(bounds, data.shape[axis]).expand(data.shape[: axis + 1])
    found = find_positions(bounds, position, True) - 1  # of empty segments it takes the last
    found = ops.where((found < 0) | (found >= count), count, found)
    tail = data.ndim - axis - 1
    return found.reshape((*found.shape, *(1,) * tail)).expand(data.shape)


def _segment_reduce(data, reduce, lengths, indices, offsets, axis, unsafe, initial):
    axis = wrap_dim(axis, data.ndim, "segment_reduce")
    _check(data, reduce, lengths, indices, offsets, axis)
    if offsets is None and not unsafe:
        _check_lengths(lengths, data.shape[axis])
    reduce = reduce.removeprefix("a")
    bounds = _bounds(lengths, offsets)
    count = bounds.shape[-1] - 1
    if count < 0:
        raise RuntimeError("segment_reduce(): Expected offsets to have at least one element")
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1 :])
    segments = _segments_of(data, bounds, axis)
    neutral = _EMPTY["sum" if reduce == "mean" else reduce]
    first = neutral if initial is None else initial
    base = ops.new_full(data, shape, first)
    how = {"mean": "sum", "max": "amax", "min": "amin"}.get(reduce, reduce)
    made = ops.scatter_reduce(base, axis, segments, data, how).narrow(axis, 0, count)
    if reduce != "mean":
        return made
    sizes = bounds.narrow(-1, 1, count) - bounds.narrow(-1, 0, count)
    sizes = sizes.reshape((*sizes.shape, *(1,) * (data.ndim - axis - 1)))
    whole = ops.where(sizes > 0, sizes, 1)
    return ops.where(sizes > 0, made / whole, math.nan if initial is None else initial)


_LENGTHS = fixed((1, 0, 2), kind="int64")
_NOTHING = dict.fromkeys(("grad", "gradgrad"), "the mean of nothing is NaN")
_REPEATED = {"expanded": "repeated lengths have another sum"}
_ROWS = fixed((1, 3, 2, 2, 0, 4), shape=(3, 2), kind="int64")
op(
    "segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor? = None, "
    "indices: Tensor? = None, offsets: Tensor? = None, axis: int = 0, unsafe: bool = False, "
    "initial: Scalar? = None) -> Tensor",
    composite=_segment_reduce,
    method=False,
    dtypes=FLOATING,
    ref=references.segment_reduce,
    doc="Return the sum, prod, mean, max or min of consecutive segments along a dim.\n\n"
    "`lengths` has the length of each segment, `offsets` all starts and the last end; with several "
    "dims, those of each row, and `axis` is their last. `initial` is the result of an empty "
    "segment, and takes part in all others.\n\nRaises: RuntimeError for lengths that do not add up "
    "to the size, unless `unsafe`.\n\n"
    ">>> import pullback\n"
    ">>> x, lengths = pullback.tensor([1., 2., 4.]), pullback.tensor([1, 2])\n"
    ">>> pullback.segment_reduce(x, 'sum', lengths=lengths)\n"
    "tensor([1., 6.])",
    kinks=[kink([2.0, 2.0], "max", lengths=Fixed([2]), to=[0.5, 0.5])],
    samples=lambda: [
        *(case(T(3, 2), how, lengths=_LENGTHS) for how in ("sum", "prod")),
        case(T(3, 2), "mean", lengths=_LENGTHS, skip=_NOTHING),
        case(T(3, 2), "max", lengths=_LENGTHS, skip=KINKS),
        case(T(3, 2), "max", lengths=fixed((1, 2), kind="int64"), skip=_REPEATED),
        case(T(3, 2), "min", lengths=_LENGTHS, initial=0.5),
        case(T(3, 2), "mean", lengths=_LENGTHS, initial=0.5),
        case(T(3), "sum", offsets=fixed((0, 1, 1, 3), kind="int64"), initial=1),
        case(T(3, 4), "sum", lengths=_ROWS, axis=1),
        case(T(3, 4, 2), "max", offsets=fixed((0, 4) * 3, shape=(3, 2), kind="int64"), axis=1),
        case(T(3), "sum", lengths=fixed((1,), kind="int64"), unsafe=True),
        case(T(0), "sum", lengths=fixed((0,), kind="int64")),
    ],
)
