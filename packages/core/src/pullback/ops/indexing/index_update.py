"""Writes to whole slices of a dim."""

from pullback.ops.indexing.gather import scatter_into
from pullback.ops.indexing.scatter import (
    _scatter_reduce,
    _scatter_reduce_vjp,
    _scatter_values,
    takes_extremes,
)
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import cast_to, check_long_index, dtype_named, type_name
from pullback.ops.rules.operands import as_vector, check_all, kept_apart
from pullback.ops.table.kinks import EACH_WRITTEN, Fixed, kink
from pullback.ops.table.primitives_api import writable
from pullback.ops.table.samples import T, at, case, fixed, references_of
from pullback.ops.table.schema import ALL, BOOL, FLOAT_COMPLEX, REAL, op, ops

references = references_of("indexing")

_ONE_EACH = {"expanded": "indices that repeat write one position twice"}


# -- slices of a dim -------------------------------------------------------------------------------


def _check_index(name, index):
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} "
            f"with type: {type_name(index.dtype)} and size: {list(index.shape)}"
        )
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(
            f"{name}(): Expected dtype int32/int64 for index but got: {type_name(index.dtype)}"
        )


def _check_slices(name, self, dim, index, source):
    """Check slices against the index and self; return the dim."""
    dim = wrap_dim(dim, self.ndim, name)
    _check_index(name, index)
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"{name}(): self ({type_name(self.dtype)}) and source "
            f"({type_name(source.dtype)}) must have the same scalar type"
        )
    if not source.ndim and index.numel() != 1:
        raise IndexError(
            f"{name}(): When source is scalar, index should have one element (got {index.numel()})"
        )
    if source.ndim and index.numel() != source.shape[min(dim, source.ndim - 1)]:
        raise RuntimeError(
            f"{name}(): Number of indices ({index.numel()}) should be equal to "
            f"source.size(dim): ({source.shape[min(dim, source.ndim - 1)]}), for "
            f"dim: {dim}"
        )
    fits = source.ndim == self.ndim and all(
        a == b for d, (a, b) in enumerate(zip(self.shape, source.shape)) if d != dim
    )
    if not fits:
        raise RuntimeError(
            f"source tensor shape must match self tensor shape, excluding the "
            f"specified dimension. Got self.shape = {list(self.shape)} source.shape "
            f"= {list(source.shape)}"
        )
    return dim


def _spread_index(index, dim, shape):
    """Return an index vector as an index of every element of slices of a shape."""
    index = cast_to(index, dtype_named("int64"))
    if not shape:
        return index.reshape(())
    return index.reshape((-1,) + (1,) * (len(shape) - dim - 1)).expand(shape)


def _index_add(self, dim, index, source, alpha):
    dim = _check_slices("index_add_", self, dim, index, source)
    if alpha != 1:
        if isinstance(alpha, (float, complex)) and self.dtype.kind in "biu":
            alpha = int(alpha.real)
        alpha = bool(alpha) if self.dtype.kind == "b" else alpha
        source = source * alpha
    scatter_into("scatter_add")(self, dim, _spread_index(index, dim, source.shape), source)
    return self


def _slices_of(g, dim, index, shape):
    """Return the slices of a gradient that went to an index, in the shape of the source."""
    return ops.index_select(g, dim, index.reshape(-1)).reshape(shape)


_ROWS = fixed((2, 0), kind="int64")
_SLICES = [
    case(T(4, 3), 0, _ROWS, T(2, 3)),
    case(T(2, 4), -1, _ROWS, T(2, 2)),
    case(T(4), 0, _ROWS, T(2)),
    case(T(), 0, at(high=1), T()),
    case(T(4, 3), 0, at(0, high=4), T(0, 3)),
    case(T(2, 3, 2), 1, _ROWS, T(2, 2, 2)),
]
_ADDED = [
    *_SLICES,
    case(T(4, 3), 0, at(5, high=4), T(5, 3)),
    case(T(4, 3), 0, _ROWS, T(2, 3), alpha=2),
    case(T(4), 0, at(3, high=4), T(3), alpha=-0.5, only=FLOAT_COMPLEX),
]
op(
    "index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) "
    "-> Tensor",
    forward=_index_add,
    inplace="only",
    function=False,
    node="IndexAddBackward0",
    vjp={
        "self": lambda g: g,
        "source": lambda g, dim, index, source_shape, alpha: ops.scaled(
            _slices_of(g, dim, index, source_shape), alpha
        ),
    },
    doc="Add alpha * source to the slices of a dim at an index vector; returns self.",
    samples=_ADDED,
    ref=references.index_add,
)
op(
    "index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) "
    "-> Tensor",
    out=True,
    composite=lambda self, dim, index, source, alpha: ops.index_add_(
        writable(self, index, source), dim, index, source, alpha=alpha
    ),
    out_dtype="exact",
    samples=_ADDED,
    ref=references.index_add,
    doc="Return a copy with alpha * source added to the slices of a dim at an index vector.\n\n"
    "Raises: RuntimeError for a source that does not fit and an index out of range.",
)


def _index_copy(self, dim, index, source):
    name = "index_copy_"
    dim = wrap_dim(dim, self.ndim, name)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index should have dimension 1 or 0 (got {index.ndim})")
    check_long_index(name, index)
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got "
            f"(self) {type_name(self.dtype)} and (source) "
            f"{type_name(source.dtype)}"
        )
    mine, other = list(self.shape), list(source.shape)
    count = other.pop(dim) if source.ndim else 1
    del mine[dim : dim + 1]
    if mine != other:
        raise RuntimeError(
            f"{name}(): Source/destination tensor must have same slice shapes. "
            f"Destination slice shape: {mine} at dimension {dim} and source slice "
            f"shape: {other} at dimension {dim}."
        )
    if not source.ndim and index.numel() != 1:
        raise IndexError(
            f"{name}(): When source is scalar, index should have one element (got {index.numel()})"
        )
    if index.numel() != count:
        raise IndexError(
            f"{name}(): Number of indices ({index.numel()}) should be equal to "
            f"source.size(dim) ({count})"
        )
    target, source = as_vector(self), as_vector(kept_apart(self, source))
    index = kept_apart(self, index)
    try:
        scatter_into("scatter")(target, dim, _spread_index(index, dim, source.shape), source)
    except RuntimeError as error:
        if not self.device == index.device == source.device:
            raise
        raise IndexError(f"{name}(): {error}") from None
    return self


op(
    "index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor",
    forward=_index_copy,
    inplace="only",
    function=False,
    node="IndexCopyBackward0",
    jvp="linear",
    vjp={
        "self": lambda g, dim, index: ops.index_fill(g, dim, index, 0),
        "source": lambda g, dim, index, source_shape: _slices_of(g, dim, index, source_shape),
    },
    doc="Write source to the slices of a dim at an index vector; returns self.",
    overwrites=True,
    samples=_SLICES,
    ref=references.index_copy,
)
op(
    "index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor",
    autocast=("promote", None),
    out=True,
    composite=lambda self, dim, index, source: ops.index_copy_(
        writable(self, index, source), dim, index, source
    ),
    out_dtype="exact",
    doc="Return a copy with source written to the slices of a dim at an index vector.\n\nRaises: "
    "IndexError for an index out of range, RuntimeError for a source that does not fit.",
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
    samples=_SLICES,
    ref=references.index_copy,
)


def _index_fill(self, dim, index, value):
    name = "index_fill_"
    dim = wrap_dim(dim, self.ndim, name)
    if index.dtype.name != "int64":
        raise IndexError(f"{name}(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    if hasattr(value, "shape"):
        if value.ndim:
            raise RuntimeError(
                f"{name} only supports a 0-dimensional value tensor, but got tensor "
                f"with {value.ndim} dimension(s)."
            )
        value = ops.cast(value, self.dtype)
    elif isinstance(value, complex) and not self.is_complex():
        raise RuntimeError(
            f"{name}(): Converting complex Scalar to non-complex type is not supported"
        )
    else:
        value = ops.new_full(self, (), value)
    target = as_vector(self)
    index = ops.where(index < 0, index + target.shape[dim], index)
    shape = list(target.shape)
    shape[dim] = index.numel()
    try:
        _scatter_values(
            target, dim, _spread_index(index, dim, tuple(shape)), value.expand(tuple(shape))
        )
    except RuntimeError as error:
        if not self.device == index.device == value.device:
            raise
        raise IndexError(*error.args) from None
    return self


_FILLED = [
    case(T(4, 3), 0, _ROWS, 2),
    case(T(2, 4), -1, fixed((-1, 0), kind="int64"), 1),
    case(T(4, 3), 0, _ROWS, T()),
    case(T(), 0, at(high=1), 3),
    case(T(4, 3), 0, at(0, high=4), 1),
    case(T(4, 3), 0, at(5, high=4), 0),
    case(T(4, 3), 1, at(high=3), 1.5, only=FLOAT_COMPLEX),
]
op(
    "index_fill_(self: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor",
    forward=_index_fill,
    inplace="only",
    overlap=True,
    out_overlap=True,
    function=False,
    ref=references.index_fill,
    node=lambda value_shape: f"IndexFillBackward{1 if isinstance(value_shape, tuple) else 0}",
    vjp={
        "self": lambda g, dim, index: ops.index_fill(g, dim, index, 0),
        "value": lambda g, dim, index: ops.index_select(
            g, dim, ops.unique(index.reshape(-1) % max(g.shape[dim] if g.ndim else 1, 1))
        ).sum(),
    },
    doc="Write a number to the slices of a dim at an index vector; returns self.",
    samples=_FILLED,
)
op(
    "index_fill(self: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor",
    composite=lambda self, dim, index, value: ops.index_fill_(
        writable(self, index, value), dim, index, value
    ),
    doc="Return a copy with a number written to the slices of a dim at an index vector.\n\nRaises: "
    "IndexError for an index out of range.",
    samples=_FILLED,
    ref=references.index_fill,
)


def _index_reduce(self, dim, index, source, reduce, include_self):
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin "
            f"but got {reduce}."
        )
    dim = _check_slices("index_reduce_", self, dim, index, source)
    spread = _spread_index(index, dim, source.shape)
    error = IndexError("index out of range in self")
    check_all((index >= 0) & (index < (self.shape[dim] if self.ndim else 1)), error)
    return _scatter_reduce(self, dim, spread, source, reduce, include_self)


def _index_reduce_vjp(g, self, dim, index, source, out, reduce, include_self):
    spread = _spread_index(index, wrap_dim(dim, self.ndim, "index_reduce_"), source.shape)
    return _scatter_reduce_vjp(g, self, dim, spread, source, out, reduce, include_self)


_FOLDED = [
    *[
        case(T(4, 3), 0, at(5, high=4), T(5, 3), name, include_self=include, only=REAL)
        for name in ("prod", "amax", "amin")
        for include in (True, False)
    ],
    case(T(4, 3), 0, at(5, high=4), T(5, 3), "mean", only=ALL & ~BOOL),
    case(T(2, 4), -1, at(3, high=4), T(2, 3), "mean", include_self=False, only=ALL & ~BOOL),
    case(T(4), 0, at(0, high=4), T(0), "amax", only=REAL),
    case(T(), 0, at(high=1), T(), "prod"),
    case(T(4), 0, at(3, high=4), T(3), "prod"),
]
_FOLD = "dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True"
op(
    f"index_reduce_(self: Tensor, {_FOLD}) -> Tensor",
    forward=_index_reduce,
    inplace="only",
    function=False,
    node="IndexReduceBackward0",
    samples=_FOLDED,
    ref=references.index_reduce,
    reads_out=lambda self, dim, index, source, reduce, include_self: takes_extremes(reduce),
    vjp={
        ("self", "source"): lambda g, self, dim, index, source, out, reduce, include_self: (
            _index_reduce_vjp(g, self, dim, index, source, out, reduce, include_self)
        )
    },
    doc="Reduce source into the slices of a dim at an index vector; returns self.",
)
op(
    f"index_reduce(self: Tensor, {_FOLD}) -> Tensor",
    out=True,
    out_dtype="exact",
    ref=references.index_reduce,
    composite=lambda self, dim, index, source, reduce, include_self: ops.index_reduce_(
        writable(self, index, source), dim, index, source, reduce, include_self=include_self
    ),
    kinks=[
        kink([2.0], 0, Fixed([0]), [2.0], "amax", to=([0.5], [0.5])),
        kink([2.0], 0, Fixed([0]), [2.0], "amin", to=([0.5], [0.5])),
    ],
    samples=_FOLDED,
    doc="Return a copy in which source is reduced into the slices of a dim at an index vector.\n\n"
    "`reduce` is 'prod', 'mean', 'amax' or 'amin'; see scatter_reduce.",
)
