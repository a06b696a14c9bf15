"""gather, index_select and scatter_add: elements along a dim, chosen by an index tensor."""

from pullback.ops.indexing.index import as_index
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.rules.operands import as_vector, kept_apart
from pullback.ops.table.primitives_api import is_plain, new_empty, run_primitive, writable
from pullback.ops.table.samples import T, at, case, references_of
from pullback.ops.table.schema import op, ops

references = references_of("indexing")
_SCATTERS = [
    case(T(4, 3), 0, at(2, 3, high=4), T(2, 3)),
    case(T(4, 3), -1, at(4, 5, high=3), T(4, 5)),
    case(T(4, 3), 1, at(2, 2, high=3), T(3, 3)),
    case(T(4), 0, at(3, high=4), T(3)),
    case(T(), 0, at(high=1), T()),
    case(T(4, 3), 0, at(0, 3, high=4), T(0, 3)),
]


# -- along one dim ---------------------------------------------------------------------------------


def _check_gather(name, self, dim, index):
    """Return the dim, counted from the front, and the index as int64."""
    if not index.numel():  # as in torch, then its dtype and dims do not matter
        return wrap_dim(dim, self.ndim, name), ops.cast(index, dtype_named("int64"))
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    dim = wrap_dim(dim, self.ndim, name)
    if max(index.ndim, 1) != max(self.ndim, 1):
        whom = "input" if name == "gather" else "self"
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {whom} tensor")
    return dim, as_index(index)


def run_along(primitive, outs, ins, *params):
    """Run a kernel that checks its index; torch raises RuntimeError where it does not fit."""
    try:
        run_primitive(primitive, outs, ins, *params)
    except IndexError as error:
        raise RuntimeError(*error.args) from None


def _gather(self, dim, index, sparse_grad):
    dim, index = _check_gather("gather", self, dim, index)
    for d, (i, s) in enumerate(zip(index.shape, self.shape)):
        if d != dim and i > s and index.numel():
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index "
                f"{list(index.shape)} to be no larger than self "
                f"{list(self.shape)} apart from dimension {dim}"
            )
    out = new_empty(self, index.shape)
    if out.numel():
        part, index = as_vector(self), as_vector(index)
        for d, size in enumerate(index.shape):
            if d != dim:
                part = part.narrow(d, 0, size)
        run_along("gather", (as_vector(out),), (part, index), dim)
    return out


_GATHER = [
    case(T(4, 3), 0, at(2, 3, high=4)),
    case(T(4, 3), -1, at(4, 5, high=3)),
    case(T(4, 3), 1, at(2, 2, high=3)),
    case(T(4), 0, at(3, high=4)),
    case(T(), 0, at(high=1)),
    case(T(4, 3), 0, at(0, 3, high=4)),
]
op(
    "gather(self: Tensor, dim: int, index: Tensor) -> Tensor",
    jvp="linear",
    forward=lambda self, dim, index: _gather(self, dim, index, False),
    compiled="gather",
    kernel="gather",
    out=True,
    vjp={
        "self": lambda g, self_like, dim, index: ops.scatter_add(
            ops._zeros_like(self_like), dim, index, g
        )
    },
    batch="along",
    out_dtype="exact",
    overload="gather_sparse",
    doc="Return out[.., i, ..] = self[.., index[.., i, ..], ..] along a dim.",
    samples=_GATHER,
    ref=references.gather,
)


def _gather_vjp(g, self_like, self_shape, dim, index, sparse_grad):
    if sparse_grad and is_plain(g):
        import pullback

        dim = dim % max(len(self_shape), 1)
        return pullback.sparse.gradient_of_elements(g, self_shape, dim, index)
    return ops.scatter_add(ops._zeros_like(self_like), dim, index, g)


op(
    "gather_sparse(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool) -> Tensor",
    jvp="linear",
    forward=_gather,
    kernel="gather",
    out=True,
    node="GatherBackward0",
    vjp={"self": _gather_vjp},
    batch="along",
    out_dtype="exact",
    method=False,
    function="gather",
    namespace=(),
    doc="Return gather, whose gradient is a sparse tensor of the elements that were taken.",
    samples=lambda: [case(T(4, 3), 0, at(2, 3, high=4), sparse_grad=False)],
    ref=references.gather,
)


def padded_to(found, shape):
    """Return the gradient of the part of a scatter's source that an index of its shape reads."""
    if found.shape == shape:
        return found
    if found.ndim != len(shape):  # one of the two is 0-d
        return found.reshape(shape) if found.numel() else ops.new_zeros(found, shape)
    for d, (mine, whole) in enumerate(zip(found.shape, shape)):
        if mine != whole:
            size = (*found.shape[:d], whole, *found.shape[d + 1 :])
            found = ops.narrow_backward(found, size, d, 0, mine)
    return found


op(
    "gather_backward(self: Tensor, dim: int, index: Tensor, shape: int[]) -> Tensor",
    composite=lambda self, dim, index, shape: padded_to(self.gather(dim, index), shape),
    method=False,
    function=False,
    doc="Return the elements at an index along a dim, padded with zeros to a shape.",
    samples=lambda: [
        case(T(4, 3), 0, at(2, 3, high=4), (2, 3)),
        case(T(4, 3), 1, at(2, 2, high=3), (3, 4)),
        case(T(), 0, at(high=1), ()),
        case(T(4, 3), 0, at(0, 3, high=4), (2, 3)),
    ],
    ref=references.gather_backward,
)


def scatter_operands(name, self, dim, index, src):
    """Check the arguments of a scatter; return (target, dim, index, src).

    All have the index's shape but for the target's size along dim; None if there is no index.
    """
    dim, index = _check_gather(name, self, dim, index)
    if src.dtype != self.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not index.numel():
        return None
    flat, positions, origin = as_vector(self), as_vector(index), as_vector(src)
    if origin.ndim != positions.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    for d, (i, s, n) in enumerate(zip(positions.shape, origin.shape, flat.shape)):
        if i > s or (d != dim and i > n):
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self "
                f"{list(self.shape)} apart from dimension {dim} and to be no "
                f"larger size than src {list(src.shape)}"
            )
    positions, origin, target = kept_apart(flat, positions), kept_apart(flat, origin), flat
    for d, size in enumerate(positions.shape):
        origin = origin.narrow(d, 0, size)
        if d != dim:
            target = target.narrow(d, 0, size)
    return target, dim, positions, origin


def scatter_into(primitive):
    """Return a forward pass that writes or adds src at an index along a dim of self."""

    def forward(self, dim, index, src):
        found = scatter_operands(primitive, self, dim, index, src)
        if found is not None:
            target, dim, index, src = found
            run_along(primitive, (target,), (index, src), dim)
        return self

    return forward


op(
    "scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor",
    forward=scatter_into("scatter_add"),
    compiled="scatter_add",
    kernel="scatter_add",
    inplace="only",
    batch="along",
    function=False,
    node="ScatterAddBackward0",
    vjp={
        "self": lambda g: g,
        "src": lambda g, dim, index, src_shape: ops.gather_backward(g, dim, index, src_shape),
    },
    doc="Add src to self at index along a dim; returns self.",
    samples=_SCATTERS,
    ref=references.scatter_add,
)
op(
    "scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor",
    autocast=(None, "promote"),
    composite=lambda self, dim, index, src: ops.scatter_add_(
        writable(self, index, src), dim, index, src
    ),
    kernel="scatter_add",
    out=True,
    out_dtype="exact",
    doc="Return self with src added at index along a dim.",
    samples=_SCATTERS,
    ref=references.scatter_add,
)


def _index_select(self, dim, index):
    if index.ndim > 1:
        raise IndexError(
            f"index_select(): Index is supposed to be a vector, but got dim: {index.ndim}"
        )
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    ndim = max(self.ndim, 1)
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, "
            f"{ndim - 1}], but got {dim})"
        )
    dim %= ndim
    part = self if self.ndim else self.reshape(1)
    index = as_index(index).reshape(-1)
    if not self.ndim and index.numel() != 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)"
        )
    if index.numel() and ndim > 1 and not part.shape[dim]:
        raise RuntimeError(
            f"index_select(): there is nothing to select from in dim {dim}, whose size is 0"
        )
    shape = (*part.shape[:dim], index.numel(), *part.shape[dim + 1 :])
    out = new_empty(self, shape)
    if out.numel():  # gather, unlike index, takes no negative numbers
        spread = index.reshape((-1,) + (1,) * (ndim - dim - 1)).expand(shape)
        run_primitive("gather", (out,), (part, spread), dim)
    return out if self.ndim else out.reshape(())


op(
    "index_select(self: Tensor, dim: int, index: Tensor) -> Tensor",
    jvp="linear",
    forward=_index_select,
    compiled="index_select",
    kernel="gather",
    out=True,
    batch="index_select",
    out_dtype="exact",
    doc="Return the slices of a dim at an index vector.",
    vjp={
        "self": lambda g, self_like, dim, index: ops.index_backward(
            g, self_like.shape, _at_dim(self_like, dim, index)
        )
    },
    samples=lambda: [
        case(T(4, 3), 0, at(5, high=4)),
        case(T(4, 3), -1, at(2, high=3)),
        case(T(4), 0, at(0, high=4)),
        case(T(2, 3), 1, at(high=3)),
        case(T(), 0, at(high=1)),
    ],
    ref=lambda np, self, dim, index: (
        np.take(self, np.atleast_1d(index), dim) if self.ndim else self
    ),
)


def _at_dim(like, dim, index):
    return (None,) * (dim % max(len(like.shape), 1)) + (index.reshape(-1),)
