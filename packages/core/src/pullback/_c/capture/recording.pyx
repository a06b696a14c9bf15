# build: small
"""What was recorded of a call, and the program that is made of it."""

from pullback._c.device.storage cimport storage_retain
from pullback._c.program.arena cimport place_temporaries
from pullback._c.program.groups cimport find_groups, hold_for_groups
from pullback._c.program.launches cimport (
    BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTER, BUFFER_RESULT, BUFFER_TEMPORARY, Buffer, Launch)
from pullback._c.program.program cimport Program
from pullback._c.program.simplify cimport first_write, number_uses, simplified

__all__ = ["Recording"]


cdef class Recording:
    """Launches, the buffers that they use, and results."""

    cdef Recording copy(self):
        """Return a recording with launches and buffers of its own."""
        cdef Recording made = Recording.__new__(Recording)
        cdef Launch launch
        cdef Buffer buffer
        made.launches = [(<Launch>launch).copy() for launch in self.launches]
        made.buffers = [copy_of(<Buffer>buffer) for buffer in self.buffers]
        made.results = self.results
        made.begins = self.begins
        made.outers = self.outers
        made.draws = self.draws
        made.reads_options = self.reads_options
        return made

    def program(self):
        """Return the program, which takes the launches and buffers; a str says why there is none.
        """
        cdef Program made = Program.__new__(Program)
        cdef Launch launch
        cdef Buffer buffer
        cdef int i, number = 0
        for buffer in self.buffers:
            if buffer.kind == BUFFER_CONSTANT and buffer.written:
                buffer.kind = BUFFER_RESULT     # each run begins with what the host wrote
        made.results = self.results
        made.launches = simplified(self.launches, self.buffers)
        number_uses(made.launches, self.buffers)
        made.buffers = self.buffers
        made.begins = self.begins
        made.outers = self.outers
        made.writes = len(made.outers) > 0
        made.options = []
        for launch in made.launches if self.reads_options else ():
            made.options += [(number, i, option) for i, option in launch.options or ()]
            number += 1
        made.first_write = first_write(made.launches, self.buffers)
        made.draws = self.draws
        made.moving = [one for one in self.buffers if one.kind == BUFFER_RESULT
                       or one.first >= 0 and one.kind in (BUFFER_INPUT, BUFFER_OUTER)]
        made.device_type = -1
        for buffer in self.buffers:
            if buffer.kind == BUFFER_TEMPORARY and buffer.first >= 0:
                if made.device_type >= 0 and (made.device_type != buffer.device_type
                                              or made.device_index != buffer.device_index):
                    return "temporaries on several devices"
                made.device_type = buffer.device_type
                made.device_index = buffer.device_index
                made.temporaries += buffer.nbytes
        made.groups = find_groups(made.launches, self.buffers)
        inner = hold_for_groups(made.groups, self.buffers)
        made.arena = place_temporaries(self.buffers, inner, made.launches, made.groups)
        made.idle = []
        return made


cdef Buffer copy_of(Buffer buffer):
    """Return a buffer with references of its own."""
    cdef Buffer made = Buffer.__new__(Buffer)
    made.number = buffer.number
    made.kind = buffer.kind
    made.nbytes = buffer.nbytes
    made.input = buffer.input
    made.written = buffer.written
    made.device_type = buffer.device_type
    made.device_index = buffer.device_index
    if buffer.storage != NULL:
        made.storage = storage_retain(buffer.storage)
    made.first = made.last = -1
    return made
