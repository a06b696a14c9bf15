"""Reading and writing with keys and index tensors."""

import warnings
from typing import Any

from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.rules.operands import as_vector, kept_apart
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.primitives_api import (
    compiled,
    is_batched,
    new_empty,
    new_filled,
    run_primitive,
    writable,
)
from pullback.ops.table.samples import COUNTED, T, at, case, fixed, mask, references_of
from pullback.ops.table.schema import op, ops

references = references_of("indexing")

KEY = (at(5, high=4),)
# Without equal indices: which of two writes to a position counts has no derivative.
_ONCE = (fixed((2, 0, -1), kind="int64"),)
WRITES = [
    case(T(4, 3), _ONCE, T(3, 3)),
    case(T(4, 3), KEY, T(5, 3), True),
    case(T(4, 3), _ONCE, T()),
    case(T(4, 3), (None, at(2, high=3)), T(4, 2), True),
    case(T(4), (at(0, high=4),), T(0)),
    case(T(4, 3), (_ONCE[0], at(3, high=3)), T(1)),
    case(T(2, 3), (mask(2),), T(3), skip=COUNTED),
]


def as_index(index):
    """Index tensors become int64."""
    if index.dtype.name not in ("int64", "int32", "uint8", "bool"):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if index.dtype.name in ("bool", "uint8"):
        return index
    return index if index.dtype == dtype_named("int64") else ops.cast(index, dtype_named("int64"))


op(
    "nonzero(self: Tensor, *, as_tuple: bool = False) -> any",
    out=True,
    composite=lambda self, as_tuple: (
        ops._nonzero(as_vector(self)).unbind(1) if as_tuple else ops._nonzero(self)
    ),
    kernel="nonzero",
    out_dtype="exact",
    ref="numpy.argwhere",
    doc="Return the coordinates of the elements that are not 0, row by row.",
    samples=lambda: [
        case(T(*shape, low=-1, high=1, step=1), skip=COUNTED) for shape in ((4,), (3, 4), (0, 2))
    ],
)
op(
    "_nonzero(self: Tensor) -> Tensor",
    forward="nonzero",
    kernel="nonzero",
    method=False,
    function=False,
    doc="Return the coordinates of the elements that are not 0.",
    samples=lambda: [
        case(T(*shape, low=-1, high=1, step=1), skip=COUNTED) for shape in ((4,), (3, 4), (0, 2))
    ],
    ref="numpy.argwhere",
)


def _nonzero_static(self, size, fill_value):
    """Compute without the number of such elements, which decides about no shape."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    flat = ops.cast(ops.ne(self, 0).reshape(-1), dtype_named("int64"))
    rank = ops.cumsum(flat, 0) - 1
    position = ops.where((flat > 0) & (rank < size), rank, size)  # the others go to a spare row
    number = ops.arange_like(flat, flat.shape[0])
    empty = ops.new_full(flat, (size + 1,), -1)
    found = ops.scatter(empty, 0, position, number).narrow(0, 0, size)
    columns: list[Any] = []
    inner = 1
    for length in reversed(self.shape):
        columns.insert(0, ops.remainder(ops.floor_divide(found, inner), max(length, 1)))
        inner *= max(length, 1)
    if not columns:
        return ops.new_zeros(flat, (size, 0))
    return ops.where((found < 0).unsqueeze(1), fill_value, ops.stack(columns, 1))


op(
    "nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor",
    composite=_nonzero_static,
    out=True,
    out_dtype="exact",
    ref=references.nonzero_static,
    doc="Return the coordinates of the first `size` elements that are not 0, row by row.\n\n"
    "Shape: (size, dims); rows beyond the number of such elements hold `fill_value`, so the shape "
    "does not depend on the elements.\n\nRaises: RuntimeError for a negative size.\n\n"
    ">>> import pullback\n"
    ">>> pullback.nonzero_static(pullback.tensor([0, 5, 7]), size=3)\n"
    "tensor([[ 1],\n        [ 2],\n        [-1]])",
    samples=lambda: [
        case(T(3, 4, low=-1, high=1, step=1), size=4),
        case(T(2, 2, low=1, high=2), size=5, fill_value=7),
        case(T(0, 2), size=2),
        case(T(), size=2),
        case(T(3), size=0),
    ],
)


# -- x[...] with index tensors ---------------------------------------------------------------------


def _expand_masks(self, indices):
    """Replace bool masks by their coordinates; returns one index or None per dim."""
    found: list[Any] = []
    for position, index in enumerate(indices):
        if index is None:
            found.append(None)
        elif index.dtype.name in ("bool", "uint8"):
            for mine, size in zip(self.shape[len(found) :], index.shape):
                if mine != size:
                    raise IndexError(
                        f"The shape of the mask {list(index.shape)} at index {position} "
                        f"does not match the shape of the indexed tensor "
                        f"{list(self.shape)} at index {len(found)}"
                    )
            found.extend(ops._nonzero(index).unbind(1) if index.ndim else [])
        else:
            found.append(as_index(index))
    if len(found) > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim} (got {len(found)})")
    return found + [None] * (self.ndim - len(found))


def _broadcast_indices(indices):
    shape = ()
    for index in indices:
        try:
            shape = broadcast_shape(shape, index.shape)
        except RuntimeError:
            shapes = ", ".join(str(list(i.shape)) for i in indices)
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together "
                f"with shapes {shapes}"
            ) from None
    return shape, [index.expand(shape) for index in indices]


def _indexed_dims(self, indices):
    """Return (dims that are indexed, the broadcast indices, their shape, where they go)."""
    indices = _expand_masks(self, indices)
    dims = [d for d, index in enumerate(indices) if index is not None]
    shape, used = _broadcast_indices([indices[d] for d in dims])
    first = dims[0] if dims else 0
    together = dims == list(range(first, first + len(dims)))
    return dims, used, shape, first if together else 0


def _front(self, dims):
    """Return self with the indexed dims first, and the order that undoes it."""
    rest = [d for d in range(self.ndim) if d not in dims]
    return self.permute(tuple(dims + rest))


def _check_nonempty(moved, count, shape):
    """Raise IndexError for indices into dims of which one has no element."""
    if 0 in moved.shape[:count] and 0 not in shape:
        raise IndexError("index is out of bounds for dimension with size 0")


def _index(self, indices):
    dims, used, shape, at = _indexed_dims(self, indices)
    if not dims:
        return self.clone()
    moved = _front(self, dims)
    _check_nonempty(moved, len(dims), shape)
    rest = tuple(moved.shape[len(dims) :])
    out = new_empty(self, shape + rest)
    if out.numel():
        run_primitive("index", (out,), (moved, *used))
    return _move_dims_back(out, len(shape), at)


def _move_dims_back(out, count, at):
    """Move the `count` leading dims that indexing made to where they belong."""
    if at == 0 or count == 0:
        return out
    order = list(range(count, count + at)) + list(range(count)) + list(range(count + at, out.ndim))
    return ops.contiguous(out.permute(tuple(order)))


op(
    "index(self: Tensor, indices: any) -> Tensor",
    jvp="linear",
    forward=_index,
    compiled="index",
    kernel="index",
    method=False,
    function=False,
    vjp={"self": lambda g, self_like, indices: ops.index_backward(g, self_like.shape, indices)},
    doc="Return the elements at index tensors, one per dim or None; as self[indices].",
    samples=lambda: [
        case(T(4, 3), KEY),
        case(T(4, 3), (None, at(2, high=3))),
        case(T(4, 3), (at(2, high=4), at(2, high=3))),
        case(T(4, 3, 2), (at(2, 1, high=4), None, at(3, high=2))),
        case(T(4, 3), (mask(4),), skip=COUNTED),
        case(T(2, 4, 3), (None, at(2, 2, high=4), at(2, high=3))),
        case(T(4), (at(0, high=4),)),
        case(T(3), (fixed((-1, 0), kind="int64"),)),
    ],
    ref=references.index,
)


def _index_backward(self, size, indices):
    zeros = ops.new_zeros(self, size)
    write_at(as_vector(zeros), indices, self, True)
    return zeros


def _index_backward_vjp(g, self_shape, indices):
    return ops.index(g, indices) if g.ndim else ops.index(g.reshape(1), indices).reshape(self_shape)


op(
    "index_backward(self: Tensor, size: int[], indices: any) -> Tensor",
    jvp="linear",
    method=False,
    function=False,
    vjp={"self": _index_backward_vjp},
    forward=_index_backward,
    compiled="index_backward",
    kernel="index_put",
    node="IndexPutBackward0",
    doc="Return zeros with self added at index tensors.",
    samples=lambda: [
        case(T(5, 3), (4, 3), KEY),
        case(T(2, 2), (2, 3), (None, at(2, high=3))),
        case(T(2), (4, 3), (at(2, high=4), at(2, high=3))),
        case(T(0), (4,), (at(0, high=4),)),
    ],
    ref=lambda np, self, size, indices: references.index_put(
        np, np.zeros(size, self.dtype), indices, self, True
    ),
)


def write_at(target, indices, values, accumulate):
    dims, used, shape, at = _indexed_dims(target, indices)
    moved = _front(target, dims)
    count = len(dims)
    _check_nonempty(moved, count, shape)
    full = shape + tuple(moved.shape[count:])
    if at and shape:
        order = (
            list(range(at, at + len(shape)))
            + list(range(at))
            + list(range(at + len(shape), len(full)))
        )
        placed = list(full[len(shape) :])
        placed[at:at] = shape
        values = _fit(values, tuple(placed)).permute(tuple(order))
    else:
        values = _fit(values, full)
    if not values.numel():
        return target
    if not dims:
        ops.copy_(target, target + values if accumulate else values)
        return target
    values, *used = (kept_apart(target, part) for part in (values, *used))
    run_primitive("index_put", (moved,), (values, *used), int(bool(accumulate)))
    return target


def _fit(values, shape):
    extra = values.ndim - len(shape)
    if extra > 0 and all(size == 1 for size in values.shape[:extra]):
        values = values.reshape(tuple(values.shape[extra:]))
    try:
        return values.expand(shape)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be "
            f"broadcast to indexing result of shape {list(shape)}"
        ) from None


def _check_indices(indices):
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put_(): argument 'indices' (position 1) must be tuple of Tensors, "
            f"not {type(indices).__name__}"
        )
    for position, index in enumerate(indices):
        if index is not None and not hasattr(index, "data_ptr"):
            raise TypeError(
                f"expected Tensor as element {position} in argument 0, but got "
                f"{type(index).__name__}"
            )
    if not indices:
        raise RuntimeError("index_put_(): expected at least one index tensor")


def _index_put_forward(self, indices, values, accumulate):
    _check_indices(indices)
    if values.dtype != self.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got "
            f"{self.dtype} for the destination and {values.dtype} for the source."
        )
    return write_at(self, tuple(indices), values, accumulate)


def _index_put_self_vjp(g, indices, accumulate):
    if accumulate:
        return g
    return ops.index_put(g, indices, ops.new_zeros(g, ()), False)


op(
    "index_put_(self: Tensor, indices: any, values: Tensor, accumulate: bool = False) -> Tensor",
    forward=_index_put_forward,
    kernel="index_put",
    inplace="only",
    node="IndexPutBackward0",
    jvp="linear",
    vjp={"self": _index_put_self_vjp, "values": lambda g, indices: ops.index(g, indices)},
    doc="Write values (or add them) at index tensors; returns self.",
    overwrites=True,
    samples=WRITES,
    ref=references.index_put,
)


def _index_put(self, indices, values, accumulate):
    _check_indices(indices)
    return ops.index_put_(writable(self, values, *indices), indices, values, accumulate)


op(
    "index_put(self: Tensor, indices: any, values: Tensor, accumulate: bool = False) -> Tensor",
    autocast=(None, "promote"),
    composite=_index_put,
    kernel="index_put",
    doc="Return a copy with values written (or added) at index tensors.",
    overwrites=True,
    samples=WRITES,
    ref=references.index_put,
)


# -- self[key] and self[key] = value ---------------------------------------------------------------


def _is_many(key):
    """Return whether a list stands for the tuple of its items, as it once did in NumPy."""
    return (
        isinstance(key, list)
        and len(key) < 32
        and any(
            item is None
            or item is Ellipsis
            or isinstance(item, (slice, list, tuple, range))
            or hasattr(item, "shape")
            for item in key
        )
    )


def normalize_key(self, key):
    """Return a key as a tuple of ints, slices, None, ..., bools and index tensors."""
    import pullback

    if _is_many(key):
        warnings.warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
            "x[tuple(seq)] instead of x[seq], or x[tensor(seq)]",
            UserWarning,
            stacklevel=2,
        )
        key = tuple(key)
    if not isinstance(key, tuple):
        key = (key,)
    found = []
    for item in key:
        if isinstance(item, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(item).__name__}'")
        if isinstance(item, (list, range, tuple)) or type(item).__module__ == "numpy":
            if getattr(item, "shape", None) == () and hasattr(item, "item"):
                item = item.item()
            else:
                item = pullback.as_tensor(list(item) if isinstance(item, (range, tuple)) else item)
                if item.numel() == 0 and item.dtype.is_floating_point:
                    item = item.to(pullback.int64)
        if isinstance(item, pullback.Tensor):
            if item.dtype.name == "uint8":
                item = item != 0  # a mask, as bools are
            if item.device != self.device and item.device.type != "meta":
                item = item.to(self.device)
            if item.ndim == 0 and item.dtype.name != "bool":
                if item.dtype.is_floating_point or item.dtype.is_complex:
                    raise IndexError(
                        "tensors used as indices must be long, int, byte or bool tensors"
                    )
                if not is_batched(item):  # whose elements index each their own
                    item = int(item.item())
        found.append(item)
    return tuple(found)


def _index_tuple(self, advanced):
    """Turn {dim: index} into one index or None per dim."""
    import pullback

    indices: list[Any] = []
    at = 0
    for dim in sorted(advanced):
        while at < dim:
            indices.append(None)
            at += 1
        item = advanced[dim]
        if isinstance(item, bool):
            item = pullback.tensor([0] if item else [], dtype=pullback.int64, device=self.device)
        elif item.ndim == 0 and item.dtype.name == "bool":
            item = pullback.tensor(
                [0] if item.item() else [], dtype=pullback.int64, device=self.device
            )
        indices.append(item)
        at += max(item.ndim, 1) if item.dtype.name == "bool" else 1
    return tuple(indices)


def advanced_getitem(self, advanced):
    """Return self at index tensors; ``advanced`` maps dims to them."""
    return ops.index(self, _index_tuple(self, advanced))


def advanced_setitem(self, advanced, value):
    """Write a value to self at index tensors; ``advanced`` maps dims to them."""
    import pullback

    indices = _index_tuple(self, advanced)
    if not isinstance(value, pullback.Tensor):
        value = new_filled(self, (), value)
    elif value.ndim == 0 and value.device != self.device:
        value = value.to(self.device)
    if value.numel() == 1 and all(index is None or index.dtype.name == "bool" for index in indices):
        from pullback._c.dispatch.operands import may_overlap

        # torch fills masks: that casts, and reads the number first
        value = value.to(self.dtype, copy=may_overlap(self, value))
        if compiled("ops.create", "in_capture")() and not value.requires_grad:
            masks = [(dim, one) for dim, one in enumerate(indices) if one is not None]
            if len(masks) == 1:  # as a fill it does not depend on how many elements there are
                dim, mask = masks[0]
                after = self.ndim - dim - mask.ndim
                ops.masked_fill_(self, mask.reshape(*mask.shape, *(1,) * after), value.reshape(()))
                return
    ops.index_put_(self, indices, value)
