from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from pullback.abi cimport pb_call, pb_observer
from pullback.pool cimport pb_pool
from pullback._c.base.types cimport pb_storage


cdef extern from "state.h":
    ctypedef struct pb_state:
        uint8_t grad_enabled
        uint8_t inference
        uint8_t multithreading
        uint8_t layout_policy
        uint32_t saved_hooks_disabled
        int64_t sequence
        uint64_t thread
        PyObject *saved_hooks
        PyObject *hooks_message
        void *graph_task
        void *running_node
        int fallback_primitive
        uint8_t levels
        uint64_t disabled_levels
        uint64_t op_levels
        PyObject *level_stack
        int transforms
        uint32_t tracing
        uint8_t devices[32]
        void *handoff
        uint8_t in_kernel
        uint8_t left_writes
        PyObject *interrupt
        PyObject *function_modes
        uint8_t overrides_off
        uint8_t autocast_uncached
        uint32_t autocast
        int32_t autocast_nesting
        PyObject *autocast_cache
        uint8_t autocast_dtypes[32]


# What is about to be done to a tensor. What comes of a gradient that is read or added to depends on
# what it was.
cdef enum capture_change:
    GRAD_CLEARED
    GRAD_SET
    GRAD_READ
    GRAD_ADDED
    HISTORY_CHANGED             # it, or its sizes
    LEAF_MADE                   # it comes to require a gradient
    HOOKED                      # a leaf gets a hook


cdef enum:
    OPTIONS_READ = -1


cdef enum capture_size:
    SIZE_ASKED                  # a size, or a tuple of sizes
    SIZE_AS_INT                 # one that is given as an int
    SIZE_AS_KEY                 # a key of a tensor, perhaps with sizes in it


# What a capture is notified of, in any thread, with the interpreter lock held. It looks at what
# the thread with its state does, and at memory that is freed.
ctypedef struct pb_capture:
    void *self
    pb_state *state
    uint64_t oldest             # sequence number of the first node that the capture may run
    void (*allocated)(void *self, pb_storage *storage) noexcept
    void (*freed)(void *self, pb_storage *storage) noexcept
    void (*used)(void *self, pb_storage *storage) noexcept          # by the next kernel
    int (*launching)(void *self, int type_id, pb_call *call) except -1      # NULL: no interest
    int (*launched)(void *self, int type_id, pb_call *call, int key, int64_t work) except -1
    # Without a kernel: the host reads memory (`what` does) or has written to it; a tensor changes.
    int (*read)(void *self, pb_storage *storage, const char *what) except -1
    void (*written)(void *self, pb_storage *storage) noexcept
    void (*changed)(void *self, PyObject *tensor, capture_change what) noexcept
    int (*refuse)(void *self, const char *what) except -1
    # What comes next depends on a one-element tensor: returns its truth. Where that is False, the
    # caller raises `error`, or one of that class; None: it raises nothing.
    bint (*decided)(void *self, PyObject *condition, PyObject *error) except -1
    # An optimizer updates so many parameters of a group from here on; OPTIONS_READ: the program
    # gets the options of its groups, and depends on them.
    int (*stepped)(void *self, PyObject *group, Py_ssize_t count) except -1
    # The last of these optimizers takes its learning rate, for so many parameters: returns the
    # value, or a tensor that has that of each run.
    object (*rate)(void *self, object value, Py_ssize_t count)
    # Python code asks for the only element of a tensor, `value`: returns what it gets.
    object (*element)(void *self, object tensor, object value)
    # Python code asks for a size, or a tuple of them, or gives a key: returns what is used in its
    # stead. NULL: sizes are of no interest.
    object (*sized)(void *self, object size, capture_size what)


cdef enum anomaly_check:
    CHECK_NAN = 1               # gradients for NaN
    CHECK_INF = 2               # whatever is checked, for infinity too
    CHECK_FORWARD = 4           # results of ops too


# Process-wide switches, each tested on the hot path.
ctypedef struct pb_globals:
    pb_observer *observer       # NULL: no observer is attached
    int observed                # 1: there is one, or anomaly detection checks the results of ops
    pb_capture *capture         # NULL: no kernels are recorded
    int anomaly                 # 1: record tracebacks
    int anomaly_checks          # what it checks: flags of anomaly_check
    uint32_t anomaly_rate       # of 2 ** 32 nodes and ops, how many more than one are checked
    int full_collection         # 1 while the collector runs over its oldest generation
    uint32_t gc_epoch
    int streams_used            # 1 once a stream other than a default one was current
    int module_hooks            # 1: there are hooks of all modules
    int inference               # how many times inference mode is entered, over all threads
    uint16_t overrides          # TENSOR_OVERRIDES while a thread is in a TorchFunctionMode, or 0
    uint32_t transform          # how many transforms by reverse mode were begun, modulo 2 ** 32

cdef pb_globals *globals_() noexcept nogil
cdef pb_pool *process_pool() noexcept nogil
cdef pb_state *thread_state() noexcept nogil
cdef bint overrides_on(bint by_argument) noexcept
cdef void state_reset(pb_state *state) noexcept nogil


cdef inline bint capturing() noexcept:
    """True while this thread's kernels are recorded."""
    return globals_().capture != NULL and globals_().capture.state == thread_state()


cdef inline int captured_read(pb_storage *storage, const char *what) except -1:
    """Note that the host is about to read memory, or to let others read and write it."""
    if capturing():
        globals_().capture.read(globals_().capture.self, storage, what)
    return 0


cdef inline void captured_write(pb_storage *storage) noexcept:
    """Note that the host has written to memory."""
    if capturing():
        globals_().capture.written(globals_().capture.self, storage)


cdef inline void captured_change(PyObject *tensor, capture_change what) noexcept:
    """Note what is about to be done to a tensor."""
    if capturing():
        globals_().capture.changed(globals_().capture.self, tensor, what)


cdef inline int captured_step(PyObject *group, Py_ssize_t count) except -1:
    """Note that an optimizer begins to update the parameters of a group, so many of them."""
    if capturing():
        globals_().capture.stepped(globals_().capture.self, group, count)
    return 0


cdef inline object captured_rate(object value, Py_ssize_t count):
    """Return what an optimizer uses for its learning rate, a number that may vary."""
    if capturing():
        return globals_().capture.rate(globals_().capture.self, value, count)
    return value


cdef inline int refuse_capture(const char *what) except -1:
    """Note that this thread does what a capture cannot replay."""
    if capturing():
        globals_().capture.refuse(globals_().capture.self, what)
    return 0


cdef inline object captured_size(object size):
    """Return what Python code gets that asks for a size, or for a tuple of sizes."""
    if capturing() and globals_().capture.sized != NULL:
        return globals_().capture.sized(globals_().capture.self, size, SIZE_ASKED)
    return size


cdef inline Py_ssize_t captured_length(Py_ssize_t size) except -1:
    """Note that Python code gets a size as a plain int."""
    if capturing() and globals_().capture.sized != NULL:
        globals_().capture.sized(globals_().capture.self, size, SIZE_AS_INT)
    return size


cdef inline object captured_key(object key):
    """Return a key of a tensor that Python code gives."""
    if capturing() and globals_().capture.sized != NULL:
        return globals_().capture.sized(globals_().capture.self, key, SIZE_AS_KEY)
    return key
