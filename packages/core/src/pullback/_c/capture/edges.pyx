# build: small
"""Where the graph of what was recorded goes on outside."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from pullback._c.base.types cimport NODE_ACCUMULATE, NODE_FREED, node_edges, pb_edge, pb_node
from pullback._c.capture.code_names cimport code_of_node
from pullback._c.capture.recorder cimport Recorder
from pullback._c.graph.tensor cimport Tensor

__all__ = ["outer_edges"]


def outer_edges(Recorder recorder not None, list outputs not None, tuple inputs not None):
    """Return where the graph of some tensors leaves what was recorded, or why it must not.

    That is a list of leaves, and of numbers of arguments; whether some node has been freed; and
    the code of the program that runs in a backward pass: hooks and classes of functions.
    """
    cdef list pending = [], targets = [], code = []
    cdef set seen = set(), found = set()
    cdef Tensor tensor
    cdef pb_node *node
    cdef pb_edge *edge
    cdef uint32_t i
    cdef bint freed = False
    cdef dict numbers = {}
    for number, tensor in enumerate(inputs):
        numbers[<size_t>tensor.node if tensor.node != NULL else <size_t><PyObject *>tensor,
                tensor.output_nr] = number
    for tensor in outputs:
        if tensor.node == NULL:
            return "a result that is a leaf"
        pending.append((<size_t>tensor.node, tensor.output_nr))
    while pending:
        address, nr = pending.pop()
        node = <pb_node *><size_t>address
        if (address, nr) in numbers:
            if (address, nr) not in found:
                found.add((address, nr))
                targets.append(numbers[address, nr])
            continue
        if node.kind == NODE_ACCUMULATE:
            if address in found or node.op == NULL:
                continue
            found.add(address)
            tensor = <Tensor>node.op
            if not recorder.is_known(tensor):
                continue                    # a leaf that the function made
            if tensor.extra != NULL and tensor.extra.hooks != NULL:
                return "a leaf with tensor hooks"
            targets.append(numbers.get((<size_t><PyObject *>tensor, tensor.output_nr), tensor))
            continue
        if <int64_t>node.sequence < recorder.sequence:
            return "a gradient that flows into the history of a tensor from outside"
        if address in seen:
            continue
        seen.add(address)
        freed = freed or node.flags & NODE_FREED != 0
        code += code_of_node(node)
        if node.extra != NULL and node.extra.retain != NULL:
            return "retain_grad() of a tensor that the function makes"
        for i in range(node.nedges):
            edge = &node_edges(node)[i]
            if edge.node != NULL:
                pending.append((<size_t>edge.node, edge.nr))
    return targets, freed, code
