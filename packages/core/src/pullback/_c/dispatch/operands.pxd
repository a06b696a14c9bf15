from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor


cdef object OVERRIDING
cdef object number_class                # None, or that of arguments while a function is captured
cdef object operand_of_number
cdef tuple in_former_order(Op op, list given, dict keywords)
cdef object checked_operand(Op op, int position, object value, object other, bint by_name)
cdef int common_dtype(PyObject **values, int count) except -2
cdef int unsupported(Op op, int code) except -1
cdef Tensor cast_tensor(Tensor tensor, int dtype)
cdef Tensor contiguous_copy(Tensor tensor)
cdef bint memory_overlaps(Tensor a, Tensor b) noexcept nogil
cdef int check_partial_overlap(Tensor target, Tensor source) except -1
cdef bint same_elements(Tensor a, Tensor b) noexcept nogil
cdef int on_one_device(Op op, PyObject **values, int count, Tensor first) except -1
cdef int check_argument_device(Op op, Tensor first, Tensor tensor, int position) except -1
cdef int raise_argument_device(Op op, Tensor first, Tensor other, int position) except -1
cdef Tensor leading_tensor(PyObject **values, int count)
cdef bint scalar_fits(object value, int code) noexcept


cdef inline bint is_number_argument(object value) noexcept:
    """True for a number that is an argument of a function that is captured."""
    return type(value) is number_class
cdef bint has_number(object value) except -1
cdef object number_of(object value)
