# build: small
"""Memory that several processes map, with a count of the references to it in its first bytes.

A process that maps a block has one reference to it, and so has each message in flight. A child of a
fork has inherited the memory, but no reference. Who gives back the last one removes the name.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <errno.h>
    #if defined(_WIN32)
    #include <process.h>
    #include <intrin.h>
    static void *pb_map(int fd, size_t length) { (void)fd; (void)length; errno = ENOSYS; return 0; }
    static void pb_unmap(void *base, size_t length) { (void)base; (void)length; }
    #define pb_process _getpid
    static int64_t pb_add(volatile int64_t *to, int64_t value) {
        return _InterlockedExchangeAdd64(to, value);
    }
    static int pb_set_if(volatile int64_t *to, int64_t before, int64_t after) {
        return _InterlockedCompareExchange64(to, after, before) == before;
    }
    #else
    #include <sys/mman.h>
    #include <unistd.h>
    static void *pb_map(int fd, size_t length) {
        void *base = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return base == MAP_FAILED ? 0 : base;
    }
    static void pb_unmap(void *base, size_t length) { munmap(base, length); }
    #define pb_process getpid
    static int64_t pb_add(volatile int64_t *to, int64_t value) {
        return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
    }
    static int pb_set_if(volatile int64_t *to, int64_t before, int64_t after) {
        return __atomic_compare_exchange_n(to, &before, after, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    }
    #endif
    """
    void *map_memory "pb_map"(int fd, size_t length) nogil
    void unmap_memory "pb_unmap"(void *base, size_t length) noexcept nogil
    int process_id "pb_process"() noexcept nogil
    int64_t fetch_add "pb_add"(int64_t *to, int64_t value) noexcept nogil
    bint set_if "pb_set_if"(int64_t *to, int64_t before, int64_t after) noexcept nogil

cdef extern from "Python.h":
    PyObject *PyErr_SetFromErrno(PyObject *type) except NULL
    PyObject *PyExc_OSError

HEADER = 64                             # bytes before the data


cdef class SharedBlock:
    """A mapped block; ``source`` is a file descriptor or, on Windows, an mmap object.

    ``unlink(name)`` is called when the last reference is given back. The object is the owner of a
    storage's memory.
    """
    cdef char *base
    cdef size_t length                  # with the header
    cdef Py_buffer view                 # of an mmap object
    cdef bint viewed, held
    cdef int process                    # that the reference belongs to
    cdef readonly str name
    cdef object unlink
    cdef public object kept             # memory that the storage had before
    cdef object __weakref__

    def __init__(self, source, size_t length, str name, unlink, bint new):
        if self.base != NULL or length < <size_t>HEADER:
            raise ValueError("SharedBlock: mapped already, or without space for the header")
        if isinstance(source, int):
            self.base = <char *>map_memory(source, length)
            if self.base == NULL:
                PyErr_SetFromErrno(PyExc_OSError)
        else:
            PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE)
            self.viewed = True
            if <size_t>self.view.len < length:
                raise ValueError("SharedBlock: the mapping is too short")
            self.base = <char *>self.view.buf
        self.length = length
        self.name = name
        self.unlink = unlink
        self.process = process_id()
        self.held = True
        if new:
            fetch_add(<int64_t *>self.base, 1)

    def __dealloc__(self):
        cdef PyObject *kind
        cdef PyObject *value
        cdef PyObject *trace
        PyErr_Fetch(&kind, &value, &trace)      # it may be why memory is freed
        try:
            self.give_back()
        except BaseException:
            pass
        PyErr_Restore(kind, value, trace)
        if self.viewed:
            PyBuffer_Release(&self.view)
        elif self.base != NULL:
            unmap_memory(self.base, self.length)

    @property
    def address(self):
        """The address of the data."""
        return <size_t>self.base + <size_t>HEADER

    @property
    def references(self):
        """The number of references to the block, in all processes."""
        return fetch_add(<int64_t *>self.base, 0)

    def take(self):
        """Take a reference for a message in flight; False if the block has no name any more."""
        cdef int64_t *count = <int64_t *>self.base
        cdef int64_t before = count[0]
        while before > 0:
            if set_if(count, before, before + 1):
                return True
            before = count[0]
        return False

    def give_back(self):
        """Give back this process's reference; the memory stays mapped."""
        if self.base == NULL or not self.held or self.process != process_id():
            return
        self.held = False
        if fetch_add(<int64_t *>self.base, -1) == 1:
            self.unlink(self.name)
