# build: small
"""Which launches of a program are needed, when memory is used, and what is written."""

from pullback._c.capture.launches cimport (
    BUFFER_INPUT, BUFFER_OUTER, BUFFER_TEMPORARY, Buffer, Launch)


cdef int first_write(list launches, list buffers) except -1:
    """Return the first launch that writes to an argument or memory from outside; else the end."""
    cdef Launch launch
    cdef int i, number = 0
    for launch in launches:
        for i in range(launch.call.nout):
            if launch.buffers[i] >= 0 and (<Buffer>buffers[launch.buffers[i]]).kind in (
                    BUFFER_INPUT, BUFFER_OUTER):
                return number
        number += 1
    return number


cdef list live_launches(list launches, list buffers):
    """Return the launches whose results are used, by a later one or after the program."""
    cdef Launch launch
    cdef list kept = []
    cdef int i
    cdef bint needed
    cdef set used = {one.number for one in buffers if one.kind != BUFFER_TEMPORARY}
    for launch in reversed(launches):
        needed = launch.expected is not None
        for i in range(launch.call.nout):
            needed = needed or launch.buffers[i] in used
        if not needed:
            continue
        kept.append(launch)
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] >= 0:
                used.add(launch.buffers[i])
    kept.reverse()
    return kept


cdef int number_uses(list launches, list buffers) except -1:
    """Set the first and the last launch that uses each buffer."""
    cdef Launch launch
    cdef Buffer buffer
    cdef int i, number = 0
    for buffer in buffers:
        buffer.first = buffer.last = -1
    for launch in launches:
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] >= 0:
                buffer = <Buffer>buffers[launch.buffers[i]]
                if buffer.first < 0:
                    buffer.first = number
                buffer.last = number
        number += 1
    return 0


cdef bint decides_late(list launches, list buffers) except -1:
    """True if a decision without an error comes after a write to memory from outside."""
    cdef Launch launch
    for launch in launches[first_write(launches, buffers):]:
        if launch.expected is not None and launch.error is None:
            return True
    return False
