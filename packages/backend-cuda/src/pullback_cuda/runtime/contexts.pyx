"""The devices of this process: started on first use, current on a thread when it calls the driver.

pycuda makes contexts, streams, events and modules, and launches kernels. What it does not offer is
to make a context current without noting that on its own stack, which must be empty when a thread
ends; the two driver functions for that are called through their addresses. A context of another
library is restored after each call.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.string cimport memset

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define PB_THREAD_LOCAL __declspec(thread)
    #else
    #define PB_THREAD_LOCAL __thread
    #endif
    static PB_THREAD_LOCAL unsigned char pb_current_streams[32];
    #define pb_current_stream_of(device) pb_current_streams[device]
    typedef int (*pb_get_current)(void **context);
    typedef int (*pb_set_current)(void *context);
    """
    unsigned char current_stream_of "pb_current_stream_of"(int device) noexcept nogil
    unsigned char *current_streams "pb_current_streams"
    ctypedef int (*get_current_function "pb_get_current")(void **context) noexcept nogil
    ctypedef int (*set_current_function "pb_set_current")(void *context) noexcept nogil

cdef pb_cuda_device table[MAX_DEVICES]
memset(&table[0], 0, sizeof(table))
cdef get_current_function get_current = NULL
cdef set_current_function set_current = NULL
cdef bint closed = False
cdef object start_device = None
cdef object driver_error = ()
cdef object device_error = None


def bind(start, size_t get_current_address, size_t set_current_address, error, named):
    """Install what starts a device, the driver's functions for contexts, and pycuda's Error.

    ``named`` makes the error to raise from a device's number and an error of the driver.
    """
    global start_device, get_current, set_current, driver_error, device_error
    start_device = start
    driver_error = error
    device_error = named
    get_current = <get_current_function>get_current_address
    set_current = <set_current_function>set_current_address


def close():
    """Make every later call fail: the driver is going away, or is another process's."""
    global closed
    closed = True


def require_open():
    """Raise after the end: the driver is going away, or is another process's."""
    if closed:
        raise RuntimeError("the cuda device cannot be used: this process was forked after CUDA "
                           "had started, or is ending. Start processes with the method 'spawn'")


cdef bint is_closed() noexcept nogil:
    return closed


cdef pb_cuda_device *device_table() noexcept nogil:
    return &table[0]


cdef pb_cuda_device *device_ready(int number) except NULL:
    """Return a device, started.

    Raises: RuntimeError if there is none of this number, or if the driver fails.
    """
    if closed:
        require_open()
    if not table[number].ready:
        start_device(number)
    return &table[number]


def install_device(int number, object device, int sm_count, size_t context, size_t failure,
                   stream):
    """Note what belongs to a device that was started, and its default stream."""
    cdef pb_cuda_device *found = &table[number]
    Py_INCREF(device)
    found.object = <PyObject *>device
    found.number = number
    found.sm_count = sm_count
    found.context = <void *>context
    found.failure = <pb_failure *>failure
    install_stream(number, stream)
    found.ready = True


def install_stream(int number, object stream):
    """Add a stream to a device; return its number."""
    cdef pb_cuda_device *found = &table[number]
    if found.nstreams == MAX_STREAMS:
        raise RuntimeError(f"cuda:{number} has {MAX_STREAMS} streams already")
    Py_INCREF(stream)
    found.streams[found.nstreams].handle = <void *><size_t>stream.handle
    found.streams[found.nstreams].object = <PyObject *>stream
    found.nstreams += 1
    return found.nstreams - 1


# ---- streams -------------------------------------------------------------------------------------

cdef int current_number(int device) noexcept nogil:
    """Return which of a device's streams is this thread's."""
    return current_stream_of(device)


cdef int set_current_number(int device, int number) noexcept nogil:
    """Make one of a device's streams this thread's; return which it was before."""
    cdef int before = current_stream_of(device)
    current_streams[device] = <unsigned char>number
    return before


cdef int stream_number(pb_cuda_device *device, void *handle) noexcept nogil:
    """Return the number of a stream of the device, -1 if it is not one of them."""
    cdef int i
    for i in range(device.nstreams):
        if device.streams[i].handle == handle:
            return i
    return -1


def current(int device):
    """Return which of a device's streams is this thread's."""
    return current_stream_of(device)


def stream_at(int device, int number):
    """Return pycuda's Stream that has a number on a device."""
    return <object>device_ready(device).streams[number].object


# ---- contexts ------------------------------------------------------------------------------------

cdef void *enter_context(pb_cuda_device *device) except? NULL:
    """Make a device's context current on this thread; return the one before, for leave_context."""
    cdef void *before = NULL
    cdef int code = get_current(&before)
    if code == 0 and before != device.context:
        code = set_current(device.context)
    if code != 0:
        raise RuntimeError(f"cuda:{device.number}: the driver cannot make the device's context "
                           f"current (error {code})")
    return before


cdef void leave_context(pb_cuda_device *device, void *previous) noexcept:
    """Restore the context that was current before; ours may stay where there was none."""
    if previous != NULL and previous != device.context:
        set_current(previous)


cdef class Current:
    """A block in which a device's context is current; errors of the driver name the device."""
    cdef pb_cuda_device *device
    cdef void *previous

    def __init__(self, int number):
        self.device = device_ready(number)

    def __enter__(self):
        self.previous = enter_context(self.device)

    def __exit__(self, kind, value, trace):
        leave_context(self.device, self.previous)
        if isinstance(value, driver_error):
            raise device_error(self.device.number, value) from value


cdef class Pushed:
    """A block in which a context is on pycuda's stack too, as making and destroying objects needs.

    Compiled, so that no signal's exception can come between the push and the block, or between
    the pop and the context that another library had made current.
    """
    cdef int number
    cdef object context         # pycuda's
    cdef void *previous

    def __init__(self, int number, context):
        self.number = number
        self.context = context

    def __enter__(self):
        require_open()
        self.previous = NULL
        get_current(&self.previous)
        try:
            self.context.push()
        except driver_error as error:
            raise device_error(self.number, error) from error

    def __exit__(self, kind, value, trace):
        cdef void *now = NULL
        try:
            self.context.pop()  # leaves what is below on pycuda's own stack
        except driver_error as error:
            if value is None:
                value = error
        get_current(&now)
        if now != self.previous:
            set_current(self.previous)
        if isinstance(value, driver_error):
            raise device_error(self.number, value) from value
