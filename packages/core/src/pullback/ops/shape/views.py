"""Views of all elements: order, number and size of dims, strides."""

from pullback.ops.rules.arguments import check_sequence, integers
from pullback.ops.rules.dims import check_dim, wrap_dim
from pullback.ops.rules.shapes import product
from pullback.ops.shape.rearrange import row_major
from pullback.ops.table.samples import (
    DETACHED,
    MEMORY,
    SHARED,
    T,
    case,
    fixed,
    references_of,
)
from pullback.ops.table.schema import op, ops

references = references_of("shape")


def view_op(signature, vjp, doc, *, forward=None, **fields):
    name = signature.partition("(")[0]
    op(signature, forward=forward or name, view=True, vjp={"self": vjp}, doc=doc, **fields)


def inplace_view(node, function=False):
    """The fields of a view that has an in-place form, which torch's nodes count by themselves."""
    return {"inplace": True, "inplace_node": node, "inplace_function": function}


# -- order of dims ---------------------------------------------------------------------------------


def _permute_vjp(g, dims):
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    order = [0] * len(dims)
    for position, d in enumerate(dims):
        order[d % len(dims)] = position
    return g.permute(tuple(order))


view_op(
    "transpose(self: Tensor, dim0: int, dim1: int) -> Tensor",
    lambda g, dim0, dim1: g.transpose(dim0, dim1),
    "Return a view with two dims exchanged.",
    batch="along",
    aliases=("swapaxes", "swapdims"),
    **inplace_view("TransposeBackward1"),
    samples=lambda: [
        case(T(2, 3), 0, 1),
        case(T(2, 3, 4), -1, 0),
        case(T(3), 0, 0),
        case(T(), 0, -1),
        case(T(0, 3), 1, 0),
    ],
    ref=lambda np, self, dim0, dim1: np.swapaxes(self, dim0, dim1) if self.ndim else self,
)
view_op(
    "t(self: Tensor) -> Tensor",
    lambda g: g.t(),
    "Return the transposed view of a matrix; vectors stay.\n\nRaises: RuntimeError above 2 dims.",
    batch="t",
    ref="numpy.transpose",
    **inplace_view("TBackward1"),
    samples=lambda: [case(T(2, 3)), case(T(3)), case(T()), case(T(0, 3))],
)
view_op(
    "permute(self: Tensor, dims: int[]) -> Tensor",
    _permute_vjp,
    "Return a view with its dims in another order.",
    varargs=True,
    batch="permute empty_is_none any_rank",
    samples=lambda: [
        case(T(2, 3, 4), (2, 0, 1)),
        case(T(2, 3, 4), 1, -1, 0),
        case(T(2, 3), (1, 0)),
        case(T(), ()),
        case(T(0, 3), (1, 0)),
    ],
    ref=lambda np, self, *dims: np.transpose(self, dims[0] if isinstance(dims[0], tuple) else dims),
)


def _movedim(self, source, destination):
    if type(source) is type(destination) is int:
        order = list(range(self.ndim or 1))
        order.insert(
            wrap_dim(destination, self.ndim, "movedim"),
            order.pop(wrap_dim(source, self.ndim, "movedim")),
        )
        return self.permute(tuple(order)) if self.ndim else self.permute(())
    sources = integers(source, "movedim", "source")
    targets = integers(destination, "movedim", "destination")
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} "
            f"dims) should contain the same number of dims as destination "
            f"({list(targets)} dims)"
        )
    positions = []
    for name, given in (("source", sources), ("destination", targets)):
        dims = [wrap_dim(d, self.ndim, "movedim") for d in given]
        positions.append(dims)
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    moved = dict(zip(positions[1], positions[0]))
    rest = iter([d for d in range(self.ndim) if d not in positions[0]])
    return self.permute(tuple(moved[d] if d in moved else next(rest) for d in range(self.ndim)))


op(
    "movedim(self: Tensor, source: int[], destination: int[]) -> Tensor",
    composite=_movedim,
    aliases=("moveaxis",),
    ref="numpy.moveaxis",
    doc="Return a view with some dims moved.",
    samples=lambda: [
        case(T(2, 3, 4), 0, 2),
        case(T(2, 3, 4), (0, 1), (-1, 0)),
        case(T(2, 3), 1, 0),
    ],
)


# -- number and size of dims -----------------------------------------------------------------------

view_op(
    "unsqueeze(self: Tensor, dim: int) -> Tensor",
    lambda g, self_shape: g.reshape(self_shape),
    "Return a view with a dim of one element inserted.",
    batch="along new_dim",
    ref=lambda np, self, dim: np.expand_dims(self, dim),
    **inplace_view("UnsqueezeBackward1"),
    samples=lambda: [
        case(T(2, 3), 0),
        case(T(2, 3), -1),
        case(T(2, 3), 1),
        case(T(), 0),
        case(T(0), 1),
    ],
)
view_op(
    "squeeze(self: Tensor, dim: int[]? = None) -> Tensor",
    lambda g, self_shape: g.reshape(self_shape),
    "Return a view without dims of one element: all of them, or those named.",
    node=lambda dim: f"SqueezeBackward{0 if dim is None else 1 if isinstance(dim, int) else 2}",
    **inplace_view(
        lambda dim: f"SqueezeBackward{3 if dim is None else 4 if isinstance(dim, int) else 5}"
    ),
    batch="squeeze empty_is_none any_rank",
    samples=lambda: [
        case(T(2, 1, 3)),
        case(T(1, 2, 1), 0),
        case(T(1, 2, 1), -1),
        case(T(1, 2, 1), (0, 2)),
        case(T(2, 1), 0),
        case(T()),
        case(T(0, 1)),
        case(T(1, 1)),
    ],
    ref=references.squeeze,
)
view_op(
    "expand(self: Tensor, size: int[], *, implicit: bool = False) -> Tensor",
    lambda g: g,
    "Return a view with dims of one element repeated without copying; -1 keeps a size.",
    batch="expand any_rank",
    function=False,
    varargs=True,
    samples=lambda: [
        case(T(3), (2, 3)),
        case(T(2, 1), 2, 3),
        case(T(2, 1), (4, -1, 3)),
        case(T(), (2,)),
        case(T(1), 0),
        case(T(), ()),
        case(T(2, 1, 3), -1, -1, -1),
    ],
    ref=references.expand,
)
op(
    "expand_as(self: Tensor, other: Tensor) -> Tensor",
    function=False,
    composite=lambda self, other: self.expand(other.shape),
    doc="Return self expanded to the shape of another tensor.",
    devices="any",
    samples=lambda: [case(T(3), T(2, 3)), case(T(), T(2)), case(T(1), T(0))],
    ref=lambda np, self, other: np.broadcast_to(self, other.shape),
)
op(
    "broadcast_to(self: Tensor, size: int[]) -> Tensor",
    composite=lambda self, size: self.expand(size),
    ref="numpy.broadcast_to",
    doc="Return self expanded to a shape.",
    samples=lambda: [case(T(3), (2, 3)), case(T(2, 1), (2, 3)), case(T(), (2,)), case(T(1), (0,))],
)


op(
    "sum_to_size(self: Tensor, size: int[]) -> Tensor",
    composite="sum_to_size",
    varargs=True,
    function=False,
    doc="Return self summed to a shape that broadcasts to it.",
    samples=lambda: [
        case(T(2, 3), (3,)),
        case(T(2, 3), 2, 1),
        case(T(2, 3), (1,)),
        case(T(2, 3), (2, 3)),
        case(T(0, 3), (1, 3)),
        case(T(4, 2, 3), (2, 1)),
    ],
    ref=references.sum_to_size,
)

view_op(
    "view(self: Tensor, size: any) -> Tensor",
    lambda g, self_shape: g.reshape(self_shape),
    "Return a view of another shape over the same memory; one size may be -1.\n\n"
    "Raises: RuntimeError when the memory cannot be seen in this shape.",
    varargs=True,
    batch="view any_rank",
    function=False,
    overload="bitcast",
    samples=lambda: [
        *(case(T(2, 3), *size, skip=MEMORY) for size in (((3, 2),), (-1,), (1, 6))),
        case(T(), (1, 1)),
        case(T(0, 3), (3, 0)),
        case(T(1), ()),
    ],
    ref=lambda np, self, *size: np.reshape(self, size[0] if isinstance(size[0], tuple) else size),
)


op(
    "_unsafe_view(self: Tensor, size: int[]) -> Tensor",
    jvp="linear",
    forward="_unsafe_view",
    batch="view any_rank",
    method=False,
    function=False,
    vjp={"self": lambda g, self_shape: g.reshape(self_shape)},
    doc="Return the memory of a tensor that nothing else uses in another shape; it is no view.",
    samples=lambda: [
        case(T(2, 3), (3, 2), skip=MEMORY | SHARED),
        case(T(2, 3), (6,), skip=MEMORY | SHARED),
        case(T(), (1,), skip=SHARED),
    ],
    ref="numpy.reshape",
)
op(
    "reshape(self: Tensor, shape: int[]) -> Tensor",
    composite="reshape",
    varargs=True,
    doc="Return the elements in another shape: a view where possible.",
    samples=lambda: [
        case(T(2, 3), (3, 2)),
        case(T(2, 3), -1),
        case(T(2, 3, 2), 4, 3),
        case(T(), (1, 1)),
        case(T(0, 3), (3, 0)),
        case(T(1), ()),
    ],
    ref=lambda np, self, *shape: np.reshape(
        self, shape[0] if isinstance(shape[0], tuple) else shape
    ),
)
op(
    "reshape_as(self: Tensor, other: Tensor) -> Tensor",
    function=False,
    composite=lambda self, other: self.reshape(other.shape),
    doc="Return the elements in the shape of another tensor.",
    devices="any",
    samples=lambda: [case(T(2, 3), T(6)), case(T(), T(1, 1))],
    ref=lambda np, self, other: np.reshape(self, other.shape),
)
op(
    "view_as(self: Tensor, other: Tensor) -> Tensor",
    function=False,
    composite=lambda self, other: self.view(other.shape),
    doc="Return a view in the shape of another tensor.",
    devices="any",
    samples=lambda: [case(T(2, 3), T(6), skip=MEMORY), case(T(), T(1, 1))],
    ref=lambda np, self, other: np.reshape(self, other.shape),
)


def _flatten(self, start_dim, end_dim):
    start, end = (check_dim(d, max(self.ndim, 1)) for d in (start_dim, end_dim))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not self.ndim:
        return self.reshape(1)
    if start == end:
        return self
    count = product(self.shape[start : end + 1])
    return self.reshape((*self.shape[:start], count, *self.shape[end + 1 :]))


op(
    "flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor",
    composite=_flatten,
    doc="Return the dims from start_dim to end_dim joined into one.",
    samples=lambda: [
        case(T(2, 3, 4)),
        case(T(2, 3, 4), 1),
        case(T(2, 3, 4), 0, 1),
        case(T()),
        case(T(3)),
        case(T(2, 0), 0),
        case(T(2, 3, 4), -2, -1),
    ],
    ref=references.flatten,
)
op(
    "ravel(self: Tensor) -> Tensor",
    composite=lambda self: self.reshape(-1),
    ref="numpy.ravel",
    doc="Return all elements in one dim.",
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0, 3))],
)


# -- any sizes and strides -------------------------------------------------------------------------


def _as_strided_vjp(g, self_layout, size, stride, out_offset):
    return ops.as_strided_backward(g, self_layout, size, stride, out_offset)


view_op(
    "as_strided(self: Tensor, size: int[], stride: int[], storage_offset: int? = None) -> Tensor",
    _as_strided_vjp,
    "Return the view of these sizes and strides over the storage.\n\n"
    "Raises: RuntimeError when it would leave the storage.",
    **inplace_view("AsStridedBackward1", function=True),
    save={
        "self_layout": lambda self, *rest: (
            tuple(self.shape),
            self.stride(),
            self.storage_offset(),
        ),
        "out_offset": lambda self, size, stride, storage_offset: (
            self.storage_offset() if storage_offset is None else storage_offset
        ),
    },
    batch="as_strided",
    jvp="as_view",
    samples=lambda: [
        case(fixed(range(6)), *layout, skip=MEMORY)
        for layout in (
            ((2, 2), (3, 1)),
            ((2, 3), (1, 1), 1),
            ((2, 2), (0, 1)),
            ((), (), 2),
            ((0, 2), (1, 1)),
        )
    ],
    ref=references.as_strided,
)


def _high(size, stride, offset):
    return offset + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else offset


def _as_strided_backward(self, layout, size, stride, offset):
    """Scatter the gradient into a flat image of the storage, then read the input's elements."""
    shape, strides, start = layout
    low = min(start, offset)
    length = max(_high(shape, strides, start), _high(size, stride, offset)) - low + 1
    flat = ops.new_zeros(self, (length,))
    positions = ops.arange_like(self, length).as_strided(size, stride, offset - low)
    flat = ops.index_put_(flat, (positions.reshape(-1),), self.reshape(-1), True)
    counts = ops.index_put_(
        ops.new_zeros(self, (length,)),
        (ops.arange_like(self, length).as_strided(shape, strides, start - low).reshape(-1),),
        ops.new_ones(self, (1,)),
        True,
    )
    if self.is_floating_point() or self.is_complex():  # others have no derivative to share
        flat = flat / ops.where(counts == 0, 1, counts)
    return flat.as_strided(shape, strides, start - low).clone()


def _shared(size, stride):
    """Return whether elements of these sizes and strides may share memory."""
    reach = 0
    for step, count in sorted((step, count) for step, count in zip(stride, size) if count > 1):
        if step <= reach:
            return 0 not in size
        reach += step * (count - 1)
    return False


def _as_strided_backward_vjp(g, layout, size, stride, offset):
    shape, strides, start = layout
    if not _shared(shape, strides) and not _shared(size, stride):
        return ops.as_strided_backward(g, (size, stride, offset), *layout)
    low = min(start, offset)
    length = max(_high(shape, strides, start), _high(size, stride, offset)) - low + 1
    where = ops.arange_like(g, length).as_strided(shape, strides, start - low).reshape(-1)
    ones = ops.new_ones(g, (1,))
    counts = ops.index_put_(ops.new_zeros(g, (length,)), (where,), ones, True)
    image = ops.index_put(ops.new_zeros(g, (length,)), (where,), g.reshape(-1), True)
    image = image / ops.where(counts == 0, 1, counts)
    positions = ops.arange_like(g, length).as_strided(size, stride, offset - low)
    return image[positions]


op(
    "as_strided_backward(self: Tensor, layout: any, size: int[], stride: int[], offset: int) "
    "-> Tensor",
    forward=_as_strided_backward,
    compiled="as_strided_backward",
    vjp={"self": _as_strided_backward_vjp},
    method=False,
    function=False,
    doc="Return the derivative of as_strided times self; elements that share memory share evenly.",
    samples=lambda: [
        case(T(2, 2), ((6,), (1,), 0), (2, 2), (3, 1), 0),
        case(T(2, 3), ((6,), (1,), 0), (2, 3), (1, 1), 1),
        case(T(2), ((2, 2), (0, 1), 0), (2,), (1,), 0),
        case(T(3), ((3,), (2,), 1), (3,), (1,), 2),
    ],
)

view_op(
    "alias(self: Tensor) -> Tensor",
    lambda g: g,
    "Return a view of the whole tensor.",
    batch="unary",
    method=False,
    function=False,
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0))],
    ref="numpy.copy",
)
op(
    "detach(self: Tensor) -> Tensor",
    forward="detach",
    batch="unary",
    doc="Return the same memory without history; writes are seen by both.",
    constant=True,
    samples=lambda: [case(T(*shape), skip=DETACHED | SHARED) for shape in ((2, 3), (), (0,))],
    ref="numpy.copy",
)


# -- shapes ----------------------------------------------------------------------------------------


def _unflatten(self, dim, sizes):
    dim = wrap_dim(dim, self.ndim, "unflatten")
    check_sequence(sizes, "unflatten", "sizes", 2)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not self.ndim:
        raise RuntimeError("unflatten(): a 0-d tensor has no dim to split")
    sizes, total, known = tuple(sizes), self.shape[dim], 1
    for size in sizes:
        known *= 1 if size == -1 else size
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes = tuple(total // known if size == -1 else size for size in sizes)
    elif -1 in sizes or known != total:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size "
            f"of dim {dim} ({total}) in the input tensor"
        )
    return self.view((*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))


op(
    "unflatten(self: Tensor, dim: int, sizes: any) -> Tensor",
    composite=_unflatten,
    doc="Return a view with one dim split into several; one size may be -1.\n\nRaises: "
    "RuntimeError when the sizes do not multiply up to that of the dim.",
    samples=lambda: [
        case(T(6), 0, (2, 3)),
        case(T(2, 6), 1, (-1, 2)),
        case(T(4, 3), -2, (2, 2)),
        case(T(3), 0, (3,)),
        case(T(0, 2), 0, (0, 4)),
        case(T(1), 0, (1, 1, 1)),
    ],
    ref=lambda np, self, dim, sizes: np.reshape(
        self, (*self.shape[: dim % self.ndim], *sizes, *self.shape[dim % self.ndim + 1 :])
    ),
)
op(
    "narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor",
    jvp="linear",
    forward=lambda self, dim, start, length: row_major(self.narrow(dim, start, length)),
    vjp={
        "self": lambda g, self_shape, dim, start, length: ops.narrow_backward(
            g, self_shape, dim, start, length
        )
    },
    out=True,
    batch="along",
    doc="Return a copy of a range of a dim.",
    samples=lambda: [case(T(2, 3), 1, 1, 2), case(T(2, 3), 0, 0, 0), case(T(2, 3), -1, -2, 1)],
    ref=lambda np, self, dim, start, length: np.take(
        self, np.arange(start % self.shape[dim], start % self.shape[dim] + length), dim
    ),
)


def _adjoint(self):
    if self.ndim < 2 and self.ndim:
        raise RuntimeError(
            f"tensor.adjoint() is only supported on matrices or batches of "
            f"matrices. Got {self.ndim}-D tensor."
        )
    return ops.conj(self.transpose(-2, -1)) if self.ndim else ops.conj(self)


op(
    "adjoint(self: Tensor) -> Tensor",
    composite=_adjoint,
    doc="Return matrices transposed and conjugated.\n\nReal tensors give a view.",
    samples=lambda: [case(T(2, 3)), case(T(2, 3, 4)), case(T(0, 3))],
    ref=lambda np, self: np.conj(np.swapaxes(self, -2, -1)),
)
