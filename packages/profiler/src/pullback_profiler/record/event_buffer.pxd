"""The event buffer of a thread: records of a fixed size, and words for what does not fit them."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport strcmp

from pullback.abi cimport (
    PB_EVENT_FUNCTION, PB_EVENT_OP, PB_EVENT_RANGE, pb_array, pb_backend, pb_event)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        const char *tp_name
    PyTypeObject *Py_TYPE(PyObject *value)
    bint PyList_Check(PyObject *value)
    bint PyTuple_Check(PyObject *value)
    Py_ssize_t PyList_GET_SIZE(PyObject *value)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *value)
    PyObject *PyList_GET_ITEM(PyObject *value, Py_ssize_t position)
    PyObject *PyTuple_GET_ITEM(PyObject *value, Py_ssize_t position)

cdef extern from "code_location.h":
    PyObject *frame_now()
    PyObject *frame_back(PyObject *frame)
    PyObject *frame_code(PyObject *frame)
    int64_t code_location(PyObject *frame)
    int64_t line_of(PyObject *code, int64_t location)

cdef enum:
    BLOCK_RECORDS = 1024
    DEEPEST = 8                 # of sequences in sequences
    LONGEST = 1000              # of a sequence
    MOST_FRAMES = 200           # of a stack, the innermost ones


ctypedef struct record_t:
    uint64_t id
    int64_t start               # nanoseconds
    int64_t end
    const char *name            # of a change of memory: its address
    int64_t sequence            # of a change of memory: bytes
    int32_t forward_thread
    int32_t ending_thread       # 0: the same
    int64_t details             # index of the first word, or of the mark; -1: none
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


ctypedef struct buffer_t:
    buffer_t *next
    uint64_t thread
    block_t *first
    block_t *last
    record_t **running          # a stack
    int depth
    int capacity
    mark_t *marks
    int nmarks
    int marks_capacity
    int64_t *words              # details of records, see write_details
    int64_t nwords
    int64_t words_capacity
    PyObject **held             # owned: what the words point to
    int64_t nheld
    int64_t held_capacity
    uint64_t native             # the thread's number in the system
    PyObject *owner             # owned threading.Thread, or NULL


# ---- details ------------------------------------------------------------------------------------

cdef inline int64_t write(buffer_t *buffer, int64_t word) except -1:
    """Append a word to the details; return its index."""
    cdef int64_t *grown
    if buffer.nwords == buffer.words_capacity:
        grown = <int64_t *>realloc(
            buffer.words, (buffer.words_capacity * 2 + 1024) * sizeof(int64_t))
        if grown == NULL:
            raise MemoryError()
        buffer.words = grown
        buffer.words_capacity = buffer.words_capacity * 2 + 1024
    buffer.words[buffer.nwords] = word
    buffer.nwords += 1
    return buffer.nwords - 1


cdef inline int64_t write_object(buffer_t *buffer, PyObject *value) except -1:
    """Append an object, which lives as long as the buffer; return its index."""
    cdef PyObject **grown
    if buffer.nheld == buffer.held_capacity:
        grown = <PyObject **>realloc(
            buffer.held, (buffer.held_capacity * 2 + 256) * sizeof(PyObject *))
        if grown == NULL:
            raise MemoryError()
        buffer.held = grown
        buffer.held_capacity = buffer.held_capacity * 2 + 256
    Py_INCREF(<object>value)
    buffer.held[buffer.nheld] = value
    buffer.nheld += 1
    return write(buffer, <int64_t><size_t>value)


# Words: the number of inputs and each input; the number of frames, and code and line of each,
# innermost first. A range has one input, its name, and perhaps a second.
cdef enum:
    NOTHING = 0
    AN_OBJECT = 1               # then the object
    A_TENSOR = 2                # then dtype, number of dims, shape, strides
    A_SEQUENCE = 3              # then its length and each item


cdef inline int64_t write_details(buffer_t *buffer, const pb_event *event, bint shapes,
                                  bint stacks) except -2:
    """Append the details of an event; return the index of the first word.

    Frames are taken before the first word is written: making them may run the collector, and so
    Python code that is recorded as well. After that no Python code runs.
    """
    cdef PyObject *codes[MOST_FRAMES]
    cdef int64_t locations[MOST_FRAMES]
    cdef int64_t start
    cdef int i, nframes = 0, count = event.ninput if shapes else 0
    if stacks and (event.kind == PB_EVENT_OP or event.kind == PB_EVENT_RANGE
                   or event.kind == PB_EVENT_FUNCTION):
        nframes = take_frames(codes, locations)
    start = buffer.nwords
    try:
        if event.kind == PB_EVENT_RANGE:
            write(buffer, 1 + event.ninput)
            write(buffer, AN_OBJECT)
            write_object(buffer, <PyObject *>event.object)
            count = event.ninput
        else:
            write(buffer, count)
        for i in range(count):
            write_value(buffer, event, <PyObject *>event.inputs[i], 0)
        write(buffer, nframes)
        for i in range(nframes):
            write_object(buffer, codes[i])
            write(buffer, locations[i])
    finally:
        for i in range(nframes):
            Py_DECREF(<object>codes[i])
    return start


cdef inline int write_value(buffer_t *buffer, const pb_event *event, PyObject *value,
                            int depth) except -1:
    """Append an input; of an object that is neither a tensor, a number nor a str, its type's name.

    So no object of the user's is kept alive, and none of its code runs.
    """
    cdef pb_array array
    cdef const char *kind
    cdef int64_t counter
    cdef Py_ssize_t i = 0
    cdef int d
    if value == NULL or value == <PyObject *>None:
        write(buffer, NOTHING)
        return 0
    if event.describe(value, &array):
        write(buffer, A_TENSOR)
        write(buffer, array.dtype)
        write(buffer, array.ndim)
        for d in range(array.ndim):
            write(buffer, array.shape[d])
        for d in range(array.ndim):
            write(buffer, array.strides[d])
        return 0
    if PyList_Check(value) or PyTuple_Check(value):
        write(buffer, A_SEQUENCE)
        counter = write(buffer, 0)
        while depth < DEEPEST and i < LONGEST and i < (
                PyList_GET_SIZE(value) if PyList_Check(value) else PyTuple_GET_SIZE(value)):
            write_value(buffer, event, PyList_GET_ITEM(value, i) if PyList_Check(value)
                        else PyTuple_GET_ITEM(value, i), depth + 1)
            i += 1
        buffer.words[counter] = i
        return 0
    kind = Py_TYPE(value).tp_name
    if is_plain(kind):
        write(buffer, AN_OBJECT)
        write_object(buffer, value)
        return 0
    text = "<" + kind.decode("utf-8", "replace") + ">"
    write(buffer, AN_OBJECT)
    write_object(buffer, <PyObject *>text)
    return 0


cdef inline bint is_plain(const char *kind) noexcept:
    """True for types whose values are kept: they hold nothing else."""
    return (strcmp(kind, "int") == 0 or strcmp(kind, "bool") == 0 or strcmp(kind, "float") == 0
            or strcmp(kind, "str") == 0 or strcmp(kind, "complex") == 0
            or strcmp(kind, "pullback.dtype") == 0
            or strcmp(kind, "pullback.device") == 0)


cdef inline int take_frames(PyObject **codes, int64_t *locations) noexcept:
    """Return how many Python frames there are, and the code (owned) and location of each."""
    cdef PyObject *frame = frame_now()
    cdef PyObject *outer
    cdef int count = 0
    Py_XINCREF(frame)
    while frame != NULL and count < MOST_FRAMES:
        codes[count] = frame_code(frame)
        locations[count] = code_location(frame)
        count += 1
        outer = frame_back(frame)
        Py_DECREF(<object>frame)
        frame = outer
    Py_XDECREF(frame)
    return count


cdef inline tuple read_details(buffer_t *buffer, int64_t at):
    """Return (inputs, stack): (dtype, shape, strides) of a tensor, a list for a sequence, or the
    value; codes and lines in turn."""
    cdef int64_t i
    cdef int64_t *word = buffer.words + at
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
