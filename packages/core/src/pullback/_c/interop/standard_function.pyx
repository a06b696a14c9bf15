# build: small
"""Functions of the array API standard: an op where it does what the standard says, else Python.

The standard's functions have other argument names and promote dtypes otherwise than ops. Most calls
need neither: tensors of one dtype, an axis that is an int. These go to the op without a Python
frame; all other calls go to a Python function.
"""

from cpython.float cimport PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint32_t

from pullback._c.base.dtype cimport CATEGORY_FLOATING, dtype_category
from pullback._c.base.vectorcall cimport (
    PyObject_Vectorcall, PyVectorcall_NARGS, pb_make_callable)
from pullback._c.graph.tensor cimport Tensor

import inspect

__all__ = ["StandardFunction", "share_dtype"]

cdef str AXIS = "axis"                  # interned, as the names of keywords are
cdef str KEEPDIMS = "keepdims"


cdef inline bint is_number(PyObject *value) noexcept:
    return PyFloat_CheckExact(<object>value) or PyLong_CheckExact(<object>value)


cdef inline bint is_supported(StandardFunction function, PyObject *const *args) noexcept:
    """True if the op has the standard's meaning for these tensors."""
    cdef PyObject *first = args[0]
    cdef PyObject *second = first
    if function.tensors > 1:
        first = args[function.tensors - 2]
        second = args[function.tensors - 1]
    if function.tensors == 3 and type(<object>args[0]) is not Tensor:   # the condition of `where`
        return False
    if function.numbers and is_number(first):
        first = second
    elif function.numbers and is_number(second):
        second = first
    if type(<object>first) is not Tensor or type(<object>second) is not Tensor:
        return False
    return (<Tensor>first).dtype == (<Tensor>second).dtype and (
        function.dtypes & (<uint32_t>1 << (<Tensor>first).dtype)) != 0


cdef bint are_bounds(PyObject *const *args, Py_ssize_t count) noexcept:
    """True for a tensor and bounds that do not change its dtype: numbers or tensors, or None.

    The op takes no number beside a tensor, and no bounds that are all None.
    """
    cdef Py_ssize_t i
    cdef int numbers = 0, tensors = 0
    cdef int dtype = (<Tensor>args[0]).dtype
    for i in range(1, count):
        if PyLong_CheckExact(<object>args[i]) or (
                PyFloat_CheckExact(<object>args[i]) and dtype_category[dtype] >= CATEGORY_FLOATING):
            numbers += 1
        elif type(<object>args[i]) is Tensor and (<Tensor>args[i]).dtype == dtype:
            tensors += 1
        elif <object>args[i] is not None:
            return False
    return (numbers == 0) != (tensors == 0)


def share_dtype(values):
    """Return True if all items of a list or tuple are tensors, not of subclasses, of one dtype."""
    cdef Tensor first = None
    if type(values) is not list and type(values) is not tuple:
        return False
    for value in values:
        if type(value) is not Tensor:
            return False
        if first is None:
            first = <Tensor>value
        elif (<Tensor>value).dtype != first.dtype:
            return False
    return first is not None


cdef inline bint is_reduction(StandardFunction function, PyObject *const *args,
                              PyObject *names) noexcept:
    """True for the keywords `axis` and `keepdims`, in this order, with values that the op takes."""
    cdef Py_ssize_t count = PyTuple_GET_SIZE(<object>names)
    if count > 2 or PyTuple_GET_ITEM(<object>names, 0) != <PyObject *>AXIS:
        return False
    if not PyLong_CheckExact(<object>args[1]) and not (
            function.axes and PyTuple_CheckExact(<object>args[1])
            and PyTuple_GET_SIZE(<object>args[1]) > 0):
        return False
    return count == 1 or PyTuple_GET_ITEM(<object>names, 1) == <PyObject *>KEEPDIMS


cdef object call_standard(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names):
    cdef StandardFunction function = <StandardFunction>self
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    if count == function.tensors and is_supported(function, args):
        if names == NULL and function.alone:
            return PyObject_Vectorcall(function.op, args, nargsf, NULL)
        if names != NULL and function.axis and is_reduction(function, args, names):
            return PyObject_Vectorcall(
                function.op, args, 1 + PyTuple_GET_SIZE(<object>names), NULL)
    elif function.bounds and names == NULL and 1 < count <= 3 and is_supported(function, args) and (
            are_bounds(args, count)):
        return PyObject_Vectorcall(function.op, args, nargsf, NULL)
    return PyObject_Vectorcall(function.__wrapped__, args, nargsf, names)


cdef class StandardFunction:
    """A function of the array API standard: an op for most calls, a Python function for the rest.

    ``tensors``: how many positional arguments the op takes: the last two, or the only one, are of
    one of the ``dtypes``; ``numbers``: one of the two may be a number. ``axis``: the op takes axis
    and keepdims as its next arguments; ``axes``: it also takes a tuple of axes.

    >>> import pullback.array_api as xp
    >>> xp.add
    <function pullback.array_api.add>
    """

    cdef void *vectorcall
    cdef readonly object op
    cdef readonly object __wrapped__
    cdef int tensors
    cdef bint numbers
    cdef bint axis
    cdef bint axes
    cdef bint alone
    cdef bint bounds
    cdef uint32_t dtypes
    cdef dict __dict__

    def __init__(self, op, function, int tensors, dtypes, bint numbers=False, bint axis=False,
                 bint axes=False, bint alone=True, bint bounds=False):
        self.vectorcall = <void *>call_standard
        self.op, self.__wrapped__, self.tensors = op, function, tensors
        self.numbers, self.axis, self.axes, self.alone = numbers, axis, axes, alone
        self.bounds, self.dtypes = bounds, 0
        for dtype in dtypes:
            self.dtypes |= <uint32_t>1 << <int>dtype.code
        self.__doc__ = function.__doc__
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = "pullback.array_api"

    @property
    def __signature__(self):
        """The signature that the standard gives the function."""
        return inspect.signature(self.__wrapped__)

    def __repr__(self):
        return f"<function {self.__module__}.{self.__name__}>"

    def __reduce__(self):
        return self.__name__


cdef int register_type() except -1:
    cdef StandardFunction probe = StandardFunction.__new__(StandardFunction)
    pb_make_callable(<PyTypeObject *>StandardFunction,
                     <Py_ssize_t>(<char *>&probe.vectorcall - <char *><PyObject *>probe), 0)
    return 0


register_type()
