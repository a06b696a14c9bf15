"""Sorting, topk, kthvalue, unique elements."""

from pullback.ops.reductions.choose import choose_along, restore_chosen
from pullback.ops.reductions.searchsorted import find_positions
from pullback.ops.rules.arguments import as_int
from pullback.ops.rules.dims import check_has_dims, check_nonempty_dim, wrap_dim
from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named, type_name
from pullback.ops.rules.elementwise_util import UNDERIVED, no_derivative
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import compiled
from pullback.ops.table.samples import COUNTED, KINKS, SPECIAL, T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, INTEGRAL, REAL, op, ops, result_type

references = references_of("reductions")

_Sorted, _Top, _Kth = (
    result_type(name, "values", "indices") for name in ("sort", "topk", "kthvalue")
)


# -- order -----------------------------------------------------------------------------------------


def _sort_raw(self, dim, descending, count=None):
    """Return (values, indices) of a stable sort along a dim, or the first ``count`` of them."""
    stable_sort = compiled("ops.indexing_sorting", "stable_sort")
    if self.ndim:
        return stable_sort(self, wrap_dim(dim, self.ndim, "sort"), count, descending)
    return tuple(part.reshape(()) for part in stable_sort(self.reshape(1), 0, None, descending))


def _sort(self, dim, descending, stable):
    wrap_dim(dim, self.ndim, "sort")
    if self.is_complex():
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    return _Sorted(*_sort_raw(self, dim, descending))


_SORTS = [
    case(T(5)),
    case(T(2, 3)),
    case(T(2, 3), 0),
    case(T(3, 4), -1, True),
    case(T()),
    case(T(), 0, True),
    case(T(0)),
    case(T(0, 3), 0),
    case(T(2, 0)),
    case(T(4, 3), dim=0, descending=True, stable=True),
    case(T(2, 4, 3), 1),
    case(T(4, 6, step=1), 1, skip=KINKS),
    case(T(4, 6, step=1), 1, True, skip=KINKS),
    case(fixed(SPECIAL), only=FLOATING, skip=KINKS),
    case(fixed(SPECIAL), descending=True, only=FLOATING, skip=KINKS),
]
op(
    "sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool? = None) -> any",
    forward=_sort,
    results=_Sorted.type,
    compiled="sort",
    kernel="sort",
    out=True,
    dtypes=REAL,
    batch="along",
    out_dtype="exact",
    ref=references.sort,
    kinks=[kink([3.0, 3.0, 1.0], to=[1.0, 1.0, 1.0])],
    samples=_SORTS,
    vjp={
        "self": lambda g, self_like, dim, out1: ops.scatter_add(
            ops._zeros_like(self_like), dim, out1, g
        )
    },
    doc="Return the elements sorted along a dim, and where they were: (values, indices).\n\nNaN is "
    "the largest. Equal elements keep their order, also without `stable`.\n\nRaises: "
    "RuntimeError for complex tensors.",
)
op(
    "argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) "
    "-> Tensor",
    forward=lambda self, dim, descending, stable: _sort(self, dim, descending, stable)[1],
    compiled="argsort",
    kernel="argsort",
    dtypes=REAL,
    batch="along",
    ref=lambda np, *args, **options: references.sort(np, *args, **options)[1],
    samples=_SORTS,
    doc="Return the indices that sort a tensor along a dim.\n\nEqual elements keep their order.",
)
op(
    "msort(self: Tensor) -> Tensor",
    composite=lambda self: ops.sort(self, 0)[0],
    out=True,
    dtypes=REAL,
    out_dtype="exact",
    ref=lambda np, self: references.sort(np, self, 0)[0],
    doc="Return the elements sorted along the first dim.",
    kinks=[kink([3.0, 3.0, 1.0], to=[1.0, 1.0, 1.0])],
    samples=lambda: [case(T(5)), case(T(3, 2)), case(T()), case(T(0, 3))],
)


# -- some of the order -----------------------------------------------------------------------------


def _topk(self, k, dim, largest, sorted):
    axis, k = wrap_dim(dim, self.ndim, "topk"), as_int(k, "topk", "k")
    if not 0 <= k <= (self.shape[axis] if self.ndim else 1):
        raise RuntimeError("selected index k out of range")
    if self.dtype.kind in "bc":
        kind = "bool" if self.dtype.kind == "b" else "complex"
        raise RuntimeError(f"topk does not support {kind} dtypes on CPU")
    return _Top(*_sort_raw(self, dim, largest, k))


op(
    "topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> any",
    forward=_topk,
    results=_Top.type,
    compiled="topk",
    kernel="sort",
    out=True,
    dtypes=INTEGRAL | FLOATING,
    batch="along",
    out_dtype="exact",
    ref=references.topk,
    vjp={
        "self": lambda g, self_like, dim, out1: ops.scatter_add(
            ops._zeros_like(self_like), dim, out1, g
        )
    },
    doc="Return the k largest (or smallest) elements along a dim in order, and where they are: "
    "(values, indices).\n\nNaN is the largest.\n\nRaises: RuntimeError for a k that is too "
    "large, for bools and for complex tensors.",
    kinks=[kink([3.0, 3.0, 1.0], 1, to=[1.0, 0.0, 0.0])],
    samples=lambda: [
        case(T(5), 2),
        case(T(2, 3), 1, 0),
        case(T(2, 4), 3, -1, False),
        case(T(2, 3), 0),
        case(T(), 1),
        case(T(0, 3), 2),
        case(T(2, 4), 2, largest=False, sorted=False),
        case(T(4, 6, step=1), 3, skip=KINKS),
        case(fixed(SPECIAL), 4, only=FLOATING, skip=KINKS),
    ],
)


def _kthvalue(self, k, dim, keepdim):
    axis, k = wrap_dim(dim, self.ndim, "kthvalue"), as_int(k, "kthvalue", "k")
    check_dtype("kthvalue", self, "iuf")
    check_nonempty_dim("kthvalue", self, axis)
    if not 0 < k <= (self.shape[axis] if self.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")

    def choose(rows):
        return [part.narrow(-1, k - 1, 1) for part in _sort_raw(rows, -1, False, k)]

    return choose_along("kthvalue", "iuf", choose, _Kth)(self, dim, keepdim)


op(
    "kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> any",
    out=True,
    forward=_kthvalue,
    kernel="sort",
    dtypes=INTEGRAL | FLOATING,
    batch="along",
    out_dtype="exact",
    ref=references.kthvalue,
    vjp={
        "self": lambda g, self_like, dim, keepdim, out1: restore_chosen(
            g, out1, self_like, dim, keepdim
        )
    },
    doc="Return the k-th smallest element along a dim, and where it is: (values, indices).\n\nNaN "
    "is the largest.\n\nRaises: RuntimeError for a k out of range.",
    kinks=[kink([3.0, 3.0, 1.0], 2, to=[1.0, 0.0, 0.0])],
    samples=lambda: [
        case(T(5), 2),
        case(T(2, 3), 1, 0),
        case(T(2, 4), 4, -1, True),
        case(T(), 1),
        case(T(0, 3), 2),
        case(T(4, 6, step=1), 3, skip=KINKS),
        case(fixed(SPECIAL), 11, only=FLOATING, skip=KINKS),
    ],
)


# -- sets ------------------------------------------------------------------------------------------


def _number_runs(fresh):
    """Return, for positions that may begin a run, the number of each one's run."""
    return ops.cumsum(cast_to(fresh, dtype_named("int64")), 0) - 1


def _begins(differs):
    """Return which positions begin a run, given whether each position but the first differs."""
    first = ops.new_full(differs, (1,), True)
    return ops.cat([first, differs], 0)


def _runs(fresh, order, wanted):
    """Return (order of the first of each run, run of each element, length of each run).

    Elements that are taken in ``order`` form runs of equal ones, which begin where ``fresh`` says.
    ``wanted`` says whether the runs of elements, and the lengths are; others are None.
    """
    count = fresh.shape[0]
    starts = ops._nonzero(fresh).reshape(-1)
    positions = lengths = None
    if wanted[0]:
        positions = _number_runs(fresh)
        if order is not None:
            positions = ops.scatter_add(ops.zeros_like(positions), 0, order, positions)
    if wanted[1]:
        ends = ops.cat([starts, ops.new_full(starts, (1,), count)], 0)
        lengths = ends.narrow(0, 1, starts.shape[0]) - starts
    return starts if order is None else ops.index_select(order, 0, starts), positions, lengths


def _ranks(table):
    """Return a number for each row of a table, equal and ordered as the rows are.

    Columns are numbered one by one, then pairs of columns, pairs of pairs, and so on.
    Source: Karp, Miller and Rosenberg, "Rapid identification of repeated patterns", 1972.
    """
    rows = table.shape[0]
    ranks = _rank_columns(table)
    while ranks.shape[1] > 1:
        paired = ranks.shape[1] // 2 * 2
        left, right = ranks[:, 0:paired:2], ranks[:, 1:paired:2]
        ranks = ops.cat([_rank_columns(left * rows + right), ranks[:, paired:]], 1)
    return ranks.reshape(-1)


def _rank_columns(table):
    """Number the different elements of every column in their order."""
    values, order = _sort_raw(table, 0, False)
    count = table.shape[0]
    differs = values.narrow(0, 1, count - 1) != values.narrow(0, 0, count - 1)
    steps = ops.cat(
        [ops.zeros_like(order.narrow(0, 0, 1)), cast_to(differs, dtype_named("int64"))], 0
    )
    return ops.scatter_add(ops.zeros_like(order), 0, order, ops.cumsum(steps, 0))


def _rows_of(name, self, dim):
    """Return self as a table with a row for each slice of a dim."""
    check_has_dims(self, dim)
    dim = wrap_dim(dim, self.ndim, name)
    moved = ops.movedim(self, dim, 0)
    if (not self.shape[dim] and 0 in moved.shape[1:]) or (not self.numel() and self.shape[dim]):
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    width = 1
    for size in moved.shape[1:]:
        width *= size
    return moved.reshape((moved.shape[0], width)), dim


def _set_result(self, dim, found, wanted):
    """Return the chosen elements or slices, and what else was asked for."""
    chosen, inverse, counts = found
    if dim is None:
        values = ops.index_select(self.reshape(-1), 0, chosen)
        inverse = None if inverse is None else inverse.reshape(self.shape)
    else:
        values = ops.index_select(self, dim, chosen)
    result = [values] + [part for part, on in zip((inverse, counts), wanted) if on]
    return tuple(result) if len(result) > 1 else values


def _unique(self, sorted, return_inverse, return_counts, dim):
    check_dtype("unique", self, "biuf")
    wanted = (return_inverse, return_counts)
    if dim is None:
        keys = self.reshape(-1)
    else:
        table, dim = _rows_of("unique", self, dim)
        keys = table if not table.shape[0] else _ranks(table)
    if not keys.shape[0]:
        return _set_result(self, dim, _nothing(self), wanted)
    values, order = _sort_raw(keys.reshape(-1), 0, False)
    count = values.shape[0]
    differs = values.narrow(0, 1, count - 1) != values.narrow(0, 0, count - 1)
    if dim is None and not any(wanted):
        later = ops.index(values.narrow(0, 1, count - 1), (differs,))
        return ops.cat([values.narrow(0, 0, 1), later], 0)
    return _set_result(self, dim, _runs(_begins(differs), order, wanted), wanted)


def _nothing(self):
    return [ops._zeros_like(self).new_zeros((0,), dtype=dtype_named("int64")) for _ in range(3)]


def _unique_consecutive(self, return_inverse, return_counts, dim):
    check_dtype("unique", self, "biuf")
    wanted = (return_inverse, return_counts)
    if dim is None:
        table = self.reshape((self.numel(), 1))
    else:
        table, dim = _rows_of("unique_consecutive", self, dim)
    count = table.shape[0]
    if not count:
        return _set_result(self, dim, _nothing(self), wanted)
    differs = ops.any(table.narrow(0, 1, count - 1) != table.narrow(0, 0, count - 1), 1)
    fresh = _begins(cast_to(differs, dtype_named("bool")))
    return _set_result(self, dim, _runs(fresh, None, wanted), wanted)


_MANY = [
    case(T(8, low=0, high=4, step=1), skip=COUNTED),
    case(T(3, 4, low=0, high=4, step=1), return_inverse=True, return_counts=True, skip=COUNTED),
    case(T(), return_inverse=True, skip=COUNTED),
    case(T(0), return_counts=True, skip=COUNTED),
    case(
        T(5, 2, low=0, high=2, step=1), dim=0, return_inverse=True, return_counts=True, skip=COUNTED
    ),
    case(T(2, 6, 3, low=0, high=1.4, step=1), dim=1, return_counts=True, skip=COUNTED),
    case(T(0, 3), dim=0, skip=COUNTED),
    case(T(4, 1, low=0, high=2, step=1), dim=-1, skip=COUNTED),
    case(
        fixed((0.0, -0.0, 1.0, float("nan"), 1.0, float("inf"), float("nan"))),
        return_inverse=True,
        only=FLOATING,
        skip=COUNTED,
    ),
]
_MANY = [one._replace(skip={**one.skip, **UNDERIVED}) for one in _MANY]
op(
    "unique(self: Tensor, sorted: bool = True, return_inverse: bool = False, "
    "return_counts: bool = False, dim: int? = None) -> any",
    forward=_unique,
    dtypes=REAL,
    ref=references.unique,
    samples=_MANY,
    node="NotImplemented",
    vjp={"self": no_derivative("unique", "self")},
    doc="Return the different elements in order, or the different slices of a dim.\n\nWith "
    "`return_inverse` also where each element went, with `return_counts` how often each one "
    "occurs: a tuple. Every NaN differs from the others.",
)
op(
    "unique_consecutive(self: Tensor, return_inverse: bool = False, return_counts: bool = False, "
    "dim: int? = None) -> any",
    forward=_unique_consecutive,
    dtypes=REAL,
    ref=references.unique_consecutive,
    samples=_MANY,
    node="NotImplemented",
    vjp={"self": no_derivative("unique_consecutive", "self")},
    doc="Return the first of each run of equal elements, or of equal slices of a dim.\n\nWith "
    "`return_inverse` also which run each element is in, with `return_counts` the length of "
    "each: a tuple.",
)


def _isin(elements, test_elements, assume_unique, invert):
    given = [value for value in (elements, test_elements) if hasattr(value, "shape")]
    if not given:
        raise TypeError(
            "isin(): expected elements or test_elements to be a Tensor, got two numbers"
        )
    like = given[0]
    elements, tests = (
        value if hasattr(value, "shape") else _scalar(like, value)
        for value in (elements, test_elements)
    )
    for value in (elements, tests):
        if value.dtype.kind in "bc":
            raise RuntimeError(
                f"Unsupported input type encountered for isin(): {type_name(value.dtype)}"
            )
    tests = tests.reshape(-1)
    if not tests.numel():
        return ops.full_like(elements, bool(invert), dtype=dtype_named("bool"))
    import pullback

    common = pullback.promote_types(elements.dtype, tests.dtype)
    elements, tests = cast_to(elements, common), _sort_raw(cast_to(tests, common), 0, False)[0]
    position = ops.clamp(
        find_positions(tests, elements, False, nan_last=True), max=tests.shape[0] - 1
    )
    found = ops.index_select(tests, 0, position.reshape(-1)).reshape(elements.shape) == elements
    return ~found if invert else found


def _scalar(like, value):
    """Return a number as a 0-d tensor on the device of another."""
    import pullback

    wide = like.dtype if like.dtype.name == "uint64" and isinstance(value, int) else None
    return pullback.tensor(value, dtype=wide, device=like.device)


op(
    "isin(elements: Operand, test_elements: Operand, *, assume_unique: bool = False, "
    "invert: bool = False) -> Tensor",
    forward=_isin,
    out_dtype="exact",
    method=False,
    out=True,
    dtypes=INTEGRAL | FLOATING,
    ref=references.isin,
    doc="Return which elements are among others.\n\nNaN is never found.\n\nRaises: RuntimeError "
    "for bools and complex tensors.",
    samples=lambda: [
        case(T(2, 3, step=1), T(4, step=1)),
        case(T(5, step=1), 2),
        case(2, T(3, step=1)),
        case(T(4, step=1), T(2, 2, step=1), invert=True),
        case(T(3), T(0)),
        case(T(), T(2)),
        case(T(0), T(2)),
        case(T(3, step=1), T(2, step=1), assume_unique=True),
        case(fixed(SPECIAL), fixed(SPECIAL), only=FLOATING),
    ],
)
