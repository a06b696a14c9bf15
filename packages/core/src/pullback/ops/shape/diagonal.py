"""diag, diag_embed; select_scatter and its like: copies with a part replaced."""

from pullback.ops.rules.arguments import as_int, sizes_of
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.shape.rearrange import row_major
from pullback.ops.table.samples import MEMORY, T, case, fixed, references_of
from pullback.ops.table.schema import op, ops

references = references_of("shape")

# -- diagonals -------------------------------------------------------------------------------------


def _diag_embed(self, offset, dim1, dim2):
    offset = as_int(offset, "diag_embed", "offset")
    ndim = self.ndim + 1
    first, second = (wrap_dim(dim, ndim, "diag_embed") for dim in (dim1, dim2))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not self.ndim:
        raise IndexError("diag_embed(): expected at least one dim, got a 0-d tensor")
    size = self.shape[-1] + abs(offset)
    shape = list(self.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, size)
    out = ops.new_zeros(self, tuple(shape))
    ops.copy_(out.diagonal(offset, first, second), self)
    return out


op(
    "diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor",
    jvp="linear",
    forward=_diag_embed,
    vjp={"self": lambda g, offset, dim1, dim2: ops.diagonal(g, offset, dim1, dim2)},
    batch="along new_dim",
    doc="Return matrices with the last dim of the tensor on a diagonal; the rest is 0.\n\n"
    "Raises: RuntimeError when the two dims are the same, IndexError out of range.",
    samples=lambda: [
        case(T(3)),
        case(T(2, 3)),
        case(T(2, 3), 1),
        case(T(2), -2),
        case(T(2, 3), 0, 0, 2),
        case(T(2, 2), 1, 2, 0),
        case(T(0)),
        case(T(2, 0), 1),
    ],
    ref=references.diag_embed,
)


def _diag(self, diagonal):
    diagonal = as_int(diagonal, "diag", "diagonal")
    if self.ndim == 1:
        return ops.diag_embed(self, diagonal)
    if self.ndim == 2:
        return row_major(self.diagonal(diagonal))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D")


op(
    "diag(self: Tensor, diagonal: int = 0) -> Tensor",
    composite=_diag,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    ref=lambda np, self, diagonal=0: np.diag(self, diagonal),
    doc="Return a matrix with a vector on its diagonal, or a copy of the diagonal of a matrix.\n\n"
    "Raises: RuntimeError for other tensors.",
    samples=lambda: [
        case(T(3)),
        case(T(3), 1),
        case(T(2), -1),
        case(T(2, 3)),
        case(T(2, 3), 1),
        case(T(3, 2), -2),
        case(T(2, 3), 5),
        case(T(0)),
        case(T(0, 3)),
    ],
)
op(
    "diagflat(self: Tensor, offset: int = 0) -> Tensor",
    composite=lambda self, offset: ops.diag_embed(self.reshape(-1), offset),
    ref=lambda np, self, offset=0: np.diagflat(self, offset),
    doc="Return a matrix with all elements on a diagonal.",
    samples=lambda: [case(T(3)), case(T(2, 2), 1), case(T()), case(T(), -1), case(T(0, 2))],
)


def _fill_diagonal(self, fill_value, wrap):
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and any(size != self.shape[0] for size in self.shape):
        raise RuntimeError("all dimensions of input must be of equal length")
    if hasattr(fill_value, "ndim") and fill_value.ndim:
        raise RuntimeError(
            f"fill_diagonal_ only supports 0-dimension value tensor but got tensor "
            f"with {fill_value.ndim} dimensions."
        )
    step, count = sum(self.stride()), min(self.shape)
    ops.fill_(self.as_strided((count,), (step,), self.storage_offset()), fill_value)
    rows, columns = self.shape[0], self.shape[-1]
    if wrap and self.ndim == 2 and rows > columns + 1:
        # after each full diagonal one row stays as it is
        for start in range(columns + 1, rows, columns + 1):
            ops.fill_diagonal_(self.narrow(0, start, rows - start), fill_value)
    return self


op(
    "fill_diagonal_(self: Tensor, fill_value: Operand, wrap: bool = False) -> Tensor",
    composite=_fill_diagonal,
    function=False,
    doc="Set the elements whose indices are all equal to a number; returns self.\n\nWith wrap the "
    "diagonal of a tall matrix starts again below itself.\nRaises: RuntimeError below 2 dims, "
    "and above unless all sizes are equal.",
    samples=lambda: [
        case(T(2, 3), 1, skip=MEMORY),
        case(T(7, 2), 1, True, skip=MEMORY),
        case(T(2, 2, 2), 1),
        case(T(0, 2), 1),
    ],
    ref=references.fill_diagonal,
)


# -- a part replaced -------------------------------------------------------------------------------


def _copied(self):
    """Return a copy with the tensor's strides, which is no view."""
    from pullback._c.ops.create import data_alias

    if any(step == 0 and size > 1 for step, size in zip(self.stride(), self.shape)):
        return ops.clone(self)
    reach = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride()))
    if not self.numel() or reach == self.numel():
        return ops.clone(self)
    memory = ops.clone(self.as_strided((reach,), (1,), self.storage_offset()))
    return data_alias(memory.as_strided(self.shape, self.stride(), 0))


def _scatter(name, wanted):
    """Return the forward pass of a scatter into the part that the view op ``name`` takes."""

    def forward(self, src, *where):
        out = _copied(self)
        part = getattr(ops, name)(out, *where)
        if part.shape != src.shape:
            raise RuntimeError(
                f"expected src to have a size equal to the {wanted}. src size = "
                f"{list(src.shape)}, {wanted.split()[0]} size = "
                f"{list(part.shape)}"
            )
        ops.copy_(part, src)
        return out

    return forward


op(
    "select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor",
    jvp="linear",
    forward=_scatter("select", "slice of self"),
    vjp={
        "self": lambda g, src_like, dim, index: ops.select_scatter(
            g, ops._zeros_like(src_like), dim, index
        ),
        "src": lambda g, dim, index: ops.select(g, dim, index),
    },
    batch="along mixed_ranks",
    doc="Return a copy with one index of a dim replaced.\n\nRaises: RuntimeError when src has "
    "another shape than that part.",
    samples=lambda: [
        case(T(2, 3), T(3), 0, 1),
        case(T(2, 3), T(2), -1, -1),
        case(T(3), T(), 0, 0),
        case(T(2, 0), T(0), 0, 1),
    ],
    ref=references.select_scatter,
)


def _slice_scatter(self, src, dim, start, end, step):
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return _scatter("slice", "slice of self")(self, src, dim, start, end, step)


op(
    "slice_scatter(self: Tensor, src: Tensor, dim: int = 0, start: int? = None, end: int? = None, "
    "step: int = 1) -> Tensor",
    jvp="linear",
    forward=_slice_scatter,
    out=True,
    vjp={
        "self": lambda g, src_like, dim, start, end, step: ops.slice_scatter(
            g, ops._zeros_like(src_like), dim, start, end, step
        ),
        "src": lambda g, dim, start, end, step: ops.slice(g, dim, start, end, step),
    },
    batch="along",
    out_overlap=True,
    out_dtype="exact",
    doc="Return a copy with every step-th index of a range of a dim replaced.\n\nRaises: "
    "RuntimeError when src has another shape than that part.",
    samples=lambda: [
        case(T(5), T(2), 0, 1, 4, 2),
        case(T(2, 5), T(2, 3), 1, None, 3),
        case(T(2, 3), T(2, 3)),
        case(T(3), T(0), 0, 2, 1),
        case(T(2, 5), T(2, 2), -1, -2),
    ],
    ref=references.slice_scatter,
)
op(
    "diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) "
    "-> Tensor",
    jvp="linear",
    forward=_scatter("diagonal", "slice of self"),
    vjp={
        "self": lambda g, src_like, offset, dim1, dim2: ops.diagonal_scatter(
            g, ops._zeros_like(src_like), offset, dim1, dim2
        ),
        "src": lambda g, offset, dim1, dim2: ops.diagonal(g, offset, dim1, dim2),
    },
    batch="along mixed_ranks",
    doc="Return a copy with a diagonal of two dims replaced.\n\nRaises: RuntimeError when src has "
    "another shape than the diagonal.",
    samples=lambda: [
        case(T(3, 3), T(3)),
        case(T(2, 3), T(2), 1),
        case(T(2, 3), T(1), -1),
        case(T(2, 3, 2), T(3, 2), 0, 0, 2),
        case(T(2, 3), T(0), 5),
    ],
    ref=references.diagonal_scatter,
)


def _reach(size, stride, offset):
    """Return the end of the memory of these sizes and strides."""
    if 0 in size:
        return 0
    return offset + sum((n - 1) * step for n, step in zip(size, stride)) + 1


def _as_strided_scatter(self, src, size, stride, storage_offset):
    from pullback._c.ops.create import data_alias

    start = self.storage_offset()
    offset = start if storage_offset is None else storage_offset
    size, stride = sizes_of(size), sizes_of(stride)
    if tuple(src.shape) != size:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(size)}"
        )
    reach = max(_reach(self.shape, self.stride(), start), _reach(size, stride, offset))
    memory = ops.clone(self.as_strided((reach,), (1,), 0))
    ops.copy_(memory.as_strided(size, stride, offset), src)
    return data_alias(memory.as_strided(self.shape, self.stride(), start))


def _positions(like, size, stride, offset):
    """Return the memory positions of the elements of these sizes and strides, as a vector."""
    reach = _reach(size, stride, offset)
    return ops.arange_like(like, reach).as_strided(size, stride, offset).reshape(-1)


def _image(g, layout, size, stride, offset):
    """Return the memory that the gradient describes, and the positions that were replaced."""
    shape, steps, start = layout
    reach = max(_reach(shape, steps, start), _reach(size, stride, offset))
    image = ops.index_put(
        ops.new_zeros(g, (reach,)), (_positions(g, shape, steps, start),), g.reshape(-1)
    )
    return image, _positions(g, size, stride, offset)


def _kept_gradient(g, layout, size, stride, out_offset):
    image, replaced = _image(g, layout, sizes_of(size), sizes_of(stride), out_offset)
    image = ops.index_put(image, (replaced,), ops.new_zeros(g, ()))
    shape, steps, start = layout
    return ops.index(image, (_positions(g, shape, steps, start),)).reshape(shape)


def _new_gradient(g, layout, size, stride, out_offset):
    image, replaced = _image(g, layout, sizes_of(size), sizes_of(stride), out_offset)
    return ops.index(image, (replaced,)).reshape(sizes_of(size))


op(
    "as_strided_scatter(self: Tensor, src: Tensor, size: int[], stride: int[], "
    "storage_offset: int? = None) -> Tensor",
    forward=_as_strided_scatter,
    vjp={"self": _kept_gradient, "src": _new_gradient},
    save={
        "layout": lambda self, *rest: (tuple(self.shape), self.stride(), self.storage_offset()),
        "out_offset": lambda self, src, size, stride, storage_offset: (
            self.storage_offset() if storage_offset is None else storage_offset
        ),
    },
    batch="as_strided_scatter",
    doc="Return a copy with the elements replaced that as_strided would show.\n\nRaises: "
    "RuntimeError when src has another shape, or the view would leave the storage.",
    samples=lambda: [
        case(fixed(range(6)), src, *layout, skip=MEMORY)
        for src, *layout in (
            (T(2, 2), (2, 2), (3, 1)),
            (T(3), (3,), (2,), 1),
            (T(), (), (), 2),
            (T(0, 2), (0, 2), (1, 1)),
        )
    ],
    ref=references.as_strided_scatter,
)
