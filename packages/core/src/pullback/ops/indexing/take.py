"""Elements chosen by their positions in the flat tensor."""

from typing import Any

from pullback.ops.indexing.index import write_at
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import check_long_index, type_name
from pullback.ops.rules.operands import all_hold, as_vector, kept_apart
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import EACH_WRITTEN, Fixed, kink
from pullback.ops.table.primitives_api import writable
from pullback.ops.table.samples import T, at, case, fixed, references_of
from pullback.ops.table.schema import op, ops

references = references_of("indexing")


def _check_flat(name, index, numel):
    check_long_index(name, index)
    wrong = (index < -numel) | (index >= numel)
    if not all_hold(~wrong, IndexError):
        first = int(ops.index(index.reshape(-1), (wrong.reshape(-1),))[0].item())
        raise IndexError(
            f"out of range: tried to access index {first} on a tensor of {numel} elements."
        )


def _take(self, index):
    if not self.numel() and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    try:
        if index.dtype.name == "int64":
            return ops.index(self.reshape(-1), (index,))
    except IndexError:
        _check_flat("take", index, self.numel())  # torch has another message here
        raise  # of an earlier op, which a device reports late
    _check_flat("take", index, self.numel())
    return ops.index(self.reshape(-1), (index,))


def _take_vjp(g, self_like, index):
    return ops.index_backward(g, (product(self_like.shape),), (index,)).reshape(self_like.shape)


op(
    "take(self: Tensor, index: Tensor) -> Tensor",
    forward=_take,
    out=True,
    out_dtype="exact",
    ref=references.take,
    vjp={"self": lambda g, self_like, index: _take_vjp(g, self_like, index)},
    doc="Return the elements at positions of the flattened tensor; negative ones count from the "
    "end.\n\nShape: index's.\n\nRaises: IndexError out of range.",
    samples=lambda: [
        case(T(2, 3), at(4, high=6, low=-6)),
        case(T(2, 3), at(2, 2, high=6)),
        case(T(), at(2, high=1)),
        case(T(0), at(0, high=1)),
        case(T(3), at(high=3)),
    ],
)


def _put(self, index, source, accumulate):
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got "
            f"self.dtype = {type_name(self.dtype)} and source.dtype = "
            f"{type_name(source.dtype)}"
        )
    if index.dtype.name == "int64" and index.numel() != source.numel():
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, "
            f"but got source.numel() = {source.numel()}, index.numel() = "
            f"{index.numel()}"
        )
    _check_flat("put_", index, self.numel())
    if not index.numel():
        return self
    coordinates: list[Any] = []
    rest = index.reshape(-1) % self.numel()
    for size in reversed(as_vector(self).shape):  # views of self need not be flat
        coordinates.insert(0, rest % size)
        rest = ops.floor_divide(rest, size)
    source = kept_apart(self, source).reshape(-1)
    write_at(as_vector(self), tuple(coordinates), source, accumulate)
    return self


_PUTS = [
    case(T(2, 3), fixed((0, -1, 4), kind="int64"), T(3)),
    case(T(2, 3), at(5, high=6), T(5), True),
    case(T(), at(1, high=1), T(1)),
    case(T(3), at(0, high=3), T(0)),
    case(T(4), fixed((1, 3), kind="int64"), T(2, 1), False),
]
op(
    "put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor",
    forward=_put,
    inplace="only",
    function=False,
    node="PutBackward0",
    ref=references.put,
    jvp="linear",
    vjp={
        "self": lambda g, index, accumulate: (
            g if accumulate else ops.put(g, index, ops.new_zeros(g, tuple(index.shape)))
        ),
        "source": lambda g, index, source_shape: ops.take(g, index).reshape(source_shape),
    },
    doc="Write source (or add it) at positions of the flattened tensor; returns self.",
    overwrites=True,
    samples=_PUTS,
)
op(
    "put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor",
    composite=lambda self, index, source, accumulate: ops.put_(
        writable(self, index, source), index, source, accumulate
    ),
    ref=references.put,
    kinks=[
        kink(
            [5.0],
            Fixed([0, 0]),
            [1.0, 2.0],
            to=([0.0], [1.0, 1.0]),
            tangents=([0.0], [0.0, 1.0]),
            outside=EACH_WRITTEN,
        )
    ],
    overwrites=True,
    samples=_PUTS,
    doc="Return a copy with source written (or added) at positions of the flattened "
    "tensor.\n\nRaises: IndexError out of range.",
)


def _take_along_dim(self, indices, dim):
    if indices.dtype.name != "int64":
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got "
            f"{type_name(indices.dtype)}"
        )
    if dim is None:
        self, indices, dim = self.reshape(-1), indices.reshape(-1), 0
    if self.ndim != indices.ndim:
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number "
            f"of dimensions, but got {self.ndim} dimensions for input, and "
            f"{indices.ndim} dimensions for indices"
        )
    dim = wrap_dim(dim, self.ndim, "take_along_dim")
    if self.ndim:
        from pullback.ops.rules.shapes import broadcast_shape

        mine, other = list(self.shape), list(indices.shape)
        mine[dim] = other[dim] = 1
        shape = list(broadcast_shape(mine, other))
        shape[dim], mine[dim] = self.shape[dim], indices.shape[dim]
        wide = [indices.shape[d] if d == dim else size for d, size in enumerate(shape)]
        self, indices = self.expand(tuple(shape)), indices.expand(tuple(wide))
        indices = indices % max(self.shape[dim], 1)
    return ops.gather(self, dim, indices)


op(
    "take_along_dim(self: Tensor, indices: Tensor, dim: int? = None) -> Tensor",
    out=True,
    composite=_take_along_dim,
    out_dtype="exact",
    ref=references.take_along_dim,
    doc="Return the elements at indices along a dim, to which the other dims are broadcast.\n\n"
    "Without a dim, of the flattened tensors. Indices out of range wrap around.",
    samples=lambda: [
        case(T(4, 3), at(2, 3, high=4), 0),
        case(T(4, 3), at(4, 1, high=3), 1),
        case(T(4, 3), at(1, 2, high=3), -1),
        case(T(2, 3), at(4, high=6)),
        case(T(1, 3), at(2, 5, high=3), 1),
        case(T(4, 3), at(0, 3, high=4), 0),
    ],
)
