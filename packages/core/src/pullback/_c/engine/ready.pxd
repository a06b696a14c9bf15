"""The nodes of a backward pass that are ready to run: a heap, highest sequence number first."""

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


# What a pass knows of a node.
ctypedef struct visit_t:
    pb_node *node
    void *task
    int32_t dependencies
    uint32_t flags
    uint32_t next_edge          # of the walk that marks paths
    uint32_t noutputs
    int32_t first_capture       # position of an input at this node, if VISIT_CAPTURED
    uint16_t awaited[2]         # streams that what waits in its buffers comes from
    PyObject *single            # owned; the buffer of a node with one output
    PyObject **many             # owned; else


cdef inline PyObject **visit_buffers(visit_t *visit) noexcept:
    return &visit.single if visit.noutputs == 1 else visit.many


cdef inline void fetch_ahead(visit_t *visits, uint32_t i, uint32_t count) noexcept:
    """Begin to load the node of a later record: a pass over millions waits for memory only."""
    if i + 8 < count:
        fetch(&visits[i + 8].node.visit)


ctypedef struct ready_queue:
    visit_t **visits
    size_t count
    size_t room


cdef inline visit_t **with_room(visit_t **records, size_t *room) except NULL:
    """Return an array of records with more room; the one given is gone."""
    cdef visit_t **grown = <visit_t **>realloc(records, (room[0] * 2 + 64) * sizeof(visit_t *))
    if grown == NULL:
        raise MemoryError()
    room[0] = room[0] * 2 + 64
    return grown


cdef inline int ready_push(ready_queue *ready, visit_t *visit) except -1:
    cdef size_t i, parent
    cdef uint64_t key = visit.node.sequence
    if ready.count == ready.room:
        ready.visits = with_room(ready.visits, &ready.room)
    i = ready.count
    ready.count += 1
    while i > 0:
        parent = (i - 1) // 2
        if ready.visits[parent].node.sequence >= key:
            break
        ready.visits[i] = ready.visits[parent]
        i = parent
    ready.visits[i] = visit
    return 0


cdef inline visit_t *ready_pop(ready_queue *ready) noexcept:
    cdef visit_t *top = ready.visits[0]
    cdef visit_t *last
    cdef size_t i = 0, child, n
    ready.count -= 1
    n = ready.count
    if n == 0:
        return top
    last = ready.visits[n]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if (child + 1 < n and ready.visits[child + 1].node.sequence
                > ready.visits[child].node.sequence):
            child += 1
        if ready.visits[child].node.sequence <= last.node.sequence:
            break
        ready.visits[i] = ready.visits[child]
        i = child
    ready.visits[i] = last
    return top
