# build: small
"""What a recorded pass has in common with what was there before: its graph, and memory."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from pullback.abi cimport PB_U8
from pullback._c.base.layout cimport layout_contiguous
from pullback._c.base.types cimport NODE_ACCUMULATE, NODE_FREED, node_edges, pb_edge, pb_node
from pullback._c.capture.code_names cimport code_of_node
from pullback._c.capture.recorder cimport Recorder
from pullback._c.device.storage cimport storage_release, storage_retain
from pullback._c.graph.node cimport node_object, node_release
from pullback._c.graph.record cimport tensor_edge
from pullback._c.graph.tensor cimport Tensor, tensor_wrap
from pullback._c.program.launches cimport BUFFER_INPUT, BUFFER_OUTER, Buffer, place_of

__all__ = ["address_of_edge", "edge_of", "lead_to", "outer_edges", "outer_sources",
           "sequence_of"]


cdef dict NO_ENDS = {}


def address_of_edge(Tensor tensor not None):
    """Return what identifies the edge to which the gradient of a result goes."""
    return <size_t>tensor.node, tensor.output_nr


def sequence_of(Tensor tensor not None):
    """Return the number of the node of a result: nodes that are made later have a larger one."""
    return tensor.node.sequence


def edge_of(Tensor tensor not None):
    """Return where the gradient of a tensor goes: its node and output number; a leaf itself.

    Of a view whose memory was written since, that is what its elements came from.
    """
    return tensor if tensor.node == NULL else (node_object(tensor.node), tensor.output_nr)


def outer_edges(Recorder recorder not None, list outputs not None, tuple inputs not None,
                dict ends not None=NO_ENDS):
    """Return where the graph of some tensors leaves what was recorded, or why it must not.

    That is a list of leaves, of numbers of arguments, and of what ``ends`` has for edges at which
    the graph ends, too; the nodes before, of which one may have been freed; the code of the
    program that runs in a backward pass: hooks and classes of functions; and the leaves that the
    function made.
    """
    cdef list pending = [], targets = [], code = [], made = []
    cdef set seen = set(), found = set()
    cdef Tensor tensor
    cdef pb_node *node
    cdef pb_edge *edge
    cdef uint32_t i
    cdef bint freed = False
    cdef dict numbers = dict(ends)
    for tensor in outputs:
        numbers.pop(address_of_edge(tensor), None)
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
                made.append(tensor)
                continue
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
    return targets, seen, freed, code, made


def lead_to(list outputs not None, Tensor before not None, Tensor now not None):
    """Let edges of the graph of some tensors that lead to one tensor lead to another one."""
    cdef list pending = []
    cdef set seen = set()
    cdef Tensor tensor
    cdef pb_node *node
    cdef pb_edge *edge
    cdef pb_edge wanted
    cdef uint32_t i
    if before.node == NULL:
        return
    for tensor in outputs:
        if tensor.node != NULL:
            pending.append(<size_t>tensor.node)
    while pending:
        node = <pb_node *><size_t>pending.pop()
        if <size_t>node in seen or node == before.node:
            continue
        seen.add(<size_t>node)
        for i in range(node.nedges):
            edge = &node_edges(node)[i]
            if edge.node == before.node and edge.nr == before.output_nr:
                tensor_edge(now, &wanted)
                node_release(edge.node)
                edge[0] = wanted
            elif edge.node != NULL:
                pending.append(<size_t>edge.node)


def outer_sources(Recorder recorder not None, Recorder before not None):
    """Make outer memory further arguments; return where each comes from, and new results.

    A source is ("result", number), a result to add to the program that ``before`` has recorded;
    ("input", number), that program's argument; or ("outside", tensor).
    """
    cdef Buffer buffer, origin
    cdef Tensor flat
    cdef list sources = [], results = []
    for buffer in recorder.buffers:
        if buffer.kind != BUFFER_OUTER:
            continue
        flat = tensor_wrap(storage_retain(buffer.storage),
                           layout_contiguous(1, &buffer.storage.nbytes), 0, PB_U8)
        origin = <Buffer>before.live.get(place_of(buffer.storage))
        begin = 0
        if origin is not None and origin.kind == BUFFER_INPUT:
            sources.append(("input", origin.input))
            begin = before.begins[origin.input]
        elif origin is not None and origin.kind != BUFFER_OUTER:
            sources.append(("result", len(results)))
            results.append(flat)
        else:
            sources.append(("outside", flat))
        storage_release(buffer.storage)     # the argument has it
        buffer.storage = NULL
        buffer.kind = BUFFER_INPUT
        buffer.input = <int>len(recorder.inputs)
        recorder.inputs.append(flat)
        recorder.begins.append(begin)
    recorder.known.clear()
    return sources, results
