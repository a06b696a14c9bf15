"""What one thread recorded: records of a fixed size, and words for what does not fit them."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XINCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport realloc

from pullback.abi cimport (
    PB_EVENT_FUNCTION, PB_EVENT_OP, PB_EVENT_RANGE, pb_array, pb_backend, pb_event)

cdef extern from "Python.h":
    PyObject *PyEval_GetFrame()
    PyObject *PyFrame_GetCode(PyObject *frame)
    PyObject *PyFrame_GetBack(PyObject *frame)

cdef extern from "frame_place.h":
    int64_t frame_place(PyObject *frame)
    int64_t line_of(PyObject *code, int64_t place)

cdef enum:
    BLOCK_RECORDS = 1024


ctypedef struct record_t:
    uint64_t id
    int64_t start               # nanoseconds
    int64_t end
    const char *name            # of a change of memory: its address
    int64_t sequence            # of a change of memory: bytes
    int32_t forward_thread
    int32_t ending_thread       # 0: the same
    int64_t details             # position among the words, or marks, of the log; -1: none
    int16_t kind
    int16_t device              # of a change of memory: device type * 256 + index


ctypedef struct block_t:
    block_t *next
    int used
    record_t records[BLOCK_RECORDS]


# The two points between which a device ran a kernel.
ctypedef struct mark_t:
    const pb_backend *backend
    int device_type
    int device
    void *first
    void *last


# When a device passed a point that the clock of the host was read at.
ctypedef struct base_t:
    const pb_backend *backend
    int device
    void *mark
    int64_t time


ctypedef struct log_t:
    log_t *next
    uint64_t thread
    block_t *first
    block_t *last
    record_t **running          # a stack
    int depth
    int room
    mark_t *marks
    int nmarks
    int marks_room
    int64_t *words              # details of records, see write_details
    int64_t nwords
    int64_t words_room
    PyObject **held             # owned: what the words point to
    int64_t nheld
    int64_t held_room
    PyObject *names             # owned (name, number in the system) of the thread, or NULL


# ---- details ------------------------------------------------------------------------------------

cdef inline int64_t write(log_t *log, int64_t word) except -1:
    """Append a word to the details; returns its position."""
    cdef int64_t *grown
    if log.nwords == log.words_room:
        grown = <int64_t *>realloc(log.words, (log.words_room * 2 + 1024) * sizeof(int64_t))
        if grown == NULL:
            raise MemoryError()
        log.words = grown
        log.words_room = log.words_room * 2 + 1024
    log.words[log.nwords] = word
    log.nwords += 1
    return log.nwords - 1


cdef inline int64_t write_object(log_t *log, PyObject *value) except -1:
    """Append an object, which lives as long as the log."""
    cdef PyObject **grown
    if log.nheld == log.held_room:
        grown = <PyObject **>realloc(log.held, (log.held_room * 2 + 256) * sizeof(PyObject *))
        if grown == NULL:
            raise MemoryError()
        log.held = grown
        log.held_room = log.held_room * 2 + 256
    Py_INCREF(<object>value)
    log.held[log.nheld] = value
    log.nheld += 1
    return write(log, <int64_t><size_t>value)


# Words: the number of inputs and each input; the number of frames, and code and line of each,
# innermost first. A range has one input, its name, and perhaps a second.
cdef enum:
    NOTHING = 0
    AN_OBJECT = 1               # then the object
    A_TENSOR = 2                # then dtype, number of dims, shape, strides
    A_SEQUENCE = 3              # then its length and each item


cdef inline int64_t write_details(log_t *log, const pb_event *event, bint shapes,
                                  bint stacks) except -2:
    cdef int64_t start = log.nwords
    cdef int i, count = event.ninput if shapes else 0
    if event.kind == PB_EVENT_RANGE:
        write(log, 1 + event.ninput)
        write(log, AN_OBJECT)
        write_object(log, <PyObject *>event.object)
        for i in range(event.ninput):
            write_value(log, event, <PyObject *>event.inputs[i])
    else:
        write(log, count)
        for i in range(count):
            write_value(log, event, <PyObject *>event.inputs[i])
    if stacks and (event.kind == PB_EVENT_OP or event.kind == PB_EVENT_RANGE
                   or event.kind == PB_EVENT_FUNCTION):
        write_stack(log)
    else:
        write(log, 0)
    return start


cdef inline int write_value(log_t *log, const pb_event *event, PyObject *value) except -1:
    """Append an input. What is neither a number nor a text is told by its repr: nothing is kept
    alive."""
    cdef pb_array array
    cdef object item
    cdef int d
    if value == NULL or value == <PyObject *>None:
        write(log, NOTHING)
        return 0
    if event.describe(value, &array):
        write(log, A_TENSOR)
        write(log, array.dtype)
        write(log, array.ndim)
        for d in range(array.ndim):
            write(log, array.shape[d])
        for d in range(array.ndim):
            write(log, array.strides[d])
        return 0
    item = <object>value
    if isinstance(item, (list, tuple)):
        write(log, A_SEQUENCE)
        write(log, len(item))
        for part in item:
            write_value(log, event, <PyObject *>part)
        return 0
    if not (type(item) is int or type(item) is bool or type(item) is float or type(item) is str
            or type(item) is complex):
        item = repr(item)
    write(log, AN_OBJECT)
    write_object(log, <PyObject *>item)
    return 0


cdef inline int write_stack(log_t *log) except -1:
    """Append the code and line of each Python frame, innermost first."""
    cdef int64_t start = write(log, 0)
    cdef PyObject *frame = <PyObject *>PyEval_GetFrame()
    cdef PyObject *code
    cdef PyObject *outer
    Py_XINCREF(frame)
    while frame != NULL:
        code = PyFrame_GetCode(frame)
        write_object(log, code)
        Py_DECREF(<object>code)
        write(log, frame_place(frame))
        log.words[start] += 1
        outer = PyFrame_GetBack(frame)
        Py_DECREF(<object>frame)
        frame = outer
    return 0


cdef inline tuple read_details(log_t *log, int64_t at):
    """Return (inputs, stack): (dtype, shape, strides) of a tensor, a list for a sequence, or the
    value; codes and lines in turn."""
    cdef int64_t i
    cdef int64_t *word = log.words + at
    cdef list inputs, stack = []
    cdef PyObject *code
    inputs = read_values(&word)
    for i in range(word[0]):
        code = <PyObject *><size_t>word[1 + 2 * i]
        stack.append(<object>code)
        stack.append(line_of(code, word[2 + 2 * i]))
    return inputs, tuple(stack)


cdef inline list read_values(int64_t **word):
    """Read a number of values, and that number before them."""
    cdef list values = []
    cdef int64_t left = word[0][0]
    word[0] += 1
    while left > 0:
        left -= 1
        values.append(read_value(word))
    return values


cdef inline object read_value(int64_t **word):
    cdef int64_t kind = word[0][0]
    cdef int64_t *at = word[0] + 1
    cdef int64_t d, ndim
    if kind == A_SEQUENCE:
        word[0] = at
        return read_values(word)
    if kind == AN_OBJECT:
        word[0] = at + 1
        return <object><PyObject *><size_t>at[0]
    if kind == A_TENSOR:
        ndim = at[1]
        word[0] = at + 2 + 2 * ndim
        return (at[0], tuple([at[2 + d] for d in range(ndim)]),
                tuple([at[2 + ndim + d] for d in range(ndim)]))
    word[0] = at
    return None
