from cpython.object cimport PyObject

from pullback._c.tensor cimport Tensor

cdef bint is_sole_owner(PyObject *value) noexcept
cdef int accumulate_grad(Tensor leaf, PyObject *incoming, bint create_graph) except -1
cdef object sum_grads(PyObject *first, Tensor second, bint create_graph)
