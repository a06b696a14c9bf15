"""Modes of the current thread, switches of the process, and the garbage collector's callback.

The variables alone: what a mode does is decided by the modules that test it.
"""

import gc

from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.string cimport memcpy, memset

from pullback.pool cimport pb_pool
from pullback._c.base.state cimport CHECK_FORWARD, CHECK_INF, CHECK_NAN, pb_globals, pb_state

__all__ = [
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "set_anomaly_enabled",
    "swap_grad_enabled",
    "swap_layout_policy",
    "swap_multithreading",
]

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define PB_THREAD __declspec(thread)
    #else
    #define PB_THREAD __thread
    #endif
    #define PB_NEW_STATE {1, 0, 1, 1, 0, 0, 0, NULL, NULL, NULL, NULL, -1}
    static const pb_state pb_new_state = PB_NEW_STATE;
    static PB_THREAD pb_state pb_thread_state = PB_NEW_STATE;

    #if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
    /* Thread-local variables of a module that is loaded at run time cost a call of the loader for
       each access. A pointer of the initial-exec model does not: the loader reserves space. */
    static PB_THREAD pb_state *pb_known_state __attribute__((tls_model("initial-exec")));

    static inline pb_state *pb_find_state(void)
    {
        if (__builtin_expect(pb_known_state == NULL, 0))
            pb_known_state = &pb_thread_state;
        return pb_known_state;
    }
    #else
    static inline pb_state *pb_find_state(void)
    {
        return &pb_thread_state;
    }
    #endif
    """
    pb_state pb_thread_state
    pb_state *pb_find_state() noexcept nogil
    const pb_state pb_new_state

cdef pb_globals process
cdef pb_pool pool
memset(&pool, 0, sizeof(pool))
cdef uint64_t threads_seen = 0

process.observer = NULL
process.observed = 0
process.capture = NULL
process.anomaly = 0
process.anomaly_checks = CHECK_NAN
process.anomaly_rate = 0xffffffff
process.full_collection = 0
process.streams_used = 0
process.inference = 0
process.overrides = 0
process.gc_epoch = 1


cdef pb_globals *globals_() noexcept nogil:
    return &process


cdef pb_pool *process_pool() noexcept nogil:
    """Return the pool of nodes, storages and the engine's node tasks."""
    return &pool


cdef pb_state *thread_state() noexcept nogil:
    return pb_find_state()


cdef bint overrides_on(bint by_argument) noexcept:
    """True if this thread's calls go to a mode, or to an overriding argument if there is one."""
    if pb_thread_state.overrides_off == 0 and by_argument:
        return True
    return (pb_thread_state.overrides_off < 2 and pb_thread_state.function_modes != NULL
            and len(<list>pb_thread_state.function_modes) > 0)


cdef void state_reset(pb_state *state) noexcept nogil:
    """Set the modes of a new thread without releasing the old ones, which a copy owns."""
    memcpy(state, &pb_new_state, sizeof(pb_state))


def thread_number():
    """Return a small number that identifies the current thread, counted from 1.

    Threads are numbered in the order in which they first record a node, are observed, or ask.

    >>> import pullback
    >>> pullback.backend.thread_number() >= 1
    True
    """
    global threads_seen
    if pb_thread_state.thread == 0:
        threads_seen += 1
        pb_thread_state.thread = threads_seen
    return pb_thread_state.thread


def is_grad_enabled():
    """Return True if operations of this thread are recorded.

    >>> import pullback
    >>> pullback.is_grad_enabled()
    True
    """
    return bool(pb_thread_state.grad_enabled)


def is_inference_mode_enabled():
    """Return True inside ``inference_mode`` on this thread.

    >>> import pullback
    >>> with pullback.inference_mode():
    ...     pullback.is_inference_mode_enabled()
    True
    """
    return bool(pb_thread_state.inference)


def swap_grad_enabled(bint mode):
    """Set this thread's grad mode and return the previous one."""
    cdef bint before = pb_thread_state.grad_enabled
    pb_thread_state.grad_enabled = mode
    return before


def swap_multithreading(bint mode):
    """Set this thread's flag of ``set_multithreading_enabled`` and return the previous one."""
    cdef bint before = pb_thread_state.multithreading
    pb_thread_state.multithreading = mode
    return before


def swap_layout_policy(bint mode):
    """Set whether new gradients take their parameter's strides; return the previous value."""
    cdef bint before = pb_thread_state.layout_policy
    pb_thread_state.layout_policy = mode
    return before


def is_multithreading_enabled():
    """Return the flag that ``set_multithreading_enabled`` set on this thread; by default True.

    >>> import pullback
    >>> pullback.autograd.is_multithreading_enabled()
    True
    """
    return bool(pb_thread_state.multithreading)


def is_anomaly_enabled():
    """Return True while anomaly detection is on, in the whole process.

    >>> import pullback
    >>> pullback.is_anomaly_enabled()
    False
    """
    return bool(process.anomaly)


def is_anomaly_check_nan_enabled():
    """Return True if anomaly detection, once it is on, looks for NaN in gradients.

    >>> import pullback
    >>> pullback.is_anomaly_check_nan_enabled()
    True
    """
    return process.anomaly_checks & CHECK_NAN != 0


def anomaly_settings():
    """Return mode, check_nan, check_inf, check_forward and sample of anomaly detection."""
    cdef int checks = process.anomaly_checks
    return (bool(process.anomaly), checks & CHECK_NAN != 0, checks & CHECK_INF != 0,
            checks & CHECK_FORWARD != 0, (<double>process.anomaly_rate + 1) / 4294967296.0)


def set_anomaly_enabled(bint mode, bint check_nan=True):
    """Switch anomaly detection on or off for the whole process.

    >>> import pullback
    >>> pullback.set_anomaly_enabled(True, check_nan=False)
    >>> pullback.is_anomaly_enabled(), pullback.is_anomaly_check_nan_enabled()
    (True, False)
    >>> pullback.set_anomaly_enabled(False)
    """
    process.anomaly = mode
    process.anomaly_checks = CHECK_NAN if check_nan else 0
    process.anomaly_rate = 0xffffffff


def set_anomaly_checks(bint check_inf, bint check_forward, double sample):
    """Add to what anomaly detection does: see ``autograd.detect_anomaly``."""
    process.anomaly_checks |= CHECK_INF * check_inf | CHECK_FORWARD * check_forward
    process.anomaly_rate = <uint32_t>max(0.0, sample * 4294967296.0 - 1)


def push_saved_tensor_hooks(pack, unpack):
    """Begin to pass every tensor that this thread saves through ``pack``."""
    if pb_thread_state.saved_hooks_disabled:
        raise RuntimeError(<object>pb_thread_state.hooks_message)
    outer = None if pb_thread_state.saved_hooks == NULL else <object>pb_thread_state.saved_hooks
    pair = (pack, unpack, outer)
    Py_INCREF(pair)
    Py_XDECREF(pb_thread_state.saved_hooks)
    pb_thread_state.saved_hooks = <PyObject *>pair


def saved_tensor_hooks():
    """Return this thread's innermost hooks as (pack, unpack, enclosing hooks or None), or None."""
    return None if pb_thread_state.saved_hooks == NULL else <object>pb_thread_state.saved_hooks


def pop_saved_tensor_hooks():
    """End the innermost pair of saved-tensor hooks."""
    if pb_thread_state.saved_hooks == NULL:
        raise RuntimeError("saved_tensors_hooks: there are no hooks to take away on this thread")
    pair = <tuple>pb_thread_state.saved_hooks
    outer = pair[2]
    if outer is None:
        pb_thread_state.saved_hooks = NULL
    else:
        Py_INCREF(outer)
        pb_thread_state.saved_hooks = <PyObject *>outer
    Py_DECREF(pair)


def swap_saved_hooks_disabled(message):
    """Forbid saved-tensor hooks on this thread (None allows them); return the previous message."""
    before = None
    if pb_thread_state.hooks_message != NULL:
        before = <object>pb_thread_state.hooks_message
        Py_DECREF(before)
        pb_thread_state.hooks_message = NULL
    pb_thread_state.saved_hooks_disabled = message is not None
    if message is not None:
        if pb_thread_state.saved_hooks != NULL:
            pb_thread_state.saved_hooks_disabled = before is not None
            raise RuntimeError(message)
        Py_INCREF(message)
        pb_thread_state.hooks_message = <PyObject *>message
    return before


def on_collection(phase, info):
    """Note for the traversal of graphs whether the oldest generation is being collected."""
    process.full_collection = phase == "start" and info["generation"] == 2
    process.gc_epoch += 1


gc.callbacks.append(on_collection)


cdef extern from *:
    """
    #if defined(__SSE2__) || defined(_M_X64)
    #include <immintrin.h>
    static int pb_flush_denormal(int on) {
        unsigned int bits = 0x8040, now = _mm_getcsr();     /* flush to zero, denormals are zero */
        _mm_setcsr(on ? now | bits : now & ~bits);
        return 1;
    }
    #elif defined(__aarch64__) && defined(__GNUC__)
    static int pb_flush_denormal(int on) {
        unsigned long long bit = 1ULL << 24, now;
        __asm__ volatile("mrs %0, fpcr" : "=r"(now));
        now = on ? now | bit : now & ~bit;
        __asm__ volatile("msr fpcr, %0" : : "r"(now));
        return 1;
    }
    #else
    static int pb_flush_denormal(int on) { (void)on; return 0; }
    #endif
    """
    bint pb_flush_denormal(bint on)


def set_flush_denormal(bint on):
    """Set whether this thread takes denormal numbers for 0; returns False where it cannot."""
    return bool(pb_flush_denormal(on))
