"""Reductions over all dims or some."""

import math

from pullback.ops.decompositions import reductions
from pullback.ops.decompositions.reductions import logsumexp
from pullback.ops.reductions.choose import choose_along, restore_chosen, share_evenly
from pullback.ops.rules.dims import check_nonempty_dim, wrap_dim, wrap_dims
from pullback.ops.rules.dtypes import cast_to, check_dtype, default_dtype, dtype_named, type_name
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import FEW, new_empty, reduce_by, run_primitive
from pullback.ops.table.samples import (
    KINKS,
    SPECIAL,
    Dtype,
    T,
    case,
    fixed,
    reduction,
    references_of,
)
from pullback.ops.table.schema import (
    ALL,
    COMPLEX,
    FLOAT64,
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    REAL,
    op,
    ops,
    result_type,
)

references = references_of("reductions")


def _extreme_vjp(g, self, self_shape, out, dim, keepdim):
    chosen = self == ops.sum_backward(out, self_shape, dim, keepdim)
    return ops.where(chosen, ops.sum_backward(g, self_shape, dim, keepdim), 0) / chosen.sum(
        dim, True
    )


def _numbered(name):
    """torch counts an op with dims as another overload."""
    return lambda dim: f"{name}Backward{0 if dim is None else 1}"


_NOTHING = {"gradgrad": "the mean of nothing is NaN, and so is each of its derivatives"}

op(
    "sum(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, "
    "dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    jvp="linear",
    forward="sum",
    kernel="sum",
    dtypes=ALL,
    out=True,
    batch="along",
    out_overlap=True,
    ref="numpy.sum",
    vjp={"self": lambda g, self_shape, dim, keepdim: ops.sum_backward(g, self_shape, dim, keepdim)},
    node=_numbered("Sum"),
    doc="Return the sum over some dims, or all.\n\nDtype: integers and bools give int64.",
    samples=lambda: [*reduction(), case(T(2, 3), 0, dtype=Dtype("float64"), only=ALL & ~COMPLEX)],
)
op(
    "mean(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, "
    "dtype: dtype? = None) -> Tensor",
    jvp="linear",
    forward="mean",
    kernel="sum",
    out=True,
    batch="along",
    out_overlap=True,
    ref="numpy.mean",
    vjp={
        "self": lambda g, self_shape, dim, keepdim: ops.mean_backward(g, self_shape, dim, keepdim)
    },
    node=_numbered("Mean"),
    doc="Return the mean over some dims, or all.\n\nRaises: RuntimeError for integers.",
    samples=lambda: [
        *reduction(empty=False),
        case(T(0, 3), 0, skip=_NOTHING),
        case(T(0), skip=_NOTHING),
    ],
    dtypes=FLOAT_COMPLEX,
)
_restored = [
    case(T(2), (2, 3), 1, False),
    case(T(2, 1), (2, 3), -1, True),
    case(T(), (2, 3), None, False),
    case(T(3), (2, 3, 2), (0, 2), False),
    case(T(), (), 0, False),
    case(T(1, 1), (2, 3), None, True),
]
op(
    "sum_backward(self: Tensor, shape: int[], dim: int[]?, keepdim: bool) -> Tensor",
    forward="sum_backward",
    view=True,
    batch="along restores",
    method=False,
    function=False,
    node="ExpandBackward0",
    vjp={"self": lambda g, dim, keepdim: g.sum(dim, keepdim)},
    doc="Return a view that repeats the elements of a reduction over `shape`, which it had before.",
    samples=_restored,
    ref=references.sum_backward,
)
op(
    "mean_backward(self: Tensor, shape: int[], dim: int[]?, keepdim: bool) -> Tensor",
    jvp="linear",
    forward="mean_backward",
    node="DivBackward1",
    batch="along restores",
    method=False,
    function=False,
    vjp={"self": lambda g, dim, keepdim: g.mean(dim, keepdim)},
    doc="Return sum_backward, divided by how many elements share one.",
    samples=_restored,
    dtypes=FLOAT_COMPLEX,
    ref=lambda np, self, shape, dim, keepdim: (
        references.sum_backward(np, self, shape, dim, keepdim)
        * self.size
        / max(int(np.prod(shape)), 1)
    ),
)
op(
    "amax(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor",
    forward="extreme",
    kernel="amax",
    vjp={"self": _extreme_vjp},
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.amax",
    doc="Return the largest element over some dims, or all; NaN wins.\n\n"
    "Derivative: split evenly among equal elements.",
    kinks=[kink([1.0, 3.0, 3.0], to=[0.0, 0.5, 0.5])],
    samples=lambda: [
        *reduction((0, -1, (0, 1), ()), empty=False),
        case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
        case(T(4, 5, step=1), 1, skip=KINKS),
    ],
    dtypes=REAL,
)
op(
    "amin(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor",
    forward="extreme",
    kernel="amin",
    vjp={"self": _extreme_vjp},
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.amin",
    doc="Return the smallest element over some dims, or all; NaN wins.\n\n"
    "Derivative: split evenly among equal elements.",
    kinks=[kink([3.0, 1.0, 1.0], to=[0.0, 0.5, 0.5])],
    samples=lambda: [
        *reduction((0, -1, (0, 1), ()), empty=False),
        case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
        case(T(4, 5, step=1), 1, skip=KINKS),
    ],
    dtypes=REAL,
)
op(
    "argmax(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
    forward="arg_extreme",
    kernel="argmax",
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.argmax",
    doc="Return the first index of the largest element along a dim, or of all.",
    samples=lambda: [
        *reduction((None, 0, -1), empty=False),
        case(T(4, 5, step=1), 1),
        case(fixed(SPECIAL), only=FLOATING),
    ],
    dtypes=INTEGRAL | FLOATING,
)
op(
    "argmin(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
    forward="arg_extreme",
    kernel="argmin",
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.argmin",
    doc="Return the first index of the smallest element along a dim, or of all.",
    samples=lambda: [
        *reduction((None, 0, -1), empty=False),
        case(T(4, 5, step=1), 1),
        case(fixed(SPECIAL), only=FLOATING),
    ],
    dtypes=INTEGRAL | FLOATING,
)
op(
    "any(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor",
    forward="any",
    kernel="any",
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="bool_or_uint8",
    ref="numpy.any",
    doc="Return whether any element is not 0.",
    samples=lambda: [*reduction((None, 0, -1, (0, 1))), case(fixed((0, 0, 0, 1), shape=(2, 2)), 1)],
)
op(
    "all(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor",
    forward="any",
    kernel="all",
    out=True,
    batch="along",
    out_overlap=True,
    out_dtype="bool_or_uint8",
    ref="numpy.all",
    doc="Return whether all elements are not 0.",
    samples=lambda: [*reduction((None, 0, -1, (0, 1))), case(fixed((0, 1, 1, 1), shape=(2, 2)), 1)],
)

_named = {name: result_type(name, "values", "indices") for name in ("max", "min")}


def _extreme_of_all(name):
    def forward(self):
        if self.is_complex():
            check_dtype(f"{name}_all", self, "biuf")
        if not self.numel():
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for "
                f"input.numel() == 0. Specify the reduction dim with the 'dim' "
                f"argument."
            )
        return getattr(ops, "a" + name)(self)

    return forward


def _extreme_along(name):
    def choose(rows):
        order = rows + 0 if rows.dtype.kind == "b" else rows  # argmax takes no bools by itself
        where = getattr(ops, "arg" + name)(order, -1, True)
        return ops.gather(rows, -1, where), where

    along = choose_along(name, "biuf", choose, _named[name])

    def forward(self, dim, keepdim):
        if self.is_complex():
            wrap_dim(dim, self.ndim, name)
            raise RuntimeError(f"{name}(): does not support complex input")
        return along(self, dim, keepdim)

    return forward


def _extreme(name, self, dim, keepdim):
    """max and min: of all elements, along a dim (values and indices), or of two tensors."""
    if dim is None:
        return getattr(ops, name + "_all")(self)
    if hasattr(dim, "shape"):
        return getattr(ops, name + "imum")(self, dim)
    return getattr(ops, name + "_along")(self, dim, keepdim)


_TIES = [case(T(4, 5, step=1), 1, skip=KINKS), case(fixed(SPECIAL), 0, skip=KINKS, only=FLOATING)]
for _name, _what, _tied in (
    ("max", "largest", [1.0, 3.0, 3.0]),
    ("min", "smallest", [3.0, 1.0, 1.0]),
):
    op(
        f"{_name}_all(self: Tensor) -> Tensor",
        forward=_extreme_of_all(_name),
        method=False,
        vjp={"self": lambda g, self, out: share_evenly(g, self, out)},
        function=False,
        node=f"{_name.title()}Backward1",
        doc=f"Return the {_what} element.",
        dtypes=REAL,
        samples=lambda: [case(T(2, 3)), case(T()), case(fixed(SPECIAL), skip=KINKS, only=FLOATING)],
        ref=f"numpy.a{_name}",
    )
    op(
        f"{_name}_along(self: Tensor, dim: int, keepdim: bool = False) -> any",
        method=False,
        forward=_extreme_along(_name),
        function=False,
        node=f"{_name.title()}Backward0",
        batch="along",
        vjp={
            "self": lambda g, self_like, dim, keepdim, out1: restore_chosen(
                g, out1, self_like, dim, keepdim
            )
        },
        dtypes=REAL,
        doc=f"Return the {_what} elements along a dim, and where they are.",
        samples=lambda: [
            case(T(2, 3), 0),
            case(T(2, 3), -1, True),
            case(T(), 0),
            case(T(0, 3), 1),
            *_TIES,
        ],
        ref=references.extreme.of("a" + _name, "arg" + _name, _name + "imum"),
    )
    op(
        f"{_name}(self: Tensor, dim: any = None, keepdim: bool = False) -> any",
        out=True,
        out_dtype="pair",
        composite=lambda self, dim, keepdim, _name=_name: _extreme(_name, self, dim, keepdim),
        kinks=[kink(_tied, to=[0.0, 0.5, 0.5]), kink(_tied, 0, to=[0.0, 1.0, 0.0])],
        doc=f"Return the {_what} element, (values, indices) along a dim, or the elementwise one of "
        f"two tensors.\n\nNaN wins.\n\nDerivative: split evenly among equal elements; along "
        f"a dim the first of them gets all.",
        dtypes=REAL,
        samples=lambda: [*reduction((0, -1), empty=False), case(T(2, 3), T(3)), *_TIES],
        ref=references.extreme.of("a" + _name, "arg" + _name, _name + "imum"),
    )

_Bounds = result_type("aminmax", "min", "max")


def _aminmax(self, dim, keepdim):
    dims: tuple[int, ...] = () if dim is None else (wrap_dim(dim, self.ndim, "aminmax"),)
    check_dtype("aminmax", self, "biuf")
    if dim is not None:
        check_nonempty_dim("aminmax", self, dims[0])
    elif not self.numel():
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the "
            "operation has no identity."
        )
    return _Bounds(ops.amin(self, dims, keepdim), ops.amax(self, dims, keepdim))


def _aminmax_vjp(gs, self, self_shape, out0, out1, dim, keepdim):
    dims = () if dim is None else (dim,)
    parts = [
        _extreme_vjp(g, self, self_shape, out, dims, keepdim)
        for g, out in zip(gs, (out0, out1))
        if g is not None
    ]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


op(
    "aminmax(self: Tensor, *, dim: int? = None, keepdim: bool = False) -> any",
    forward=_aminmax,
    vjp={"self": _aminmax_vjp},
    out=True,
    dtypes=REAL,
    batch="along",
    out_dtype="exact",
    ref=references.aminmax,
    doc="Return the smallest and the largest element along a dim, or of all: (min, max).\n\nNaN "
    "wins.\n\nDerivative: split evenly among equal elements.",
    kinks=[kink([3.0, 3.0], to=[1.0, 1.0])],
    samples=lambda: [
        case(T(2, 3)),
        case(T()),
        case(T(2, 3), dim=0),
        case(T(2, 3), dim=-1, keepdim=True),
        case(T(), dim=0),
        case(T(0, 3), dim=1),
        case(T(2, 3), keepdim=True),
        case(T(4, 5, step=1), dim=1, skip=KINKS),
        case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
    ],
)


def _logsumexp(self, dim, keepdim):
    if self.dtype.kind in "biu":
        self = ops.cast(self, default_dtype())
    dims = wrap_dims(dim, self.ndim, "logsumexp")
    if self.numel() <= FEW // 8 or len(dims) != 1 or self.is_complex():
        return logsumexp(self, dims, keepdim)
    out = new_empty(self, tuple(1 if d in dims else n for d, n in enumerate(self.shape)))
    if out.numel():
        run_primitive("logsumexp", (out,), (self,), dims[0])
    return (
        out if keepdim else out.reshape(tuple(n for d, n in enumerate(self.shape) if d not in dims))
    )


def _logsumexp_vjp(g, self, out, dim, keepdim):
    g = ops.sum_backward(g, self.shape, dim, keepdim)
    out = ops.sum_backward(out, self.shape, dim, keepdim)
    return g * ops.conj(ops.exp(self - out))


op(
    "logsumexp(self: Tensor, dim: int[], keepdim: bool = False) -> Tensor",
    autocast=(None, "float32"),
    forward=_logsumexp,
    kernel="logsumexp",
    vjp={"self": _logsumexp_vjp},
    out=True,
    batch="along",
    out_overlap=True,
    elsewhere=("special.logsumexp",),
    ref=references.logsumexp,
    doc="Return log(sum(exp(self))) over dims, without overflow.",
    samples=lambda: [
        *reduction((0, -1, (0, 1)), low=-3, high=3, empty=False)[4:],
        case(fixed((0.0, 700.0, -700.0, 710.0), shape=(2, 2)), 1, only=FLOAT64),
        case(
            fixed((-math.inf, -math.inf, 0.0, math.inf), shape=(2, 2)), 1, only=FLOATING, skip=KINKS
        ),
    ],
)


# -- sums that leave NaN out -----------------------------------------------------------------------


def _nansum(self, dim, keepdim, dtype):
    if self.is_complex():
        raise RuntimeError("nansum does not support complex inputs")
    if self.is_floating_point() and self.numel() > FEW:
        self = self if dtype is None else cast_to(self, dtype)
        if self.is_floating_point():
            return reduce_by("nansum", self, wrap_dims(dim, self.ndim, "nansum"), keepdim)
    return reductions.nansum(self, dim, keepdim, dtype)


_HOLES = case(
    fixed((1, math.nan, 3, math.nan, 5, 6), shape=(2, 3)),
    0,
    only=FLOATING,
    skip={"grad": "NaN has no finite difference", "gradgrad": "NaN has none either"},
)
_TYPED = case(T(2, 3), 0, dtype=Dtype("float64"))
op(
    "nansum(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, dtype: dtype? = None) "
    "-> Tensor",
    forward=_nansum,
    kernel="nansum",
    out=True,
    dtypes=REAL,
    batch="along",
    out_overlap=True,
    ref=references.nansum,
    vjp={
        "self": lambda g, self, self_shape, dim, keepdim: (
            ops.sum_backward(g, self_shape, dim, keepdim) * (self == self)
        )
    },
    doc="Return the sum over some dims, or all, of the elements that are not NaN.\n\n"
    "Raises: RuntimeError for complex tensors.",
    samples=lambda: [*reduction(), _HOLES, _TYPED],
)


def _nanmean(self, dim, keepdim, dtype):
    if self.dtype.kind not in "fc":
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but "
            f"got {type_name(self.dtype)}"
        )
    count = ops.sum((self == self).detach(), dim, keepdim)
    return ops.nansum(self, dim, keepdim, dtype=dtype) / count


op(
    "nanmean(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, dtype: dtype? = None) "
    "-> Tensor",
    composite=_nanmean,
    out=True,
    dtypes=FLOATING,
    out_overlap=True,
    ref=references.nanmean,
    doc="Return the mean over some dims, or all, of the elements that are not NaN.\n\n"
    "Raises: RuntimeError for integers, bools and complex tensors.",
    samples=lambda: [*reduction(empty=False), _HOLES, _TYPED],
)


def _count_nonzero(self, dim):
    if self.numel() <= FEW:
        return reductions.count_nonzero(self, dim)
    dims = wrap_dims(dim, self.ndim, "count_nonzero")
    return reduce_by("count_nonzero", self, dims, False, dtype_named("int64"))


op(
    "count_nonzero(self: Tensor, dim: int[]? = None) -> Tensor",
    forward=_count_nonzero,
    kernel="count_nonzero",
    batch="along",
    ref=lambda np, self, dim=None: np.count_nonzero(self, dim if self.ndim else None),
    doc="Return how many elements are not 0, over some dims or all.",
    samples=lambda: [
        case(T(2, 3, low=-1, high=2, step=1)),
        case(T(2, 3), 0),
        case(T(2, 3), (0, -1)),
        case(T()),
        case(T(), 0),
        case(T(0, 3), 0),
        case(fixed(SPECIAL), only=FLOATING),
    ],
)
