"""Kernels by name, their launches, and workspace memory.

A kernel is looked up in its family's image when it is launched for the first time on a device.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc

from pullback.abi cimport PB_KERNEL_CAPSULE, PB_OK, pb_call, pb_kernel
from pullback_cuda.runtime.allocator cimport block_release, block_take
from pullback_cuda.runtime.contexts cimport (
    current_number, device_ready, device_table, enter_context, is_closed, leave_context,
    pb_cuda_device)
from pullback_cuda.runtime.failures cimport fail_with


cdef dict kernels = {}


cdef pb_cuda_kernel *kernel_named(str family, str name) except NULL:
    """Return a kernel of a family; nothing is loaded before it is launched."""
    cdef pb_cuda_kernel *kernel
    known = kernels.get((family, name))
    if known is not None:
        return <pb_cuda_kernel *><size_t>known
    kernel = <pb_cuda_kernel *>calloc(1, sizeof(pb_cuda_kernel))
    if kernel == NULL:
        raise MemoryError()
    Py_INCREF(family)
    Py_INCREF(name)
    kernel.family = <PyObject *>family
    kernel.name = <PyObject *>name
    kernels[family, name] = <size_t>kernel
    return kernel


def kernel_names():
    """Return the (family, name) of every kernel that the host side may launch."""
    return sorted(kernels)


cdef object new_kernel(int mask, pb_kernel kernel):
    """Return what a plugin registers for one primitive: dtype mask and capsule."""
    return mask, PyCapsule_New(<void *>kernel, PB_KERNEL_CAPSULE, NULL)


# ---- launches ------------------------------------------------------------------------------------

cdef int launch(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                int64_t blocks, int threads, size_t shared_bytes) noexcept nogil:
    """Launch a kernel on the current stream of the call's device, on a row of blocks."""
    return launch_grid(call, kernel, arguments, size, blocks, 1, 1, threads, shared_bytes)


cdef int launch_grid(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                     int64_t blocks_x, int blocks_y, int blocks_z, int threads,
                     size_t shared_bytes) noexcept nogil:
    """Launch a kernel on the current stream of the call's device."""
    with gil:
        try:
            launch_now(call.device, kernel, arguments, size, blocks_x, blocks_y, blocks_z, threads,
                       shared_bytes)
        except BaseException as error:
            return end_call(call, error)
    return PB_OK


cdef int end_call(pb_call *call, object error) noexcept:
    """Report why a call ends early. What its kernels reported is no longer of interest."""
    device_table()[call.device].recorded = NULL
    return fail_with(call.message, error)


cdef tuple block_shapes = tuple([(threads, 1, 1) for threads in range(1025)])


cdef int launch_now(int number, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                    int64_t blocks_x, int blocks_y, int blocks_z, int threads,
                    size_t shared_bytes) except -1:
    cdef pb_cuda_device *device = device_table() + number
    cdef PyObject *launcher = kernel.launchers[number]
    cdef void *before
    if launcher == NULL or is_closed():
        device_ready(number)
        launcher = find_launcher(number, kernel)
    before = enter_context(device)
    try:
        (<object>launcher)(
            (blocks_x, blocks_y, blocks_z), block_shapes[threads],
            PyBytes_FromStringAndSize(<const char *>arguments, size), shared_bytes,
            <object>device.streams[current_number(number)].object)
    except Exception as error:
        raise RuntimeError(f"cuda:{number}: the launch of {<str>kernel.name} failed: "
                           f"{error}") from error
    finally:
        leave_context(device, before)
    return 0


cdef PyObject *find_launcher(int number, pb_cuda_kernel *kernel) except NULL:
    """Load a kernel on a device."""
    device = <object>device_table()[number].object
    found = device.function(<str>kernel.family, <str>kernel.name)._launch_kernel
    Py_INCREF(found)
    kernel.launchers[number] = <PyObject *>found
    return kernel.launchers[number]


# ---- workspace -----------------------------------------------------------------------------------

cdef int workspace_alloc(pb_call *call, size_t nbytes, void **memory) noexcept nogil:
    """Allocate memory for the kernels of this call; return the code of a failure."""
    memory[0] = NULL
    with gil:
        try:
            memory[0] = block_take(call.device, nbytes)
        except BaseException as error:
            return end_call(call, error)
    return PB_OK


cdef void workspace_free(pb_call *call, void *memory, size_t nbytes) noexcept nogil:
    """Free workspace. Later work on the same stream may reuse it: it runs after the last use."""
    with gil:
        block_release(call.device, memory)


cdef int sm_count(pb_call *call) noexcept nogil:
    """Return how many multiprocessors the device has."""
    cdef int count = device_table()[call.device].sm_count
    return count if count > 0 else 1
