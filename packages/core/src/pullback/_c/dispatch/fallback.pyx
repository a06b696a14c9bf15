# build: small
"""Python kernels, and what runs where a device has no kernel: a decomposition or the host's."""

import os
import sys
import warnings

from libc.stdint cimport int64_t

from pullback.abi cimport PB_NUM_DTYPES, PB_U64, pb_call
from pullback._c.base.dtype cimport dtype_object
from pullback._c.base.state cimport thread_state
from pullback._c.device.device cimport (
    DEVICE_REF, device_type, device_types, pb_device_type, pb_entry)
from pullback._c.device.py_kernel cimport run_callable, run_on_host
from pullback._c.graph.op cimport Op, all_ops
from pullback._c.base.errors import is_of_package
from pullback.ops.table.numbered import NAMES

cdef list primitive_names = NAMES
cdef set warned = set()
cdef dict permitted = {}
cdef bint warn_always = False
cdef dict counts = {}           # (op, device) -> [calls, bytes copied]
cdef dict ops_by_code = {}      # the code of an op's Python function -> the op's name
cdef object begin_range = None  # notify observers; set by them
cdef object end_range = None


def set_range_events(begin, end):
    """Install the functions that notify observers of a range."""
    global begin_range, end_range
    begin_range = begin
    end_range = end


def set_warn_always(bint always):
    """Warn of every fallback to the host, not only of the first."""
    global warn_always
    warn_always = always


def permit_on_host(str device, primitives):
    """Let primitives without a kernel run on the host, without a warning and whatever is set.

    And all others for uint64, which a backend may leave out and no wider integer stands in for.
    """
    permitted[device] = frozenset(primitives)


def fallback_counts(bint reset):
    """Return the calls and copied bytes of fallbacks, by op and device; begin anew on demand."""
    global counts
    found = {key: tuple(value) for key, value in counts.items()}
    if reset:
        counts = {}
    return found


class KernelMissing(Exception):
    """A primitive has no kernel, and the running op has a decomposition."""


cdef int call_python(pb_device_type *found, pb_entry *entry, pb_call *call, int key) except -1:
    """Run a Python kernel, or the fallback on the host when the backend has no kernel."""
    cdef pb_entry *fallback
    if entry.callable != NULL:
        return run_callable(<object>entry.callable, call, found.host,
                            <str>found.name_object)
    device = <str>found.name_object
    primitive = primitive_names[call.primitive]
    dtype = dtype_object(key).name
    fallback = &device_type(DEVICE_REF).table[call.primitive * PB_NUM_DTYPES + key]
    if call.primitive == thread_state().fallback_primitive:
        raise KernelMissing(primitive)
    if fallback.callable == NULL:
        raise NotImplementedError(
            f"\"{primitive}\" not implemented for '{dtype}' on device {device!r}")
    if call.nin == 0:                   # without inputs no data leaves the device: no warning
        if found.host:
            return run_callable(<object>fallback.callable, call, True, "ref")
        return run_on_host(found, <object>fallback.callable, call)
    op, frame = user_call(primitive)
    if device not in permitted or (primitive not in permitted[device] and key != PB_U64):
        refuse_or_warn(op, primitive, dtype, device, frame)
    return run_counted(found, <object>fallback.callable, call, (op, device))


cdef int run_counted(pb_device_type *found, object function, pb_call *call, tuple key) except -1:
    """Run a kernel of the host, count the call and the bytes that it copies, and show observers."""
    cdef int64_t moved = 0
    cdef object number = begin_range(f"host fallback: {key[0]} on {key[1]}")
    try:
        if found.host:
            run_callable(function, call, True, "ref")
        else:
            moved = run_on_host(found, function, call)
    finally:
        end_range(number)
    count = counts.setdefault(key, [0, 0])
    count[0] += 1
    count[1] += moved
    return 0


cdef tuple user_call(str primitive):
    """Return the name of the op that the program called, and the frame that called it.

    The name is the primitive's where no Python function of an op is on the stack; the frame is
    None in a thread of the engine.
    """
    cdef Op op
    if not ops_by_code:
        for op in reversed(all_ops):        # the first of those that share a function
            for function in (op.python, op.decompose):
                ops_by_code[getattr(function, "__code__", None)] = op.name
    name = primitive
    try:
        frame = sys._getframe()
    except ValueError:                      # no Python frame at all
        return name, None
    while frame is not None and is_of_package(frame):
        name = ops_by_code.get(frame.f_code, name)
        frame = frame.f_back
    return name, frame


cdef int refuse_or_warn(str op, str primitive, str dtype, str device, frame) except -1:
    """Raise NotImplementedError where the host is forbidden; else warn, once for a primitive."""
    missing = f"{primitive!r}{'' if op == primitive else f', a part of {op!r},'} " \
              f"has no kernel for '{dtype}' on device {device!r}"
    setting = os.environ.get("PULLBACK_FALLBACK", "")
    if setting not in ("", "error"):
        raise ValueError(f"PULLBACK_FALLBACK must be 'error', or unset, not {setting!r}")
    if setting:
        raise NotImplementedError(
            f"{missing}, and PULLBACK_FALLBACK=error forbids the fallback to the host")
    if warn_always or (device, primitive) not in warned:
        warned.add((device, primitive))
        text = f"{missing}: it runs on the host in NumPy"
        if frame is None:
            warnings.warn(text, RuntimeWarning)
        else:
            warnings.warn_explicit(
                text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno,
                frame.f_globals.get("__name__"),
                frame.f_globals.setdefault("__warningregistry__", {}))
    return 0


cdef int call_missing(int type_id, pb_call *call, int key) except -1:
    """Run what a device has in place of a kernel for a primitive and dtype."""
    cdef pb_device_type *found = device_types() + type_id
    return call_python(found, &found.table[call.primitive * PB_NUM_DTYPES + key], call, key)
