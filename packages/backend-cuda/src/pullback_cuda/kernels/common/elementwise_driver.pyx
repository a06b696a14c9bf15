"""The launches of elementwise kernels.

Dims are sorted by the output's strides and coalesced, and dims with a negative stride of the output
are flipped: an elementwise kernel may compute its elements in any order. A call whose offsets do
not fit into 32 bits is split into several.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_BF16, PB_C64, PB_C128, PB_F16, PB_F32, PB_F64, PB_I8, PB_I16, PB_I32, PB_I64,
    PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport find_divider, item_sizes
from pullback_cuda.kernels.common.launch cimport kernel_named, launch
from pullback_cuda.runtime.failures cimport failure_check, failure_record

cdef int64_t most = 1 << 30             # elements of a launch
cdef int64_t furthest = 0x7FFFFFFF      # bytes from the first element of an operand to the last

cdef enum:
    WHOLE = 4096                # where a row is cut, its parts stay aligned
    WIDEST = 16                 # bytes that are loaded together

CLASSES = ("int", "int", "int", "int", "int", "long", "float", "float", "float", "double",
           "complex", "complex")
# Elements that kernels load together, by class (storage.cuh), and by size of what is only moved.
VECTOR_SIZES = {"int": 4, "long": 2, "float": 4, "double": 2, "complex": 1,
                "1": 4, "2": 4, "4": 4, "8": 2, "16": 1}


def limit_launches(elements=1 << 30, reach=0x7FFFFFFF):
    """Cut calls into launches of fewer elements, and fewer bytes between them: for tests."""
    global most, furthest
    most, furthest = elements, reach


cdef object class_of(int dtype):
    """Return the name of the class of types that a dtype is computed with."""
    return CLASSES[dtype]


cdef int vector_size_of(str name) except -1:
    """Return how many elements of a class, or of a size, are loaded together."""
    return VECTOR_SIZES[name]


cdef int set_operation(pb_operation *operation, str family, str name, int vector_size,
                       bint moves=False) except -1:
    """Fill in a kernel by its name."""
    operation.kernel = kernel_named(family, name)
    operation.vector_size = vector_size
    operation.moves = moves
    return 0


# ---- host scalars --------------------------------------------------------------------------------

cdef float widen_f16(uint16_t stored) noexcept nogil:
    cdef uint32_t sign = (<uint32_t>stored & 0x8000) << 16, rest = <uint32_t>stored & 0x7FFF, bits
    cdef float value
    if rest < 0x0400:           # a subnormal number, or zero: a multiple of 2^-24
        value = <float>rest * <float>5.9604644775390625e-08
        return -value if sign else value
    bits = sign | ((rest << 13) + ((224u if rest >= 0x7C00 else 112u) << 23))
    memcpy(&value, &bits, 4)
    return value


cdef void write_scalar(const pb_array *array, bint moves, uint64_t *target) noexcept nogil:
    """Write a number as the type that its class computes in."""
    cdef int dtype = array.dtype
    cdef const void *data = array.data
    cdef int32_t integer = 0
    cdef float single
    cdef double *pair = <double *>target
    cdef uint32_t bits
    memset(target, 0, 16)
    if moves or dtype == PB_I64 or dtype == PB_F32 or dtype == PB_F64 or dtype == PB_C128:
        memcpy(target, data, item_sizes[dtype])
    elif dtype == PB_F16:
        single = widen_f16((<const uint16_t *>data)[0])
        memcpy(target, &single, 4)
    elif dtype == PB_BF16:
        bits = <uint32_t>(<const uint16_t *>data)[0] << 16
        memcpy(target, &bits, 4)
    elif dtype == PB_C64:
        pair[0] = (<const float *>data)[0]
        pair[1] = (<const float *>data)[1]
    else:
        if dtype == PB_I32:
            integer = (<const int32_t *>data)[0]
        elif dtype == PB_I16:
            integer = (<const int16_t *>data)[0]
        elif dtype == PB_I8:
            integer = (<const int8_t *>data)[0]
        else:
            integer = (<const uint8_t *>data)[0]
        memcpy(target, &integer, 4)


cdef double scalar_number(const pb_array *array) noexcept nogil:
    """Return a host scalar that is a real number."""
    cdef uint64_t bits[2]
    cdef float single
    write_scalar(array, False, bits)
    if array.dtype == PB_I64:
        return <double><int64_t>bits[0]
    if array.dtype <= PB_I32:
        return <double><int32_t>bits[0]
    if array.dtype == PB_F64:
        return (<double *>bits)[0]
    memcpy(&single, bits, 4)
    return single


# ---- loops ---------------------------------------------------------------------------------------

cdef inline void exchange_dims(pb_loops *loops, int d, int e) noexcept nogil:
    cdef int k
    loops.shape[d], loops.shape[e] = loops.shape[e], loops.shape[d]
    for k in range(loops.operands):
        loops.strides[d][k], loops.strides[e][k] = loops.strides[e][k], loops.strides[d][k]


cdef bint fill_loops(pb_loops *loops, pb_array **arrays, int operands) noexcept nogil:
    """Describe a call's loops; false if there is no element."""
    cdef pb_array *out = arrays[0]
    cdef int d, e, k, last, ndim = 0
    cdef int64_t size
    cdef bint joined
    loops.operands = operands
    for k in range(operands):
        loops.data[k] = <char *>arrays[k].data
    for d in range(out.ndim - 1, -1, -1):
        size = out.shape[d]
        if size == 0:
            return False
        if size == 1:
            continue
        loops.shape[ndim] = size
        for k in range(operands):
            loops.strides[ndim][k] = (
                0 if arrays[k].flags & PB_ARRAY_HOST
                else arrays[k].strides[d] * item_sizes[arrays[k].dtype])
        if loops.strides[ndim][0] < 0:
            for k in range(operands):
                loops.data[k] += (size - 1) * loops.strides[ndim][k]
                loops.strides[ndim][k] = -loops.strides[ndim][k]
        ndim += 1
    loops.ndim = ndim
    if ndim == 0:
        loops.ndim = 1
        loops.shape[0] = 1
        for k in range(operands):
            loops.strides[0][k] = (
                0 if arrays[k].flags & PB_ARRAY_HOST else item_sizes[arrays[k].dtype])
        return True
    if ndim == 1:
        return True
    for d in range(1, ndim):
        e = d
        while e > 0 and loops.strides[e - 1][0] > loops.strides[e][0]:
            exchange_dims(loops, e, e - 1)
            e -= 1
    last = 0
    for d in range(1, ndim):
        joined = True
        for k in range(operands):
            if loops.strides[d][k] != loops.strides[last][k] * loops.shape[last]:
                joined = False
                break
        if joined:
            loops.shape[last] *= loops.shape[d]
        else:
            last += 1
            if last != d:
                loops.shape[last] = loops.shape[d]
                for k in range(operands):
                    loops.strides[last][k] = loops.strides[d][k]
    loops.ndim = last + 1
    return True


cdef bint loops_fit(const pb_loops *loops) noexcept nogil:
    """Say whether one launch can run the loops."""
    cdef int64_t count = 1, reach, stride
    cdef int d, k
    if loops.ndim > ELEMENTWISE_DIMS:
        return False
    for d in range(loops.ndim):
        if loops.shape[d] > most or count * loops.shape[d] > most:
            return False
        count *= loops.shape[d]
    for k in range(loops.operands):
        reach = 0
        for d in range(loops.ndim):
            stride = loops.strides[d][k]
            if stride < 0:
                stride = -stride
            if stride > furthest or (loops.shape[d] - 1) * stride > furthest - reach:
                return False
            reach += (loops.shape[d] - 1) * stride
    return True


cdef inline void drop_single(pb_loops *loops) noexcept nogil:
    """Forget the outermost dim, or its strides, if it has one element."""
    cdef int d = loops.ndim - 1, k
    if loops.shape[d] == 1:
        if d:
            loops.ndim = d
        for k in range(loops.operands):
            loops.strides[d][k] = 0


cdef void cut_loops(pb_loops *loops, pb_loops *rest) noexcept nogil:
    """Cut the outermost dim into two halves, and give the second one to ``rest``."""
    cdef int d = loops.ndim - 1, k
    cdef int64_t half = (loops.shape[d] + 1) // 2
    if half > WHOLE:
        half = (half + WHOLE - 1) // WHOLE * WHOLE
    rest[0] = loops[0]
    rest.shape[d] -= half
    loops.shape[d] = half
    for k in range(loops.operands):
        rest.data[k] += half * loops.strides[d][k]
    drop_single(loops)
    drop_single(rest)


cdef void set_divisor(elementwise_arguments *args, int d, int64_t size) noexcept nogil:
    """Prepare divisions of numbers below 2^31 by the size of a dim."""
    args.size[d] = <uint32_t>size
    find_divider(size, &args.multiplier[d], &args.shift[d])


# ---- launches ------------------------------------------------------------------------------------

cdef bint can_vectorize(elementwise_arguments *args, const pb_loops *loops, const int64_t *item,
                        int vector_size) noexcept nogil:
    """Say whether the elements of a row can be loaded several at a time."""
    cdef int64_t stride, alignment
    cdef int d, k
    args.same = args.scalars
    if loops.shape[0] < vector_size or (loops.ndim > 1 and loops.shape[0] % vector_size):
        return False
    for k in range(loops.operands):
        if k and args.scalars >> (k - 1) & 1:
            continue
        stride = loops.strides[0][k]
        if stride == 0 and k:
            args.same |= 1u << (k - 1)
            continue
        alignment = min(vector_size * item[k], <int64_t>WIDEST)
        if stride != item[k] or <uint64_t>loops.data[k] & <uint64_t>(alignment - 1):
            return False
        for d in range(1, loops.ndim):
            if loops.strides[d][k] & (alignment - 1):
                return False
    return True


cdef int launch_loops(pb_call *call, const pb_operation *operation, pb_loops *loops,
                      const int64_t *item, elementwise_arguments *args) noexcept nogil:
    """Launch a kernel on the loops, split into several launches if need be."""
    cdef pb_loops rest
    cdef int64_t count = 1, left, blocks
    cdef int d, k, code, vector_size = operation.vector_size
    cdef bint vectorized
    if not loops_fit(loops):
        cut_loops(loops, &rest)
        code = launch_loops(call, operation, loops, item, args)
        return code if code else launch_loops(call, operation, &rest, item, args)
    vectorized = can_vectorize(args, loops, item, vector_size)
    args.ndim = loops.ndim
    for k in range(loops.operands):
        args.data[k] = loops.data[k]
    for d in range(loops.ndim):
        count *= loops.shape[d]
        set_divisor(args, d, loops.shape[d] // vector_size if vectorized and d == 0
                    else loops.shape[d])
        for k in range(loops.operands):
            args.stride[d][k] = <int32_t>(
                loops.strides[d][k] * (vector_size if vectorized and d == 0 else 1))
    args.count = <uint32_t>count
    args.vectors = <uint32_t>(count // vector_size) if vectorized else 0
    args.vector_blocks = (args.vectors + 2 * ELEMENTWISE_THREADS - 1) // (2 * ELEMENTWISE_THREADS)
    left = count - <int64_t>args.vectors * vector_size
    blocks = args.vector_blocks + (left + ELEMENTWISE_THREADS * vector_size - 1) // (
        ELEMENTWISE_THREADS * vector_size)
    return launch(call, operation.kernel, args, sizeof(args[0]), blocks, ELEMENTWISE_THREADS, 0)


cdef int run_elementwise(pb_call *call, const pb_operation *operation, pb_array **arrays,
                         int count, int option, bint fails) noexcept nogil:
    """Run a kernel on the output and ``count`` inputs; ``fails``: it may report a failure."""
    cdef elementwise_arguments args
    cdef pb_loops loops
    cdef int64_t item[5]
    cdef int code, k
    if not fill_loops(&loops, arrays, count + 1):
        return PB_OK
    args.in_type = arrays[count].dtype
    args.out_type = arrays[0].dtype
    args.option = option
    args.scalars = 0
    args.failure = failure_record(call) if fails else NULL
    for k in range(count + 1):
        item[k] = item_sizes[arrays[k].dtype]
        if k and arrays[k].flags & PB_ARRAY_HOST:
            args.scalars |= 1u << (k - 1)
            write_scalar(arrays[k], operation.moves, args.scalar[k - 1])
    code = launch_loops(call, operation, &loops, item, &args)
    return failure_check(call) if fails and code == PB_OK else code
