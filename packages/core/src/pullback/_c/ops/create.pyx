# build: small
"""New tensors: factories, single values, joins, aliases, and copies between devices."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_BACKEND_ASYNC, PB_DEVICE_TO_HOST, PB_F64, PB_HOST_TO_DEVICE, PB_I64, PB_MAX_NDIM,
    PB_MESSAGE_SIZE, PB_NON_BLOCKING, pb_param)
from pullback._c.dispatch.call cimport composite_python, forward_python
from pullback._c.device.device cimport (
    DEVICE_META, device as device_class, device_default_ordinal, device_default_type, device_index,
    device_parse, device_type, has_field, pb_device_type)
from pullback._c.base.dtype cimport (
    CATEGORY_FLOATING, CATEGORY_INTEGRAL, dtype_category, dtype_code, dtype_default,
    dtype_itemsize, dtype_object, dtype_of_scalar, scalar_check_all)
from pullback._c.dispatch.operands cimport cast_tensor, contiguous_copy
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.base.errors cimport keep_error, raise_failure
from pullback._c.base.interrupts cimport copy_polled
from pullback._c.dispatch.launch cimport (
    copy_into, fill_with, launch_operands, param_float, param_int, primitive_id)
from pullback._c.base.layout cimport (
    check_broadcast, layout_contiguous, layout_new, layout_parse, layout_retain,
    layout_same_shape, layout_same_strides, layout_scalar, small_int)
from pullback._c.dispatch.lazy cimport resolved, scalar_of
from pullback._c.device.pinned cimport is_pinned_for
from pullback._c.device.storage cimport storage_alias, storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_LAZY, Tensor, same_device, tensor_alias, tensor_data, tensor_device,
    tensor_new, tensor_over, tensor_wrap)
from pullback._c.base.state cimport captured_read, capturing, globals_, refuse_capture
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, LAYOUT_DENSE, layout_shape, layout_strides, pb_layout)

cdef int ARANGE = primitive_id("arange")
cdef int LINSPACE = primitive_id("linspace")
cdef int64_t LARGE = <int64_t>1 << 60   # sums of numbers below it do not overflow

cdef int device_argument(object where, int *type_id, int *ordinal) except -1:
    """Read a device argument; None is the default device."""
    cdef device_class d
    if where is None:
        type_id[0] = device_default_type()
        ordinal[0] = device_default_ordinal()
        return 0
    d = device_parse(where)
    type_id[0] = d.type_id
    ordinal[0] = device_index(d)
    return 0


def empty_tensor(shape, dtype=None, device=None):
    """Return an uninitialised row-major tensor."""
    return new_tensor(shape, dtype_default() if dtype is None else dtype_code(dtype, "empty"),
                      device)


cdef bint fills_new = False             # as utils.deterministic says


def set_fills_new(bint on):
    """Set whether tensors whose elements nobody gave are filled: see `uninitialized`."""
    global fills_new
    fills_new = on


def uninitialized(Tensor out not None):
    """Return a tensor that its caller gets with any elements; of those known to nobody, if asked.

    NaN, True, or the largest integer shows that an element is read before it is written.
    """
    if fills_new:
        kind = dtype_object(out.dtype).kind
        bits = 8 * dtype_itemsize[out.dtype] - (kind == "i")
        fill_tensor(out, True if kind == "b" else float("nan") if kind in "fc" else (1 << bits) - 1)
    return out


cdef Tensor new_tensor(object shape, int code, object where):
    """As empty_tensor, with the dtype's code."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int type_id, ordinal
    cdef int ndim = layout_parse(shape, dims, "empty", "size")
    device_argument(where, &type_id, &ordinal)
    return tensor_new(layout_contiguous(ndim, dims), code, type_id, ordinal)


def empty_strided_tensor(shape, stride, dtype=None, device=None):
    """Return an uninitialised tensor with these strides."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef int64_t extent = 1
    cdef int type_id, ordinal, code, d
    cdef int ndim = layout_parse(shape, dims, "empty_strided", "size")
    cdef Tensor flat
    cdef pb_layout *layout
    if layout_parse(stride, steps, "empty_strided", "stride") != ndim:
        raise RuntimeError("empty_strided(): dimensionality of sizes must match dimensionality of "
                           "strides")
    code = dtype_default() if dtype is None else dtype_code(dtype, "empty_strided")
    device_argument(device, &type_id, &ordinal)
    total = 1
    for d in range(ndim):
        if steps[d] < 0:
            raise RuntimeError("empty_strided(): strides must not be negative")
        if dims[d] > 0:
            total += (int(dims[d]) - 1) * int(steps[d])
    if total > 1 << 58:
        raise RuntimeError("Storage size calculation overflowed")
    extent = total
    layout = layout_new(ndim, dims, steps)
    flat = tensor_new(layout_contiguous(1, &extent), code, type_id, ordinal)
    return tensor_wrap(storage_retain(flat.storage), layout, 0, code)


cdef Tensor scalar_tensor(object value, int dtype, Tensor like):
    """Return a 0-d tensor on the device of `like`."""
    cdef Tensor out = tensor_new(layout_scalar(), dtype, like.storage.device_type,
                                 like.storage.device_index)
    fill_with(out, value)
    return out


def fill_tensor(Tensor out not None, value):
    """Set every element to a number, outside the graph; returns the tensor.

    Raises: RuntimeError when the dtype cannot hold the number.
    """
    scalar_check_all(value, out.dtype)
    fill_with(out, value)
    return out


def copy_raw(Tensor out not None, Tensor source not None, bint non_blocking=False):
    """Copy between tensors of broadcastable shapes, any dtypes and devices, outside the graph.

    Raises: RuntimeError for a source that does not broadcast to the shape of ``out``.
    """
    check_broadcast(out.layout, source.layout)
    cross_copy(out, source, non_blocking)
    return out


def join_raw(list parts not None, int64_t dim, bint stacked):
    """Return tensors joined along a dim, or stacked along a new one, outside the graph.

    None unless they have one dtype, device and shape, except for the size along the dim.

    Raises: RuntimeError where a new dim is one too many.
    """
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef Tensor first, part, out
    cdef int ndim, d
    cdef int64_t length = 0, offset = 0
    if not parts or not isinstance(parts[0], Tensor):
        return None
    first = <Tensor>parts[0]
    ndim = first.layout.ndim + stacked
    dim += ndim if dim < 0 else 0
    if not 0 <= dim < ndim:
        return None
    if ndim > PB_MAX_NDIM:
        raise RuntimeError(f"a tensor can have at most {PB_MAX_NDIM} dimensions, got {ndim}")
    for item in parts:
        if not isinstance(item, Tensor):
            return None
        part = <Tensor>item
        if (part.layout.ndim + stacked != ndim or part.dtype != first.dtype
                or not same_device(part, first)):
            return None
        for d in range(first.layout.ndim):
            if ((stacked or d != dim)
                    and layout_shape(part.layout)[d] != layout_shape(first.layout)[d]):
                return None
        length += 1 if stacked else layout_shape(part.layout)[dim]
    for d in range(ndim):
        shape[d] = length if d == dim else layout_shape(first.layout)[d - (stacked and d > dim)]
    out = tensor_new(layout_contiguous(ndim, shape), first.dtype, first.storage.device_type,
                     first.storage.device_index)
    for d in range(ndim - stacked):     # a part of the result has the result's strides
        strides[d] = layout_strides(out.layout)[d + (stacked and d >= dim)]
    for item in parts:
        part = <Tensor>item
        copy_into(tensor_wrap(storage_retain(out.storage),
                              layout_new(part.layout.ndim, layout_shape(part.layout), strides),
                              offset, out.dtype), part)
        offset += layout_strides(out.layout)[dim] * (
            1 if stacked else layout_shape(part.layout)[dim])
    return out


def alias_raw(Tensor source not None):
    """Return a leaf over the same memory and version counter."""
    return tensor_alias(source)


def data_alias(Tensor source not None):
    """Return a leaf over the same memory with a version counter of its own (``Tensor.data``)."""
    if source.flags & TENSOR_IS_BATCHED:
        return source.detach()
    return tensor_over(source, storage_alias(source.storage), layout_retain(source.layout),
                       source.offset)


def to_device(Tensor source not None, where, bint non_blocking=False):
    """Return a copy on another device, outside the graph."""
    cdef int type_id, ordinal
    cdef pb_layout *layout
    cdef Tensor out
    device_argument(where, &type_id, &ordinal)
    if source.layout.flags & LAYOUT_DENSE:
        layout = layout_retain(source.layout)
    else:
        layout = layout_contiguous(source.layout.ndim, layout_shape(source.layout))
    out = tensor_new(layout, source.dtype, type_id, ordinal)
    cross_copy(out, source, non_blocking)
    return out


cdef int cross_copy(Tensor out, Tensor source, bint non_blocking) except -1:
    """out = source between devices: packed on the source's device, copied, then unpacked."""
    cdef Tensor staged, landed
    if out.storage.device_type == DEVICE_META:
        return 0
    if source.storage.device_type == DEVICE_META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if same_device(out, source):
        return copy_into(out, source)
    staged = resolved(source)
    if source.dtype != out.dtype:
        staged = cast_tensor(source, out.dtype)
    if same_dense_order(out, staged):
        return move_bytes(out, staged, non_blocking)
    if not staged.layout.flags & LAYOUT_CONTIGUOUS:
        staged = contiguous_copy(staged)
    if same_dense_order(out, staged):
        return move_bytes(out, staged, non_blocking)
    landed = tensor_new(layout_retain(staged.layout), out.dtype, out.storage.device_type,
                        out.storage.device_index)
    move_bytes(landed, staged, False)
    return copy_into(out, landed)


cdef bint same_dense_order(Tensor out, Tensor source) noexcept:
    """True if two tensors of one dtype are dense, with the same order of elements."""
    return (not out.flags & TENSOR_LAZY and source.layout.flags & LAYOUT_DENSE != 0
            and layout_same_shape(out.layout, source.layout)
            and layout_same_strides(out.layout, source.layout))


cdef int move_bytes(Tensor out, Tensor source, bint non_blocking) except -1:
    """Copy the bytes of tensors of `same_dense_order` between devices, perhaps through the host."""
    cdef pb_device_type *to = device_type(out.storage.device_type)
    cdef pb_device_type *origin = device_type(source.storage.device_type)
    cdef size_t nbytes = out.layout.numel * dtype_itemsize[out.dtype]
    cdef size_t to_offset = out.offset * dtype_itemsize[out.dtype]
    cdef size_t offset = source.offset * dtype_itemsize[source.dtype]
    cdef int index = source.storage.device_index, to_index = out.storage.device_index
    cdef char message[PB_MESSAGE_SIZE]
    cdef bytearray bridge
    cdef char *middle
    cdef int failed = 0
    message[0] = 0
    if nbytes == 0:
        return 0
    refuse_capture(b"a copy to another device")
    if origin.host and to.host:
        try:
            copy_polled(<char *>tensor_data(out), <const char *>tensor_data(source), nbytes)
        except BaseException:
            out.storage.version += 1    # it is partly written
            raise
    elif to.host:
        failed = origin.backend.copy_bytes(
            origin.backend.self, index, tensor_data(out), 0, source.storage.data, offset, nbytes,
            PB_DEVICE_TO_HOST | later(origin, out, non_blocking), message)
    elif origin.host:
        failed = to.backend.copy_bytes(
            to.backend.self, to_index, out.storage.data, to_offset, tensor_data(source), 0, nbytes,
            PB_HOST_TO_DEVICE | later(to, source, non_blocking), message)
    elif (origin == to and has_field(to.backend, &to.backend.copy_between)
            and to.backend.copy_between != NULL):
        failed = to.backend.copy_between(
            to.backend.self, to_index, out.storage.data, to_offset, index, source.storage.data,
            offset, nbytes, message)
    else:
        bridge = bytearray(nbytes)
        middle = bridge
        failed = origin.backend.copy_bytes(
            origin.backend.self, index, middle, 0, source.storage.data, offset, nbytes,
            PB_DEVICE_TO_HOST, message)
        if not failed:
            failed = to.backend.copy_bytes(
                to.backend.self, to_index, out.storage.data, to_offset, middle, 0, nbytes,
                PB_HOST_TO_DEVICE, message)
    if failed:
        keep_error(failed)
        raise_failure(failed, message, f"copy from {tensor_device(source)} to "
                      f"{tensor_device(out)}", tensor_device(source if to.host else out))
    return 0


cdef int later(pb_device_type *kind, Tensor host, bint non_blocking) noexcept:
    """Return PB_NON_BLOCKING for an asynchronous copy from or to pinned memory, else 0."""
    if non_blocking and kind.backend.flags & PB_BACKEND_ASYNC and is_pinned_for(host.storage, kind):
        return PB_NON_BLOCKING
    return 0


cdef object only_element(Tensor self):
    """Return the only element as a Python number; raises RuntimeError where there is not one."""
    cdef char value[16]
    cdef pb_device_type *found = device_type(self.storage.device_type)
    cdef char message[PB_MESSAGE_SIZE]
    cdef int failed
    if self.flags & TENSOR_IS_BATCHED:
        raise RuntimeError("vmap: It looks like you're calling .item() on a Tensor. We don't "
                           "support vmap over calling .item() on a Tensor, please try to rewrite "
                           "what you're doing with other operations.")
    if self.layout.numel != 1:
        raise RuntimeError(f"a Tensor with {self.layout.numel} elements cannot be converted to "
                           f"Scalar")
    if found.host:
        return scalar_of(self, tensor_data(self))
    if self.storage.device_type == DEVICE_META:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    message[0] = 0
    failed = found.backend.copy_bytes(found.backend.self, self.storage.device_index, value, 0,
                                      self.storage.data, self.offset * dtype_itemsize[self.dtype],
                                      dtype_itemsize[self.dtype], PB_DEVICE_TO_HOST, message)
    if failed:
        raise_failure(failed, message, "item()", tensor_device(self))
    return scalar_of(self, value)


def item(Tensor self not None):
    """Return the only element as a Python number.

    Raises: RuntimeError when there is not exactly one element.
    """
    value = only_element(self)
    if capturing():
        return globals_().capture.element(globals_().capture.self, self, value)
    return value


def element_of(Tensor self not None, const char *what):
    """Return the only element for `what`: no capture knows what is done with it."""
    captured_read(self.storage, what)
    return only_element(self)


def in_capture():
    """Return True while this thread's kernels are recorded."""
    return capturing()


def runs_ahead():
    """Return True while a backward pass is captured that nobody has asked for yet."""
    return capturing() and globals_().capture.launching != NULL


def decide(Tensor condition not None, error=None):
    """Return the truth of a one-element tensor, on which depends what is computed next.

    A capture notes the decision: its program is for calls in which it is the same. With an error,
    which the caller raises where the condition is False, the program raises it; with a class of
    errors, their texts depend on values.
    """
    if capturing():
        return globals_().capture.decided(globals_().capture.self, <PyObject *>condition,
                                          <PyObject *>error)
    return bool(only_element(condition))


# ---- factories: common calls; the entries have Python functions for others -----------------------

cdef inline bint is_plain(PyObject **args, int absent, int requires_grad) noexcept:
    """True for a call without the argument `absent`, ``pin_memory`` and ``requires_grad``.

    ``pin_memory`` is the argument before `requires_grad`.
    """
    return (<object>args[absent] is None and <object>args[requires_grad] is False
            and <object>args[requires_grad - 1] is False)


cdef int code_or(object dtype, int otherwise) except -1:
    """Return the code of a dtype argument, or `otherwise` for None."""
    return otherwise if dtype is None else dtype_code(dtype, "empty")


cdef object factory(Op op, PyObject **args, object value):
    """(size, out, dtype, layout, device, pin_memory, requires_grad); fills with `value`, if any."""
    cdef Tensor out
    if not is_plain(args, 1, 6):
        return composite_python(op, args)
    out = new_tensor(<object>args[0], code_or(<object>args[2], dtype_default()), <object>args[4])
    if value is not None:
        fill_with(out, value)
    return out


cdef object composite_empty(Op op, PyObject **args, PyObject *target):
    if fills_new:
        return composite_python(op, args)
    return factory(op, args, None)


cdef object composite_zeros(Op op, PyObject **args, PyObject *target):
    return factory(op, args, 0)


cdef object composite_ones(Op op, PyObject **args, PyObject *target):
    return factory(op, args, 1)


cdef object composite_full(Op op, PyObject **args, PyObject *target):
    """(size, fill_value, out, dtype, layout, device, pin_memory, requires_grad)."""
    cdef object value = <object>args[1]
    cdef int code
    if not is_plain(args, 2, 7) or type(value) not in (bool, int, float):
        return composite_python(op, args)
    code = code_or(<object>args[3], dtype_default() if type(value) is float
                   else dtype_of_scalar(value))
    out = new_tensor(<object>args[0], code, <object>args[5])
    scalar_check_all(value, code)
    fill_with(out, value)
    return out


cdef object factory_like(Op op, PyObject **args, PyObject *target, object value):
    """(self, dtype, layout, device, pin_memory, requires_grad, memory_format)."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor out
    cdef pb_layout *layout
    cdef int code
    if not is_plain(args, 3, 5) or <object>args[6] is not None:
        return forward_python(op, args, target)
    code = code_or(<object>args[1], self.dtype)
    if self.layout.flags & LAYOUT_DENSE and not self.layout.flags & LAYOUT_CONTIGUOUS:
        layout = layout_retain(self.layout)
    else:
        layout = layout_contiguous(self.layout.ndim, layout_shape(self.layout))
    out = tensor_new(layout, code, self.storage.device_type, self.storage.device_index)
    if value is not None:
        fill_with(out, value)
    return out


cdef object forward_empty_like(Op op, PyObject **args, PyObject *target):
    if fills_new:
        return forward_python(op, args, target)
    return factory_like(op, args, target, None)


cdef object forward_zeros_like(Op op, PyObject **args, PyObject *target):
    return factory_like(op, args, target, 0)


cdef object forward_ones_like(Op op, PyObject **args, PyObject *target):
    return factory_like(op, args, target, 1)


cdef object composite_arange(Op op, PyObject **args, PyObject *target):
    """(start, end, step, out, dtype, layout, device, pin_memory, requires_grad), of integers."""
    cdef int64_t start, end, step
    cdef PyObject *operands[1]
    cdef pb_param params[2]
    cdef int code
    cdef Tensor out
    if (not is_plain(args, 3, 8) or not small_int(<object>args[0], &start)
            or not small_int(<object>args[2], &step)):
        return composite_python(op, args)
    end = start
    if <object>args[1] is None:
        start = 0
    elif not small_int(<object>args[1], &end):
        return composite_python(op, args)
    code = code_or(<object>args[4], PB_I64)
    if (dtype_category[code] not in (CATEGORY_INTEGRAL, CATEGORY_FLOATING)
            or not -LARGE < start < LARGE or not -LARGE < end < LARGE
            or not -LARGE < step < LARGE or step == 0
            or (end < start if step > 0 else end > start)):
        return composite_python(op, args)
    out = new_tensor((end - start + step - (1 if step > 0 else -1)) // step, code, <object>args[6])
    operands[0] = <PyObject *>out
    if out.layout.numel != 0:
        param_int(&params[0], start)
        param_int(&params[1], step)
        launch_operands(ARANGE, out.dtype, operands, 1, 0, params, 2)
    return out


def line(Tensor out not None, double start, double end):
    """Fill a floating-point vector with equally spaced numbers; returns it.

    The ends and the step are rounded to the vector's compute dtype.
    """
    cdef PyObject *operands[1]
    cdef pb_param params[3]
    cdef int64_t count = out.layout.numel
    cdef double step = 0
    if out.dtype != PB_F64:
        start = <float>start
        end = <float>end
    if count > 1:
        step = (end - start) / <double>(count - 1)
        if out.dtype != PB_F64:
            step = <float>(<float>(end - start) / <float>(count - 1))
    operands[0] = <PyObject *>out
    if count != 0:
        param_float(&params[0], start)
        param_float(&params[1], end if count > 1 else start)
        param_float(&params[2], step)
        launch_operands(LINSPACE, out.dtype, operands, 1, 0, params, 3)
    return out


cdef object joined(Op op, PyObject **args, PyObject *target, bint stacked):
    """(tensors, dim), for tensors of one dtype that fit."""
    cdef int64_t dim
    cdef object out = None
    if target == NULL and small_int(<object>args[1], &dim):
        out = join_raw(list(<object>args[0]), dim, stacked)
    return forward_python(op, args, target) if out is None else out


cdef object forward_cat(Op op, PyObject **args, PyObject *target):
    return joined(op, args, target, False)


cdef object forward_stack(Op op, PyObject **args, PyObject *target):
    return joined(op, args, target, True)


forward_register("arange", composite_arange)
forward_register("cat", forward_cat)
forward_register("empty", composite_empty)
forward_register("empty_like", forward_empty_like)
forward_register("full", composite_full)
forward_register("ones", composite_ones)
forward_register("ones_like", forward_ones_like)
forward_register("stack", forward_stack)
forward_register("zeros", composite_zeros)
forward_register("zeros_like", forward_zeros_like)
