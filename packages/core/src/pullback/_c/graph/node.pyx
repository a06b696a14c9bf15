"""Nodes of the graph: C structs with a reference count, and their Python objects (class Node).

Nodes are freed by a loop, never by recursion: a dead node goes on a list, which the outermost call
empties. The garbage collector traverses nodes from the tensors and Python objects that own them,
only in full collections (see docs/develop/gc.md). How a node runs is in the layer `engine`.
"""

import gc

from cpython.exc cimport PyErr_Fetch, PyErr_Occurred, PyErr_Restore
from cpython.object cimport PyObject, PyTypeObject, traverseproc, visitproc
from cpython.ref cimport Py_DECREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from pullback.pool cimport PB_POOL_LARGEST, pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.base.dtype cimport dtype_differentiable
from pullback._c.base.layout cimport layout_release, layout_shape_tuple
from pullback._c.base.state cimport globals_, pb_globals, pb_state, process_pool, thread_state
from pullback._c.device.storage cimport storage_release
from pullback._c.device.streams cimport stream_now
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_COPY_SLICES, NODE_OP, NODE_PYTHON, SAVED_NONE, SAVED_OBJECT,
    SAVED_SHAPE, node_edges, node_meta, node_saved, pb_edge, pb_layout, pb_meta, pb_node,
    pb_node_extra, pb_saved, pb_storage)
from pullback._c.base.state import thread_number

__all__ = ["Node"]

cdef extern from "Python.h":
    PyObject **_PyObject_GetDictPtr(PyObject *object) noexcept
    bint PyObject_GC_IsTracked(PyObject *value) noexcept
    void PyObject_GC_Track(PyObject *value) noexcept
    void PyObject_GC_UnTrack(PyObject *value) noexcept
    Py_ssize_t Py_REFCNT(PyObject *value) noexcept

cdef pb_globals *process = globals_()
cdef pb_pool *pool = process_pool()
cdef pb_node *dying = NULL              # dead nodes, linked by `task`
cdef bint draining = False
cdef PyObject **late = NULL             # Python objects to release from the loop
cdef size_t late_count = 0
cdef size_t late_room = 0


# ---- making --------------------------------------------------------------------------------------

cdef inline size_t node_size(uint32_t nedges, uint32_t noutputs, uint16_t nsaved) noexcept:
    return (sizeof(pb_node) + noutputs * sizeof(pb_meta) + nedges * sizeof(pb_edge)
            + nsaved * sizeof(pb_saved))


cdef pb_node *node_new(int kind, uint32_t nedges, uint32_t noutputs, uint16_t nsaved) except NULL:
    """Return a node with empty edges, outputs and saved values; owned."""
    cdef size_t size = node_size(nedges, noutputs, nsaved)
    cdef pb_node *node
    cdef pb_state *state = thread_state()
    if size <= PB_POOL_LARGEST:
        node = <pb_node *>pb_pool_allocate(pool, size)
    else:
        node = <pb_node *>malloc(size)
    if node == NULL:
        raise MemoryError()
    memset(node, 0, size)
    node.refcount = 1
    node.kind = kind
    node.noutputs = noutputs
    node.nedges = nedges
    node.nsaved = nsaved
    if kind == NODE_ACCUMULATE:
        node.sequence = <uint64_t>-1
    else:
        node.sequence = state.sequence
        state.sequence += 1
    if state.thread == 0:
        thread_number()
    node.thread = <uint32_t>state.thread
    return node


cdef pb_node_extra *node_extra(pb_node *node) except NULL:
    """Return the fields that few nodes have, allocated on first use; borrowed."""
    if node.extra == NULL:
        node.extra = <pb_node_extra *>calloc(1, sizeof(pb_node_extra))
        if node.extra == NULL:
            raise MemoryError()
    return node.extra


cdef dict node_notes(pb_node *node):
    """Return the dict of a node's ``metadata``."""
    cdef pb_node_extra *extra = node_extra(node)
    if extra.metadata == NULL:
        notes = {}
        Py_INCREF(notes)
        extra.metadata = <PyObject *>notes
    return <dict>extra.metadata


cdef uint32_t node_gradient_count(pb_node *node) noexcept:
    """Return the number of gradients that hooks receive; trailing outputs may have none."""
    cdef uint32_t count = node.noutputs
    while (node.kind == NODE_OP and count > 1
            and not dtype_differentiable(node_meta(node)[count - 1].dtype)):
        count -= 1
    return count


cdef void node_set_meta(pb_node *node, int number, pb_layout *layout, int dtype,
                        pb_storage *storage) noexcept:
    """Set the metadata of forward output `number`."""
    cdef pb_meta *meta = node_meta(node) + number
    layout.refcount += 1
    if meta.layout != NULL:
        layout_release(meta.layout)
    meta.layout = layout
    meta.dtype = dtype
    meta.device_type = storage.device_type
    meta.device_index = storage.device_index
    if process.streams_used:
        meta.stream = stream_now(storage.device_type, storage.device_index)


# ---- freeing -------------------------------------------------------------------------------------

cdef void saved_clear(pb_saved *saved) noexcept:
    """Release what a saved value owns."""
    cdef pb_saved held = saved[0]
    saved.kind = SAVED_NONE
    saved.storage = NULL
    saved.layout = NULL
    saved.node = NULL
    saved.object = NULL
    if held.storage != NULL:
        storage_release(held.storage)
    if held.layout != NULL:
        layout_release(held.layout)
    if held.node != NULL:
        node_release(held.node)
    if held.object != NULL:
        Py_DECREF(<object>held.object)


cdef void node_release_saved(pb_node *node, int flags) noexcept:
    """Free the saved tensors, after which a node that had any cannot run again. Parameters stay.

    ``flags``: NODE_FREED, with NODE_FREED_BY_GRAD where grad() frees them.
    """
    cdef pb_saved *saved = node_saved(node)
    cdef PyObject *hooks
    cdef uint32_t i
    for i in range(node.nsaved):
        if saved[i].kind not in (SAVED_NONE, SAVED_OBJECT, SAVED_SHAPE):
            node.flags |= <uint8_t>flags
            saved_clear(&saved[i])
    if node.extra != NULL and node.extra.saved_hooks != NULL:
        hooks = node.extra.saved_hooks
        node.extra.saved_hooks = NULL
        Py_DECREF(<object>hooks)


cdef void extra_free(pb_node *node) noexcept:
    cdef pb_node_extra *extra = node.extra
    node.extra = NULL
    Py_XDECREF(extra.tensor_hooks)
    Py_XDECREF(extra.pre_hooks)
    Py_XDECREF(extra.post_hooks)
    Py_XDECREF(extra.metadata)
    Py_XDECREF(extra.retain)
    Py_XDECREF(extra.saved_hooks)
    free(extra)


cdef void node_dispose(pb_node *node) noexcept:
    cdef pb_edge *edges = node_edges(node)
    cdef pb_meta *meta = node_meta(node)
    cdef pb_saved *saved = node_saved(node)
    cdef uint32_t i
    for i in range(node.nsaved):
        if saved[i].kind != SAVED_NONE:
            saved_clear(&saved[i])
    if node.extra != NULL:
        extra_free(node)
    if node.kind == NODE_ACCUMULATE and accumulator_rests(node):
        return
    for i in range(node.nedges):
        if edges[i].node != NULL:
            node_release(edges[i].node)
    for i in range(node.noutputs):
        if meta[i].layout != NULL:
            layout_release(meta[i].layout)
    if node.kind != NODE_OP and node.op != NULL:
        Py_DECREF(<object>node.op)
    if node_size(node.nedges, node.noutputs, node.nsaved) <= PB_POOL_LARGEST:
        pb_pool_release(pool, node)
    else:
        free(node)


cdef void node_dead(pb_node *node) noexcept:
    """Free a node whose count is 0, and everything that it alone owned."""
    global dying
    node.task = dying
    dying = node
    if not draining:
        drain()


cdef void drain() noexcept:
    """Free the nodes and objects on the lists. Must not fail: it also runs when memory is short."""
    global dying, draining, late_count
    cdef pb_node *node
    cdef PyObject *kind
    cdef PyObject *error
    cdef PyObject *traceback
    cdef bint failing = PyErr_Occurred() != NULL
    if failing:                         # the pending exception must survive destructors
        PyErr_Fetch(&kind, &error, &traceback)
    draining = True
    while dying != NULL or late_count:
        if dying != NULL:
            node = dying
            dying = <pb_node *>node.task
            node_dispose(node)
        else:
            late_count -= 1
            Py_DECREF(<object>late[late_count])
    draining = False
    if failing:
        PyErr_Restore(kind, error, traceback)


cdef bint postpone(PyObject *object) noexcept:
    """Let the loop release one count of an object; false if the list cannot grow."""
    global late, late_count, late_room
    cdef PyObject **grown
    if late_count == late_room:
        grown = <PyObject **>realloc(late, (2 * late_room + 64) * sizeof(PyObject *))
        if grown == NULL:
            return False
        late = grown
        late_room = 2 * late_room + 64
    late[late_count] = object
    late_count += 1
    return True


cdef void release_later(PyObject *object) noexcept:
    """Release one count of an object without recursion."""
    if not postpone(object):
        Py_DECREF(<object>object)       # recursion is better than a leak
    elif not draining:
        drain()


cdef void node_release_python(pb_node *node) noexcept:
    # The Python object has the count; its deallocation calls node_dead().
    if not (draining and postpone(<PyObject *>node.wrapper)):
        Py_DECREF(<object>node.wrapper)


# Set by record.pyx: true if the leaf of a dead accumulator keeps it for its next use.
cdef bint (*leaf_keeps)(PyObject *variable, pb_node *node) noexcept


cdef void on_accumulator_death(bint (*hook)(PyObject *, pb_node *) noexcept) noexcept:
    """Install the function called when a leaf's accumulator dies (the leaf borrows it)."""
    global leaf_keeps
    leaf_keeps = hook


cdef bint accumulator_rests(pb_node *node) noexcept:
    """Leave a dead accumulator to its leaf, if that is alive, which uses it again.

    Such an accumulator has no count and no pointer to the leaf.
    """
    cdef PyObject *leaf = node.op
    if leaf == NULL or not leaf_keeps(leaf, node):
        return False
    node.flags = 0
    node.task = NULL
    node.op = NULL
    Py_DECREF(<object>leaf)
    return True


# ---- traversal by the garbage collector ----------------------------------------------------------
# A traversal reaches a node once from each owner. While the collector subtracts counts, the node's
# references are visited only after every owner has reached it, as if it were a container; in all
# other traversals at the first time. See docs/develop/gc.md.

cdef visitproc subtracting = NULL       # CPython's visit_decref, found at import
cdef visitproc current_visit = NULL
cdef pb_node **stack = NULL
cdef size_t stack_room = 0


cdef bint arrive(pb_node *node, visitproc visit) noexcept:
    """Count a traversal from one owner; True when the node's references are to be visited."""
    if node.gc_epoch != process.gc_epoch:
        node.gc_epoch = process.gc_epoch
        node.gc_count = 0
    node.gc_count += 1
    if visit == subtracting:
        return node.gc_count == <uint32_t>(
            node.refcount if node.kind != NODE_PYTHON else Py_REFCNT(node.wrapper))
    return node.gc_count == 1


cdef int show(pb_node *node, visitproc visit, void *arg, size_t *depth) noexcept:
    cdef pb_edge *edges = node_edges(node)
    cdef pb_saved *saved = node_saved(node)
    cdef pb_node_extra *extra = node.extra
    cdef uint32_t i
    for i in range(node.nsaved):
        if saved[i].object != NULL and visit(saved[i].object, arg):
            return 1
        if saved[i].node != NULL and push(saved[i].node, visit, arg, depth):
            return 1
    if extra != NULL:
        if extra.tensor_hooks != NULL and visit(extra.tensor_hooks, arg):
            return 1
        if extra.pre_hooks != NULL and visit(extra.pre_hooks, arg):
            return 1
        if extra.post_hooks != NULL and visit(extra.post_hooks, arg):
            return 1
        if extra.metadata != NULL and visit(extra.metadata, arg):
            return 1
        if extra.retain != NULL and visit(extra.retain, arg):
            return 1
        if extra.saved_hooks != NULL and visit(extra.saved_hooks, arg):
            return 1
    if node.kind != NODE_OP and node.op != NULL and visit(node.op, arg):
        return 1
    for i in range(node.nedges):
        if edges[i].node != NULL and push(edges[i].node, visit, arg, depth):
            return 1
    return 0


cdef int push(pb_node *node, visitproc visit, void *arg, size_t *depth) noexcept:
    global stack, stack_room
    cdef pb_node **grown
    if node.kind == NODE_PYTHON and PyObject_GC_IsTracked(node.wrapper):
        return visit(node.wrapper, arg)
    if not process.full_collection or not arrive(node, visit):
        return 0
    if depth[0] == stack_room:
        grown = <pb_node **>realloc(stack, (stack_room * 2 + 64) * sizeof(void *))
        if grown == NULL:
            return 0                    # fewer references are visited: only delays collection
        stack = grown
        stack_room = stack_room * 2 + 64
    stack[depth[0]] = node
    depth[0] += 1
    return 0


cdef int node_traverse(pb_node *node, visitproc visit, void *arg) noexcept:
    """Visit what is reachable from one count on `node`."""
    cdef size_t depth = 0
    if push(node, visit, arg, &depth):
        return 1
    return show_pushed(visit, arg, depth)


cdef int show_pushed(visitproc visit, void *arg, size_t depth) noexcept:
    while depth > 0:
        depth -= 1
        if show(stack[depth], visit, arg, &depth):
            return 1
    return 0


cdef void gc_begin(uint32_t *mark, visitproc visit) noexcept:
    """Call once per owner and traversal. Another visitor or the same owner begins a new one."""
    global current_visit, subtracting
    if subtracting == NULL:
        subtracting = visit             # the first traversal of the collection run at import
    if visit != current_visit or mark[0] == process.gc_epoch:
        current_visit = visit
        process.gc_epoch += 1
    mark[0] = process.gc_epoch


# A ctx that only the graph holds, and whose attributes cannot be part of a cycle, is untracked:
# young collections skip it as they skip a struct. A million tracked ones would slow down each.

cdef void hide_from_collector(Node ctx, Py_ssize_t held) noexcept:
    """Untrack a ctx if only the graph and `held` variables own it."""
    cdef PyObject **attributes = _PyObject_GetDictPtr(<PyObject *>ctx)
    if Py_REFCNT(<PyObject *>ctx) == held and (
            attributes[0] == NULL or not PyObject_GC_IsTracked(attributes[0])):
        PyObject_GC_UnTrack(<PyObject *>ctx)


cdef void show_to_collector(Node wrapper) noexcept:
    """Track a ctx again, before user code gets a reference to it."""
    if not PyObject_GC_IsTracked(<PyObject *>wrapper):
        PyObject_GC_Track(<PyObject *>wrapper)


# ---- the Python object ---------------------------------------------------------------------------

cdef dict node_types = {}


cdef str node_name(pb_node *node):
    """Return the node's name in torch."""
    if node.kind == NODE_OP:
        return op_node_name(node)
    if node.kind == NODE_PYTHON:
        return type(<object>node.wrapper).__name__
    if node.kind == NODE_ACCUMULATE:
        return "AccumulateGrad"
    if node.kind == NODE_COPY_SLICES:
        return "CopySlices"
    return (<object>node.op)[0]


cdef str op_node_name(pb_node *node):
    """Return the name of an op's node; the saved values decide which overload of torch it is."""
    op = <object>node.op
    if op.namer is None:
        return op.node_name
    return op.namer(*[kept_value(node, index) for index in op.namer_indices])


cdef object kept_value(pb_node *node, int index):
    """Return a saved parameter, or the shape of a tensor saved by shape; None for any other."""
    cdef pb_saved *saved = node_saved(node) + index
    if index >= node.nsaved:             # defaults at the end are not saved
        return None
    if saved.kind == SAVED_OBJECT:
        return <object>saved.object
    return layout_shape_tuple(saved.layout) if saved.kind == SAVED_SHAPE else None


cdef pb_node *node_of(Node self) except NULL:
    """Return the struct of a Node; raises for a ctx whose forward has not ended."""
    if self.node == NULL:
        raise RuntimeError(f"this {type(self).__name__} is no node of a graph: forward has not "
                           f"ended yet, or nothing was recorded")
    return self.node


cdef Node node_object(pb_node *node):
    """Return the Python object of a node; the same one as long as it exists."""
    cdef Node result
    if node.wrapper != NULL:
        show_to_collector(<Node>node.wrapper)
        return <Node>node.wrapper
    name = node_name(node)
    kind = node_types.get(name)
    if kind is None:
        kind = node_types[name] = type(name, (Node,), {"__module__": "pullback.autograd.graph"})
    result = <Node>(<type>Node).__new__(kind)
    result.node = node_retain(node)
    node.wrapper = <PyObject *>result
    return result


cdef class Node:
    """One recorded operation of the graph, as ``tensor.grad_fn`` gives it.

    >>> import pullback
    >>> (pullback.ones(2, requires_grad=True) * 2).grad_fn.name()
    'MulBackward0'
    """

    def __init__(self, *args, **kwargs):
        if type(self) is Node:
            raise TypeError("Can't instantiate abstract class Node: nodes are made by operations")

    def __dealloc__(self):
        cdef pb_node *node = self.node
        if node == NULL:
            return
        self.node = NULL
        node.wrapper = NULL
        if node.kind == NODE_PYTHON:
            node_dead(node)
        else:
            node_release(node)

    def __repr__(self):
        return f"<{type(self).__name__} object at {hex(id(self))}>"


cdef int node_object_traverse(PyObject *self, visitproc visit, void *arg) noexcept:
    cdef Node wrapper = <Node>self
    cdef PyObject **attributes = _PyObject_GetDictPtr(self)
    cdef size_t depth = 0
    if attributes != NULL and attributes[0] != NULL and visit(attributes[0], arg):
        return 1
    gc_begin(&wrapper.gc_mark, visit)
    if wrapper.node == NULL:
        return 0
    if wrapper.node.kind != NODE_PYTHON:
        return node_traverse(wrapper.node, visit, arg)
    if show(wrapper.node, visit, arg, &depth):
        return 1
    return show_pushed(visit, arg, depth)


(<PyTypeObject *>Node).tp_traverse = <traverseproc>node_object_traverse

# A collection begins by subtracting counts, so this one's first visitor is visit_decref.
cdef Node probe = (<type>Node).__new__(Node)
gc.collect(0)
