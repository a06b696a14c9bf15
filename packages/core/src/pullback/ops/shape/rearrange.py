"""flip, rot90, roll, tril and triu: elements in another order, or cut to a triangle."""

from pullback.ops.rules.arguments import as_int, sizes_of
from pullback.ops.rules.dims import check_has_dims, wrap_dim, wrap_dims
from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import T, case
from pullback.ops.table.schema import op, ops

_PAIRS = (
    ((2, 3), (0,)),
    ((2, 3), (0, 1)),
    ((2, 3), (-1,)),
    ((2, 3, 2), (0, 2)),
    ((3,), (0,)),
    ((2, 3), ()),
    ((0, 3), (0, 1)),
    ((), ()),
)


def row_major(self):
    """Return a contiguous copy."""
    import pullback

    return ops.clone(self, memory_format=pullback.contiguous_format)


# -- turning ---------------------------------------------------------------------------------------


def _flip(self, dims):
    dims = sizes_of(dims, "flip", "dims")
    dims = wrap_dims(dims, self.ndim, "flip") if dims else ()
    if not dims or not self.ndim:
        return self.clone()
    return ops.reverse_dims(self, dims)


def _reverse(self, dims):
    from pullback._c.ops.create import data_alias

    order = _order_in_memory(self)
    out = new_empty(self, [self.shape[d] for d in order])
    turned = out.permute(tuple(order.index(d) for d in range(self.ndim)))
    if out.numel():
        run_primitive("flip", (turned,), (self,), dims)
    return data_alias(turned)


def _order_in_memory(self):
    """Return the dims as a copy keeps them: outermost first, in the tensor's own order if it has
    gaps or repeats elements."""
    steps = ops.empty_like(self).stride()
    return tuple(sorted(range(self.ndim), key=lambda d: (-steps[d], d)))


op(
    "reverse_dims(self: Tensor, dims: any) -> Tensor",
    forward=_reverse,
    compiled="reverse",
    kernel="flip",
    method=False,
    function=False,
    doc="Return a copy with the order of some dims reversed.",
    samples=lambda: [case(T(2, 3), (0,)), case(T(2, 3, 2), (0, 2)), case(T(0, 3), (0, 1))],
    ref=lambda np, self, dims: np.flip(self, dims),
)
op(
    "flip(self: Tensor, dims: int[]) -> Tensor",
    jvp="linear",
    forward=_flip,
    varargs=True,
    vjp={"self": lambda g, dims: g.flip(dims)},
    batch="along empty_is_none",
    doc="Return a copy with the order of some dims reversed.\n\nRaises: IndexError for a dim out "
    "of range, RuntimeError for one named twice.",
    samples=lambda: [*(case(T(*shape), dims) for shape, dims in _PAIRS), case(T(2, 3), 1, 0)],
    ref=lambda np, self, *dims: np.flip(self, dims[0] if isinstance(dims[0], tuple) else dims),
)


def _flip_lr(self):
    if self.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return ops.flip(self, (1,))


def _flip_ud(self):
    if self.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return ops.flip(self, (0,))


op(
    "fliplr(self: Tensor) -> Tensor",
    composite=_flip_lr,
    ref="numpy.fliplr",
    doc="Return a copy with the second dim reversed.\n\nRaises: RuntimeError below 2 dims.",
    samples=lambda: [case(T(2, 3)), case(T(2, 3, 2)), case(T(0, 3)), case(T(2, 0))],
)
op(
    "flipud(self: Tensor) -> Tensor",
    composite=_flip_ud,
    ref="numpy.flipud",
    doc="Return a copy with the first dim reversed.\n\nRaises: RuntimeError for 0-d tensors.",
    samples=lambda: [case(T(2, 3)), case(T(3)), case(T(0, 3))],
)


def _rotation(self, dims):
    """Return the two dims of a rotation, counted from the front."""
    dims, ndim = sizes_of(dims), self.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == ndim:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    return wrap_dim(dims[0], ndim, "rot90"), wrap_dim(dims[1], ndim, "rot90")


def _rot90(self, k, dims):
    from pullback._c.ops.create import data_alias

    first, second = _rotation(self, dims)
    k = as_int(k, "rot90", "k") % 4
    if k == 0:
        return row_major(self)
    if k == 2:
        return ops.flip(self, (first, second))
    turned = ops.flip(self, (second if k == 1 else first,))
    return data_alias(turned.transpose(first, second))


op(
    "rot90(self: Tensor, k: int = 1, dims: int[] = (0, 1)) -> Tensor",
    jvp="linear",
    forward=_rot90,
    vjp={"self": lambda g, k, dims: _turn_back(g, k, dims)},
    doc="Return a copy turned k times by 90 degrees, from the first of two dims to the second.\n\n"
    "Raises: RuntimeError unless there are two different dims, both in range.",
    samples=lambda: [
        *(case(T(2, 3), k) for k in (-1, 0, 1, 2, 3, 6)),
        case(T(2, 3, 2), 1, (-1, 0)),
        case(T(2, 3, 2), 2, (1, 2)),
        case(T(0, 3)),
    ],
    ref=lambda np, self, k=1, dims=(0, 1): np.rot90(self, k, dims),
)


def _turn_back(g, k, dims):
    first, second = sizes_of(dims)
    return ops.rot90(g, k, (second, first))


# -- shifting --------------------------------------------------------------------------------------


def _shift(self, count, dim):
    size = self.shape[dim]
    start = -count % size if size else 0
    if not start:
        return self
    return ops.cat([self.narrow(dim, start, size - start), self.narrow(dim, 0, start)], dim)


def _roll(self, shifts, dims):
    shifts, dims = sizes_of(shifts, "roll", "shifts"), sizes_of(dims, "roll", "dims")
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not dims and len(shifts) == 1:
        out = _shift(self.reshape(-1), shifts[0], 0).reshape(self.shape)
    else:
        if len(shifts) != len(dims):
            raise RuntimeError(
                f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
            )
        out = self
        for count, d in zip(shifts, dims):
            check_has_dims(self, d)
            out = _shift(out, count, wrap_dim(d, self.ndim, "roll"))
    return _unshared(self, out)


def _unshared(self, out):
    """Return a copy unless the memory is new already."""
    from pullback._c.ops.create import data_alias

    base = self if self._base is None else self._base
    return row_major(out) if out is self or out._base is base else data_alias(out)


op(
    "roll(self: Tensor, shifts: int[], dims: int[] = ()) -> Tensor",
    jvp="linear",
    forward=_roll,
    vjp={"self": lambda g, shifts, dims: _roll_back(g, shifts, dims)},
    doc="Return a copy with the elements moved along dims; those that leave come in again.\n\n"
    "Without dims the tensor is rolled as one row.",
    samples=lambda: [
        case(T(2, 3), 1),
        case(T(2, 3), -1, 1),
        case(T(2, 3), (1, 2), (0, 1)),
        case(T(2, 3), (1, 1), (1, 1)),
        case(T(2, 3), 7, -1),
        case(T(2, 3), 0, 0),
        case(T(), 1),
        case(T(0, 3), 1, 0),
        case(T(0, 3), 2),
        case(T(1), 3, 0),
    ],
    ref=lambda np, self, shifts, dims=None: np.roll(self, shifts, dims),
)


def _roll_back(g, shifts, dims):
    return ops.roll(g, tuple(-count for count in sizes_of(shifts)), dims)


# -- triangles -------------------------------------------------------------------------------------


def _triangle(name):
    """Return the forward pass of tril or triu."""

    def forward(self, diagonal):
        diagonal = as_int(diagonal, name, "diagonal")
        if self.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        out = new_empty(self, self.shape)
        if out.numel():
            # beyond the corners nothing changes
            rows, columns = self.shape[-2:]
            run_primitive(name, (out,), (self,), max(-rows, min(diagonal, columns)))
        return out

    return forward


_TRIANGLES = [
    case(T(3, 3)),
    case(T(2, 3), 1),
    case(T(3, 2), -1),
    case(T(2, 3, 3), 0),
    case(T(2, 2), 5),
    case(T(2, 2), -5),
    case(T(0, 3)),
    case(T(2, 0)),
    case(T(1, 1)),
]
op(
    "tril(self: Tensor, diagonal: int = 0) -> Tensor",
    jvp="linear",
    forward=_triangle("tril"),
    compiled="triangle",
    kernel="tril",
    vjp={"self": lambda g, diagonal: g.tril(diagonal)},
    inplace=True,
    out=True,
    batch="unary",
    out_overlap=True,
    out_dtype="exact",
    doc="Return the lower triangle of matrices, up to a diagonal; the rest is 0.\n\n"
    "Raises: RuntimeError below 2 dims.",
    samples=_TRIANGLES,
    ref=lambda np, self, diagonal=0: np.tril(self, diagonal),
    inplace_function=False,
)
op(
    "triu(self: Tensor, diagonal: int = 0) -> Tensor",
    jvp="linear",
    forward=_triangle("triu"),
    compiled="triangle",
    kernel="triu",
    vjp={"self": lambda g, diagonal: g.triu(diagonal)},
    inplace=True,
    out=True,
    batch="unary",
    out_overlap=True,
    out_dtype="exact",
    doc="Return the upper triangle of matrices, from a diagonal on; the rest is 0.\n\n"
    "Raises: RuntimeError below 2 dims.",
    samples=_TRIANGLES,
    ref=lambda np, self, diagonal=0: np.triu(self, diagonal),
    inplace_function=False,
)
