"""Elements chosen by a mask."""

from pullback.ops.rules.dtypes import cast_to, dtype_named, type_name
from pullback.ops.rules.operands import as_vector, check_all
from pullback.ops.rules.shapes import broadcast_shape, product
from pullback.ops.table.samples import COUNTED, T, case, mask, references_of
from pullback.ops.table.schema import op, ops

references = references_of("indexing")


def _together(self, mask):
    """Return two tensors broadcast to one shape."""
    shape = broadcast_shape(self.shape, mask.shape)
    return self.expand(shape), mask.expand(shape)


def _masked_select(self, mask):
    if mask.dtype.name != "bool":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if self.shape != mask.shape:
        self, mask = _together(self, mask)
    return ops.index(as_vector(self), (as_vector(mask),))


def _masked_select_vjp(g, self_like, mask):
    shape = broadcast_shape(self_like.shape, mask.shape)
    return ops.masked_scatter(ops.new_zeros(g, shape), mask, g)


op(
    "masked_select(self: Tensor, mask: Tensor) -> Tensor",
    forward=_masked_select,
    out=True,
    vjp={"self": lambda g, self_like, mask: _masked_select_vjp(g, self_like, mask)},
    out_dtype="exact",
    doc="Return the elements at which a mask holds, as a vector.\n\nBoth are broadcast.\n\nRaises: "
    "RuntimeError for a mask that is not bool.",
    ref=references.masked_select,
    samples=lambda: [
        case(T(2, 3), mask(2, 3), skip=COUNTED),
        case(T(2, 3), mask(3), skip=COUNTED),
        case(T(3), mask(2, 1), skip=COUNTED),
        case(T(), mask(), skip=COUNTED),
        case(T(0, 3), mask(3), skip=COUNTED),
    ],
)


def _source_positions(mask):
    """Return which source element each masked position takes; others point at one, too."""
    count = ops.cumsum(cast_to(mask.reshape(-1), dtype_named("int64")), 0)
    return ops.clamp(count - 1, min=0)


def _masked_scatter(self, mask, source):
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got "
            f"{type_name(self.dtype)} and {type_name(source.dtype)}"
        )
    if mask.dtype.name != "bool":
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{type_name(mask.dtype)}"
        )
    self, mask = _together(self, mask)
    error = RuntimeError("Number of elements of source < number of ones in mask")
    check_all(ops.sum(mask) <= source.numel(), error)
    if not source.numel() or not self.numel():
        return self.clone()
    taken = ops.index_select(
        source.reshape(-1), 0, ops.clamp(_source_positions(mask), max=source.numel() - 1)
    ).reshape(self.shape)
    return ops.where(mask, taken, self)


def _masked_source_vjp(g, mask, source_like):
    size = product(source_like.shape)
    if not size or not g.numel():
        return ops._zeros_like(source_like)
    positions = ops.clamp(_source_positions(mask.expand(g.shape)), max=size - 1)
    shares = ops.where(mask, g, 0).reshape(-1)
    return ops.scatter_add(ops.new_zeros(g, (size,)), 0, positions, shares).reshape(
        source_like.shape
    )


op(
    "masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor",
    inplace=True,
    forward=_masked_scatter,
    out_overlap=True,
    ref=references.masked_scatter,
    vjp={
        "self": lambda g, mask: g.masked_fill(mask, 0),
        "source": lambda g, mask, source_like: _masked_source_vjp(g, mask, source_like),
    },
    doc="Return self with the elements of source, in order, where a mask holds.\n\nRaises: "
    "RuntimeError for too few elements and for another dtype.",
    samples=lambda: [
        case(T(2, 3), mask(2, 3), T(6)),
        case(T(2, 3), mask(3), T(2, 4)),
        case(T(3), mask(2, 1), T(6)),
        case(T(), mask(), T(1)),
        case(T(0, 3), mask(3), T(0)),
        case(T(2, 2), mask(2, 2), T(2, 2)),
    ],
)
