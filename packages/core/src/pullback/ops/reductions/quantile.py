"""Medians, modes and quantiles."""

import math

from pullback.ops.reductions.choose import choose_along, restore_chosen, share_evenly
from pullback.ops.rules.arguments import check_number
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import JUMP, kink
from pullback.ops.table.samples import (
    KINKS,
    T,
    case,
    fixed,
    references_of,
)
from pullback.ops.table.schema import (
    FLOATING,
    HALF,
    INTEGRAL,
    REAL,
    op,
    ops,
    result_type,
)

references = references_of("reductions")

SINGLE_DOUBLE = FLOATING & ~HALF


# -- medians and modes -----------------------------------------------------------------------------


def _middle(ignores_nan, rows):
    """Return (values, indices) of the middle elements of the last dim."""
    values, indices = ops.sort(rows, -1)
    count = rows.shape[-1]
    holes = ops.sum(rows != rows, -1, True)
    if ignores_nan:
        position = ops.clamp(ops.floor_divide(count - holes - 1, 2), min=0)
    else:
        position = ops.where(holes > 0, count - holes, (count - 1) // 2)
    return ops.gather(values, -1, position), ops.gather(indices, -1, position)


def _median_all(name, ignores_nan):
    def forward(self):
        check_dtype(name, self, "iuf")
        if not self.numel():
            if self.dtype.kind == "f":
                return ops.full_like(self.reshape(-1).sum(), math.nan)
            # the lowest int32 or int64, cut to size, is what NaN becomes in torch
            lowest = -(2 ** (8 * self.dtype.itemsize - 1)) if self.dtype.itemsize > 2 else 0
            return ops.new_full(self, (), lowest)
        if ignores_nan:
            return _middle(True, self.reshape(-1))[0].reshape(())
        values = ops.sort(self.reshape(-1), -1)[0]
        middle, last = values[(values.shape[0] - 1) // 2], values[-1]
        return ops.where(last != last, last, middle)  # NaN comes last

    return forward


_CHOICES = [
    case(T(5)),
    case(T(2, 3)),
    case(T(2, 3), 0),
    case(T(2, 4), -1, True),
    case(T()),
    case(T(), 0, True),
    case(T(0, 3), 1),
]
_ALL_AND_ALONG = [
    case(T(2, 3)),
    case(T(4)),
    case(T()),
    case(T(3), 0),
    case(T(2, 3), 0),
    case(T(2, 4), -1, True),
    case(T(), 0),
    case(T(0, 3), 1, True),
]
_NAN_ROWS = case(fixed((1, math.nan, 3, 5, 4, 6, 8, 7), shape=(2, 4)), 1, only=FLOATING, skip=KINKS)

for _name, _ignores in (("median", False), ("nanmedian", True)):
    _fields = result_type(_name, "values", "indices")
    op(
        f"{_name}_all(self: Tensor) -> Tensor",
        forward=_median_all(_name, _ignores),
        method=False,
        vjp={"self": lambda g, self, out: share_evenly(g, self, out)},
        function=False,
        node=f"{_name.title()}Backward0",
        doc="Return the lower of the middle elements.",
        dtypes=INTEGRAL | FLOATING,
        ref=references.median.of(_ignores),
        samples=lambda: [
            case(T(2, 3)),
            case(T(4)),
            case(T()),
            case(T(0), skip=KINKS, only=FLOATING),
        ],
    )
    op(
        f"{_name}_along(self: Tensor, dim: int, keepdim: bool) -> any",
        method=False,
        forward=choose_along(
            _name, "iuf", lambda rows, _ignores=_ignores: _middle(_ignores, rows), _fields
        ),
        vjp={
            "self": lambda g, self_like, dim, keepdim, out1: restore_chosen(
                g, out1, self_like, dim, keepdim
            )
        },
        batch="along",
        function=False,
        node=f"{_name.title()}Backward1",
        doc="Return the middle elements along a dim.",
        dtypes=INTEGRAL | FLOATING,
        ref=references.median.of(_ignores),
        samples=lambda: [
            case(T(2, 3), 0, False),
            case(T(2, 4), -1, True),
            case(T(), 0, False),
            case(T(0, 3), 1, True),
        ],
    )
    op(
        f"{_name}(self: Tensor, dim: int? = None, keepdim: bool = False) -> any",
        out=True,
        out_dtype="pair",
        out_overlap=True,
        composite=lambda self, dim, keepdim, _name=_name: (
            getattr(ops, _name + "_all")(self)
            if dim is None
            else getattr(ops, _name + "_along")(self, dim, keepdim)
        ),
        doc=f"Return the median of all elements{' but NaN' if _ignores else ''}, or (values, "
        f"indices) along a dim.\n\nOf two middle elements the lower one counts"
        f"{'' if _ignores else '; NaN wins'}.",
        kinks=[
            kink([3.0, 3.0, 1.0], to=[0.5, 0.5, 0.0]),
            kink([3.0, 3.0, 1.0], 0, to=[1.0, 0.0, 0.0]),
        ],
        samples=lambda: [*_ALL_AND_ALONG, _NAN_ROWS],
        dtypes=INTEGRAL | FLOATING,
        ref=references.median.of(_ignores),
    )


def _most_frequent(rows):
    """Return (values, indices) of the longest run of the sorted elements; the first of equals."""
    values, indices = ops.sort(rows, -1)
    count = rows.shape[-1]
    positions = ops.arange_like(rows, count).expand(rows.shape)
    if count > 1:
        fresh = values.narrow(-1, 1, count - 1) != values.narrow(-1, 0, count - 1)
        starts = ops.where(fresh, positions.narrow(-1, 1, count - 1), 0)
        starts = ops.cummax(ops.cat([ops.zeros_like(starts.narrow(-1, 0, 1)), starts], -1), -1)[0]
        positions = positions - starts
    longest = ops.argmax(positions, -1, True)
    return ops.gather(values, -1, longest), ops.gather(indices, -1, longest)


op(
    "mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> any",
    out=True,
    forward=choose_along("mode", "biuf", _most_frequent, result_type("mode", "values", "indices")),
    vjp={
        "self": lambda g, self_like, dim, keepdim, out1: restore_chosen(
            g, out1, self_like, dim, keepdim
        )
    },
    dtypes=REAL,
    batch="along",
    out_dtype="exact",
    ref=references.mode,
    doc="Return the most frequent element along a dim, and the index of its last occurrence: "
    "(values, indices).\n\nOf equally frequent elements the smallest counts.",
    kinks=[kink([3.0, 3.0, 1.0], to=[0.0, 1.0, 0.0], outside=JUMP)],
    samples=lambda: [
        *_CHOICES,
        case(T(4, 6, low=0, high=3, step=1), 1, skip=KINKS),
        case(T(6, 4, low=0, high=3, step=1), 0, skip=KINKS),
    ],
)


# -- quantiles -------------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name, self, q, interpolation):
    """Check the arguments as torch does; return q as a tensor."""
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint "
            f"or nearest, but got {interpolation}"
        )
    if not self.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if self.dtype.name not in ("float32", "float64"):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if not hasattr(q, "shape"):
        check_number(q, name, "q")
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        return ops.new_full(self, (), q)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype != self.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    error = RuntimeError(f"{name}() q values must be in the range [0, 1]")
    check_all((q >= 0) & (q <= 1), error)
    return q


def _pick_quantiles(rows, q, ignores_nan, interpolation):
    """Return the quantiles of the last dim, with one element in the last dim for every q."""
    count = rows.shape[-1]
    values = ops.sort(rows, -1)[0]
    holes = ops.sum((rows != rows).detach(), -1, True)
    if ignores_nan:
        ranks = q * ops.clamp(count - holes - 1, min=0)
    else:
        ranks = ops.where(holes > 0, count - 1, q * (count - 1))  # NaN is sorted last
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": ops.floor, "higher": ops.ceil, "nearest": ops.round}[interpolation]
        return ops.gather(values, -1, cast_to(rounded(ranks.detach()), dtype_named("int64")))
    low = ops.floor(ranks.detach())
    below = ops.gather(values, -1, cast_to(low, dtype_named("int64")))
    above = ops.gather(values, -1, cast_to(ops.ceil(ranks.detach()), dtype_named("int64")))
    weight = ranks - low if interpolation == "linear" else ops.full_like(ranks.detach(), 0.5)
    # From the nearer end, so that both ends are exact.
    return ops.where(
        weight < 0.5, below + weight * (above - below), above - (1 - weight) * (above - below)
    )


def _quantile(name, ignores_nan):
    def composite(self, q, dim, keepdim, interpolation):
        q = _check_quantile(name, self, q, interpolation)
        single, ndim = not q.ndim, self.ndim
        if dim is None:
            rows, axis = self.reshape(-1), None
        else:
            axis = wrap_dim(dim, ndim, name)
            rows = ops.movedim(self, axis, -1) if ndim else self.reshape(1)
        found = ops.movedim(_pick_quantiles(rows, q.reshape(-1), ignores_nan, interpolation), -1, 0)
        if keepdim:
            if axis is None:
                found = found.reshape((found.shape[0],) + (1,) * ndim)
            elif ndim:
                found = found.unsqueeze(axis + 1)
        return found.squeeze(0) if single else found.contiguous()

    return composite


_QUANTILES = [
    case(T(5), 0.3),
    case(T(2, 3), 0.5, 0),
    case(T(2, 4), 0.7, -1, True),
    case(T(2, 3), 0.25, keepdim=True),
    case(T(), 0.5),
    case(T(), 0.5, 0),
    case(T(2, 4), fixed((0.1, 0.55, 0.95)), 1),
    case(T(4, 2), fixed((0.3,)), 0, True),
    case(T(2, 3), fixed((0.25, 0.9)), keepdim=True),
    case(T(5), fixed((0.9,), shape=())),
    *[case(T(2, 5), 0.4, 1, interpolation=name) for name in _INTERPOLATIONS[1:]],
]
for _name, _ignores in (("quantile", False), ("nanquantile", True)):
    op(
        f"{_name}(self: Tensor, q: any, dim: int? = None, keepdim: bool = False, *, "
        f"interpolation: str = 'linear') -> Tensor",
        out=True,
        dtypes=SINGLE_DOUBLE,
        out_dtype="exact",
        out_overlap=True,
        composite=_quantile(_name, _ignores),
        autocast=("float32", None),
        kinks=[kink([3.0, 3.0, 1.0], 0.5, to=[1.0, 0.0, 0.0])],
        ref=references.quantile.of(_name),
        doc=f"Return the q-th quantiles of all elements or along a dim"
        f"{', without those that are NaN' if _ignores else '; NaN wins'}.\n\nShape: a vector q "
        f"adds a first dim.\n\nRaises: RuntimeError for a q outside [0, 1], for empty tensors, "
        f"and for dtypes other than float32 and float64.",
        samples=lambda: [
            *_QUANTILES,
            case(
                fixed((1, math.nan, 3, 5, 4, 6, 8, 7), shape=(2, 4)),
                0.4,
                1,
                only=FLOATING,
                skip=KINKS,
            ),
        ],
    )
