from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.engine.accumulate cimport add_target
from pullback._c.graph.op cimport Op
from pullback._c.base.types cimport pb_node

cdef int op_backward(pb_node *node, PyObject **grads, PyObject **results,
                     uint64_t skipped, add_target *add_targets) except -1
cdef list vjp_at(Op op, PyObject **args, object result, tuple cotangents, uint64_t wanted)
cdef object zeros_for(pb_node *node, int number)
