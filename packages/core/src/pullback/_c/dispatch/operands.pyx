"""The operands of a call: common dtype, casts, devices, overlap of memory."""

import warnings

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_BOOL
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, dtype_category, dtype_combine, dtype_default, dtype_itemsize, dtype_object,
    dtype_of_scalar, dtype_promote, scalar_read)
from pullback._c.base.layout cimport (
    layout_contiguous, layout_extent, layout_retain, layout_same_shape)
from pullback._c.base.types cimport LAYOUT_DENSE, layout_shape, layout_strides, pb_layout
from pullback._c.device.device cimport device_types
from pullback._c.dispatch.launch cimport copy_into, raise_two_devices
from pullback._c.graph.op cimport (
    ARG_OPERAND, ARG_OPTIONAL_OPERAND, ARG_OPTIONAL_TENSOR, ARG_TENSORS, OP_ALPHA, OP_LISTS, Op,
    describe, shown_name)
from pullback._c.graph.overrides cimport is_overriding
from pullback._c.graph.tensor cimport (
    TENSOR_IS_NUMBER, TENSOR_IS_WRAPPED, TENSOR_LAZY, TENSOR_OVERRIDES, Tensor, is_tensor,
    same_device, tensor_data, tensor_device, tensor_new)


# ---- arguments that are no tensors ---------------------------------------------------------------

cdef object number_class = None
cdef object operand_of_number = None


def set_number_class(kind, operand):
    """Set the class of numbers that are arguments while a function is captured.

    ``operand(number, other, as_tensor)`` returns what an op takes for one, beside another operand:
    a tensor, or its value.
    """
    global number_class, operand_of_number
    number_class = kind
    operand_of_number = operand


OVERRIDING = object()


cdef int fail_kind(Op op, int position, object value, bint by_name) except -1:
    wanted = {ARG_OPERAND: "Tensor or number", ARG_OPTIONAL_OPERAND: "Tensor or number",
              ARG_TENSORS: "tuple of Tensors"}.get(op.arg_kinds[position], "Tensor")
    raise TypeError(f"{describe(op, position, by_name)} must be {wanted}, not "
                    f"{type(value).__name__}")


cdef tuple in_former_order(Op op, list given, dict keywords):
    """Return arguments in torch's older order, `add(self, alpha, other)`, in that of today.

    It warns. Raises TypeError where the op never had a factor before its other operands.
    """
    cdef Py_ssize_t count = op.npositional
    for factor in ("alpha", "value"):
        if (len(given) == count + 1 and factor in op.arg_names[count:]
                and dtype_of_scalar(given[1]) >= 0 and is_tensor(given[2])):
            name = shown_name(op)
            others = ", ".join([f"Tensor {other}" for other in op.arg_names[1:count]])
            warnings.warn(f"This overload of {name} is deprecated:\n\t{name}(Number {factor}, "
                          f"{others})\nConsider using one of the following signatures instead:"
                          f"\n\t{name}({others}, *, Number {factor} = 1)", stacklevel=1)
            return given[:1] + given[2:], {factor: given[1], **keywords}
    raise TypeError(f"{shown_name(op)}() takes {count} positional arguments but {len(given)} "
                    f"were given")


cdef object checked_operand(Op op, int position, object value, object other, bint by_name):
    """Convert an argument that is declared as tensors, or a tensor or number, and is no tensor.

    ``other`` is another argument. Returns OVERRIDING where it, or one of its items, overrides the
    call.
    """
    cdef int kind = op.arg_kinds[position]
    if kind != ARG_TENSORS and is_overriding(value):
        return OVERRIDING
    if kind == ARG_OPERAND or kind == ARG_OPTIONAL_OPERAND:
        if is_number_argument(value):
            # A factor of a number is applied in Python, one of a tensor by a kernel.
            return operand_of_number(value, other, op.takes_number and not op.flags & OP_ALPHA)
        if value is None and kind == ARG_OPTIONAL_OPERAND:
            return None
        if dtype_of_scalar(value) < 0 and hasattr(value, "item") and (
                getattr(value, "shape", None) == ()):
            value = value.item()        # NumPy numbers and 0-d arrays become Python numbers
        if dtype_of_scalar(value) < 0:
            fail_kind(op, position, value, by_name)
    elif kind == ARG_OPTIONAL_TENSOR:
        if value is not None:
            fail_kind(op, position, value, by_name)
    elif kind != ARG_TENSORS or not isinstance(value, (tuple, list)):
        if is_overriding(value):
            return OVERRIDING
        fail_kind(op, position, value, by_name)
    else:
        if op.flags & OP_LISTS:
            value = tuple(value)        # another thread may change a list meanwhile
        for k, item in enumerate(value):
            if type(item) is Tensor:
                continue
            if is_overriding(item):
                return OVERRIDING
            if not is_tensor(item):
                raise TypeError(f"{shown_name(op)}(): expected Tensor as element {k} in "
                                f"argument {position}, but got {type(item).__name__}")
    return value


# ---- dtypes --------------------------------------------------------------------------------------

cdef int common_dtype(PyObject **values, int count) except -2:
    """Return the dtype that tensors, 0-d tensors and numbers promote to; -1 for no operand."""
    cdef int i, code, dims = -1, zero = -1, number = -1
    cdef Tensor tensor
    for i in range(count):
        if is_tensor(<object>values[i]):
            tensor = <Tensor>values[i]
            code = tensor.dtype
            if tensor.flags & TENSOR_IS_NUMBER:
                code = dtype_default()
                number = code if number < 0 else dtype_promote(number, code)
            elif tensor.layout.ndim > 0:
                dims = code if dims < 0 else dtype_promote(dims, code)
            else:
                zero = code if zero < 0 else dtype_promote(zero, code)
        else:
            code = dtype_of_scalar(<object>values[i])
            number = code if number < 0 else dtype_promote(number, code)
    return dtype_combine(dims, dtype_combine(zero, number))


cdef int unsupported(Op op, int code) except -1:
    """Raise for a dtype that an op does not support."""
    from pullback.ops.rules.dtypes import unsupported as make_error
    if code == PB_BOOL and op.entry.bool_error:
        raise RuntimeError(op.entry.bool_error)
    raise make_error(op.name, dtype_object(code))


# ---- copies --------------------------------------------------------------------------------------

cdef Tensor cast_tensor(Tensor tensor, int dtype):
    """Return a copy in another dtype, outside the graph."""
    cdef pb_layout *layout
    if tensor.layout.flags & LAYOUT_DENSE:
        layout = layout_retain(tensor.layout)
    else:
        layout = layout_contiguous(tensor.layout.ndim, layout_shape(tensor.layout))
    cdef Tensor out = tensor_new(layout, dtype, tensor.storage.device_type,
                                 tensor.storage.device_index)
    copy_into(out, tensor)
    return out


cdef Tensor contiguous_copy(Tensor tensor):
    """Return a row-major copy, outside the graph."""
    cdef Tensor out = tensor_new(
        layout_contiguous(tensor.layout.ndim, layout_shape(tensor.layout)), tensor.dtype,
        tensor.storage.device_type, tensor.storage.device_index)
    copy_into(out, tensor)
    return out


cdef bint memory_overlaps(Tensor a, Tensor b) noexcept nogil:
    """True if the address ranges intersect; two views of one storage may still be disjoint."""
    cdef int64_t low_a, low_b, high_a, high_b
    if a.layout.numel == 0 or b.layout.numel == 0 or a.storage.data == NULL:
        return False
    if a.storage.device_type != b.storage.device_type:
        return False
    if a.storage.data != b.storage.data and device_types()[a.storage.device_type].handles:
        return False
    high_a = layout_extent(a.layout, &low_a)
    high_b = layout_extent(b.layout, &low_b)
    cdef size_t begin_a = <size_t>tensor_data(a) + low_a * dtype_itemsize[a.dtype]
    cdef size_t end_a = <size_t>tensor_data(a) + (high_a + 1) * dtype_itemsize[a.dtype]
    cdef size_t begin_b = <size_t>tensor_data(b) + low_b * dtype_itemsize[b.dtype]
    cdef size_t end_b = <size_t>tensor_data(b) + (high_b + 1) * dtype_itemsize[b.dtype]
    return begin_a < end_b and begin_b < end_a


def may_overlap(Tensor a not None, Tensor b not None):
    """Return True if the address ranges of two tensors intersect."""
    return memory_overlaps(a, b)


cdef int check_partial_overlap(Tensor target, Tensor source) except -1:
    """Raise if two tensors share memory, unless they have the same elements.

    As in torch, strided tensors with gaps do not raise: callers read them from a copy.
    """
    if target is source or not (target.layout.flags & source.layout.flags & LAYOUT_DENSE):
        return 0
    if memory_overlaps(target, source) and not same_elements(target, source):
        raise RuntimeError("unsupported operation: some elements of the input tensor and the "
                           "written-to tensor refer to a single memory location. Please clone() "
                           "the tensor before performing the operation.")
    return 0


cdef bint same_elements(Tensor a, Tensor b) noexcept nogil:
    """True if both have the same elements of memory in the same order."""
    cdef int d
    if a.layout != b.layout:
        if not layout_same_shape(a.layout, b.layout):
            return False
        for d in range(a.layout.ndim):
            if layout_shape(a.layout)[d] != 1 and (
                    layout_strides(a.layout)[d] != layout_strides(b.layout)[d]):
                return False
    if a.storage.data != b.storage.data and device_types()[a.storage.device_type].handles:
        return False
    return tensor_data(a) == tensor_data(b) and a.dtype == b.dtype


# ---- devices -------------------------------------------------------------------------------------

cdef inline bint is_on_host(Tensor tensor) noexcept:
    return device_types()[tensor.storage.device_type].host


cdef int on_one_device(Op op, PyObject **values, int count, Tensor first) except -1:
    """Raise unless all tensors are on one device; 0-d host tensors are allowed."""
    cdef int i
    for i in range(count):
        if not is_tensor(<object>values[i]):
            continue
        check_argument_device(op, first, <Tensor>values[i], op.tensor_args[i])
    return 0


cdef int check_argument_device(Op op, Tensor first, Tensor tensor, int position) except -1:
    """Raise for an argument on another device than the first, except a 0-d host tensor."""
    if not same_device(tensor, first) and not (
            tensor.layout.ndim == 0 and is_on_host(tensor)):
        raise_argument_device(op, first, tensor, position)
    return 0


cdef int raise_argument_device(Op op, Tensor first, Tensor other, int position) except -1:
    """Raise for an argument on another device than the first."""
    raise_two_devices(tensor_device(first), tensor_device(other), op.arg_names[position],
                      shown_name(op))
    return 0


cdef Tensor leading_tensor(PyObject **values, int count):
    """Return the tensor that determines the device of the result."""
    cdef int i
    cdef Tensor found = None
    for i in range(count):
        if is_tensor(<object>values[i]):
            if found is None:
                found = <Tensor>values[i]
            elif found.layout.ndim == 0 and (
                    (<Tensor>values[i]).layout.ndim > 0
                    or is_on_host(found) and not is_on_host(<Tensor>values[i])):
                found = <Tensor>values[i]
    return found


cdef bint scalar_fits(object value, int code) noexcept:
    """True if an operation with a number does not change a tensor's dtype."""
    cdef int kind = dtype_of_scalar(value)
    return kind >= 0 and dtype_category[kind] <= dtype_category[code]


# ---- options -----------------------------------------------------------------------------------

cdef bint has_number(object value) except -1:
    """True for a number, or a tensor of one real number on the host."""
    cdef Tensor tensor
    if type(value) is float or type(value) is int:
        return True
    if type(value) is not Tensor:
        return False
    tensor = <Tensor>value
    return (tensor.layout.numel == 1 and dtype_category[tensor.dtype] < CATEGORY_COMPLEX
            and not tensor.flags & (TENSOR_IS_WRAPPED | TENSOR_LAZY | TENSOR_OVERRIDES)
            and is_on_host(tensor))


cdef object number_of(object value):
    """Return a number, or that of a tensor of one, as it is now."""
    cdef Tensor tensor
    if type(value) is not Tensor:
        return value
    tensor = <Tensor>value
    return scalar_read(tensor_data(tensor), tensor.dtype)
