from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor


cdef enum promotion:
    PROMOTE_DEFAULT = 0         # the result has the operands' common dtype
    PROMOTE_FLOAT = 1           # integers and bool become the default float
    PROMOTE_BOOL_OUT = 2        # computed in the common dtype, the result is bool
    PROMOTE_REAL_OUT = 3        # complex gives its real dtype
    PROMOTE_WHERE = 4           # the first operand is a condition


cdef PyObject *ONE               # the int 1, as defaults hold it
cdef object forward_elementwise(Op op, PyObject **args, PyObject *target)
cdef Tensor cast_tensor(Tensor tensor, int dtype)
cdef Tensor contiguous_copy(Tensor tensor)
cdef int common_dtype(PyObject **values, int count) except -2
cdef bint memory_overlaps(Tensor a, Tensor b) noexcept nogil
cdef Tensor leading_tensor(PyObject **values, int count)
cdef int check_place(Op op, Tensor first, Tensor tensor, int position) except -1
cdef int refuse_devices(Op op, Tensor first, Tensor other, int position) except -1
cdef bint same_elements(Tensor a, Tensor b) noexcept nogil
cdef bint scalar_fits(object value, int code) noexcept
cdef object run_general(Op op, int slot, PyObject **values, int count, PyObject *target)
cdef int unsupported(Op op, int code) except -1
cdef int refuse_partial_overlap(Tensor target, Tensor source) except -1
