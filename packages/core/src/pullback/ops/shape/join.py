"""Joins of several tensors."""

from pullback.ops.rules.dims import check_dim
from pullback.ops.shape.copy import join_raw
from pullback.ops.table.samples import (
    T,
    case,
    real,
    references_of,
)
from pullback.ops.table.schema import op, ops

references = references_of("shape")


def _common(tensors):
    """Return tensors in the dtype that they promote to."""
    import pullback

    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = pullback.promote_types(dtype, tensor.dtype)
    return [t if t.dtype == dtype else ops.cast(t, dtype) for t in tensors]


def _cat_forward(tensors, dim):
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    joined = join_raw(list(tensors), dim, False)
    if joined is not None:
        return joined
    tensors = _common(tensors)  # empty ones have a say in the dtype
    some = [t for t in tensors if tuple(t.shape) != (0,)]
    if not some:
        return join_raw(tensors[:1], 0, False)
    tensors, shape = some, list(some[0].shape)
    if not shape:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = check_dim(dim, len(shape))
    for number, tensor in enumerate(tensors[1:], 1):
        if tensor.ndim != len(shape):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(shape)} and {tensor.ndim}"
            )
        for d, (have, want) in enumerate(zip(tensor.shape, shape)):
            if d != dim and have != want:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. "
                    f"Expected size {want} but got size {have} for tensor number "
                    f"{number} in the list."
                )
    return join_raw(tensors, dim, False)


def _cat_vjp(g, sizes, dim):
    parts, start = [], 0
    for size in sizes:
        if size is None:  # torch's legacy: an empty 1-d tensor fits anywhere
            parts.append(ops.new_zeros(g, (0,)))
            continue
        parts.append(g.narrow(dim, start, size))
        start += size
    return parts


op(
    "cat(tensors: Tensor[], dim: int = 0) -> Tensor",
    autocast=("promote", None),
    jvp="linear",
    forward=_cat_forward,
    compiled="cat",
    batch="along",
    method=False,
    out=True,
    vjp={"tensors": _cat_vjp},
    aliases=("concat", "concatenate"),
    save={
        "sizes": lambda tensors, dim: [
            None if t.ndim == 1 and not t.numel() else t.size(dim) for t in tensors
        ]
    },
    doc="Return tensors joined along a dim.",
    samples=lambda: [
        case([T(2, 3), T(1, 3)]),
        case([T(2, 3), T(2, 2)], -1),
        case([T(3)], 0),
        case((T(0), T(2, 3)), 1),
        case([T(2, 0), T(2, 3)], 1),
        case([T(2), real(2)]),
    ],
    ref=references.cat,
)


def _stack(tensors, dim):
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    joined = join_raw(list(tensors), dim, True)
    if joined is not None:
        return joined
    shape = tensors[0].shape
    for number, tensor in enumerate(tensors):
        if tensor.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} "
                f"at entry 0 and {list(tensor.shape)} at entry {number}"
            )
    check_dim(dim, len(shape) + 1)
    return join_raw(_common(tensors), dim, True)


op(
    "stack(tensors: Tensor[], dim: int = 0) -> Tensor",
    autocast=("promote", None),
    jvp="linear",
    forward=_stack,
    compiled="stack",
    batch="along new_dim",
    method=False,
    out=True,
    vjp={"tensors": lambda g, dim: list(g.unbind(dim))},
    ref="numpy.stack",
    doc="Return tensors of one shape joined along a new dim.",
    samples=lambda: [
        case([T(2, 3), T(2, 3)]),
        case([T(2, 3), T(2, 3)], 1),
        case((T(), T(), T()), -1),
        case([T(0)], 0),
    ],
)


def listed(name, tensors):
    """Return tensors that were given as one sequence or one by one."""
    found = tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)
    for position, tensor in enumerate(found):
        if not hasattr(tensor, "requires_grad"):
            raise TypeError(
                f"{name}(): expected Tensor as element {position} in argument 0, but "
                f"got {type(tensor).__name__}"
            )
    return found


# -- at least so many dims -------------------------------------------------------------------------


def _raised_1d(tensor):
    return tensor if tensor.ndim else tensor.reshape(1)


def _raised_2d(tensor):
    if not tensor.ndim:
        return tensor.reshape(1, 1)
    return tensor.unsqueeze(0) if tensor.ndim == 1 else tensor


def _raised_3d(tensor):
    if not tensor.ndim:
        return tensor.reshape(1, 1, 1)
    if tensor.ndim == 1:
        return tensor.unsqueeze(0).unsqueeze(-1)
    return tensor.unsqueeze(-1) if tensor.ndim == 2 else tensor


def _at_least(name, raised):
    def composite(tensors):
        if hasattr(tensors, "requires_grad"):
            return raised(tensors)
        return tuple([raised(tensor) for tensor in listed(name, tensors)])

    return composite


for _count, _raised in ((1, _raised_1d), (2, _raised_2d), (3, _raised_3d)):
    _name = f"atleast_{_count}d"
    op(
        f"{_name}(tensors: any = ()) -> any",
        composite=_at_least(_name, _raised),
        devices="any",
        method=False,
        varargs=True,
        doc=f"Return a view of {_count} dims of each tensor that has fewer.\n\n"
        "One tensor gives one view, several of them or a sequence give a tuple.",
        samples=[
            *(case(T(*shape)) for shape in ((), (2,), (2, 3), (2, 3, 2), (0,))),
            case(T(), T(2)),
            case([T(2, 3), T()]),
        ],
        ref=references.at_least.of(_name),
    )


# -- joins -----------------------------------------------------------------------------------------


def _join(name, prepare, dim_of):
    def composite(tensors):
        if not tensors:
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        tensors = [prepare(tensor) for tensor in tensors]
        return ops.cat(tensors, dim_of(tensors[0]))

    return composite


def _column(tensor):
    return tensor if tensor.ndim > 1 else tensor.reshape(tensor.numel(), 1)


op(
    "hstack(tensors: Tensor[]) -> Tensor",
    method=False,
    out=True,
    ref="numpy.hstack",
    composite=_join("hstack", _raised_1d, lambda first: 0 if first.ndim == 1 else 1),
    doc="Return tensors joined along the second dim, vectors and numbers along the first.",
    samples=lambda: [
        case([T(2), T(3)]),
        case([T(2, 3), T(2, 1)]),
        case((T(), T())),
        case([T(0), T(2)]),
        case([T(2), real(2)]),
    ],
)
op(
    "vstack(tensors: Tensor[]) -> Tensor",
    method=False,
    out=True,
    ref="numpy.vstack",
    composite=_join("vstack", _raised_2d, lambda first: 0),
    aliases=("row_stack",),
    doc="Return tensors joined along the first dim; vectors and numbers are rows.",
    samples=lambda: [
        case([T(3), T(3)]),
        case([T(2, 3), T(3)]),
        case((T(), T())),
        case([T(0, 3), T(2, 3)]),
        case([T(2), real(2)]),
    ],
)
op(
    "dstack(tensors: Tensor[]) -> Tensor",
    method=False,
    out=True,
    ref="numpy.dstack",
    composite=_join("dstack", _raised_3d, lambda first: 2),
    doc="Return tensors joined along the third dim, which they get if they have fewer.",
    samples=lambda: [
        case([T(3), T(3)]),
        case([T(2, 3), T(2, 3)]),
        case((T(), T())),
        case([T(2, 3, 1), T(2, 3, 2)]),
        case([T(2), real(2)]),
    ],
)
op(
    "column_stack(tensors: Tensor[]) -> Tensor",
    method=False,
    out=True,
    ref="numpy.column_stack",
    composite=_join("column_stack", _column, lambda first: 1),
    doc="Return tensors joined along the second dim; vectors and numbers are columns.",
    samples=lambda: [
        case([T(3), T(3)]),
        case([T(2, 3), T(2)]),
        case((T(), T())),
        case([T(2, 0), T(2)]),
        case([T(2), real(2)]),
    ],
)


def _block_diag(tensors):
    tensors = listed("block_diag", tensors)
    for position, tensor in enumerate(tensors):
        if tensor.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {position} has {tensor.ndim} dimensions"
            )
    if not tensors:
        return ops.zeros((1, 0))
    blocks = [_raised_2d(tensor) for tensor in tensors]
    width, start, rows = sum(block.shape[1] for block in blocks), 0, []
    for block in blocks:
        height, own = block.shape
        after = width - start - own
        rows.append(
            ops.cat(
                [
                    ops.new_zeros(block, (height, start)),
                    block,
                    ops.new_zeros(block, (height, after)),
                ],
                1,
            )
        )
        start += own
    return ops.cat(rows, 0)


op(
    "block_diag(tensors: any = ()) -> Tensor",
    composite=_block_diag,
    method=False,
    varargs=True,
    doc="Return a matrix with the given ones on its diagonal; the rest is 0.\n\nNumbers count as "
    "matrices of one element, vectors as rows.\nRaises: RuntimeError above 2 dims.",
    samples=lambda: [
        case(T(2, 3), T(2), T()),
        case(T(2, 2)),
        case(T(2, 0), T(1, 2)),
        case(T(0), T(2)),
        case(T(1), real(2, 2)),
    ],
    ref=references.block_diag,
)
