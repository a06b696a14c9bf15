from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_edge


# The tensor that a gradient can be added to in place: an input buffer's, or a leaf's .grad.
cdef struct add_target:
    PyObject *total                 # owned; NULL: there is none yet
    PyObject *leaf                  # borrowed; NULL for an input buffer


cdef bint is_sparse(PyObject *value) noexcept
cdef object sparse_clone(object grad)
cdef object sparse_cast(Tensor grad, int dtype)
cdef object sparse_values(object grad)
cdef bint is_sole_owner(PyObject *value) noexcept
cdef int accumulate_grad(Tensor leaf, PyObject *incoming, bint create_graph) except -1
cdef object sum_grads(PyObject *first, Tensor second, bint create_graph)
cdef void find_add_target(add_target *target, const pb_edge *edge, PyObject *waiting,
                          bint last) noexcept
cdef void release_add_targets(add_target *targets, uint32_t count) noexcept
cdef bint add_product(add_target *into, PyObject *first, PyObject *second) except -1
