"""The same elements elsewhere: turned, shifted, repeated, or cut to a triangle."""

from pullback.ops.rules.dims import unsupported, wrap_dim, wrap_dims
from pullback.ops.table.primitives_api import new_empty, run_primitive, whole_batch
from pullback.ops.table.samples import COUNTED, T, case, fixed, references_of
from pullback.ops.table.schema import op, ops

references = references_of("rearrange")

_PAIRS = (((2, 3), (0,)), ((2, 3), (0, 1)), ((2, 3), (-1,)), ((2, 3, 2), (0, 2)), ((3,), (0,)),
          ((2, 3), ()), ((0, 3), (0, 1)), ((), ()))


def sizes_of(sizes, name="", argument=""):
    """Return sizes or dims that were given as one number or as a sequence.

    Raises: TypeError for anything else.
    """
    if hasattr(sizes, "__index__"):
        return (sizes,)
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(f"{name}(): argument '{argument}' must be tuple of ints, not "
                        f"{type(sizes).__name__}")
    return tuple(sizes)


def whole(value, name, argument):
    """Return an integer argument.

    Raises: TypeError for what is none.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    return value.__index__()


def row_major(self):
    """Return a copy whose rows lie without gaps."""
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


op("reverse_dims(self: Tensor, dims: any) -> Tensor", forward=_reverse, compiled="reverse",
   kernel="flip", method=False, function=False,
   doc="Return a copy with the order of some dims reversed.",
   samples=[case(T(2, 3), (0,)), case(T(2, 3, 2), (0, 2)), case(T(0, 3), (0, 1))],
   ref=lambda np, self, dims: np.flip(self, dims))
op("flip(self: Tensor, dims: int[]) -> Tensor",
   jvp="linear", forward=_flip, varargs=True,
   vjp={"self": lambda g, dims: g.flip(dims)},
   batch="along empty_is_none",
   doc="Return a copy with the order of some dims reversed.\n\nRaises: IndexError for a dim out of "
       "range, RuntimeError for one named twice.",
   samples=[*(case(T(*shape), dims) for shape, dims in _PAIRS), case(T(2, 3), 1, 0)],
   ref=lambda np, self, *dims: np.flip(
       self, dims[0] if isinstance(dims[0], tuple) else dims))


def _flip_lr(self):
    if self.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return ops.flip(self, (1,))


def _flip_ud(self):
    if self.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return ops.flip(self, (0,))


op("fliplr(self: Tensor) -> Tensor", composite=_flip_lr, ref="numpy.fliplr",
   doc="Return a copy with the second dim reversed.\n\nRaises: RuntimeError below 2 dims.",
   samples=[case(T(2, 3)), case(T(2, 3, 2)), case(T(0, 3)), case(T(2, 0))])
op("flipud(self: Tensor) -> Tensor", composite=_flip_ud, ref="numpy.flipud",
   doc="Return a copy with the first dim reversed.\n\nRaises: RuntimeError for 0-d tensors.",
   samples=[case(T(2, 3)), case(T(3)), case(T(0, 3))])


def _rotation(self, dims):
    """Return the two dims of a rotation, counted from the front."""
    dims, ndim = sizes_of(dims), self.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and "
                           f"dim1 = {dims[1]}")
    return wrap_dim(dims[0], ndim, "rot90"), wrap_dim(dims[1], ndim, "rot90")


def _rot90(self, k, dims):
    from pullback._c.ops.create import data_alias
    first, second = _rotation(self, dims)
    k = whole(k, "rot90", "k") % 4
    if k == 0:
        return row_major(self)
    if k == 2:
        return ops.flip(self, (first, second))
    turned = ops.flip(self, (second if k == 1 else first,))
    return data_alias(turned.transpose(first, second))


op("rot90(self: Tensor, k: int = 1, dims: int[] = (0, 1)) -> Tensor",
   jvp="linear", forward=_rot90,
   vjp={"self": lambda g, k, dims: _turn_back(g, k, dims)},
   doc="Return a copy turned k times by 90 degrees, from the first of two dims to the second.\n\n"
       "Raises: RuntimeError unless there are two different dims, both in range.",
   samples=[*(case(T(2, 3), k) for k in (-1, 0, 1, 2, 3, 6)), case(T(2, 3, 2), 1, (-1, 0)),
            case(T(2, 3, 2), 2, (1, 2)), case(T(0, 3))],
   ref=lambda np, self, k=1, dims=(0, 1): np.rot90(self, k, dims))


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
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:"
                               f"{len(dims)}")
        out = self
        for count, d in zip(shifts, dims):
            if not self.ndim and self.numel():
                raise IndexError(f"Dimension specified as {d} but tensor has no dimensions")
            out = _shift(out, count, wrap_dim(d, self.ndim, "roll"))
    return _unshared(self, out)


def _unshared(self, out):
    """Return a copy unless the memory is new already."""
    from pullback._c.ops.create import data_alias
    return row_major(out) if out.data_ptr() == self.data_ptr() else data_alias(out)


op("roll(self: Tensor, shifts: int[], dims: int[] = ()) -> Tensor",
   jvp="linear", forward=_roll,
   vjp={"self": lambda g, shifts, dims: _roll_back(g, shifts, dims)},
   doc="Return a copy with the elements moved along dims; those that leave come in again.\n\n"
       "Without dims the tensor is rolled as one row.",
   samples=[case(T(2, 3), 1), case(T(2, 3), -1, 1), case(T(2, 3), (1, 2), (0, 1)),
            case(T(2, 3), (1, 1), (1, 1)), case(T(2, 3), 7, -1), case(T(2, 3), 0, 0), case(T(), 1),
            case(T(0, 3), 1, 0), case(T(0, 3), 2), case(T(1), 3, 0)],
   ref=lambda np, self, shifts, dims=None: np.roll(self, shifts, dims))


def _roll_back(g, shifts, dims):
    return ops.roll(g, tuple(-count for count in sizes_of(shifts)), dims)


# -- repeating -------------------------------------------------------------------------------------

def _repeats(self, repeats):
    """Return the repeats, and the shape with as many dims."""
    repeats = tuple(whole(count, "repeat", "repeats")
                    for count in sizes_of(repeats, "repeat", "repeats"))
    lead = len(repeats) - self.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of "
                           "dimensions of tensor")
    shape = (1,) * lead + tuple(self.shape)
    if any(count < 0 for count in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension "
                           f"{next(c * n for c, n in zip(repeats, shape) if c < 0)}: "
                           f"{[c * n for c, n in zip(repeats, shape)]}")
    return repeats, shape


def _interleaved(first, second):
    return tuple(size for pair in zip(first, second) for size in pair)


def _repeat(self, repeats):
    from pullback._c.ops.create import copy_raw, empty_tensor
    repeats, shape = _repeats(self, repeats)
    out = empty_tensor(tuple(c * n for c, n in zip(repeats, shape)), self.dtype, self.device)
    blocks = out.view(_interleaved(repeats, shape))
    copy_raw(blocks, self.reshape(_interleaved((1,) * len(shape), shape)))
    return out


def _repeat_vjp(g, self_shape, repeats):
    repeats = sizes_of(repeats)
    lead = len(repeats) - len(self_shape)
    shape = (1,) * lead + tuple(self_shape)
    if not repeats:
        return g
    blocks = g.reshape(_interleaved(repeats, shape))
    return blocks.sum(tuple(range(0, 2 * len(shape), 2))).reshape(self_shape)


op("repeat(self: Tensor, repeats: int[]) -> Tensor",
   jvp="linear", forward=_repeat, batch="expand any_rank", function=False, varargs=True,
   vjp={"self": _repeat_vjp},
   doc="Return a copy that holds the tensor several times along each dim.\n\nRaises: RuntimeError "
       "for fewer repeats than dims, or negative ones.",
   samples=[case(T(2, 3), (2, 1)), case(T(2, 3), 2, 3), case(T(3), (2, 2)), case(T(), (2,)),
            case(T(), ()), case(T(2, 3), (0, 1)), case(T(2, 0), (2, 2)), case(T(3), 2)],
   ref=lambda np, self, *repeats: np.tile(
       self, repeats[0] if isinstance(repeats[0], tuple) else repeats))


def _tile(self, dims):
    dims = sizes_of(dims, "tile", "dims")
    return ops.repeat(self, (1,) * (self.ndim - len(dims)) + dims)


op("tile(self: Tensor, dims: int[]) -> Tensor", composite=_tile, varargs=True,
   doc="Return a copy that holds the tensor several times along its last dims.",
   samples=[case(T(2, 3), (2,)), case(T(2, 3), 2, 2), case(T(3), (2, 1, 2)), case(T(), (2,)),
            case(T(2, 3), ()), case(T(2, 0), (3, 2)), case(T(2), (0,))],
   ref=lambda np, self, *dims: np.tile(self, dims[0] if isinstance(dims[0], tuple) else dims))


def _copies(self, count, dim, output_size):
    """Repeat every element the same number of times."""
    if count < 0:
        raise RuntimeError("Repeats must be non-negative")
    total = count * self.shape[dim]
    if output_size is not None and output_size != total:
        raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {total} but got "
                           f"{output_size}")
    spread = self.unsqueeze(dim + 1)
    wide = spread.expand((*self.shape[:dim + 1], count, *self.shape[dim + 1:]))
    copied = row_major(wide)
    return copied.view((*self.shape[:dim], total, *self.shape[dim + 1:]))


def _sources(repeats, output_size):
    """Return i, repeats[i] times, for every i.

    A one stands where the run of each i begins; the running sum tells how many have begun.
    """
    if repeats.ndim > 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype.name not in ("int32", "int64"):
        raise unsupported("repeat_interleave", repeats.dtype)
    count = repeats.shape[0]
    if not count:
        return ops.arange_like(repeats, 0)
    ends = ops.cumsum(repeats, 0)
    if repeats.device.type != "meta":
        if ops.amin(whole_batch(repeats)).item() < 0:
            raise RuntimeError("repeats can not be negative")
        totals = whole_batch(ends[-1])
        total = ops.amax(totals).item() if totals.numel() else 0
        if totals.numel() > 1 and ops.amin(totals).item() != total:
            raise RuntimeError("vmap: We do not support batching operators that can output dynamic "
                               "shape: the repeats differ in sum along the batch.")
        if output_size not in (None, total):
            raise RuntimeError("allocated size does not match required size")
    elif output_size is None:
        raise NotImplementedError("repeat_interleave(): the size of the result depends on the "
                                  "elements of repeats, a meta tensor; give output_size")
    else:
        total = output_size
    begun = ops.zeros_of(_Vector(ends, total + 1))
    ones = ops.ones_like(ends)
    begun = ops.index_put(begun, (ends,), ones, True)       # runs that end before a place
    return ops.cumsum(begun, 0).narrow(0, 0, total)


class _Vector:
    """What zeros_of wants to know of a vector."""

    def __init__(self, like, length):
        self.shape, self.dtype, self.device = (length,), like.dtype, like.device


def _repeat_interleave(self, repeats, dim, output_size):
    if repeats is None:                 # repeat_interleave(repeats): the indices alone
        if self.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        return ops.cast(_sources(self, output_size), self.dtype)
    if dim is None:
        self, dim = self.reshape(-1), 0
    elif not self.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = wrap_dim(dim, self.ndim, "repeat_interleave")
    if not hasattr(repeats, "numel"):
        return _copies(self, whole(repeats, "repeat_interleave", "repeats"), dim, output_size)
    if repeats.ndim == 0 or repeats.numel() == 1:
        repeats = repeats.reshape(-1).expand((self.shape[dim],))
    elif repeats.ndim != 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    elif repeats.shape[0] != self.shape[dim]:
        raise RuntimeError(f"repeats must have the same size as input along dim, but got "
                           f"repeats.size(0) = {repeats.shape[0]} and input.size({dim}) = "
                           f"{self.shape[dim]}")
    return ops.index_select(self, dim, _sources(repeats, output_size))


_CHANGED = {"expanded": "it changes the repeats, so output_size is wrong"}
op("repeat_interleave(self: Tensor, repeats: any = None, dim: int? = None, *, "
   "output_size: int? = None) -> Tensor", composite=_repeat_interleave,
   doc="Return every element of a dim repeated, or of the flattened tensor without a dim.\n\n"
       "repeats is a number, or a vector with one number for each element; without it the indices "
       "of the elements are returned.\nRaises: RuntimeError for negative repeats, or not as many "
       "as there are elements.",
   samples=[case(T(2, 3), 2), case(T(2, 3), 2, 1), case(T(2, 3), 3, -2), case(T(), 2),
            case(T(2, 3), 0, 1), case(T(0, 3), 2, 0), case(T(2, 3), 2, 0, output_size=4),
            *(case(T(2, 3), fixed(values, kind="int64"), dim, output_size=size, skip=_CHANGED)
              for values, dim, size in (((1, 0, 2), 1, 3), ((2, 3), 0, 5), ((2,), 1, 6))),
            case(T(2), fixed((3, 1), kind="int64"), skip=COUNTED)],
   ref=references.repeat_interleave)


# -- triangles -------------------------------------------------------------------------------------

def _triangle(name):
    """Return the forward pass of tril or triu."""
    def forward(self, diagonal):
        diagonal = whole(diagonal, name, "diagonal")
        if self.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        out = new_empty(self, self.shape)
        if out.numel():
            # beyond the corners nothing changes
            rows, columns = self.shape[-2:]
            run_primitive(name, (out,), (self,), max(-rows, min(diagonal, columns)))
        return out
    return forward


_TRIANGLES = [case(T(3, 3)), case(T(2, 3), 1), case(T(3, 2), -1), case(T(2, 3, 3), 0),
              case(T(2, 2), 5), case(T(2, 2), -5), case(T(0, 3)), case(T(2, 0)), case(T(1, 1))]
op("tril(self: Tensor, diagonal: int = 0) -> Tensor",
   jvp="linear",
   forward=_triangle("tril"), compiled="triangle", kernel="tril",
   vjp={"self": lambda g, diagonal: g.tril(diagonal)}, inplace=True, out=True,
   batch="unary", out_overlap=True, out_dtype="exact",
   doc="Return the lower triangle of matrices, up to a diagonal; the rest is 0.\n\n"
       "Raises: RuntimeError below 2 dims.",
   samples=_TRIANGLES, ref=lambda np, self, diagonal=0: np.tril(self, diagonal),
   inplace_function=False)
op("triu(self: Tensor, diagonal: int = 0) -> Tensor",
   jvp="linear",
   forward=_triangle("triu"), compiled="triangle", kernel="triu",
   vjp={"self": lambda g, diagonal: g.triu(diagonal)}, inplace=True, out=True,
   batch="unary", out_overlap=True, out_dtype="exact",
   doc="Return the upper triangle of matrices, from a diagonal on; the rest is 0.\n\n"
       "Raises: RuntimeError below 2 dims.",
   samples=_TRIANGLES, ref=lambda np, self, diagonal=0: np.triu(self, diagonal),
   inplace_function=False)


# -- shapes ----------------------------------------------------------------------------------------

def _unflatten(self, dim, sizes):
    dim = wrap_dim(dim, self.ndim, "unflatten")
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(f"unflatten(): argument 'sizes' (position 2) must be tuple of ints, not "
                        f"{type(sizes).__name__}")
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
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size "
                           f"of dim {dim} ({total}) in the input tensor")
    return self.view((*self.shape[:dim], *sizes, *self.shape[dim + 1:]))


op("unflatten(self: Tensor, dim: int, sizes: any) -> Tensor", composite=_unflatten,
   doc="Return a view with one dim split into several; one size may be -1.\n\nRaises: RuntimeError "
       "when the sizes do not multiply up to that of the dim.",
   samples=[case(T(6), 0, (2, 3)), case(T(2, 6), 1, (-1, 2)), case(T(4, 3), -2, (2, 2)),
            case(T(3), 0, (3,)), case(T(0, 2), 0, (0, 4)), case(T(1), 0, (1, 1, 1))],
   ref=lambda np, self, dim, sizes: np.reshape(self, (
       *self.shape[:dim % self.ndim], *sizes, *self.shape[dim % self.ndim + 1:])))
op("narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor",
   jvp="linear",
   forward=lambda self, dim, start, length: row_major(
       self.narrow(dim, start, length)),
   vjp={"self": lambda g, self_shape, dim, start, length: ops.narrow_backward(
       g, self_shape, dim, start, length)}, out=True,
   batch="along", doc="Return a copy of a range of a dim.",
   samples=[case(T(2, 3), 1, 1, 2), case(T(2, 3), 0, 0, 0), case(T(2, 3), -1, -2, 1)],
   ref=lambda np, self, dim, start, length: np.take(
       self, np.arange(start % self.shape[dim], start % self.shape[dim] + length), dim))


def _adjoint(self):
    if self.ndim < 2 and self.ndim:
        raise RuntimeError(f"tensor.adjoint() is only supported on matrices or batches of "
                           f"matrices. Got {self.ndim}-D tensor.")
    return ops.conj(self.transpose(-2, -1)) if self.ndim else ops.conj(self)


op("adjoint(self: Tensor) -> Tensor", composite=_adjoint,
   doc="Return matrices transposed and conjugated.\n\nReal tensors give a view.",
   samples=[case(T(2, 3)), case(T(2, 3, 4)), case(T(0, 3))],
   ref=lambda np, self: np.conj(np.swapaxes(self, -2, -1)))
