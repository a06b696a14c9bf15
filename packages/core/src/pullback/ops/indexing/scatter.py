"""Writing and reducing at index tensors along a dim, at masks, and at flat positions."""

import math

from pullback.ops.indexing.gather import padded_to, run_along, scatter_into, scatter_operands
from pullback.ops.reductions.sorting import _sort_raw
from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named
from pullback.ops.rules.operands import as_vector, kept_apart
from pullback.ops.table.kinks import EACH_WRITTEN, Fixed, kink
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import writable
from pullback.ops.table.samples import KINKS, T, at, case, fixed, references_of
from pullback.ops.table.schema import ALL, BOOL, FLOAT_COMPLEX, REAL, op, ops

references = references_of("indexing")

# -- writes along a dim ----------------------------------------------------------------------------


def _number_like(self, value):
    """Return a number as a 0-d tensor in the dtype of another."""
    if isinstance(value, complex) and not self.is_complex():
        raise RuntimeError(f"value cannot be converted to type {self.dtype.name} without overflow")
    return ops.new_full(self, (), value)


def _scatter_values(self, dim, index, src):
    if not hasattr(src, "shape"):
        src = _number_like(self, src).expand(index.shape)
    return scatter_into("scatter")(self, dim, index, src)


_PLACES = fixed((0, 2, 3, 1, 0, 2), shape=(2, 3), kind="int64")
_WRITTEN = [
    case(T(4, 3), 0, _PLACES, T(2, 3)),
    case(T(4, 3), 0, _PLACES, 2),
    case(T(3, 4), -1, fixed((3, 0, 1, 2), shape=(2, 2), kind="int64"), T(2, 2)),
    case(T(4), 0, fixed((2, 0), kind="int64"), T(2)),
    case(T(), 0, at(high=1), T()),
    case(T(), 0, at(high=1), 1),
    case(T(4, 3), 0, at(0, 3, high=4), T(0, 3)),
    case(T(4, 3), 0, _PLACES, 1.5, only=FLOAT_COMPLEX),
]
_ONE_EACH = {"expanded": "indices that repeat write one position twice"}
_WRITTEN = [one._replace(skip={**one.skip, **_ONE_EACH}) for one in _WRITTEN]
op(
    "scatter_values_(self: Tensor, dim: int, index: Tensor, src: Operand) -> Tensor",
    forward=_scatter_values,
    kernel="scatter",
    inplace="only",
    batch="along",
    method=False,
    function=False,
    node=lambda src_shape: f"ScatterBackward{0 if isinstance(src_shape, tuple) else 1}",
    jvp="linear",
    vjp={
        "self": lambda g, dim, index: ops.scatter(g, dim, index, 0),
        "src": lambda g, dim, index, src_shape: ops.gather_backward(g, dim, index, src_shape),
    },
    doc="Write src at an index along a dim; returns self.",
    ref=references.scatter,
    overwrites=True,
    samples=_WRITTEN,
)


def _scatter(self, dim, index, src, reduce, value):
    if (src is None) == (value is None):
        raise TypeError("scatter(): expected either src or value")
    src = value if src is None else src
    if reduce is None:
        return ops.scatter_values_(self, dim, index, src)
    check_str(reduce, "scatter", "reduce")
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if not hasattr(src, "shape"):
        src = _number_like(self, src).expand(index.shape)
    if reduce == "add":
        return ops.scatter_add_(self, dim, index, src)
    return ops.scatter_reduce_(self, dim, index, src, "prod")


_REDUCED = [
    case(T(4, 3), 0, _PLACES, T(2, 3), reduce="add"),
    case(T(4, 3), 0, _PLACES, 2, reduce="multiply"),
    case(T(4, 3), 1, at(4, 2, high=3), T(4, 2), reduce="multiply"),
    case(T(4, 3), 0, _PLACES, value=3),
]
_SRC = (
    "dim: int, index: Tensor, src: Operand? = None, *, reduce: str? = None, value: Scalar? = None"
)
op(
    f"scatter_(self: Tensor, {_SRC}) -> Tensor",
    composite=_scatter,
    kernel="scatter",
    inplace="only",
    function=False,
    ref=references.scatter,
    overwrites=True,
    samples=[*_WRITTEN, *_REDUCED],
    doc="Write src, or a number, at an index along a dim; with reduce='add' or 'multiply' combine "
    "it with what is there. Returns self.",
)
op(
    f"scatter(self: Tensor, {_SRC}) -> Tensor",
    kernel="scatter",
    out=True,
    out_dtype="exact",
    ref=references.scatter,
    composite=lambda self, dim, index, src, reduce, value: _scatter(
        writable(self, index, src, value), dim, index, src, reduce, value
    ),
    kinks=[
        kink(
            [5.0],
            0,
            Fixed([0, 0]),
            [1.0, 2.0],
            to=([0.0], [1.0, 1.0]),
            tangents=([0.0], [0.0, 1.0]),
            outside=EACH_WRITTEN,
        )
    ],
    overwrites=True,
    samples=[*_WRITTEN, *_REDUCED],
    doc="Return a copy with src, or a number, written at an index along a dim.\n\nWith "
    "reduce='add' or 'multiply' it is combined with what is there.\n\nRaises: RuntimeError for "
    "an index that is out of range or larger than src.",
)


# -- reductions at an index ------------------------------------------------------------------------


def takes_extremes(reduce):
    """Return whether a reduction selects an element, so that its gradient needs the result."""
    return reduce in ("amax", "amin", "max", "min")


_COMBINE = {
    "prod": lambda a, b: a * b,
    "amax": lambda a, b: ops.maximum(a, b),
    "amin": lambda a, b: ops.minimum(a, b),
}
_MODES = ("prod", "amax", "amin")
_NEUTRAL_NAMES = {"add": "sum", "multiply": "prod", "max": "amax", "min": "amin"}


def _segments(src, index, dim):
    """Sort src by its target; return (src, target, whether each is the first of its target)."""
    targets, order = _sort_raw(index, dim, False)
    return ops.gather(src, dim, order), targets, order


def _reduce_runs(values, targets, dim, combine, reverse=False):
    """Return the running reductions of values with the same target, which are neighbours.

    Source: as axes.scan, with the runs' bounds as in Blelloch, 1990, section 1.5.
    """
    length, step = targets.shape[dim], 1
    while step < length:
        rest = length - step
        left, right = values.narrow(dim, 0, rest), values.narrow(dim, step, rest)
        same = targets.narrow(dim, 0, rest) == targets.narrow(dim, step, rest)
        joined = ops.where(same, combine(left, right), left if reverse else right)
        values = ops.cat(
            [joined, values.narrow(dim, rest, step)]
            if reverse
            else [values.narrow(dim, 0, step), joined],
            dim,
        )
        step *= 2
    return values


def _neighbours_differ(targets, dim):
    """Return whether each target differs from the one after it; the last one does."""
    count = targets.shape[dim]
    differs = targets.narrow(dim, 0, count - 1) != targets.narrow(dim, 1, count - 1)
    return ops.cat(
        [differs, ops.full_like(targets.narrow(dim, 0, 1), True, dtype=dtype_named("bool"))], dim
    )


@decomposition("scatter_reduce")
def combine_by_scan(self, dim, index, src, mode):
    """Combine all src of a target by a scan over their sorted targets, then with the target."""
    combine = _COMBINE[_MODES[mode]]
    values, targets, _ = _segments(src, index, dim)
    runs = _reduce_runs(values, targets, dim, combine)
    last = _neighbours_differ(targets, dim)
    nothing = ops.new_full(runs, (), -0.0)  # adding it changes no float, not even -0
    total = ops.scatter_add(ops.full_like(self, -0.0), dim, targets, ops.where(last, runs, nothing))
    written = (
        ops.scatter_add(
            ops.zeros_like(self, dtype=dtype_named("int64")),
            dim,
            targets,
            cast_to(last, dtype_named("int64")),
        )
        > 0
    )
    return ops.where(written, combine(self, total), self)


def _combine(self, dim, index, src, mode):
    run_along("scatter_reduce", (self,), (index, src), dim, mode)
    return self


op(
    "scatter_combine_(self: Tensor, dim: int, index: Tensor, src: Tensor, mode: int) -> Tensor",
    forward=_combine,
    kernel="scatter_reduce",
    inplace="only",
    method=False,
    function=False,
    doc="Combine src with self at an int64 index of its shape along a dim: mode 0 takes the "
    "product, 1 the larger and 2 the smaller element; returns self.",
    ref=lambda np, self, dim, index, src, mode: references.scatter_reduce(
        np, self, dim, index, src, _MODES[mode]
    ),
    samples=lambda: [
        case(T(4, 3), 0, at(3, 3, high=4), T(3, 3), 0),
        *(case(T(4, 3), 1, at(4, 2, high=3), T(4, 2), mode, only=REAL) for mode in (1, 2)),
    ],
)


def _least(dtype, mode):
    """Return the number that changes nothing it is combined with."""
    if mode == 0:
        return 1
    if dtype.kind == "b":
        return mode == 2
    if dtype.is_floating_point:
        return -math.inf if mode == 1 else math.inf
    import pullback

    limits = pullback.iinfo(dtype)
    return limits.min if mode == 1 else limits.max


def _counts(like, dim, index, include_self):
    """Return how many elements share each position of an array, at least 1."""
    start = ops.full_like(like, 1 if include_self else 0)
    count = ops.scatter_add(start, dim, index, ops.full_like(index, 1, dtype=like.dtype))
    return ops.where(count == 0, 1, count)


def _check_reduce(reduce, self):
    check_str(reduce, "scatter_reduce", "reduce")
    reduce = _NEUTRAL_NAMES.get(reduce, reduce)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}."
        )
    if reduce in ("amax", "amin"):
        check_dtype(f"scatter_reduce_{reduce}", self, "biuf")
    elif reduce == "mean":
        check_dtype(f"scatter_reduce_{reduce}", self, "iufc")
    return reduce


def _scatter_reduce(self, dim, index, src, reduce, include_self):
    reduce, src = _check_reduce(reduce, self), kept_apart(self, src)
    if reduce in ("sum", "mean"):
        if not include_self:
            _scatter_values(self, dim, index, 0)
        scatter_into("scatter_add")(self, dim, index, src)
        if reduce == "mean" and index.numel():
            count = _counts(self, dim, index, include_self)
            ops.copy_(
                self, ops.floor_divide(self, count) if self.dtype.kind in "iu" else self / count
            )
        return self
    found = scatter_operands("scatter", self, dim, index, src)
    if found is not None:
        target, dim, index, src = found
        mode = _MODES.index(reduce)
        if not include_self:
            least = _number_like(self, _least(self.dtype, mode)).expand(index.shape)
            run_along("scatter", (target,), (index, least), dim)
        ops.scatter_combine_(target, dim, index, src, mode)
    return self


def _products_of_others(src, index, dim):
    """Return for each src the product of the others with its target, without a division."""
    values, targets, order = _segments(src, index, dim)
    alone, count = _COMBINE["prod"], targets.shape[dim]
    fresh = _neighbours_differ(targets, dim)
    first = ops.full_like(fresh.narrow(dim, 0, 1), True)
    starts = ops.cat([first, fresh.narrow(dim, 0, count - 1)], dim)
    before = _reduce_runs(values, targets, dim, alone)
    after = _reduce_runs(values, targets, dim, alone, reverse=True)
    one = ops.full_like(values.detach().narrow(dim, 0, 1), 1)
    before = ops.where(starts, 1, ops.cat([one, before.narrow(dim, 0, count - 1)], dim))
    after = ops.where(fresh, 1, ops.cat([after.narrow(dim, 1, count - 1), one], dim))
    positions = ops.scatter(ops.zeros_like(order), dim, order, _numbers_along(order, dim))
    return ops.gather(before * after, dim, positions)


def _numbers_along(like, dim):
    shape = [1] * like.ndim
    shape[dim] = like.shape[dim]
    return ops.arange_like(like, like.shape[dim]).reshape(tuple(shape)).expand(like.shape)


def _prod_grads(g, self, dim, index, src, include_self):
    shape = self.shape
    g, self, index, src = (as_vector(part) for part in (g, self, index, src))
    at = wrap_dim(dim, self.ndim, "scatter_reduce")
    product = ops.scatter_reduce(ops.ones_like(self.detach()), at, index, src, "prod")
    mine = ops.conj(product) * g
    factor = ops.conj(_products_of_others(src, index, at))
    if include_self:
        factor = factor * ops.conj(self).gather(at, index)
    else:
        mine = ops.scatter(mine, at, index, 0)
    return mine.reshape(shape), g.gather(at, index) * factor


def _scatter_reduce_vjp(g, self, dim, index, src, out, reduce, include_self):
    """The gradients that torch takes: extreme elements that are equal share theirs evenly."""
    check_str(reduce, "scatter_reduce", "reduce")
    reduce = _NEUTRAL_NAMES.get(reduce, reduce)
    index, whole = cast_to(index, dtype_named("int64")), src.shape
    if not index.numel():
        return g, ops.zeros_like(src)
    for d, size in enumerate(index.shape):
        src = src.narrow(d, 0, size)
    if reduce == "prod":
        mine, others = _prod_grads(g, self, dim, index, src, include_self)
        return mine, padded_to(others.reshape(index.shape), whole)
    if reduce in ("amax", "amin"):
        kept = self == out
        taken = src == out.gather(dim, index)
        count = ops.scatter_add(cast_to(kept, g.dtype), dim, index, cast_to(taken, g.dtype))
        share = g / count
        mine, others = kept * share, taken * share.gather(dim, index)
    else:
        if reduce == "mean":
            g = g / _counts(g.detach(), dim, index, include_self)
        mine, others = g, g.gather(dim, index)
    return (mine if include_self else ops.scatter(mine, dim, index, 0)), padded_to(others, whole)


_REDUCTIONS = [
    case(T(4, 3), 0, at(3, 3, high=4), T(3, 3), name, include_self=include)
    for name in ("sum", "prod", "amax", "amin")
    for include in (True, False)
]
_REDUCTIONS += [
    case(T(4, 3), 0, at(3, 3, high=4), T(3, 3), "mean", include_self=include, only=ALL & ~BOOL)
    for include in (True, False)
]
_REDUCTIONS = [
    one if one.args[4] in ("sum", "prod", "mean") else one._replace(only=REAL)
    for one in _REDUCTIONS
]
_REDUCTIONS += [
    case(T(4, 5), 1, at(4, 7, high=5), T(4, 7), "prod"),
    *(
        case(T(4, 3), 1, at(2, 2, high=3), T(3, 3), name, only=FLOAT_COMPLEX)
        for name in ("sum", "prod", "mean")
    ),
    case(T(4, 3), 1, at(2, 2, high=3), T(3, 3), "amin", only=REAL),
    case(T(), 0, at(high=1), T(), "prod"),
    case(T(4, 3), 0, at(0, 3, high=4), T(0, 3), "amax", only=REAL),
    case(
        fixed((2, 0, 3)),
        0,
        fixed((0, 0, 1, 2, 2), kind="int64"),
        fixed((0, 5, 2, 0, 0)),
        "prod",
        skip=_ONE_EACH,
    ),
    case(T(4, step=1), 0, at(9, high=4), T(9, step=1), "amax", only=REAL, skip=KINKS),
    case(T(4), 0, at(6, high=4), T(6), "amin", include_self=False, only=REAL),
]
_AT = "dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True"
op(
    f"scatter_reduce_(self: Tensor, {_AT}) -> Tensor",
    forward=_scatter_reduce,
    inplace="only",
    batch="along",
    function=False,
    node="ScatterReduceBackward0",
    ref=references.scatter_reduce,
    reads_out=lambda self, dim, index, src, reduce, include_self: takes_extremes(reduce),
    vjp={
        ("self", "src"): lambda g, self, dim, index, src, out, reduce, include_self: (
            _scatter_reduce_vjp(g, self, dim, index, src, out, reduce, include_self)
        )
    },
    doc="Reduce src at an index along a dim into self; returns self.",
    samples=_REDUCTIONS,
)
op(
    f"scatter_reduce(self: Tensor, {_AT}) -> Tensor",
    out=True,
    out_dtype="exact",
    ref=references.scatter_reduce,
    composite=lambda self, dim, index, src, reduce, include_self: ops.scatter_reduce_(
        writable(self, index, src), dim, index, src, reduce, include_self=include_self
    ),
    kinks=[
        kink([2.0], 0, Fixed([0]), [2.0], reduce="amax", to=([0.5], [0.5])),
        kink([2.0], 0, Fixed([0]), [2.0], reduce="amin", to=([0.5], [0.5])),
    ],
    samples=_REDUCTIONS,
    doc="Return a copy in which src is reduced at an index along a dim.\n\n`reduce` is 'sum', "
    "'prod', 'mean', 'amax' or 'amin'; without `include_self` what was there does not count."
    "\n\nDerivative: equal extreme elements share theirs evenly; exact for products with 0.",
)
