# build: small
"""Parts: consecutive launches of a program that an executor of their backend runs.

Where a backend has `compile` (abi.h), it is asked for an executor of each part of at least two
launches. On a host device these are launches of few elements that are in no group.
"""

cimport cython
from cpython.exc cimport PyErr_Occurred
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_E_PYTHON, PB_NUM_DTYPES, PB_OPERAND_INNER, PB_OPERAND_MOVES, pb_call, pb_kernel, pb_part)
from pullback._c.base.errors cimport raise_code
from pullback._c.program.launches cimport BUFFER_CONSTANT, BUFFER_TEMPORARY, Buffer, Launch
from pullback._c.device.device cimport device_type, has_field, pb_device_type, pb_entry

__all__ = ["Part"]


@cython.no_gc_clear
cdef class Part:
    """Launches that an executor of their backend runs."""

    def __dealloc__(self):
        if self.executor != NULL:
            self.backend.release_executor(self.backend.self, self.executor)
        PyMem_Free(<void *>self.part.calls)

    cdef int run(self, int32_t *begun, char *message) noexcept:
        """Run the launches; return what a kernel returns."""
        cdef void *stream = NULL
        if self.backend.current_stream != NULL:
            stream = self.backend.current_stream(self.backend.self, self.device)
        begun[0] = self.count
        return self.backend.execute(self.backend.self, self.executor, stream, begun, message)


cdef list find_parts(list launches, list groups, list buffers):
    """Return the parts of an instance's launches that have an executor, in order."""
    cdef list found = []
    cdef set grouped = {group.first + i for group in groups for i in range(group.count)}
    cdef int number, first = 0
    cdef Launch launch, before = None
    for number, launch in enumerate([*launches, None]):
        if before is not None and (
                launch is None or number in grouped or not may_join(launch)
                or launch.type_id != before.type_id or launch.call.device != before.call.device):
            if number - first > 1:
                ask(first, launches[first:number], buffers, found)
            before = None
        if before is None:
            first = number
        if launch is not None and number not in grouped and may_join(launch):
            before = launch
    return found


cdef bint may_join(Launch launch) except -1:
    """True if a backend may run a launch: it is a call of a kernel of its own."""
    cdef pb_device_type *found = device_type(launch.type_id)
    cdef pb_entry *entry
    if launch.expected is not None or launch.reads_host() or found.backend == NULL or not has_field(
            found.backend, &found.backend.release_executor) or found.backend.compile == NULL:
        return False
    entry = &found.table[launch.call.primitive * PB_NUM_DTYPES + launch.key]
    if found.host and (entry.kernel == NULL or launch.work >= SMALL_WORK):
        return False
    return entry.kernel != NULL or entry.callable != NULL


cdef int ask(int first, list launches, list buffers, list found) except -1:
    """Ask the backend for an executor; add the part to `found` if there is one."""
    cdef Part made = Part.__new__(Part)
    cdef pb_part *part = &made.part
    cdef Launch launch = launches[0]
    cdef Buffer buffer
    cdef pb_device_type *type_ = device_type(launch.type_id)
    cdef pb_call **calls
    cdef pb_kernel *kernels
    cdef int64_t *offsets
    cdef int32_t *dtypes
    cdef int32_t *blocks
    cdef uint8_t *flags
    cdef char *room
    cdef int count = <int>len(launches), operands = 0, i, k, at = 0
    for launch in launches:
        operands += launch.call.nout + launch.call.nin
    room = <char *>PyMem_Malloc(count * (2 * sizeof(void *) + sizeof(int32_t))
                                + operands * (sizeof(int64_t) + sizeof(int32_t) + 1))
    if room == NULL:
        raise MemoryError()
    memset(part, 0, sizeof(pb_part))
    calls = <pb_call **>room
    part.calls = calls
    kernels = <pb_kernel *>(calls + count)
    offsets = <int64_t *>(kernels + count)
    dtypes = <int32_t *>(offsets + operands)
    blocks = dtypes + count
    flags = <uint8_t *>(blocks + operands)
    for i in range(count):
        launch = <Launch>launches[i]
        launch.call.backend = type_.backend.self
        calls[i] = &launch.call
        kernels[i] = type_.table[launch.call.primitive * PB_NUM_DTYPES + launch.key].kernel
        dtypes[i] = launch.key
        for k in range(launch.call.nout + launch.call.nin):
            flags[at] = 0
            blocks[at] = -1
            offsets[at] = 0
            if launch.buffers[k] >= 0:
                buffer = <Buffer>buffers[launch.buffers[k]]
                offsets[at] = launch.shifts[k]
                if buffer.kind == BUFFER_TEMPORARY:         # in the arena, which has number 0
                    blocks[at] = 0
                    offsets[at] += buffer.place
                    if buffer.first >= first and buffer.last < first + count:
                        flags[at] = PB_OPERAND_INNER
                else:
                    blocks[at] = buffer.number + 1
                    if buffer.kind != BUFFER_CONSTANT:
                        flags[at] = PB_OPERAND_MOVES
            at += 1
    part.size = sizeof(pb_part)
    part.count = count
    part.kernels = kernels
    part.dtypes = dtypes
    part.flags = flags
    part.blocks = blocks
    part.offsets = offsets
    made.first = first
    made.count = count
    made.host = type_.host
    made.backend = type_.backend
    made.launches = launches
    made.device = (<Launch>launches[0]).call.device
    made.executor = made.backend.compile(made.backend.self, part)
    if made.executor != NULL:
        found.append(made)
    elif PyErr_Occurred() != NULL:
        raise_code(PB_E_PYTHON, b"", "compile")
    return 0
