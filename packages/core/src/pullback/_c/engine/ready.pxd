"""Node tasks, and the ready queue: a heap of tasks, the highest sequence number first."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc

from pullback._c.base.types cimport pb_node

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define PB_FETCH(address) __builtin_prefetch(address, 1)
    #else
    #define PB_FETCH(address) ((void)(address))
    #endif
    """
    void fetch "PB_FETCH"(void *address) noexcept nogil


# The state of one node in a backward pass.
ctypedef struct node_task:
    pb_node *node
    void *graph_task            # borrowed GraphTask
    int32_t dependencies
    uint32_t flags
    uint32_t next_edge          # of the traversal in mark_paths
    uint32_t noutputs
    int32_t first_capture       # position of an input at this node, if TASK_CAPTURED
    uint16_t awaited[2]         # streams to wait for: gradients in its input buffers come from them
    PyObject *single            # owned; the input buffer of a node with one output
    PyObject **many             # owned; the input buffers of any other node


cdef inline PyObject **input_buffers(node_task *task) noexcept:
    return &task.single if task.noutputs == 1 else task.many


cdef inline void fetch_ahead(node_task *tasks, uint32_t i, uint32_t count) noexcept:
    """Prefetch the node of a later task: large passes are bound by memory latency."""
    if i + 8 < count:
        fetch(&tasks[i + 8].node.task)


ctypedef struct ready_queue:
    node_task **tasks
    size_t count
    size_t room


cdef inline node_task **with_room(node_task **tasks, size_t *room) except NULL:
    """Return a longer array with the same tasks; frees the given one."""
    cdef node_task **grown = <node_task **>realloc(
        tasks, (room[0] * 2 + 64) * sizeof(node_task *))
    if grown == NULL:
        raise MemoryError()
    room[0] = room[0] * 2 + 64
    return grown


cdef inline int ready_push(ready_queue *ready, node_task *task) except -1:
    cdef size_t i, parent
    cdef uint64_t key = task.node.sequence
    if ready.count == ready.room:
        ready.tasks = with_room(ready.tasks, &ready.room)
    i = ready.count
    ready.count += 1
    while i > 0:
        parent = (i - 1) // 2
        if ready.tasks[parent].node.sequence >= key:
            break
        ready.tasks[i] = ready.tasks[parent]
        i = parent
    ready.tasks[i] = task
    return 0


cdef inline node_task *ready_pop(ready_queue *ready) noexcept:
    cdef node_task *top = ready.tasks[0]
    cdef node_task *last
    cdef size_t i = 0, child, n
    ready.count -= 1
    n = ready.count
    if n == 0:
        return top
    last = ready.tasks[n]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if (child + 1 < n and ready.tasks[child + 1].node.sequence
                > ready.tasks[child].node.sequence):
            child += 1
        if ready.tasks[child].node.sequence <= last.node.sequence:
            break
        ready.tasks[i] = ready.tasks[child]
        i = child
    ready.tasks[i] = last
    return top
