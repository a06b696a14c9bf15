"""Runs elementwise kernels that users write: operands are tensors, already broadcast."""

from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ARRAY_WRITE, PB_E_MEMORY, PB_E_PYTHON, PB_MAX_NDIM, PB_MESSAGE_SIZE, PB_OK, pb_array,
    pb_call)
from pullback_cuda.kernels.common.elementwise_driver cimport (
    ELEMENTWISE_OPERANDS, class_of, vector_size_of, pb_operation, run_elementwise, set_operation)

from pullback.backend import OutOfMemoryError

cdef extern from *:
    """
    static int pb_go_on_raising(void) { return -1; }
    """
    int go_on_raising "pb_go_on_raising"() except -1


def class_name(dtype):
    """Return the name of the class of types that a dtype is computed with."""
    return class_of(dtype.code)


def run(str family, str kernel, list tensors):
    """Run a kernel: its output, then its inputs, all of the same shape."""
    cdef pb_operation operation
    cdef pb_call call
    cdef pb_array arrays[ELEMENTWISE_OPERANDS]
    cdef pb_array *pointers[ELEMENTWISE_OPERANDS]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[ELEMENTWISE_OPERANDS][PB_MAX_NDIM]
    cdef char message[PB_MESSAGE_SIZE]
    cdef int count = <int>len(tensors), i, d, code
    cdef int ndim = tensors[0].dim()
    for d in range(ndim):
        shape[d] = tensors[0].shape[d]
    for i in range(count):
        tensor = tensors[i]
        for d in range(ndim):
            strides[i][d] = tensor.stride(d)
        arrays[i].size = sizeof(pb_array)
        arrays[i].dtype = tensor.dtype.code
        arrays[i].flags = PB_ARRAY_WRITE if i == 0 else 0
        arrays[i].device = tensor.get_device()
        arrays[i].ndim = ndim
        arrays[i].data = arrays[i].base = <void *><size_t>tensor.data_ptr()
        arrays[i].offset = 0
        arrays[i].shape = shape
        arrays[i].strides = strides[i]
        pointers[i] = &arrays[i]
    set_operation(&operation, family, kernel, vector_size_of(class_of(arrays[0].dtype)))
    message[0] = 0
    call.size = sizeof(pb_call)
    call.primitive = -1
    call.nout = 1
    call.nin = count - 1
    call.nparam = 0
    call.device = arrays[0].device
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.message = message
    code = run_elementwise(&call, &operation, pointers, count - 1, 0, False)
    if code == PB_E_PYTHON:             # an interrupt, which is set already
        go_on_raising()
    if code != PB_OK:
        raise (OutOfMemoryError if code == PB_E_MEMORY else RuntimeError)(
            message.decode("utf-8", "replace"))
