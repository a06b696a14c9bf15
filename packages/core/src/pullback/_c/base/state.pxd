from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from pullback.abi cimport pb_observer
from pullback.pool cimport pb_pool


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


# Process-wide switches, each tested on the hot path.
ctypedef struct pb_globals:
    pb_observer *observer       # NULL: no observer is attached
    int anomaly                 # 1: record tracebacks
    int anomaly_check_nan
    int full_collection         # 1 while the collector runs over its oldest generation
    uint32_t gc_epoch
    int streams_used            # 1 once a stream other than a default one was current
    int inference               # how many times inference mode is entered, over all threads
    uint16_t overrides          # TENSOR_OVERRIDES while a thread is in a TorchFunctionMode, or 0
    uint32_t transform          # how many transforms by reverse mode were begun, modulo 2 ** 32

cdef pb_globals *globals_() noexcept nogil
cdef pb_pool *process_pool() noexcept nogil
cdef pb_state *thread_state() noexcept nogil
cdef bint overrides_on(bint by_argument) noexcept
cdef void state_reset(pb_state *state) noexcept nogil
