from cpython.object cimport (
    Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_LIST_SUBCLASS, Py_TPFLAGS_TUPLE_SUBCLASS, Py_TYPE, PyObject,
    PyTypeObject)

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport TENSOR_OVERRIDES, Tensor


cdef bint may_override(object value) noexcept
cdef bint overrides_enabled() noexcept
cdef bint modes_enabled() noexcept
cdef object call_override(object function, object args, object kwargs)
cdef object call_override_of_op(Op op, PyObject *const *args, Py_ssize_t nargs, object names)
cdef object call_override_of_operator(Op op, str name, str reflected, object a, object b)


cdef inline bint is_overriding(object value) noexcept:
    """True for an argument whose ``__torch_function__`` replaces calls, if overriding is on."""
    cdef unsigned long kind = (<PyTypeObject *>Py_TYPE(value)).tp_flags
    if not kind & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS):
        return False                    # a class of Python code is on the heap
    if isinstance(value, Tensor):
        return (<Tensor>value).flags & TENSOR_OVERRIDES != 0 and overrides_enabled()
    return may_override(value)
