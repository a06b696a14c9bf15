# build: small
# cython: auto_pickle=True
"""Where a stream of random numbers is: moved by compiled code, so no interrupt comes in between."""

from libc.stdint cimport uint64_t

__all__ = ["RandomPosition"]

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() nogil

cdef list recorded = None       # of a capture: (generator, seed, first block, blocks) of each draw
cdef unsigned long recording_thread = 0


cdef void record_draws(list draws) noexcept:
    global recorded, recording_thread
    recorded = draws
    recording_thread = PyThread_get_thread_ident()


cdef class RandomPosition:
    """The seed of a stream, and the counter block at which it goes on."""
    cdef readonly uint64_t _seed
    cdef readonly uint64_t _offset

    def set_position(self, uint64_t seed, uint64_t block):
        """Go on with a block of counters of the stream of a seed, as ``take`` returns them."""
        self.note(self._seed, self._offset, None)       # no draw: a new position
        self._seed = seed
        self._offset = block

    def position(self):
        """Return where the stream is: the seed and the next block."""
        return self._seed, self._offset

    def go_back(self, uint64_t seed, uint64_t block):
        """As set_position, to what `position` returned before: a program does so, too."""
        self.note(seed, block, -1)
        self._seed = seed
        self._offset = block

    def take(self, uint64_t blocks):
        """Reserve counter blocks; return (seed, first block)."""
        found = self._seed, self._offset
        self.note(self._seed, self._offset, blocks)
        self._offset += blocks
        return found

    cdef int note(self, uint64_t seed, uint64_t block, blocks) except -1:
        if recorded is not None and recording_thread == PyThread_get_thread_ident():
            recorded.append((self, seed, block, blocks))
        return 0
