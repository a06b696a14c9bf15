from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_edge, pb_node

cdef uint64_t needs_grad(Op op, PyObject **args) except? 0xFFFFFFFFFFFFFFFF
cdef pb_node *node_begin(Op op, PyObject **args, uint64_t mask, uint32_t noutputs) except NULL
cdef int node_finish(Op op, pb_node *node, PyObject **args, object result, uint64_t mask) except -1
cdef int node_save_outputs(Op op, pb_node *node, PyObject **args, object result,
                           uint64_t mask) except -1
cdef int tensor_edge(Tensor tensor, pb_edge *edge) except -1
cdef int edge_as_it_is(Tensor tensor, pb_edge *edge) except -1
cdef int view_refresh(Tensor view) except -1
cdef bint tensor_needs_grad(Tensor tensor) except -1
cdef bint says_requires_grad(Tensor tensor) except -1
cdef pb_node *accumulator_of(Tensor leaf) except NULL
cdef int check_inplace(Tensor target, bint recorded) except -1
cdef int check_writable(Tensor target, bint overlap) except -1
cdef int check_not_inference(Tensor target) except -1
cdef int move_retained(Tensor tensor, pb_node *node, uint32_t number) except -1
cdef int rebase(Tensor target, pb_node *node) except -1
cdef object toggled(object tensor, int flags)
cdef object complex_part(object whole, tuple shape, tuple strides, object start)
cdef tuple as_strided_args(Tensor tensor)
cdef object replay(Tensor base, tuple view)
cdef int bump_version(Tensor target, int writer) except -1


# The in-place write of a CopySlices node.
cdef class SliceWrite:
    cdef pb_node *inner             # owned; the op's own node
    cdef readonly tuple base        # shape, strides, offset and dtype of the base
    cdef readonly tuple view        # the same of the written view
