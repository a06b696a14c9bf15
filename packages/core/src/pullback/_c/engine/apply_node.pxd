from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.engine.accumulate cimport add_target
from pullback._c.base.types cimport pb_node

cdef int node_apply(pb_node *node, PyObject **grads, PyObject **results,
                    bint create_graph, uint64_t skipped, add_target *add_targets) except -1
