"""repeat, tile and repeat_interleave."""

from pullback.ops.rules.arguments import as_int, sizes_of
from pullback.ops.rules.dims import check_has_dims, wrap_dim
from pullback.ops.rules.dtypes import unsupported
from pullback.ops.shape.rearrange import row_major
from pullback.ops.table.primitives_api import whole_batch
from pullback.ops.table.samples import COUNTED, T, case, fixed, references_of
from pullback.ops.table.schema import op, ops

references = references_of("shape")


def _repeats(self, repeats):
    """Return the repeats, and the shape with as many dims."""
    repeats = tuple(
        as_int(count, "repeat", "repeats") for count in sizes_of(repeats, "repeat", "repeats")
    )
    lead = len(repeats) - self.ndim
    if lead < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of "
            "dimensions of tensor"
        )
    shape = (1,) * lead + tuple(self.shape)
    if any(count < 0 for count in repeats):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension "
            f"{next(c * n for c, n in zip(repeats, shape) if c < 0)}: "
            f"{[c * n for c, n in zip(repeats, shape)]}"
        )
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


op(
    "repeat(self: Tensor, repeats: int[]) -> Tensor",
    jvp="linear",
    forward=_repeat,
    batch="expand any_rank",
    function=False,
    varargs=True,
    vjp={"self": _repeat_vjp},
    doc="Return a copy that holds the tensor several times along each dim.\n\nRaises: RuntimeError "
    "for fewer repeats than dims, or negative ones.",
    samples=lambda: [
        case(T(2, 3), (2, 1)),
        case(T(2, 3), 2, 3),
        case(T(3), (2, 2)),
        case(T(), (2,)),
        case(T(), ()),
        case(T(2, 3), (0, 1)),
        case(T(2, 0), (2, 2)),
        case(T(3), 2),
    ],
    ref=lambda np, self, *repeats: np.tile(
        self, repeats[0] if isinstance(repeats[0], tuple) else repeats
    ),
)


def _tile(self, dims):
    dims = sizes_of(dims, "tile", "dims")
    return ops.repeat(self, (1,) * (self.ndim - len(dims)) + dims)


op(
    "tile(self: Tensor, dims: int[]) -> Tensor",
    composite=_tile,
    varargs=True,
    doc="Return a copy that holds the tensor several times along its last dims.",
    samples=lambda: [
        case(T(2, 3), (2,)),
        case(T(2, 3), 2, 2),
        case(T(3), (2, 1, 2)),
        case(T(), (2,)),
        case(T(2, 3), ()),
        case(T(2, 0), (3, 2)),
        case(T(2), (0,)),
    ],
    ref=lambda np, self, *dims: np.tile(self, dims[0] if isinstance(dims[0], tuple) else dims),
)


def _copies(self, count, dim, output_size):
    """Repeat every element the same number of times."""
    if count < 0:
        raise RuntimeError("Repeats must be non-negative")
    total = count * self.shape[dim]
    if output_size is not None and output_size != total:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {total} but got {output_size}"
        )
    spread = self.unsqueeze(dim + 1)
    wide = spread.expand((*self.shape[: dim + 1], count, *self.shape[dim + 1 :]))
    copied = row_major(wide)
    return copied.view((*self.shape[:dim], total, *self.shape[dim + 1 :]))


def _sources(repeats, output_size):
    """Return i, repeats[i] times, for every i.

    A one stands where the run of each i begins; the cumulative sum counts how many have begun.
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
            raise RuntimeError(
                "vmap: We do not support batching operators that can output dynamic "
                "shape: the repeats differ in sum along the batch."
            )
        if output_size not in (None, total):
            raise RuntimeError("allocated size does not match required size")
    elif output_size is None:
        raise NotImplementedError(
            "repeat_interleave(): the size of the result depends on the "
            "elements of repeats, a meta tensor; give output_size"
        )
    else:
        total = output_size
    begun = ops._zeros_like(_Vector(ends, total + 1))
    ones = ops.ones_like(ends)
    begun = ops.index_put(begun, (ends,), ones, True)  # runs that end before a position
    return ops.cumsum(begun, 0).narrow(0, 0, total)


class _Vector:
    """The shape, dtype and device of a vector, for _zeros_like."""

    def __init__(self, like, length):
        self.shape, self.dtype, self.device = (length,), like.dtype, like.device


def _repeat_interleave(self, repeats, dim, output_size):
    if repeats is None:  # repeat_interleave(repeats): the indices alone
        if self.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        return ops.cast(_sources(self, output_size), self.dtype)
    if dim is None:
        self, dim = self.reshape(-1), 0
    check_has_dims(self, dim)
    dim = wrap_dim(dim, self.ndim, "repeat_interleave")
    if not hasattr(repeats, "numel"):
        return _copies(self, as_int(repeats, "repeat_interleave", "repeats"), dim, output_size)
    if repeats.ndim == 0 or repeats.numel() == 1:
        repeats = repeats.reshape(-1).expand((self.shape[dim],))
    elif repeats.ndim != 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    elif repeats.shape[0] != self.shape[dim]:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got "
            f"repeats.size(0) = {repeats.shape[0]} and input.size({dim}) = "
            f"{self.shape[dim]}"
        )
    return ops.index_select(self, dim, _sources(repeats, output_size))


_CHANGED = {"expanded": "it changes the repeats, so output_size is wrong"}
op(
    "repeat_interleave(self: Tensor, repeats: any = None, dim: int? = None, *, "
    "output_size: int? = None) -> Tensor",
    composite=_repeat_interleave,
    doc="Return every element of a dim repeated, or of the flattened tensor without a dim.\n\n"
    "repeats is a number, or a vector with one number for each element; without it the indices "
    "of the elements are returned.\nRaises: RuntimeError for negative repeats, or not as many "
    "as there are elements.",
    samples=lambda: [
        case(T(2, 3), 2),
        case(T(2, 3), 2, 1),
        case(T(2, 3), 3, -2),
        case(T(), 2),
        case(T(2, 3), 0, 1),
        case(T(0, 3), 2, 0),
        case(T(2, 3), 2, 0, output_size=4),
        *(
            case(T(2, 3), fixed(values, kind="int64"), dim, output_size=size, skip=_CHANGED)
            for values, dim, size in (((1, 0, 2), 1, 3), ((2, 3), 0, 5), ((2,), 1, 6))
        ),
        case(T(2), fixed((3, 1), kind="int64"), skip=COUNTED),
    ],
    ref=references.repeat_interleave,
)
