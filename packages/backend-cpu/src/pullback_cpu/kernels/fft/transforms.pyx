# build: small
# Fourier transforms by SciPy's pocketfft, which is called as a Python function: its module of C++
# takes arrays, reads any strides, writes into the output and releases the interpreter lock.
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.exc cimport PyErr_SetObject

from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.runtime.threads cimport thread_count

cdef enum:
    FEW = 1 << 15   # elements up to which a second thread costs more than it gains

cdef enum transform:
    COMPLEX_TO_COMPLEX
    REAL_TO_COMPLEX
    COMPLEX_TO_REAL

cdef tuple transforms = None    # pocketfft's functions, in the order above
cdef object new_array = None
cdef list array_dtypes = [None] * PB_NUM_DTYPES


cdef int load() except -1:
    global transforms, new_array
    import numpy
    from pullback_cpu.runtime.pocketfft_loader import load_transforms
    for code, name in ((<int>PB_F32, "f4"), (<int>PB_F64, "f8"),
                       (<int>PB_C64, "c8"), (<int>PB_C128, "c16")):
        array_dtypes[code] = numpy.dtype(name)
    new_array = numpy.ndarray
    transforms = load_transforms()
    return 0


cdef object as_array(const pb_array *array, int access):
    """Return a NumPy array over the memory of an operand, which has elements."""
    cdef int64_t size = item_size(array.dtype), low = 0, high = 1, dense = 1
    cdef bint contiguous = True
    cdef int d
    for d in range(array.ndim - 1, -1, -1):
        contiguous = contiguous and (array.shape[d] == 1 or array.strides[d] == dense)
        dense *= array.shape[d]
        if array.strides[d] < 0:
            low += (array.shape[d] - 1) * array.strides[d]
        else:
            high += (array.shape[d] - 1) * array.strides[d]
    memory = PyMemoryView_FromMemory(
        <char *>array.data + low * size, (high - low) * size, access)
    shape = tuple([array.shape[d] for d in range(array.ndim)])
    dtype = array_dtypes[array.dtype]
    if contiguous:
        return new_array(shape, dtype, memory)
    strides = tuple([array.strides[d] * size for d in range(array.ndim)])
    return new_array(shape, dtype, memory, -low * size, strides)


cdef int run(pb_call *call, transform kind) except -1:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *target = call.out[0]
    cdef const pb_param *dims = &call.param[0]
    cdef int workers = 1, i
    cdef int normalization = <int>call.param[1].i
    cdef bint forward = call.param[2].i != 0
    cdef int last = <int>dims.ints[dims.count - 1]
    if transforms is None:
        load()
    if count_elements(source) > FEW:
        workers = thread_count()
    x = as_array(source, PyBUF_READ)
    out = as_array(target, PyBUF_WRITE)
    axes = tuple([dims.ints[i] for i in range(dims.count)])
    if kind == COMPLEX_TO_REAL:
        transforms[2](x, axes, target.shape[last], forward, normalization, out, workers)
    elif kind == REAL_TO_COMPLEX and target.shape[last] != source.shape[last]:
        transforms[1](x, axes, forward, normalization, out, workers)
    else:                               # of real numbers c2c computes all frequencies
        transforms[0](x, axes, forward, normalization, out, workers)
    return 0


cdef int run_checked(pb_call *call, transform kind) noexcept with gil:
    try:
        run(call, kind)
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    return PB_OK


cdef int kernel_c2c(pb_call *call) noexcept nogil:
    return run_checked(call, COMPLEX_TO_COMPLEX)


cdef int kernel_r2c(pb_call *call) noexcept nogil:
    return run_checked(call, REAL_TO_COMPLEX)


cdef int kernel_c2r(pb_call *call) noexcept nogil:
    return run_checked(call, COMPLEX_TO_REAL)


cdef uint32_t REAL_DTYPES = 1 << <int>PB_F32 | 1 << <int>PB_F64
cdef uint32_t COMPLEX_DTYPES = 1 << <int>PB_C64 | 1 << <int>PB_C128

KERNELS = {
    "fft_c2c": new_kernel(COMPLEX_DTYPES, kernel_c2c),
    "fft_r2c": new_kernel(REAL_DTYPES, kernel_r2c),
    "fft_c2r": new_kernel(COMPLEX_DTYPES, kernel_c2r),
}
