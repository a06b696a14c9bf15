"""Copies between all element types and layouts."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_BOOL, PB_MASK_ALL, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.elementwise_driver cimport (
    ELEMENTWISE_THREADS, class_of, elementwise_arguments, fill_loops, launch_loops, vector_size_of,
    pb_loops, pb_operation, run_elementwise, set_operation)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel

from pullback_cuda.kernels.common.names import DTYPES


cdef extern from "kernels/shape/copy.h" nogil:
    enum:
        COPY_TILES_DIMS
    int64_t COPY_TILE(int64_t size)
    ctypedef struct copy_tiles_arguments:
        void *out
        const void *in_ "in"
        int64_t out_stride
        int64_t in_stride
        uint32_t rows
        uint32_t columns
        uint32_t row_tiles
        uint32_t column_tiles
        int32_t ndim
        uint32_t size[10]
        int64_t out_strides[10]
        int64_t in_strides[10]

cdef enum:
    FEW = 16                    # with fewer rows or columns tiles do not pay
    MOST_BLOCKS = 0x7FFFFFFF
    WIDEST = 16                 # bytes of an element
    UNFIT = -1                  # not an error code

cdef pb_operation casts[PB_NUM_DTYPES][PB_NUM_DTYPES]     # [from][to]
# By the size of an element.
cdef pb_operation moves[17]
cdef pb_cuda_kernel *tile_kernels[9]


cdef int fill_tables() except -1:
    cdef int source, target, size
    for source in range(<int>len(DTYPES)):
        for target in range(<int>len(DTYPES)):
            if source == target and source != PB_BOOL:
                name = str(item_sizes[source])
                set_operation(&casts[source][target], "copy", f"copy_{name}", vector_size_of(name),
                              True)
                continue
            first, second = class_of(source), class_of(target)
            set_operation(&casts[source][target], "copy", f"copy_{first}_{second}",
                          min(vector_size_of(first), vector_size_of(second)))
    for size in (1, 2, 4, 8, 16):
        name = str(size)
        set_operation(&moves[size], "copy", f"copy_{name}", vector_size_of(name), True)
        if size < 16:
            tile_kernels[size] = kernel_named("copy", f"copy_tiles_{name}")
    return 0


fill_tables()


cdef int copy_tiles(pb_call *call, pb_loops *loops, int64_t item) noexcept nogil:
    """Copy a transposed array in tiles, if it is one; else return UNFIT."""
    cdef copy_tiles_arguments args
    cdef int64_t tile = COPY_TILE(item), blocks
    cdef int d, across = 0
    if (item > 8 or loops.ndim < 2 or loops.strides[0][0] != item
            or loops.strides[0][1] == item or loops.shape[0] > MOST_BLOCKS):
        return UNFIT
    for d in range(1, loops.ndim):
        if loops.shape[d] > MOST_BLOCKS:
            return UNFIT
        if loops.strides[d][1] == item:
            across = d
    if across == 0 or loops.shape[0] < FEW or loops.shape[across] < FEW:
        return UNFIT
    args.ndim = 0
    blocks = ((loops.shape[0] + tile - 1) // tile) * ((loops.shape[across] + tile - 1) // tile)
    for d in range(1, loops.ndim):
        if d == across:
            continue
        if args.ndim == COPY_TILES_DIMS:
            return UNFIT
        blocks *= loops.shape[d]
        args.size[args.ndim] = <uint32_t>loops.shape[d]
        args.out_strides[args.ndim] = loops.strides[d][0]
        args.in_strides[args.ndim] = loops.strides[d][1]
        args.ndim += 1
    if blocks > MOST_BLOCKS:
        return UNFIT
    args.out = loops.data[0]
    args.in_ = loops.data[1]
    args.out_stride = loops.strides[across][0]
    args.in_stride = loops.strides[0][1]
    args.columns = <uint32_t>loops.shape[0]
    args.rows = <uint32_t>loops.shape[across]
    args.column_tiles = <uint32_t>((loops.shape[0] + tile - 1) // tile)
    args.row_tiles = <uint32_t>((loops.shape[across] + tile - 1) // tile)
    return launch(call, tile_kernels[item], &args, sizeof(args), blocks, ELEMENTWISE_THREADS, 0)


cdef int64_t join_elements(pb_loops *loops, int64_t item) noexcept nogil:
    """Merge elements that are contiguous in both arrays into larger ones; return their size."""
    cdef int64_t joined = 2 * item
    cdef bint fits = (loops.ndim > 0 and loops.strides[0][0] == item
                      and loops.strides[0][1] == item)
    cdef int d, k
    while fits and joined <= WIDEST:
        fits = loops.shape[0] % 2 == 0
        for k in range(2):
            fits = fits and <uint64_t>loops.data[k] % <uint64_t>joined == 0
            for d in range(1, loops.ndim):
                fits = fits and loops.strides[d][k] % joined == 0
        if fits:
            loops.shape[0] //= 2
            loops.strides[0][0] = loops.strides[0][1] = joined
            item = joined
            joined *= 2
    return item


cdef int move_elements(pb_call *call, pb_array **arrays) noexcept nogil:
    """Copy between arrays of one dtype."""
    cdef elementwise_arguments args
    cdef pb_loops loops
    cdef int64_t item = item_sizes[arrays[0].dtype]
    cdef int64_t items[2]
    cdef int code
    if not fill_loops(&loops, arrays, 2):
        return PB_OK
    code = copy_tiles(call, &loops, item)
    if code != UNFIT:
        return code
    items[0] = items[1] = join_elements(&loops, item)
    args.in_type = args.out_type = arrays[0].dtype
    args.option = 0
    args.scalars = 0
    args.failure = NULL
    return launch_loops(call, &moves[items[0]], &loops, items, &args)


cdef int kernel_copy(pb_call *call) noexcept nogil:
    cdef pb_array *arrays[2]
    cdef pb_operation *operation
    arrays[0] = call.out[0]
    arrays[1] = call.in_[0]
    operation = &casts[arrays[1].dtype][arrays[0].dtype]
    if operation.moves and not arrays[1].flags & PB_ARRAY_HOST:
        return move_elements(call, arrays)
    return run_elementwise(call, operation, arrays, 1, 0, False)


KERNELS = {"copy": new_kernel(PB_MASK_ALL, kernel_copy)}
