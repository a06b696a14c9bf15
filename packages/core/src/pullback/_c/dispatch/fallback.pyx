# build: small
"""Python kernels, and what runs where a device has no kernel: a decomposition or the host's."""

import os
import warnings

from pullback.abi cimport PB_NUM_DTYPES, PB_U64, pb_call
from pullback._c.base.dtype cimport dtype_object
from pullback._c.base.state cimport thread_state
from pullback._c.device.device cimport (
    DEVICE_REF, device_type, device_types, pb_device_type, pb_entry)
from pullback._c.device.py_kernel cimport run_callable, run_on_host
from pullback.ops.table.primitives import PRIMITIVES

cdef list primitive_names = list(PRIMITIVES)
cdef set warned = set()
cdef dict permitted = {}
cdef bint warn_always = False


def set_warn_always(bint always):
    """Warn of every fallback to the host, not only of the first."""
    global warn_always
    warn_always = always


def permit_on_host(str device, primitives):
    """Let primitives without a kernel run on the host, without a warning and whatever is set.

    And all others for uint64, which a backend may leave out and no wider integer stands in for.
    """
    permitted[device] = frozenset(primitives)


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
    if device not in permitted or (primitive not in permitted[device] and key != PB_U64):
        refuse_or_warn(primitive, dtype, device)
    if found.host:
        return run_callable(<object>fallback.callable, call, True, "ref")
    return run_on_host(found, <object>fallback.callable, call)


cdef int refuse_or_warn(str primitive, str dtype, str device) except -1:
    """Raise NotImplementedError where the host is forbidden; else warn, once for a primitive."""
    missing = f"{primitive!r} has no kernel for '{dtype}' on device {device!r}"
    if os.environ.get("PULLBACK_FALLBACK") == "error":
        raise NotImplementedError(
            f"{missing}, and PULLBACK_FALLBACK=error forbids the fallback to the host")
    if warn_always or (device, primitive) not in warned:
        warned.add((device, primitive))
        warnings.warn(f"{missing}: it runs on the host in NumPy", RuntimeWarning, stacklevel=2)
    return 0


cdef int call_missing(int type_id, pb_call *call, int key) except -1:
    """Run what a device has in place of a kernel for a primitive and dtype."""
    cdef pb_device_type *found = device_types() + type_id
    return call_python(found, &found.table[call.primitive * PB_NUM_DTYPES + key], call, key)
