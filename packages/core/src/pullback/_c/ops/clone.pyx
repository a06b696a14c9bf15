# build: small
"""Copies, memory formats, and ops that copy only where necessary: contiguous, to, reshape."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.dispatch.call cimport op_apply, op_call1
from pullback._c.device.device cimport DEVICE_META, device, device_index, device_parse
from pullback._c.base.dtype cimport dtype_code, dtype_object
from pullback._c.dispatch.operands cimport cast_tensor
from pullback._c.graph.op cimport Op, forward_register, op_named
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse, layout_release, layout_strides_tuple)
from pullback._c.graph.record cimport tensor_edge, tensor_needs_grad
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_WRAPPED, Tensor, is_tensor, tensor_device, tensor_new, tensor_over, tensor_set_node)
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, layout_shape, layout_strides, pb_edge, pb_layout)
from pullback._c.ops.views cimport infer_shape, strides_for

__all__ = ["memory_format"]


# ---- memory formats ------------------------------------------------------------------------------

cdef class memory_format:
    """An order of dims in memory: ``preserve_format``, ``contiguous_format``, ``channels_last``.

    >>> import pullback
    >>> pullback.channels_last
    pullback.channels_last
    """
    cdef readonly str name
    cdef int channels_rank              # number of dims of channels-last tensors; 0: row-major

    def __repr__(self):
        return f"pullback.{self.name}"

    def __reduce__(self):
        return self.name


cdef memory_format make_format(str name, int rank):
    cdef memory_format made = memory_format.__new__(memory_format)
    made.name = name
    made.channels_rank = rank
    return made


cdef memory_format _preserve = make_format("preserve_format", 0)
cdef memory_format _contiguous = make_format("contiguous_format", 0)
preserve_format = _preserve
contiguous_format = _contiguous
channels_last = make_format("channels_last", 4)
channels_last_3d = make_format("channels_last_3d", 5)


cdef memory_format format_of(object value, str op):
    """Read a memory_format argument."""
    if not isinstance(value, memory_format):
        raise TypeError(f"{op}(): argument 'memory_format' must be pullback.memory_format, not "
                        f"{type(value).__name__}")
    return <memory_format>value


cdef pb_layout *format_layout(memory_format order, int ndim, const int64_t *shape) except NULL:
    """Return the dense layout of a shape in a memory format; owned."""
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t stride = 1
    cdef int d
    if order.channels_rank == 0:
        return layout_contiguous(ndim, shape)
    if ndim != order.channels_rank:
        raise RuntimeError(f"required rank {order.channels_rank} tensor to use {order.name} format")
    strides[1] = 1
    stride = shape[1] if shape[1] > 1 else 1
    for d in range(ndim - 1, -1, -1):
        if d != 1:
            strides[d] = stride
            stride *= shape[d] if shape[d] > 1 else 1
    return layout_new(ndim, shape, strides)


def format_strides(shape, order):
    """Return the strides of a shape in a memory format; None for ``preserve_format``."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int ndim = layout_parse(shape, dims, "memory_format", "size")
    cdef pb_layout *layout
    if format_of(order, "empty_like") is _preserve:
        return None
    layout = format_layout(<memory_format>order, ndim, dims)
    try:
        return layout_strides_tuple(layout)
    finally:
        layout_release(layout)


cdef bint in_format(Tensor self, memory_format order) except -1:
    """True if a tensor is dense in a memory format; dims of one element do not count."""
    cdef pb_layout *layout
    cdef int d
    cdef bint same = True
    if order.channels_rank == 0:
        return self.layout.flags & LAYOUT_CONTIGUOUS != 0
    if self.layout.ndim != order.channels_rank:
        return False
    layout = format_layout(order, self.layout.ndim, layout_shape(self.layout))
    for d in range(layout.ndim):
        if layout_shape(layout)[d] != 1 and (
                layout_strides(layout)[d] != layout_strides(self.layout)[d]):
            same = False
    layout_release(layout)
    return same


def is_contiguous(Tensor self not None, memory_format=None):
    """Return True if the tensor is dense and row-major, or in the given memory format."""
    if memory_format is None:
        return self.layout.flags & LAYOUT_CONTIGUOUS != 0
    return bool(in_format(self, format_of(memory_format, "is_contiguous")))


# ---- copies --------------------------------------------------------------------------------------

cdef object forward_clone(Op op, PyObject **args, PyObject *target):
    """A copy: with the order of dims of a dense tensor, or in a memory format."""
    cdef Tensor self = <Tensor>args[0]
    cdef memory_format order
    cdef Tensor out
    if <object>args[1] is None:
        return cast_tensor(self, self.dtype)
    order = format_of(<object>args[1], op.name)
    if order is _preserve:
        return cast_tensor(self, self.dtype)
    out = tensor_new(format_layout(order, self.layout.ndim, layout_shape(self.layout)), self.dtype,
                     self.storage.device_type, self.storage.device_index)
    copy_into(out, self)
    return out


def clone_to_write(Tensor self not None):
    """Return a copy with the tensor's history, which the caller must write in place immediately.

    So the copy and the write together record one node.
    """
    cdef pb_state *state = thread_state()
    cdef bint enabled = state.grad_enabled
    cdef Tensor copy
    cdef pb_edge edge
    if not enabled or self.flags & TENSOR_IS_WRAPPED or not tensor_needs_grad(self):
        return op_call1(op_named("clone"), self)
    state.grad_enabled = 0
    try:
        copy = <Tensor>op_call1(op_named("clone"), self)
    finally:
        state.grad_enabled = enabled
    tensor_edge(self, &edge)
    tensor_set_node(copy, edge.node, edge.nr)
    return copy


cdef object composite_contiguous(Op op, PyObject **args, PyObject *target):
    """The tensor itself if it is in the wanted format, else a copy that is."""
    cdef Tensor self = <Tensor>args[0]
    cdef PyObject *step[2]
    cdef memory_format order = _contiguous
    if <object>args[1] is not None:
        order = format_of(<object>args[1], op.name)
    if in_format(self, order):
        return self
    if order is _preserve:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    step[0] = <PyObject *>self
    step[1] = <PyObject *>order
    return op_apply(op_named("clone"), step)


cdef object composite_depending(Op op, PyObject **args, PyObject *target):
    """(self, other): self, with a dependency on other of derivative 0, if that is recorded."""
    if not thread_state().grad_enabled:
        return <object>args[0]
    nothing = op_named("mul")(op_named("sign")(<object>args[1]), 0)
    return op_named("add")(<object>args[0], nothing)


# ---- other dtypes and devices --------------------------------------------------------------------

cdef object forward_cast(Op op, PyObject **args, PyObject *target):
    """A copy in another dtype."""
    return cast_tensor(<Tensor>args[0], dtype_code(<object>args[1], op.name_bytes))


cdef object moved(Tensor self, object where, object non_blocking):
    """Return the tensor on a device: itself if it is on that device."""
    cdef PyObject *step[3]
    cdef device to
    if where is None:
        return self
    to = device_parse(where)
    if to.type_id == self.storage.device_type and (
            to.type_id == DEVICE_META and to.ordinal < 0
            or device_index(to) == self.storage.device_index):
        return self
    step[0] = <PyObject *>self
    step[1] = <PyObject *>to
    step[2] = <PyObject *>non_blocking
    return op_apply(op_named("move"), step)


cdef object composite_to(Op op, PyObject **args, PyObject *target):
    """(self, target, other, non_blocking, copy, dtype, device, memory_format), as torch reads them.

    `target` and `other` may be a dtype, a device or a tensor that has both; if `other` is a bool it
    is `non_blocking`, and the next argument is `copy`.
    """
    cdef Tensor self = <Tensor>args[0]
    cdef object wanted = <object>args[5], where = <object>args[6], out
    cdef object non_blocking = <object>args[3]
    cdef bint copy = <object>args[4]
    cdef PyObject *step[2]
    for value in (<object>args[1], <object>args[2]):
        if value is None:
            continue
        if is_tensor(value):
            wanted = dtype_object((<Tensor>value).dtype)
            where = tensor_device(<Tensor>value)
        elif isinstance(value, bool):
            copy = copy or non_blocking
            non_blocking = value
        elif isinstance(value, (device, str, int)):
            where = value
        else:
            wanted = value
    out = moved(self, where, non_blocking)
    step[0] = <PyObject *>out
    if wanted is not None and dtype_code(wanted, op.name_bytes) != (<Tensor>out).dtype:
        step[1] = <PyObject *>wanted
        out = op_apply(op_named("cast"), step)
        step[0] = <PyObject *>out
    if <object>args[7] is not None and not in_format(<Tensor>out, format_of(<object>args[7], "to")):
        copy = <object>args[7] is not _preserve or (copy and out is self)
    else:
        copy = copy and out is self
    if not copy:
        return out
    step[1] = args[7]
    return op_apply(op_named("clone"), step)


# ---- reshape -------------------------------------------------------------------------------------

cdef Op VIEW


def install():
    """Look up the op that reshape calls."""
    global VIEW
    VIEW = op_named("view")


cdef object forward_unsafe_view(Op op, PyObject **args, PyObject *target):
    """A new shape over memory that nothing else uses: the result is not a view."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int count = infer_shape(op, self, <object>args[1], shape)
    if not strides_for(self, count, shape, strides):
        raise RuntimeError("_unsafe_view(): size is not compatible with the input's strides")
    return tensor_over(self, storage_retain(self.storage), layout_new(count, shape, strides),
                       self.offset)


cdef object composite_reshape(Op op, PyObject **args, PyObject *target):
    """A view where the strides allow one, else a row-major copy in the new shape."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int count
    cdef PyObject *step[2]
    if self.layout.flags & LAYOUT_CONTIGUOUS:
        return op_apply(VIEW, args)
    count = infer_shape(op, self, <object>args[1], shape)
    step[0] = args[0]
    step[1] = args[1]
    if strides_for(self, count, shape, strides):
        return op_apply(VIEW, step)
    step[1] = <PyObject *>contiguous_format
    copy = op_apply(op_named("clone"), step)
    step[0] = <PyObject *>copy
    step[1] = args[1]
    return op_apply(op_named("_unsafe_view"), step)


forward_register("_unsafe_view", forward_unsafe_view)
forward_register("cast", forward_cast)
forward_register("clone", forward_clone)
forward_register("contiguous", composite_contiguous)
forward_register("depending", composite_depending)
forward_register("reshape", composite_reshape)
forward_register("to", composite_to)
