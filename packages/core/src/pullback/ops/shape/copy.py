"""Copies: within memory, to another dtype, another device, pinned memory."""

from pullback.ops.table.primitives_api import compiled
from pullback.ops.table.samples import (
    KINKS,
    ROUNDED,
    SHARED,
    Dtype,
    T,
    at,
    case,
    real,
)
from pullback.ops.table.schema import ALL, COMPLEX, op, ops


def _raw(name):
    return lambda *args: compiled("ops.create", name)(*args)


_to_device, join_raw = _raw("to_device"), _raw("join_raw")


op(
    "clone(self: Tensor, *, memory_format: memory_format? = None) -> Tensor",
    forward="clone",
    kernel="copy",
    vjp={"self": lambda g: g},
    batch="unary",
    ref="numpy.copy",
    doc="Return a copy, part of the graph.",
    jvp="pointwise",
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0))],
)
op(
    "same_memory(self: Tensor) -> Tensor",
    forward="detach",
    vjp={"self": lambda g: g},
    jvp="linear",
    batch="unary",
    method=False,
    function=False,
    ref="numpy.copy",
    doc="Return a tensor with the same memory that is not a view; under no_grad without history.",
    samples=lambda: [case(T(*shape), skip=SHARED) for shape in ((2, 3), (), (0,))],
)
op(
    "clone_beside(self: Tensor, other: Tensor) -> Tensor",
    forward=lambda self, other: ops.clone(self),
    vjp={"self": lambda g: g},
    jvp="linear",
    batch="clone_beside",
    method=False,
    function=False,
    ref=lambda np, self, other: self,
    doc="Return a copy, under vmap a batched one where other is: other can be written into it.",
    devices="any",
    samples=lambda: [case(T(2, 3), T(3)), case(T(), T(2))],
)
op(
    "contiguous(self: Tensor, memory_format: memory_format? = None) -> Tensor",
    composite="contiguous",
    function=False,
    doc="Return the tensor itself if it is contiguous, else a contiguous copy.",
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0))],
    ref="numpy.copy",
)
op(
    "copy_(self: Tensor, src: Operand, non_blocking: bool = False) -> Tensor",
    forward="copy",
    kernel="copy",
    inplace="only",
    function=False,
    vjp={"self": lambda g: ops.zeros_like(g), "src": lambda g: g},
    node="CopyBackwards",
    doc="Copy the elements of src here, cast and broadcast; returns self.",
    devices="any",
    jvp="pointwise",
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3)),
        case(T(), T()),
        case(T(0, 3), T(3)),
        case(T(2, 3), T()),
        case(T(3), real(3)),
        case(T(3), at(3, high=5)),
    ],
    ref=lambda np, self, src: np.broadcast_to(src, self.shape),
)
op(
    "cast(self: Tensor, dtype: dtype) -> Tensor",
    forward="cast",
    kernel="copy",
    vjp={"self": lambda g: g},
    batch="unary",
    method=False,
    function=False,
    node="ToCopyBackward0",
    doc="Return a copy in another dtype.",
    jvp="pointwise",
    samples=lambda: [
        case(T(2, 3), Dtype("float64"), only=ALL & ~COMPLEX),
        case(T(), Dtype("complex128")),
        case(T(2, 3), Dtype("int64"), only=ALL & ~COMPLEX, skip=KINKS),
        case(T(3), Dtype("bool"), skip=KINKS),
        case(T(2, 3), Dtype("float32"), only=ALL & ~COMPLEX, skip=ROUNDED),
    ],
    ref=lambda np, self, *target, **options: self,
)
op(
    "move(self: Tensor, device: device, non_blocking: bool = False) -> Tensor",
    jvp="linear",
    batch="unary",
    method=False,
    function=False,
    node="ToCopyBackward0",
    forward=lambda self, device, non_blocking: _to_device(self, device, non_blocking),
    vjp={"self": lambda g, self_like: g.to(self_like.device)},
    doc="Return a copy on another device; one that is not waited for goes from pinned memory.",
    samples="it needs two devices; the tests of devices cover it",
)
op(
    "pin(self: Tensor, device: device? = None) -> Tensor",
    jvp="linear",
    method=False,
    function=False,
    node="PinMemoryBackward0",
    forward=lambda self, device: compiled("interop.pinned_tensors", "pinned_copy")(self, device),
    vjp={"self": lambda g: g},
    doc="Return a copy in pinned memory.",
    samples="it needs a device with pinned memory; the tests of streams cover it",
)
op(
    "pin_memory(self: Tensor, device: device? = None) -> Tensor",
    function=False,
    composite=lambda self, device: (
        self
        if compiled("interop.pinned_tensors", "is_pinned")(self, device)
        else ops.pin(self, device)
    ),
    doc="Return a copy in host memory that a device reaches by itself; or itself if it is there.",
    samples="it needs a device with pinned memory; the tests of streams cover it",
)


op(
    "to(self: Tensor, target: any = None, other: any = None, non_blocking: bool = False, "
    "copy: bool = False, *, dtype: dtype? = None, device: device? = None, "
    "memory_format: memory_format? = None) -> Tensor",
    function=False,
    composite="to",
    doc="Return the tensor in another dtype or on another device; itself if nothing changes.",
    devices="any",
    samples=lambda: [
        case(T(2, 3), Dtype("float64"), only=ALL & ~COMPLEX),
        case(T(), dtype=Dtype("complex128")),
        case(T(2, 3)),
        case(T(2, 3), T(1)),
        case(T(3), copy=True),
        case(T(2, 3), Dtype("float32"), only=ALL & ~COMPLEX, skip=ROUNDED),
    ],
    ref=lambda np, self, *target, **options: self,
)
