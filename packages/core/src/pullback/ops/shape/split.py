"""Splits into parts of a dim: by number of parts, sizes, or indices."""

from pullback.ops.rules.arguments import as_int
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.operands import is_meta
from pullback.ops.shape.views import view_op
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import (
    COUNTED,
    SHARED,
    T,
    case,
    fixed,
    references_of,
)
from pullback.ops.table.schema import op, ops

references = references_of("shape")


def split_parts(gs, self_like, split_size, dim):
    """Return the gradients side by side; a part that nothing used has zeros."""
    whole = self_like.shape[dim]
    sizes = (
        [min(split_size, whole - start) for start in range(0, whole, split_size)]
        if (isinstance(split_size, int) and whole)
        else (0,)
        if not whole
        else split_size
    )
    parts = []
    for part, size in zip(gs, sizes):
        if part is None:
            shape = list(self_like.shape)
            shape[dim] = size
            part = new_filled(self_like, shape)
        parts.append(part)
    return ops.cat(parts, dim)


view_op(
    "split(self: Tensor, split_size: any, dim: int = 0) -> Tensor[]",
    split_parts,
    "Return views of equal parts of a dim (the last may be smaller), or of the given sizes.",
    node=lambda split_size: (
        "SplitBackward0" if isinstance(split_size, int) else "SplitWithSizesBackward0"
    ),
    batch="along",
    samples=lambda: [
        case(T(5), 2),
        case(T(2, 4), 2, 1),
        case(T(5), [2, 0, 3]),
        case(T(0, 2), 1),
        case(T(3), 5),
    ],
    ref=references.split,
)
op(
    "split_with_sizes(self: Tensor, split_sizes: int[], dim: int = 0) -> Tensor[]",
    composite=lambda self, split_sizes, dim: ops.split(self, tuple(split_sizes), dim),
    doc="Return views of consecutive ranges of a dim, as a tuple.",
    samples=lambda: [case(T(5), (2, 3)), case(T(2, 4), (1, 0, 3), -1), case(T(0), (0,))],
    ref=references.split,
)


def chunk_size(self, chunks, dim):
    """Return the argument of split for at most `chunks` parts: their size, or sizes of 0."""
    if self.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.size(dim)
    if size == 0:
        return (0,) * chunks
    return -(-size // chunks)


op(
    "chunk(self: Tensor, chunks: int, dim: int = 0) -> Tensor[]",
    composite=lambda self, chunks, dim: ops.split(self, chunk_size(self, chunks, dim), dim),
    doc="Return views of at most `chunks` parts of a dim.",
    samples=lambda: [case(T(5), 2), case(T(2, 4), 3, 1), case(T(2), 5), case(T(0), 2)],
    ref=references.chunk,
)


# -- splits ----------------------------------------------------------------------------------------


MOST_PARTS = 1 << 20  # beyond those with elements


def _cuts(name, self, sections, indices, dim):
    """Return where the parts of a dim begin and end; a number asks for so many parts."""
    size = self.shape[dim]
    if hasattr(sections, "numel"):
        sections, indices = _read_sections(sections)
    if indices is None and not isinstance(sections, (tuple, list)):
        count = as_int(sections, name, "sections")
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        if count > size + MOST_PARTS:
            raise RuntimeError(
                f"{name}(): {count} sections of {size} elements are more than the "
                f"{MOST_PARTS} empty ones that this may give"
            )
        from pullback._c.ops.views import room_for_views

        room_for_views(count, name)
        cuts = [size // count * part + min(part, size % count) for part in range(1, count)]
    else:
        cuts = [as_int(cut, name, "indices") for cut in (sections if indices is None else indices)]
    return list(zip([0, *cuts], [*cuts, size]))


def _read_sections(tensor):
    if is_meta(tensor):
        raise NotImplementedError(
            "tensor_split(): the parts depend on the elements of a meta tensor"
        )
    if tensor.dtype.name != "int64":
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to have dtype of "
            f"long, but got {tensor.dtype}"
        )
    if tensor.ndim > 1:
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to be a "
            f"zero-dimensional or one-dimensional tensor, but got a tensor with "
            f"{tensor.ndim} dims"
        )
    return (tensor.item(), None) if not tensor.ndim else (None, tensor.tolist())


def _parts(name, self, sections, indices, dim):
    return tuple(
        [
            ops.slice(self, dim, start, end)
            for start, end in _cuts(name, self, sections, indices, dim)
        ]
    )


def _one_of(name, sections, *others):
    given = [value for value in (sections, *others) if value is not None]
    if len(given) != 1:
        raise TypeError(f"{name}(): expected one of 'sections' and 'indices', got {len(given)}")


def _tensor_split(self, sections, dim, indices, tensor_indices_or_sections):
    _one_of("tensor_split", sections, indices, tensor_indices_or_sections)
    if not self.ndim:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    dim = wrap_dim(dim, self.ndim, "tensor_split")
    if sections is None and indices is None:
        sections = tensor_indices_or_sections
    return _parts("tensor_split", self, sections, indices, dim)


op(
    "tensor_split(self: Tensor, sections: any = None, dim: int = 0, *, indices: int[]? = None, "
    "tensor_indices_or_sections: Tensor? = None) -> Tensor[]",
    composite=_tensor_split,
    doc="Return views of a dim cut into a number of parts, or at the given indices.\n\n"
    "The first parts are larger by one if the size cannot be divided.\n"
    "Raises: RuntimeError for 0-d tensors and for no parts.",
    devices="any",
    samples=lambda: [
        case(T(5), 3),
        case(T(2, 5), 2, 1),
        case(T(5), (1, 3)),
        case(T(2, 5), (2,), -1),
        case(T(2), 4),
        case(T(0, 2), 2),
        case(T(5), (-2, 9)),
        case(T(5), (4, 1)),
        case(T(5), indices=(2,)),
        case(T(5), ()),
        case(T(5), fixed((1, 3), kind="int64"), skip=COUNTED),
    ],
    ref=references.tensor_split,
)


def _split_at(name, needed, dim_of):
    def composite(self, sections, indices):
        _one_of(name, sections, indices)
        if self.ndim < needed:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {needed} dimension, "
                f"but got a tensor with {self.ndim} dimensions!"
            )
        dim = dim_of(self)
        if indices is None and not isinstance(sections, (tuple, list)):
            count = as_int(sections, name, "sections")
            if count == 0 or self.shape[dim] % count:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {dim}, but "
                    f"the size of the dimension {self.shape[dim]} is not divisible "
                    f"by the split_size {count}!"
                )
        return _parts(name, self, sections, indices, dim)

    return composite


op(
    "hsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
    composite=_split_at("hsplit", 1, lambda self: 0 if self.ndim == 1 else 1),
    ref="numpy.hsplit",
    doc="Return views of the second dim (of vectors, the first) in equal parts or cut at indices.",
    samples=lambda: [
        case(T(4), 2),
        case(T(2, 4), 2),
        case(T(2, 4), (1, 3)),
        case(T(3), (1,)),
        case(T(0), 2),
        case(T(2, 3, 2), 3),
    ],
)
op(
    "vsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
    composite=_split_at("vsplit", 2, lambda self: 0),
    ref="numpy.vsplit",
    doc="Return views of the first dim in equal parts or cut at indices.",
    samples=lambda: [case(T(4, 2), 2), case(T(3, 2), (1,)), case(T(0, 2), 2), case(T(2, 3, 2), 2)],
)
op(
    "dsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
    composite=_split_at("dsplit", 3, lambda self: 2),
    ref="numpy.dsplit",
    doc="Return views of the third dim in equal parts or cut at indices.",
    samples=lambda: [case(T(1, 2, 4), 2), case(T(2, 1, 3), (1,)), case(T(2, 1, 0), 2)],
)


def _unsafe_split(self, split_size, dim):
    from pullback._c.ops.create import data_alias

    return tuple([data_alias(part) for part in ops.split(self, split_size, dim)])


op(
    "unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> Tensor[]",
    forward=lambda self, split_size, dim: _unsafe_split(
        self, as_int(split_size, "unsafe_split", "split_size"), dim
    ),
    vjp={"self": split_parts},
    batch="along",
    doc="Return parts of a dim that share the memory without being views: writes are not tracked.",
    samples=lambda: [
        case(*call, skip=SHARED) for call in ((T(5), 2), (T(2, 4), 2, 1), (T(0, 2), 1), (T(3), 5))
    ],
    ref=references.split,
)
op(
    "unsafe_split_with_sizes(self: Tensor, split_sizes: int[], dim: int = 0) -> Tensor[]",
    forward=_unsafe_split,
    vjp={
        "self": lambda gs, self_like, split_sizes, dim: split_parts(gs, self_like, split_sizes, dim)
    },
    batch="along",
    doc="Return consecutive ranges of a dim that share the memory without being views.",
    samples=lambda: [
        case(*call, skip=SHARED)
        for call in ((T(5), (2, 3)), (T(2, 4), (1, 0, 3), -1), (T(0), (0,)))
    ],
    ref=references.split,
)


def _unsafe_chunk(self, chunks, dim):
    size = chunk_size(self, chunks, dim)
    split = ops.unsafe_split_with_sizes if isinstance(size, tuple) else ops.unsafe_split
    return split(self, size, dim)


op(
    "unsafe_chunk(self: Tensor, chunks: int, dim: int = 0) -> Tensor[]",
    composite=_unsafe_chunk,
    doc="Return at most `chunks` parts of a dim that share the memory without being views.",
    samples=lambda: [
        case(*call, skip=SHARED) for call in ((T(5), 2), (T(2, 4), 3, 1), (T(2), 5), (T(0), 2))
    ],
    ref=references.chunk,
)
