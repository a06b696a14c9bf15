# build: small
"""Conversion between tensors and nested sequences of Python numbers."""

from cpython.bool cimport PyBool_Check
from cpython.complex cimport PyComplex_Check
from cpython.float cimport PyFloat_AsDouble, PyFloat_Check, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLong, PyLong_Check, PyLong_CheckExact
from cpython.number cimport PyNumber_Index
from cpython.sequence cimport PySequence_Check
from libc.stdint cimport int64_t, uint32_t

from pullback.abi cimport PB_MAX_NDIM, PB_U64
from pullback._c.ops.create cimport device_argument
from pullback._c.device.device cimport DEVICE_META, device_type
from pullback._c.base.dtype cimport (
    CATEGORY_BOOL, CATEGORY_FLOATING, CATEGORY_INTEGRAL, dtype, dtype_category, dtype_code,
    dtype_default, dtype_itemsize, dtype_of_scalar, dtype_promote, scalar_check, scalar_read,
    scalar_write)
from pullback._c.base.interrupts cimport poll_signals
from pullback._c.base.layout cimport layout_contiguous
from pullback._c.dispatch.lazy cimport resolved
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, Tensor, is_tensor, tensor_alias, tensor_data, tensor_new)
from pullback._c.base.state cimport captured_read, captured_write
from pullback._c.base.types cimport layout_shape, layout_strides

from pullback._c.ops.create import element_of, to_device
from pullback._c.interop.arrays import dtype_of_array


# ---- reading -------------------------------------------------------------------------------------

# The state of a traversal of nested sequences.
cdef class Reading:
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int ndim               # -1 before the first number
    cdef int code               # the numbers' common dtype; -1 before the first number
    cdef bint typed             # the dtype is given, numbers do not determine it
    cdef list numbers           # in row-major order


def tensor_from_sequence(data, wanted=None, where=None):
    """Return a new tensor of a number or of nested sequences of numbers, of dtype `wanted`."""
    cdef Reading reading = Reading()
    cdef Py_ssize_t expected = 1, i
    cdef int code = -1
    reading.ndim = -1
    reading.code = -1
    reading.numbers = []
    reading.typed = wanted is not None
    if reading.typed:
        code = dtype_code(wanted, "tensor")
    read_item(reading, data, 0)
    for i in range(reading.ndim):
        expected *= reading.shape[i]
    if len(reading.numbers) != expected:
        raise RuntimeError("tensor(): a sequence changed its length while it was read")
    if not reading.typed:
        code = reading.code if reading.code >= 0 else dtype_default()
    return write_numbers(reading, code, where)


cdef int read_item(Reading reading, object item, int depth) except -1:
    if PyFloat_CheckExact(item) or PyLong_CheckExact(item) or PyBool_Check(item):
        return read_number(reading, item, dtype_of_scalar(item), depth)
    if type(item) is list or type(item) is tuple:
        return read_sequence(reading, item, depth)
    return read_other(reading, item, depth)


cdef int read_number(Reading reading, object number, int code, int depth) except -1:
    if reading.ndim < 0:
        reading.ndim = depth
    elif depth != reading.ndim:
        raise TypeError(f"not a sequence: expected one of length {reading.shape[depth]} at dim "
                        f"{depth}, got '{type(number).__name__}'")
    if not reading.typed:
        reading.code = code if reading.code < 0 else dtype_promote(reading.code, code)
    reading.numbers.append(number)
    return 0


cdef int read_sequence(Reading reading, object items, int depth) except -1:
    """Read the items of a list or tuple; the first one at each depth sets the shape."""
    cdef Py_ssize_t length = len(items), i
    cdef uint32_t turns = 0
    if reading.ndim < 0:
        if depth == PB_MAX_NDIM:
            raise ValueError(f"too many dimensions '{type(items).__name__}'")
        reading.shape[depth] = length
        if length == 0:
            reading.ndim = depth + 1
    elif depth >= reading.ndim:
        raise TypeError(f"expected a number at dim {depth}, got '{type(items).__name__}'")
    elif length != reading.shape[depth]:
        raise ValueError(f"expected sequence of length {reading.shape[depth]} at dim {depth} "
                         f"(got {length})")
    for i in range(length):             # reading an item may run code that changes `items`
        poll_signals(&turns)
        if len(items) == length:
            read_item(reading, items[i], depth + 1)
    if len(items) != length:
        raise RuntimeError("tensor(): a sequence changed its length while it was read")
    return 0


cdef list listed(object items):
    """Return a sequence's items; raises unless their number is its length."""
    cdef Py_ssize_t length = len(items), count = 0
    cdef list found = [None] * length   # raises MemoryError before anything is read
    for item in items:
        if count == length:
            raise ValueError(f"tensor(): a '{type(items).__name__}' has more items than its "
                             f"length, {length}")
        found[count] = item
        count += 1
    if count != length:
        raise ValueError(f"tensor(): a '{type(items).__name__}' of length {length} has only "
                         f"{count} items")
    return found


cdef int read_other(Reading reading, object item, int depth) except -1:
    """Read an item that is not a Python number or list: a tensor, an array, another sequence."""
    cdef dtype found
    if is_tensor(item):
        if (<Tensor>item).layout.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        number = element_of(item, b"tensor() of a tensor")
        return read_number(reading, number, (<Tensor>item).dtype, depth)
    if hasattr(item, "dtype") and hasattr(item, "tolist"):
        found = dtype_of_array(item)
        return read_array(reading, item.tolist(), found.code, depth)
    if getattr(item, "shape", None) == () and hasattr(item, "item"):
        item = item.item()              # an object without dims becomes a Python number
    if PyFloat_Check(item) or PyLong_Check(item) or PyComplex_Check(item):
        return read_number(reading, item, dtype_of_scalar(item), depth)
    if isinstance(item, str) and depth > 0 and reading.ndim < 0:
        raise ValueError("too many dimensions 'str'")
    if isinstance(item, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(item).__name__}'")
    if PySequence_Check(item):
        if depth == PB_MAX_NDIM:
            raise ValueError(f"too many dimensions '{type(item).__name__}'")
        return read_sequence(reading, listed(item), depth)
    if not reading.typed:
        raise RuntimeError(f"Could not infer dtype of {type(item).__name__}")
    return read_number(reading, item, -1, depth)


cdef int read_array(Reading reading, object values, int code, int depth) except -1:
    """Read the values of a NumPy array, whose dtype is given."""
    cdef bint before = reading.typed
    if not before:
        reading.code = code if reading.code < 0 else dtype_promote(reading.code, code)
    reading.typed = True
    try:
        return read_item(reading, values, depth)
    finally:
        reading.typed = before


cdef Tensor write_numbers(Reading reading, int code, object where):
    """Return a new tensor of the numbers that were read."""
    cdef int type_id, ordinal
    cdef Tensor out
    cdef char *data
    cdef uint32_t turns = 0
    device_argument(where, &type_id, &ordinal)
    if not device_type(type_id).host:
        return to_device(write_numbers(reading, code, "ref"), where)
    out = tensor_new(layout_contiguous(reading.ndim, reading.shape), code, type_id, ordinal)
    data = <char *>tensor_data(out)
    for number in reading.numbers:
        poll_signals(&turns)
        write_number(number, code, data)
        data += dtype_itemsize[code]
    captured_write(out.storage)
    return out


cdef int write_number(object number, int code, void *out) except -1:
    """Write a number as torch converts it: integers must fit, floats may become infinite."""
    cdef int category = dtype_category[code]
    if category == CATEGORY_BOOL:
        number = bool(number)
    elif category == CATEGORY_INTEGRAL:
        if code == PB_U64:
            if PyFloat_Check(number):
                raise TypeError("an integer is required")
            number = PyNumber_Index(number)
            if number < 0:
                raise OverflowError("can't convert negative int to unsigned")
            if number >= 18446744073709551616:
                raise OverflowError("int too big to convert")
        elif not PyFloat_Check(number):
            try:
                number = PyLong_AsLongLong(PyNumber_Index(number))
            except OverflowError:
                raise ValueError("Overflow when unpacking long long") from None
        scalar_check(number, code)
    elif category == CATEGORY_FLOATING:
        number = PyFloat_AsDouble(number)
    elif not PyComplex_Check(number):
        number = complex(number)
    return scalar_write(number, code, out)


# ---- writing -------------------------------------------------------------------------------------

def nested_list(Tensor self not None):
    """Return nested lists of Python numbers; a number for 0-d tensors."""
    if self.flags & TENSOR_IS_BATCHED:
        raise RuntimeError("vmap: It looks like you're calling .tolist() on a Tensor. Its values "
                           "differ along the batch: please try to rewrite what you're doing with "
                           "other operations.")
    if self.storage.device_type == DEVICE_META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if not device_type(self.storage.device_type).host:
        self = to_device(self, "ref")
    captured_read(self.storage, b"tolist()")
    self = tensor_alias(resolved(self))     # keeps the memory alive while other code runs
    return nested(self, <const char *>tensor_data(self), 0)


cdef uint32_t turns_of_lists = 0


cdef object nested(Tensor self, const char *data, int dim):
    cdef int64_t i, step
    poll_signals(&turns_of_lists)
    if dim == self.layout.ndim:
        return scalar_read(data, self.dtype)
    step = layout_strides(self.layout)[dim] * dtype_itemsize[self.dtype]
    return [nested(self, data + i * step, dim + 1)
            for i in range(layout_shape(self.layout)[dim])]
