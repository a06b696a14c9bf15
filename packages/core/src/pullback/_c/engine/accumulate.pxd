from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_edge


# Where a gradient is going to be added: a buffer of the running pass, or a leaf's .grad.
cdef struct running_sum:
    PyObject *total                 # owned; NULL: nowhere yet
    PyObject *leaf                  # borrowed; NULL for a buffer


cdef bint is_sole_owner(PyObject *value) noexcept
cdef int accumulate_grad(Tensor leaf, PyObject *incoming, bint create_graph) except -1
cdef object sum_grads(PyObject *first, Tensor second, bint create_graph)
cdef void find_sum(running_sum *place, const pb_edge *edge, PyObject *waiting, bint last) noexcept
cdef void release_sums(running_sum *places, uint32_t count) noexcept
cdef bint add_product(running_sum *into, PyObject *first, PyObject *second) except -1
