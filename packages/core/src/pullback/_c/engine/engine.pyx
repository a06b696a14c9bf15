"""The backward pass.

    1. Every node reachable from the roots gets a node task: the number of edges that lead to it
       from reachable nodes (its dependencies), and an input buffer for each forward output.
    2. If only some inputs are asked for, the nodes on a path to them are marked; no other runs.
    3. The roots' gradients go into their input buffers. Tasks without dependencies are ready.
    4. The ready task with the highest sequence number runs: tensor hooks on its input buffers,
       capture of gradients that the caller asked for, node hooks, the node's formula, post hooks.
    5. Each gradient it returns is fitted to its forward input, accumulated into the input buffer of
       the next node's task, and that task's dependencies go down by one; at 0 it is ready.
    6. Saved values are freed as soon as their node has run, unless the graph is kept.

Nothing recurses: neither traversal, nor running, nor freeing. Node tasks are allocated in blocks
that the graph task owns; a node points to its task during the pass. If the node has one of another
pass already (reentrant or concurrent backward), a dict of this graph task has it instead. A nested
pass uses the same stack; every 60th goes on in another thread (handoff.pyx).
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from pullback.abi cimport PB_EVENT_EVALUATION, pb_event
from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.engine.accumulate cimport (
    add_target, find_add_target, release_add_targets, sum_grads)
from pullback._c.graph.anomaly cimport note_failure, note_freed, note_gradients, wants_gradients
from pullback._c.engine.apply_node cimport node_apply
from pullback._c.engine.grad_utils cimport (
    check_not_in_transform, edge_of_input, edge_of_item, fit_gradient, implicit_seed, is_logged,
    log_node, why_no_grad)
from pullback._c.device.handoff cimport on_fresh_stack
from pullback._c.engine.hooks cimport (
    run_leaf_hooks, run_post_accumulate, run_post_hooks, run_pre_hooks, run_tensor_hooks)
from pullback._c.base.interrupts cimport poll_signals
from pullback._c.graph.node cimport Node, node_of, node_release, node_release_saved, node_retain
from pullback._c.dispatch.observer cimport begin_node, end_event
from pullback._c.engine.ready cimport (
    fetch_ahead, input_buffers, node_task, ready_pop, ready_push, with_room)
from pullback._c.engine.copy_slices cimport release_slices
from pullback._c.base.state cimport (
    globals_, pb_globals, pb_state, process_pool, refuse_capture, thread_state)
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
cdef uint64_t passes = 0        # number of passes begun in this process

cdef enum:
    TASK_NEEDED = 1             # runs in this pass
    TASK_CAPTURED = 2           # the caller asked for a gradient here
    TASK_WALKED = 4             # its edges were traversed
    TASK_QUEUED = 8             # a root that is in the ready queue
    FEW = 8                     # results of a node up to this many are on the stack
    LARGE = 1 << 12             # elements from which on products are added in place (add_targets)
    STACK_LEVELS = 60           # nested passes on one stack


cdef class GraphTask:
    """One backward pass."""

    def __dealloc__(self):
        clear_tasks(self)
        free(self.ready.tasks)
        free(self.next_capture)


# ---- node tasks ----------------------------------------------------------------------------------

cdef node_task *find_task(GraphTask graph_task, pb_node *node) except? NULL:
    """Return the node's task in this pass, or NULL."""
    cdef node_task *task = <node_task *>node.task
    if task != NULL and task.graph_task == <void *>graph_task:
        return task
    if graph_task.table is None:
        return NULL
    found = graph_task.table.get(<size_t>node)
    return NULL if found is None else <node_task *><size_t>found


cdef node_task *new_task(GraphTask graph_task, pb_node *node) except NULL:
    cdef task_block *block = graph_task.blocks
    cdef node_task *task
    if block == NULL or block.used == BLOCK_LENGTH:
        block = <task_block *>pb_pool_allocate(pool, sizeof(task_block))
        if block == NULL:
            raise MemoryError()
        block.used = 0
        block.next = graph_task.blocks
        graph_task.blocks = block
    task = &block.tasks[block.used]
    memset(task, 0, sizeof(node_task))
    task.node = node
    task.graph_task = <void *>graph_task
    task.noutputs = node.noutputs
    if node.noutputs != 1:
        task.many = <PyObject **>calloc(node.noutputs + 1, sizeof(PyObject *))
        if task.many == NULL:
            raise MemoryError()
    block.used += 1
    if node.task == NULL:
        node.task = task
    else:
        if graph_task.table is None:
            graph_task.table = {}
        graph_task.table[<size_t>node] = <size_t>task
    node_retain(node)
    return task


cdef void clear_tasks(GraphTask graph_task) noexcept:
    """Free every node task and its input buffers, and reset the nodes' pointers to them."""
    cdef task_block *block
    cdef node_task *task
    cdef PyObject *held
    cdef uint32_t i, k
    while graph_task.blocks != NULL:
        block = graph_task.blocks
        graph_task.blocks = block.next
        for i in range(block.used):
            fetch_ahead(block.tasks, i, block.used)
            task = &block.tasks[i]
            if task.node.task == task:
                task.node.task = NULL
            for k in range(task.noutputs):
                held = input_buffers(task)[k]
                input_buffers(task)[k] = NULL
                Py_XDECREF(held)
            if task.many != NULL:
                free(task.many)
                task.many = NULL
            node_release(task.node)
        pb_pool_release(pool, block)
    graph_task.table = None


# ---- before the run ------------------------------------------------------------------------------

cdef int count_dependencies(GraphTask graph_task) except -1:
    """Make a task for every reachable node and count the edges that lead to it."""
    cdef node_task **stack = NULL
    cdef node_task *task
    cdef node_task *next_task
    cdef pb_edge *edges
    cdef size_t depth = 0, room = 0
    cdef uint32_t i, turns = 0
    cdef Py_ssize_t k
    try:
        for k in range(graph_task.nroots):
            if find_task(graph_task, graph_task.roots[k].node) == NULL:
                new_task(graph_task, graph_task.roots[k].node)
        for k in range(graph_task.nroots):
            task = find_task(graph_task, graph_task.roots[k].node)
            if task.flags & TASK_WALKED:
                continue
            task.flags |= TASK_WALKED
            while True:
                poll_signals(&turns)
                edges = node_edges(task.node)
                for i in range(task.node.nedges):
                    if edges[i].node == NULL:
                        continue
                    next_task = find_task(graph_task, edges[i].node)
                    if next_task == NULL:
                        next_task = new_task(graph_task, edges[i].node)
                    next_task.dependencies += 1
                    if next_task.flags & TASK_WALKED:
                        continue
                    next_task.flags |= TASK_WALKED
                    if depth == room:
                        stack = with_room(stack, &room)
                    stack[depth] = next_task
                    depth += 1
                if depth == 0:
                    break
                depth -= 1
                task = stack[depth]
    finally:
        free(stack)
    return 0


cdef int mark_paths(GraphTask graph_task) except -1:
    """Mark the tasks on paths from roots to captured nodes, which are marked already."""
    cdef node_task **stack = NULL
    cdef node_task *task
    cdef node_task *next_task
    cdef size_t depth, room = 0
    cdef uint32_t turns = 0
    cdef pb_edge *edge
    cdef Py_ssize_t k
    try:
        for k in range(graph_task.nroots):
            task = find_task(graph_task, graph_task.roots[k].node)
            if not task.flags & TASK_WALKED:
                continue
            task.flags &= ~TASK_WALKED              # reset: entered by this traversal
            depth = 0
            while True:
                poll_signals(&turns)
                if task.next_edge < task.node.nedges:
                    edge = node_edges(task.node) + task.next_edge
                    task.next_edge += 1
                    if edge.node == NULL:
                        continue
                    next_task = find_task(graph_task, edge.node)
                    if next_task.flags & TASK_WALKED and not (
                            graph_task.cut and next_task.flags & TASK_CAPTURED):
                        next_task.flags &= ~TASK_WALKED
                        if depth == room:
                            stack = with_room(stack, &room)
                        stack[depth] = task
                        depth += 1
                        task = next_task
                    elif next_task.flags & (TASK_NEEDED | TASK_CAPTURED):
                        task.flags |= TASK_NEEDED
                    continue
                if depth == 0:
                    break
                next_task = task
                depth -= 1
                task = stack[depth]
                if next_task.flags & (TASK_NEEDED | TASK_CAPTURED):
                    task.flags |= TASK_NEEDED
    finally:
        free(stack)
    return 0


# ---- gradients between nodes ---------------------------------------------------------------------

cdef int accumulate_into_buffer(GraphTask graph_task, pb_node *source, pb_edge *edge,
                                node_task *next_task, PyObject *value) except -1:
    """Accumulate a gradient into an input buffer of the next task; steals the count.

    `source` is the node that computed it; NULL for the gradient of a root.
    """
    cdef PyObject **buffer = input_buffers(next_task) + edge.nr
    cdef object total
    cdef PyObject *before
    if buffer[0] == NULL and not process.streams_used:
        buffer[0] = value
        return 0
    try:
        if process.streams_used:
            total = add_in_order(graph_task, source, edge, next_task, value)
        else:
            total = sum_grads(buffer[0], <Tensor>value, graph_task.create_graph)
    finally:
        Py_DECREF(<object>value)
    if <PyObject *>total != buffer[0]:
        before = buffer[0]
        Py_INCREF(total)
        buffer[0] = <PyObject *>total
        Py_XDECREF(before)
    return 0


cdef object add_in_order(GraphTask graph_task, pb_node *source, pb_edge *edge, node_task *next_task,
                         PyObject *value):
    """Return the sum of an input buffer and a gradient, added on the stream of the next node."""
    cdef PyObject *waiting = input_buffers(next_task)[edge.nr]
    cdef uint16_t before = order_of(graph_task).arrive(source, next_task, edge.nr, <Tensor>value,
                                                       waiting != NULL)
    if waiting == NULL:
        return <object>value
    try:
        return sum_grads(waiting, <Tensor>value, graph_task.create_graph)
    finally:
        stream_set(before)


cdef StreamOrder order_of(GraphTask graph_task):
    """Return the StreamOrder of a pass, made at first use."""
    if graph_task.order is None:
        graph_task.order = StreamOrder()
        if graph_task.outer != NULL:
            graph_task.order.outer = order_of(<GraphTask>graph_task.outer)
    return graph_task.order


# ---- one node ------------------------------------------------------------------------------------

cdef int run_node(GraphTask graph_task, node_task *task) except -1:
    """Run hooks, capture, the node itself, and propagate its results."""
    cdef pb_node *node = task.node
    cdef PyObject **grads = input_buffers(task)
    cdef PyObject *few[FEW]
    cdef PyObject **results = few
    cdef uint32_t i, nedges = node.nedges
    cdef uint64_t skipped = 0
    cdef PyObject *held
    cdef add_target targets[FEW]
    cdef add_target *add_targets = NULL
    cdef bint hooked = node.flags & NODE_HOOKED != 0
    if graph_task.cut and task.flags & TASK_CAPTURED:
        pass                            # its hooks run with its history
    elif hooked:
        run_tensor_hooks(node, grads)
    elif node.kind == NODE_ACCUMULATE and (<Tensor>node.op).extra.hooks != NULL:
        run_leaf_hooks(node, grads)
    if task.flags & TASK_CAPTURED:
        capture(graph_task, task, grads)
    if not graph_task.restricted or task.flags & TASK_NEEDED:
        if process.capture != NULL and node.sequence < process.capture.oldest:
            refuse_capture(b"a backward pass through the history of a tensor from outside")
        if nedges > FEW:
            results = <PyObject **>malloc(nedges * sizeof(PyObject *))
            if results == NULL:
                raise MemoryError()
        memset(results, 0, nedges * sizeof(PyObject *))
        if graph_task.restricted:
            skipped = unneeded_edges(graph_task, node)
        try:
            if hooked:
                run_pre_hooks(node, grads)
            elif (node.kind == NODE_OP and nedges <= FEW and task.noutputs == 1
                    and grads[0] != NULL and (<Tensor>grads[0]).layout.numel >= LARGE):
                add_targets = find_add_targets(graph_task, node, targets)
            node_apply(node, grads, results, graph_task.create_graph, skipped, add_targets)
            release_add_targets(add_targets, nedges)
            if (node.kind == NODE_ACCUMULATE and (<Tensor>node.op).extra.post_hooks != NULL
                    and (<Tensor>node.op).flags & TENSOR_REQUIRES_GRAD):
                run_post_accumulate(node)
            if hooked:
                run_post_hooks(node, grads, results)
            if process.anomaly and wants_gradients(node):
                note_gradients(node, grads, results)
            if not graph_task.keep_graph:
                node_release_saved(node, graph_task.freed)
                if node.kind == NODE_COPY_SLICES:
                    release_slices(node, graph_task.freed)
                if process.anomaly and node.flags & NODE_FREED:
                    note_freed(node)
            for i in range(task.noutputs):
                held = grads[i]
                grads[i] = NULL
                Py_XDECREF(held)
            propagate(graph_task, node, results)
            if nedges == 0 and process.streams_used:
                order_of(graph_task).finish_leaf(node)
        finally:
            release_add_targets(add_targets, nedges)
            for i in range(nedges):
                Py_XDECREF(results[i])
            if results != few:
                free(results)
    return 0


cdef int run_observed(GraphTask graph_task, node_task *task) except -1:
    cdef pb_event event
    begin_node(&event, task.node, input_buffers(task), PB_EVENT_EVALUATION)
    try:
        return run_node(graph_task, task)
    finally:
        event.ninput = 0                # the gradients were propagated
        end_event(&event)


cdef add_target *find_add_targets(GraphTask graph_task, pb_node *node,
                                  add_target *targets) except? NULL:
    """Find the tensor that each edge's gradient can be added to in place; NULL if none may."""
    cdef pb_edge *edges = node_edges(node)
    cdef node_task *next_task
    cdef uint32_t i
    if graph_task.create_graph or thread_state().levels or wants_gradients(node):
        return NULL
    for i in range(node.nedges):
        targets[i].total = targets[i].leaf = NULL
        if edges[i].node == NULL:
            continue
        next_task = find_task(graph_task, edges[i].node)
        if process.streams_used and not order_of(graph_task).is_shared(
                node, next_task, edges[i].nr):
            continue
        if not graph_task.restricted or next_task.flags & (TASK_NEEDED | TASK_CAPTURED):
            find_add_target(&targets[i], &edges[i], input_buffers(next_task)[edges[i].nr],
                            next_task.dependencies == 1 and not next_task.flags & TASK_CAPTURED)
    return targets


cdef uint64_t unneeded_edges(GraphTask graph_task, pb_node *node) except? -1:
    """Return a mask of the edges that lead to none of the inputs: their gradients are unneeded."""
    cdef uint64_t mask = 0
    cdef pb_edge *edges = node_edges(node)
    cdef uint32_t i
    for i in range(min(node.nedges, 64)):
        if edges[i].node != NULL and not (find_task(graph_task, edges[i].node).flags
                                          & (TASK_NEEDED | TASK_CAPTURED)):
            mask |= <uint64_t>1 << i
    return mask


cdef int capture(GraphTask graph_task, node_task *task, PyObject **grads) except -1:
    """Store the gradients of this node that the caller asked for."""
    cdef int32_t position = task.first_capture
    while position >= 0:
        if grads[graph_task.inputs[position].nr] != NULL:
            graph_task.captured[position] = <object>grads[graph_task.inputs[position].nr]
            if process.streams_used:
                order_of(graph_task).hand_over(task.node, graph_task.inputs[position].nr,
                                               <Tensor>grads[graph_task.inputs[position].nr])
        position = graph_task.next_capture[position]
    return 0


cdef int propagate(GraphTask graph_task, pb_node *node, PyObject **results) except -1:
    """Accumulate each result into the input buffer of its edge; push tasks that become ready."""
    cdef pb_edge *edges = node_edges(node)
    cdef pb_meta *meta
    cdef node_task *next_task
    cdef PyObject *value
    cdef uint32_t i
    cdef object fitted
    for i in range(node.nedges):
        if edges[i].node == NULL:
            continue
        next_task = find_task(graph_task, edges[i].node)
        if not graph_task.restricted or next_task.flags & (TASK_NEEDED | TASK_CAPTURED):
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
                accumulate_into_buffer(graph_task, node, &edges[i], next_task, value)
        next_task.dependencies -= 1
        if next_task.dependencies == 0 and (
                not graph_task.restricted or next_task.flags & (TASK_NEEDED | TASK_CAPTURED)):
            ready_push(&graph_task.ready, next_task)
    return 0


# ---- the pass ------------------------------------------------------------------------------------

cdef GraphTask running_task():
    cdef void *graph_task = thread_state().graph_task
    return None if graph_task == NULL else <GraphTask>graph_task


def queue_callback(callback, bint always=False):
    """Run ``callback()`` when the outermost backward pass of this thread is done.

    With ``always`` also when it failed. Raises: RuntimeError outside a pass.
    """
    cdef GraphTask graph_task = running_task()
    if graph_task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    while graph_task.outer != NULL:
        graph_task = <GraphTask>graph_task.outer
    if graph_task.callbacks is None:
        graph_task.callbacks = []
    graph_task.callbacks.append((callback, always))


def run_backward(list roots, list grads, bint keep_graph, bint create_graph, list inputs,
                 bint accumulate, bint cut=False):
    """Run one backward pass.

    ``roots`` and ``inputs`` hold tensors or (Node, output number) pairs; ``inputs`` is None for
    all leaves. ``grads`` holds one tensor per root, or None for 1. With ``accumulate`` the inputs'
    nodes run too; with ``cut`` they do not, and what is below them is reached on other ways alone.
    Returns the captured gradients, one per input.
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
            check_not_in_transform()
        for k in range(nroots):
            edge_of_item(roots[k], &edges[k],
                         f"element {k} of tensors does not require grad and does not have a "
                         f"grad_fn" if not is_tensor(roots[k]) else why_no_grad(k, roots[k]))
            if grads[k] is None:
                grads[k] = implicit_seed(&edges[k])
        for k in range(ninputs):
            edge_of_input(inputs[k], &edges[nroots + k])
        return run_pass(edges, nroots, grads, keep_graph, create_graph, inputs is not None,
                        ninputs, accumulate, cut)
    finally:
        for k in range(nroots + ninputs):
            if edges[k].node != NULL:
                node_release(edges[k].node)
        if edges != few:
            free(edges)


def grad_of(output, inputs, bint keep_graph, bint create_graph):
    """Return the gradients of one tensor, as a tuple; None for calls that need more checks."""
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
                     bint create_graph, bint restricted, Py_ssize_t ninputs, bint accumulate,
                     bint cut=False):
    """Run a backward pass from the first `nroots` edges, to the others if it is ``restricted``."""
    global passes
    cdef GraphTask graph_task = GraphTask.__new__(GraphTask)
    graph_task.keep_graph = keep_graph
    graph_task.freed = NODE_FREED | (NODE_FREED_BY_GRAD if restricted and not accumulate else 0)
    graph_task.create_graph = create_graph
    graph_task.restricted = restricted
    graph_task.accumulate = accumulate
    graph_task.cut = cut
    graph_task.roots = edges
    graph_task.nroots = nroots
    graph_task.grads = grads
    graph_task.inputs = edges + nroots
    graph_task.ninputs = ninputs
    graph_task.outer = thread_state().graph_task
    passes += 1
    graph_task.number = passes
    if graph_task.outer != NULL:
        graph_task.level = (<GraphTask>graph_task.outer).level + 1
        if graph_task.level % STACK_LEVELS == 0:
            return on_fresh_stack(run_graph_task, graph_task, graph_task.level)
    return run_graph_task(graph_task)


cdef object run_graph_task(object started):
    cdef GraphTask graph_task = <GraphTask>started
    cdef pb_state *state = thread_state()
    cdef bint grad_before = state.grad_enabled, inference_before = state.inference
    cdef void *running_before = state.running_node
    cdef node_task *task = NULL
    cdef uint32_t turns = 0
    cdef Py_ssize_t k
    cdef bint logged
    try:
        if graph_task.cut:
            for k in range(graph_task.ninputs):
                if find_task(graph_task, graph_task.inputs[k].node) == NULL:
                    new_task(graph_task, graph_task.inputs[k].node).flags |= TASK_WALKED
        count_dependencies(graph_task)
        if graph_task.restricted:
            prepare_captures(graph_task)
        state.graph_task = <void *>graph_task
        state.grad_enabled = graph_task.create_graph
        state.inference = 0
        seed(graph_task)
        logged = is_logged()
        while graph_task.ready.count > 0:
            poll_signals(&turns)
            task = ready_pop(&graph_task.ready)
            if logged:
                log_node(task.node, input_buffers(task))
            state.running_node = task.node
            if process.streams_used:
                order_of(graph_task).enter(task)
            if process.observer == NULL:
                run_node(graph_task, task)
            else:
                run_observed(graph_task, task)
            task = NULL
        if graph_task.order is not None:
            graph_task.order.leave(False)
    except BaseException:
        if graph_task.order is not None:
            graph_task.order.leave(True)
        if task != NULL and process.anomaly:
            state.graph_task = graph_task.outer
            note_failure(task.node)
        if graph_task.callbacks is not None:
            run_callbacks(graph_task, True)
        raise
    finally:
        state.graph_task = graph_task.outer
        state.running_node = running_before
        state.grad_enabled = grad_before
        state.inference = inference_before
        clear_tasks(graph_task)
    if graph_task.callbacks is not None:
        run_callbacks(graph_task, False)
    return graph_task.captured


cdef int run_callbacks(GraphTask graph_task, bint failed) except -1:
    """Call the queued callbacks, which may queue more."""
    cdef pb_state *state = thread_state()
    state.graph_task = <void *>graph_task
    try:
        for callback, always in graph_task.callbacks:
            if always or not failed:
                callback()
    finally:
        state.graph_task = graph_task.outer
    return 0


cdef int prepare_captures(GraphTask graph_task) except -1:
    cdef node_task *task
    cdef int32_t position
    graph_task.captured = [None] * graph_task.ninputs
    graph_task.next_capture = <int32_t *>malloc((graph_task.ninputs + 1) * sizeof(int32_t))
    if graph_task.next_capture == NULL:
        raise MemoryError()
    for position in range(<int32_t>graph_task.ninputs):
        graph_task.next_capture[position] = -1
        task = find_task(graph_task, graph_task.inputs[position].node)
        if task == NULL:
            continue
        if task.flags & TASK_CAPTURED:
            graph_task.next_capture[position] = task.first_capture
        task.first_capture = position
        task.flags |= TASK_CAPTURED
        if graph_task.accumulate:
            task.flags |= TASK_NEEDED
    return mark_paths(graph_task)


cdef int seed(GraphTask graph_task) except -1:
    """Put the roots' gradients into their input buffers; push tasks without dependencies."""
    cdef node_task *task
    cdef object value
    cdef Py_ssize_t k
    for k in range(graph_task.nroots):
        task = find_task(graph_task, graph_task.roots[k].node)
        value = graph_task.grads[k]
        graph_task.grads[k] = None
        Py_INCREF(value)
        accumulate_into_buffer(graph_task, NULL, &graph_task.roots[k], task, <PyObject *>value)
        value = None
        # A single root's hooks receive its gradient even if it leads to none of the inputs.
        if task.dependencies == 0 and not task.flags & TASK_QUEUED and (
                not graph_task.restricted or graph_task.nroots == 1
                or task.flags & (TASK_NEEDED | TASK_CAPTURED)):
            task.flags |= TASK_QUEUED
            ready_push(&graph_task.ready, task)
    return 0


def current_task_id():
    """Return the number of this thread's running backward pass, unique in the process, or -1."""
    cdef GraphTask graph_task = running_task()
    return -1 if graph_task is None else graph_task.number


def is_restricted():
    """Return True if this thread runs a backward pass to some inputs only."""
    cdef GraphTask graph_task = running_task()
    while graph_task is not None and not graph_task.restricted:
        graph_task = None if graph_task.outer == NULL else <GraphTask>graph_task.outer
    return graph_task is not None


def will_compute(Node node not None, unsigned int number):
    """Return True if the running backward pass computes the gradient of this forward output."""
    cdef GraphTask graph_task = running_task()
    cdef node_task *task = NULL if graph_task is None else find_task(graph_task, node_of(node))
    if task == NULL:
        return False
    return not graph_task.restricted or task.flags & (TASK_NEEDED | TASK_CAPTURED) != 0
