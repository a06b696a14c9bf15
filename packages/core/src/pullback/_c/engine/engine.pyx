"""The backward pass.

    1. Every node reachable from the roots gets a record: how many edges lead to it from reachable
       nodes (its dependencies), and a buffer for each of its forward outputs.
    2. If only some inputs are asked for, the nodes on a path to them are marked; no other runs.
    3. The roots' gradients go into their buffers. Nodes without dependencies are ready.
    4. The ready node with the highest sequence number runs: tensor hooks on its buffers, capture
       of what the caller asked for, node hooks, its formula, post hooks.
    5. Each gradient it returns is checked against the forward input it belongs to, added to the
       next node's buffer, and the next node's dependencies go down by one; at 0 it is ready.
    6. Saved values are freed as soon as their node has run, unless the graph is kept.

Nothing recurses: neither the walk, nor the run, nor freeing. Records live in blocks that the pass
owns; a node points to its record while the pass runs. If another pass holds the node already
(reentrant or concurrent backward), the record is found in a table of this pass instead. A pass that
a node begins uses the same stack; every 60th of those goes on in another thread (handoff.pyx).
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from pullback.abi cimport PB_EVENT_EVALUATION, pb_event
from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.engine.accumulate cimport find_sum, release_sums, running_sum, sum_grads
from pullback._c.graph.anomaly cimport note_failure, note_freed
from pullback._c.engine.apply_node cimport node_apply
from pullback._c.engine.grad_utils cimport (
    check_nan, edge_of_input, edge_of_item, fit_gradient, implicit_seed, is_logged, log_node,
    refuse_in_transform, why_no_grad)
from pullback._c.device.handoff cimport on_fresh_stack
from pullback._c.engine.hooks cimport (
    run_leaf_hooks, run_post_accumulate, run_post_hooks, run_pre_hooks, run_tensor_hooks)
from pullback._c.base.interrupts cimport poll_signals
from pullback._c.graph.node cimport Node, node_of, node_release, node_release_saved, node_retain
from pullback._c.dispatch.observer cimport begin_node, end_event
from pullback._c.engine.ready cimport (
    fetch_ahead, ready_pop, ready_push, ready_queue, visit_buffers, visit_t, with_room)
from pullback._c.engine.copy_slices cimport release_slices
from pullback._c.base.state cimport globals_, pb_globals, pb_state, process_pool, thread_state
from pullback._c.engine.stream_order cimport StreamOrder
from pullback._c.device.streams cimport stream_set
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_REQUIRES_GRAD, Tensor, is_tensor, tensor_device_index,
    tensor_device_type)
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_COPY_SLICES, NODE_FREED, NODE_FREED_BY_GRAD, NODE_HOOKED, NODE_OP,
    node_edges, node_meta, pb_edge, pb_meta, pb_node)

cdef pb_globals *process = globals_()
cdef pb_pool *pool = process_pool()

cdef enum:
    VISIT_NEEDED = 1            # runs in this pass
    VISIT_CAPTURED = 2          # the caller asked for a gradient here
    VISIT_WALKED = 4            # its edges were followed
    VISIT_QUEUED = 8            # a root that is ready
    BLOCK_LENGTH = 256          # four blocks fill a slab of the pool
    FEW = 8                     # edges of a node that need no memory of their own
    LARGE = 1 << 12             # elements of a gradient that is worth a look at where it goes
    STACK_LEVELS = 60           # passes inside of each other on one stack


ctypedef struct block_t:
    block_t *next
    uint32_t used
    visit_t visits[BLOCK_LENGTH]


cdef class GraphTask:
    """One backward pass."""
    cdef bint keep_graph, create_graph
    cdef bint restricted                # only some inputs are asked for
    cdef int freed                      # flags of nodes whose saved values this pass frees
    cdef block_t *blocks
    cdef dict table                     # node address -> record, for nodes that others hold
    cdef ready_queue ready
    cdef bint accumulate                # the inputs' nodes run too
    cdef pb_edge *roots                 # borrowed
    cdef Py_ssize_t nroots
    cdef list grads                     # one per root
    cdef pb_edge *inputs                # borrowed: what the caller asked for
    cdef Py_ssize_t ninputs
    cdef int32_t *next_capture          # owned: the next input at the same node, -1 ends
    cdef list captured, callbacks
    cdef uint64_t number
    cdef void *outer
    cdef uint64_t level                 # how many passes this one runs inside of
    cdef StreamOrder order              # None as long as there are only default streams

    def __dealloc__(self):
        task_clear(self)
        free(self.ready.visits)
        free(self.next_capture)


# ---- records -------------------------------------------------------------------------------------

cdef visit_t *visit_find(GraphTask task, pb_node *node) except? NULL:
    """Return the node's record in this pass, or NULL."""
    cdef visit_t *visit = <visit_t *>node.visit
    if visit != NULL and visit.task == <void *>task:
        return visit
    if task.table is None:
        return NULL
    found = task.table.get(<size_t>node)
    return NULL if found is None else <visit_t *><size_t>found


cdef visit_t *visit_new(GraphTask task, pb_node *node) except NULL:
    cdef block_t *block = task.blocks
    cdef visit_t *visit
    if block == NULL or block.used == BLOCK_LENGTH:
        block = <block_t *>pb_pool_allocate(pool, sizeof(block_t))
        if block == NULL:
            raise MemoryError()
        block.used = 0
        block.next = task.blocks
        task.blocks = block
    visit = &block.visits[block.used]
    memset(visit, 0, sizeof(visit_t))
    visit.node = node
    visit.task = <void *>task
    visit.noutputs = node.noutputs
    if node.noutputs != 1:
        visit.many = <PyObject **>calloc(node.noutputs + 1, sizeof(PyObject *))
        if visit.many == NULL:
            raise MemoryError()
    block.used += 1
    if node.visit == NULL:
        node.visit = visit
    else:
        if task.table is None:
            task.table = {}
        task.table[<size_t>node] = <size_t>visit
    node_retain(node)
    return visit


cdef void task_clear(GraphTask task) noexcept:
    """Give up every buffer and record; the graph is as before the pass."""
    cdef block_t *block
    cdef visit_t *visit
    cdef PyObject *held
    cdef uint32_t i, k
    while task.blocks != NULL:
        block = task.blocks
        task.blocks = block.next
        for i in range(block.used):
            fetch_ahead(block.visits, i, block.used)
            visit = &block.visits[i]
            if visit.node.visit == visit:
                visit.node.visit = NULL
            for k in range(visit.noutputs):
                held = visit_buffers(visit)[k]
                visit_buffers(visit)[k] = NULL
                Py_XDECREF(held)
            if visit.many != NULL:
                free(visit.many)
                visit.many = NULL
            node_release(visit.node)
        pb_pool_release(pool, block)
    task.table = None


# ---- before the run ------------------------------------------------------------------------------

cdef int count_dependencies(GraphTask task) except -1:
    """Make a record for every reachable node and count the edges that lead to it."""
    cdef visit_t **stack = NULL
    cdef visit_t *visit
    cdef visit_t *below
    cdef pb_edge *edges
    cdef size_t depth = 0, room = 0
    cdef uint32_t i, turns = 0
    cdef Py_ssize_t k
    try:
        for k in range(task.nroots):
            if visit_find(task, task.roots[k].node) == NULL:
                visit_new(task, task.roots[k].node)
        for k in range(task.nroots):
            visit = visit_find(task, task.roots[k].node)
            if visit.flags & VISIT_WALKED:
                continue
            visit.flags |= VISIT_WALKED
            while True:
                poll_signals(&turns)
                edges = node_edges(visit.node)
                for i in range(visit.node.nedges):
                    if edges[i].node == NULL:
                        continue
                    below = visit_find(task, edges[i].node)
                    if below == NULL:
                        below = visit_new(task, edges[i].node)
                    below.dependencies += 1
                    if below.flags & VISIT_WALKED:
                        continue
                    below.flags |= VISIT_WALKED
                    if depth == room:
                        stack = with_room(stack, &room)
                    stack[depth] = below
                    depth += 1
                if depth == 0:
                    break
                depth -= 1
                visit = stack[depth]
    finally:
        free(stack)
    return 0


cdef int mark_paths(GraphTask task) except -1:
    """Mark what lies on a path from a root to a captured node; captures are marked already."""
    cdef visit_t **stack = NULL
    cdef visit_t *visit
    cdef visit_t *below
    cdef size_t depth, room = 0
    cdef uint32_t turns = 0
    cdef pb_edge *edge
    cdef Py_ssize_t k
    try:
        for k in range(task.nroots):
            visit = visit_find(task, task.roots[k].node)
            if not visit.flags & VISIT_WALKED:
                continue
            visit.flags &= ~VISIT_WALKED            # now means: entered by this walk
            depth = 0
            while True:
                poll_signals(&turns)
                if visit.next_edge < visit.node.nedges:
                    edge = node_edges(visit.node) + visit.next_edge
                    visit.next_edge += 1
                    if edge.node == NULL:
                        continue
                    below = visit_find(task, edge.node)
                    if below.flags & VISIT_WALKED:
                        below.flags &= ~VISIT_WALKED
                        if depth == room:
                            stack = with_room(stack, &room)
                        stack[depth] = visit
                        depth += 1
                        visit = below
                    elif below.flags & (VISIT_NEEDED | VISIT_CAPTURED):
                        visit.flags |= VISIT_NEEDED
                    continue
                if depth == 0:
                    break
                below = visit
                depth -= 1
                visit = stack[depth]
                if below.flags & (VISIT_NEEDED | VISIT_CAPTURED):
                    visit.flags |= VISIT_NEEDED
    finally:
        free(stack)
    return 0


# ---- gradients between nodes ---------------------------------------------------------------------

cdef int deliver(GraphTask task, pb_node *source, pb_edge *edge, visit_t *below,
                 PyObject *value) except -1:
    """Add a gradient to the buffer of the next node; steals the count.

    It comes from the node `source`, or from the caller.
    """
    cdef PyObject **buffer = visit_buffers(below) + edge.nr
    cdef object total
    cdef PyObject *before
    if buffer[0] == NULL and not process.streams_used:
        buffer[0] = value
        return 0
    try:
        if process.streams_used:
            total = add_in_order(task, source, edge, below, value)
        else:
            total = sum_grads(buffer[0], <Tensor>value, task.create_graph)
    finally:
        Py_DECREF(<object>value)
    if <PyObject *>total != buffer[0]:
        before = buffer[0]
        Py_INCREF(total)
        buffer[0] = <PyObject *>total
        Py_XDECREF(before)
    return 0


cdef object add_in_order(GraphTask task, pb_node *source, pb_edge *edge, visit_t *below,
                         PyObject *value):
    """Return what the buffer holds with a gradient, added on the stream of the next node."""
    cdef PyObject *waiting = visit_buffers(below)[edge.nr]
    cdef uint16_t before = order_of(task).arrive(source, below, edge.nr, <Tensor>value,
                                                 waiting != NULL)
    if waiting == NULL:
        return <object>value
    try:
        return sum_grads(waiting, <Tensor>value, task.create_graph)
    finally:
        stream_set(before)


cdef StreamOrder order_of(GraphTask task):
    """Return what keeps the streams of a pass in order, made when it is needed."""
    if task.order is None:
        task.order = StreamOrder()
        if task.outer != NULL:
            task.order.outer = order_of(<GraphTask>task.outer)
    return task.order


# ---- one node ------------------------------------------------------------------------------------

cdef int run_node(GraphTask task, visit_t *visit) except -1:
    """Hooks, capture, the node itself, and its results on their way."""
    cdef pb_node *node = visit.node
    cdef PyObject **grads = visit_buffers(visit)
    cdef PyObject *few[FEW]
    cdef PyObject **results = few
    cdef uint32_t i, nedges = node.nedges
    cdef uint64_t skipped = 0
    cdef PyObject *held
    cdef running_sum places[FEW]
    cdef running_sum *sums = NULL
    cdef bint hooked = node.flags & NODE_HOOKED != 0
    if hooked:
        run_tensor_hooks(node, grads)
    elif node.kind == NODE_ACCUMULATE and (<Tensor>node.op).extra.hooks != NULL:
        run_leaf_hooks(node, grads)
    if visit.flags & VISIT_CAPTURED:
        capture(task, visit, grads)
    if not task.restricted or visit.flags & VISIT_NEEDED:
        if nedges > FEW:
            results = <PyObject **>malloc(nedges * sizeof(PyObject *))
            if results == NULL:
                raise MemoryError()
        memset(results, 0, nedges * sizeof(PyObject *))
        if task.restricted:
            skipped = beside_paths(task, node)
        try:
            if hooked:
                run_pre_hooks(node, grads)
            elif (node.kind == NODE_OP and nedges <= FEW and visit.noutputs == 1
                    and grads[0] != NULL and (<Tensor>grads[0]).layout.numel >= LARGE):
                sums = find_sums(task, node, places)
            node_apply(node, grads, results, task.create_graph, skipped, sums)
            release_sums(sums, nedges)
            if (node.kind == NODE_ACCUMULATE and (<Tensor>node.op).extra.post_hooks != NULL
                    and (<Tensor>node.op).flags & TENSOR_REQUIRES_GRAD):
                run_post_accumulate(node)
            if hooked:
                run_post_hooks(node, grads, results)
            if process.anomaly and process.anomaly_check_nan:
                check_nan(node, grads, results)
            if not task.keep_graph:
                node_release_saved(node, task.freed)
                if node.kind == NODE_COPY_SLICES:
                    release_slices(node, task.freed)
                if process.anomaly and node.flags & NODE_FREED:
                    note_freed(node)
            for i in range(visit.noutputs):
                held = grads[i]
                grads[i] = NULL
                Py_XDECREF(held)
            pass_on(task, node, results)
            if nedges == 0 and process.streams_used:
                order_of(task).finish_leaf(node)
        finally:
            release_sums(sums, nedges)
            for i in range(nedges):
                Py_XDECREF(results[i])
            if results != few:
                free(results)
    return 0


cdef int run_observed(GraphTask task, visit_t *visit) except -1:
    cdef pb_event event
    begin_node(&event, visit.node, visit_buffers(visit), PB_EVENT_EVALUATION)
    try:
        return run_node(task, visit)
    finally:
        event.ninput = 0                # the gradients have gone on
        end_event(&event)


cdef running_sum *find_sums(GraphTask task, pb_node *node, running_sum *places) except? NULL:
    """Say where the gradient of each edge could be added at once; NULL where that may not be."""
    cdef pb_edge *edges = node_edges(node)
    cdef visit_t *below
    cdef uint32_t i
    if task.create_graph or process.anomaly or thread_state().levels:
        return NULL
    for i in range(node.nedges):
        places[i].total = places[i].leaf = NULL
        if edges[i].node == NULL:
            continue
        below = visit_find(task, edges[i].node)
        if process.streams_used and not order_of(task).is_shared(node, below, edges[i].nr):
            continue
        if not task.restricted or below.flags & (VISIT_NEEDED | VISIT_CAPTURED):
            find_sum(&places[i], &edges[i], visit_buffers(below)[edges[i].nr],
                     below.dependencies == 1 and not below.flags & VISIT_CAPTURED)
    return places


cdef uint64_t beside_paths(GraphTask task, pb_node *node) except? -1:
    """Return a mask of the edges that lead to none of the inputs: ops need not follow them."""
    cdef uint64_t mask = 0
    cdef pb_edge *edges = node_edges(node)
    cdef uint32_t i
    for i in range(min(node.nedges, 64)):
        if edges[i].node != NULL and not (visit_find(task, edges[i].node).flags
                                          & (VISIT_NEEDED | VISIT_CAPTURED)):
            mask |= <uint64_t>1 << i
    return mask


cdef int capture(GraphTask task, visit_t *visit, PyObject **grads) except -1:
    """Keep the gradients that the caller asked for at this node."""
    cdef int32_t position = visit.first_capture
    while position >= 0:
        if grads[task.inputs[position].nr] != NULL:
            task.captured[position] = <object>grads[task.inputs[position].nr]
            if process.streams_used:
                order_of(task).hand_over(visit.node, task.inputs[position].nr,
                                         <Tensor>grads[task.inputs[position].nr])
        position = task.next_capture[position]
    return 0


cdef int pass_on(GraphTask task, pb_node *node, PyObject **results) except -1:
    """Hand each result to the node it belongs to; ready nodes go into the queue."""
    cdef pb_edge *edges = node_edges(node)
    cdef pb_meta *meta
    cdef visit_t *below
    cdef PyObject *value
    cdef uint32_t i
    cdef object fitted
    for i in range(node.nedges):
        if edges[i].node == NULL:
            continue
        below = visit_find(task, edges[i].node)
        if not task.restricted or below.flags & (VISIT_NEEDED | VISIT_CAPTURED):
            value = results[i]
            if value != NULL:
                meta = node_meta(edges[i].node) + edges[i].nr
                if ((<Tensor>value).layout != meta.layout or (<Tensor>value).dtype != meta.dtype
                        or tensor_device_type(<Tensor>value) != meta.device_type
                        or tensor_device_index(<Tensor>value) != meta.device_index):
                    fitted = fit_gradient(node, i, &edges[i], <object>value)
                    if <PyObject *>fitted != value:
                        Py_INCREF(fitted)
                        results[i] = <PyObject *>fitted
                        Py_DECREF(<object>value)
                        value = <PyObject *>fitted
                    fitted = None
                results[i] = NULL
                deliver(task, node, &edges[i], below, value)
        below.dependencies -= 1
        if below.dependencies == 0 and (
                not task.restricted or below.flags & (VISIT_NEEDED | VISIT_CAPTURED)):
            ready_push(&task.ready, below)
    return 0


cdef uint64_t passes = 0        # that were begun in this process


# ---- the pass ------------------------------------------------------------------------------------

cdef GraphTask running_task():
    cdef void *task = thread_state().graph_task
    return None if task == NULL else <GraphTask>task


def queue_callback(callback, bint always=False):
    """Run ``callback()`` when the outermost backward pass of this thread is done.

    With ``always`` also when it failed. Raises: RuntimeError outside a pass.
    """
    cdef GraphTask task = running_task()
    if task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    while task.outer != NULL:
        task = <GraphTask>task.outer
    if task.callbacks is None:
        task.callbacks = []
    task.callbacks.append((callback, always))


def run_backward(list roots, list grads, bint keep_graph, bint create_graph, list inputs,
                 bint accumulate):
    """Run one pass.

    ``roots`` and ``inputs`` hold tensors or (Node, output number) pairs; ``inputs`` is None for
    all leaves. ``grads`` holds one tensor per root, or None for 1. With ``accumulate`` the inputs'
    nodes run too. Returns the captured gradients, one per input.
    """
    cdef Py_ssize_t k, nroots = len(roots), ninputs = 0 if inputs is None else len(inputs)
    cdef pb_edge few[8]
    cdef pb_edge *edges = few
    if nroots + ninputs > 8:
        edges = <pb_edge *>calloc(nroots + ninputs, sizeof(pb_edge))
        if edges == NULL:
            raise MemoryError()
    else:
        memset(few, 0, sizeof(few))
    try:
        if accumulate or inputs is None:
            refuse_in_transform()
        for k in range(nroots):
            edge_of_item(roots[k], &edges[k],
                         f"element {k} of tensors does not require grad and does not have a "
                         f"grad_fn" if not is_tensor(roots[k]) else why_no_grad(k, roots[k]))
            if grads[k] is None:
                grads[k] = implicit_seed(&edges[k])
        for k in range(ninputs):
            edge_of_input(inputs[k], &edges[nroots + k])
        return run_pass(edges, nroots, grads, keep_graph, create_graph, inputs is not None,
                        ninputs, accumulate)
    finally:
        for k in range(nroots + ninputs):
            if edges[k].node != NULL:
                node_release(edges[k].node)
        if edges != few:
            free(edges)


def grad_of(output, inputs, bint keep_graph, bint create_graph):
    """Return the gradients of one tensor, as a tuple; None if something needs a closer look."""
    cdef list found
    if type(inputs) is not list and type(inputs) is not tuple:
        return None
    if not is_tensor(output) or not inputs or (<Tensor>output).flags & TENSOR_IS_BATCHED:
        return None
    for item in inputs:
        if not is_tensor(item) or (<Tensor>item).flags & TENSOR_IS_BATCHED:
            return None
    found = run_backward([output], [None], keep_graph, create_graph, list(inputs), False)
    for item in found:
        if item is None:
            return found
    return tuple(found)


cdef object run_pass(pb_edge *edges, Py_ssize_t nroots, list grads, bint keep_graph,
                     bint create_graph, bint restricted, Py_ssize_t ninputs, bint accumulate):
    """Run a pass from the first of the edges, to the others if it is ``restricted``."""
    global passes
    cdef GraphTask task = GraphTask.__new__(GraphTask)
    task.keep_graph = keep_graph
    task.freed = NODE_FREED | NODE_FREED_BY_GRAD if restricted and not accumulate else NODE_FREED
    task.create_graph = create_graph
    task.restricted = restricted
    task.accumulate = accumulate
    task.roots = edges
    task.nroots = nroots
    task.grads = grads
    task.inputs = edges + nroots
    task.ninputs = ninputs
    task.outer = thread_state().graph_task
    passes += 1
    task.number = passes
    if task.outer != NULL:
        task.level = (<GraphTask>task.outer).level + 1
        if task.level % STACK_LEVELS == 0:
            return on_fresh_stack(run_task, task, task.level)
    return run_task(task)


cdef object run_task(object started):
    cdef GraphTask task = <GraphTask>started
    cdef pb_state *state = thread_state()
    cdef bint grad_before = state.grad_enabled, inference_before = state.inference
    cdef void *running_before = state.running_node
    cdef visit_t *visit = NULL
    cdef uint32_t turns = 0
    cdef bint logged
    try:
        count_dependencies(task)
        if task.restricted:
            prepare_captures(task)
        state.graph_task = <void *>task
        state.grad_enabled = task.create_graph
        state.inference = 0
        seed(task)
        logged = is_logged()
        while task.ready.count > 0:
            poll_signals(&turns)
            visit = ready_pop(&task.ready)
            if logged:
                log_node(visit.node, visit_buffers(visit))
            state.running_node = visit.node
            if process.streams_used:
                order_of(task).enter(visit)
            if process.observer == NULL:
                run_node(task, visit)
            else:
                run_observed(task, visit)
            visit = NULL
        if task.order is not None:
            task.order.leave(False)
    except BaseException:
        if task.order is not None:
            task.order.leave(True)
        if visit != NULL and process.anomaly:
            state.graph_task = task.outer
            note_failure(visit.node)
        if task.callbacks is not None:
            run_callbacks(task, True)
        raise
    finally:
        state.graph_task = task.outer
        state.running_node = running_before
        state.grad_enabled = grad_before
        state.inference = inference_before
        task_clear(task)
    if task.callbacks is not None:
        run_callbacks(task, False)
    return task.captured


cdef int run_callbacks(GraphTask task, bint failed) except -1:
    """Call what was queued during the pass, which may queue more."""
    cdef pb_state *state = thread_state()
    state.graph_task = <void *>task
    try:
        for callback, always in task.callbacks:
            if always or not failed:
                callback()
    finally:
        state.graph_task = task.outer
    return 0


cdef int prepare_captures(GraphTask task) except -1:
    cdef visit_t *visit
    cdef int32_t position
    task.captured = [None] * task.ninputs
    task.next_capture = <int32_t *>malloc((task.ninputs + 1) * sizeof(int32_t))
    if task.next_capture == NULL:
        raise MemoryError()
    for position in range(<int32_t>task.ninputs):
        task.next_capture[position] = -1
        visit = visit_find(task, task.inputs[position].node)
        if visit == NULL:
            continue
        if visit.flags & VISIT_CAPTURED:
            task.next_capture[position] = visit.first_capture
        visit.first_capture = position
        visit.flags |= VISIT_CAPTURED
        if task.accumulate:
            visit.flags |= VISIT_NEEDED
    return mark_paths(task)


cdef int seed(GraphTask task) except -1:
    """Put the roots' gradients into their buffers; queue the nodes nothing else leads to."""
    cdef visit_t *visit
    cdef object value
    cdef Py_ssize_t k
    for k in range(task.nroots):
        visit = visit_find(task, task.roots[k].node)
        value = task.grads[k]
        task.grads[k] = None
        Py_INCREF(value)
        deliver(task, NULL, &task.roots[k], visit, <PyObject *>value)
        value = None
        # A single root's hooks see its gradient even if it leads to none of the inputs.
        if visit.dependencies == 0 and not visit.flags & VISIT_QUEUED and (
                not task.restricted or task.nroots == 1
                or visit.flags & (VISIT_NEEDED | VISIT_CAPTURED)):
            visit.flags |= VISIT_QUEUED
            ready_push(&task.ready, visit)
    return 0


def current_task_id():
    """Return a number that only this thread's running pass has, or -1."""
    cdef GraphTask task = running_task()
    return -1 if task is None else task.number


def is_restricted():
    """Return True if this thread runs a pass that is only after the gradients of some inputs."""
    cdef GraphTask task = running_task()
    while task is not None and not task.restricted:
        task = None if task.outer == NULL else <GraphTask>task.outer
    return task is not None


def will_compute(Node node not None, unsigned int number):
    """Return True if the running pass computes the gradient of this forward output."""
    cdef GraphTask task = running_task()
    cdef visit_t *visit = NULL if task is None else visit_find(task, node_of(node))
    if visit == NULL:
        return False
    return not task.restricted or visit.flags & (VISIT_NEEDED | VISIT_CAPTURED) != 0
