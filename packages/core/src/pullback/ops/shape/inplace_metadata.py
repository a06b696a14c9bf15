"""Changes of shape or memory in place: resize_, set_. In-place views are in views.py."""

from pullback.ops.rules.dtypes import type_name
from pullback.ops.rules.elementwise_util import no_derivative
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import MEMORY, UNFILLED, T, case
from pullback.ops.table.schema import op, ops

# -- another shape ---------------------------------------------------------------------------------


def _resize(self, size, memory_format):
    from pullback._c.ops.clone import format_strides
    from pullback._c.ops.inplace_metadata import resize

    return resize(
        self, size, None if memory_format is None else format_strides(size, memory_format)
    )


_PLAIN = {
    **dict.fromkeys(
        ("grad", "gradgrad", "compiled", "in_graph"), "it refuses tensors that require grad"
    ),
    "batch_of_numbers": "what a larger tensor gets more is not initialised",
}
_MOVED = {**_PLAIN, **MEMORY}
_KEPT = "what a larger tensor gets more is not initialised. Tensors that share its memory keep it"
op(
    "resize_(self: Tensor, size: int[], *, memory_format: memory_format? = None) -> Tensor",
    composite=_resize,
    inplace="only",
    varargs=True,
    function=False,
    doc=f"Change the shape in place: the first elements in memory stay, and {_KEPT}.\n\n"
    "Raises: RuntimeError for tensors that require grad, and for memory that is not ours.",
    samples=lambda: [
        case(T(2, 3), (3, 2), skip=_MOVED),
        case(T(2, 3), 4, skip=_MOVED),
        case(T(3), 1, 2, skip=_PLAIN),
        case(T(2, 3), 3, 4, skip=_MOVED | UNFILLED),
        case(T(), (1, 1), skip=_PLAIN),
        case(T(2), (0, 3), skip=_PLAIN),
        case(T(2, 3), (2, 3), skip=_PLAIN),
    ],
    ref=lambda np, self, *size: self.ravel()[
        : np.prod(size[-1], dtype=int) if isinstance(size[-1], tuple) else np.prod(size)
    ].reshape(size[-1] if isinstance(size[-1], tuple) else size),
)


def _resize_as(self, other, memory_format):
    from pullback._c.ops.clone import contiguous_format, preserve_format

    if memory_format is preserve_format:  # the order that the other has
        found = [order for order in _formats() if other.is_contiguous(memory_format=order)]
        memory_format = found[0] if found else contiguous_format
    return _resize(self, tuple(other.shape), memory_format)


def _formats():
    from pullback._c.ops.clone import channels_last, channels_last_3d

    return channels_last, channels_last_3d


op(
    "resize_as_(self: Tensor, other: Tensor, *, memory_format: memory_format? = None) -> Tensor",
    composite=_resize_as,
    inplace="only",
    doc="Change the shape in place to that of another tensor: see `resize_`.",
    devices="any",
    samples=lambda: [
        case(T(2, 3), T(3, 2), skip=_MOVED),
        case(T(3), T(2), skip=_PLAIN),
        case(T(), T(1), skip=_PLAIN),
    ],
    ref=lambda np, self, other: self.ravel()[: other.size].reshape(other.shape),
)


# -- other memory ----------------------------------------------------------------------------------


def _set(self, source, storage_offset, size, stride):
    if source is None:
        source = new_empty(self, (0,))
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {type_name(source.dtype)} to a tensor of "
            f"type {type_name(self.dtype)}"
        )
    if source.device != self.device:
        raise RuntimeError(f"set_(): expected a tensor on {self.device}, not on {source.device}")
    if size is not None:
        size = (size,) if isinstance(size, int) else tuple(size)
        if stride is None:
            stride = new_empty(self, size).stride()
        source = ops.as_strided(source, size, stride, storage_offset)
    return ops.detach(source)


op(
    "set_(self: Tensor, source: Tensor? = None, storage_offset: int = 0, size: int[]? = None, "
    "stride: int[]? = None) -> Tensor",
    forward=_set,
    view=True,
    inplace="only",
    method=False,  # Tensor.set_ takes storages too, and calls this op for tensors
    function=False,
    node="NotImplemented",
    vjp={name: no_derivative("set_", name) for name in ("self", "source")},
    doc="Give the tensor the memory of another one, or none; returns it.\n\nWith a size, "
    "it is the part of that memory which as_strided would show.\n\n"
    "Raises: RuntimeError for another dtype.",
    samples="it shares memory with its argument on purpose; tests of its own cover it",
)
