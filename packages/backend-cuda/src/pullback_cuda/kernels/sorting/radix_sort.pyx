"""Stable radix sort of rows of pairs, digit by digit.

Each pass counts the digits of the keys of each block, sums the counts up, and moves the pairs.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_OK, pb_call
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)

cdef enum:
    BLOCKS = 6      # for each multiprocessor, at most, of all rows

# By whether keys have 8 bytes, and by whether positions have.
cdef pb_cuda_kernel *counters[2]
counters[0] = kernel_named("radix_sort", "radix_count_4")
counters[1] = kernel_named("radix_sort", "radix_count_8")
cdef pb_cuda_kernel *summer = kernel_named("radix_sort", "radix_sum")
cdef pb_cuda_kernel *movers[2][2]
movers[0][0] = kernel_named("radix_sort", "radix_move_4_4")
movers[0][1] = NULL
movers[1][0] = kernel_named("radix_sort", "radix_move_8_4")
movers[1][1] = kernel_named("radix_sort", "radix_move_8_8")


cdef int sort_pairs(pb_call *call, radix_arguments *args, int key_bytes, int order_bytes,
                    int passes) noexcept nogil:
    """Sort by so many digits of the keys.

    Given are the buffers, how many pairs and rows there are, and which bits differ, or NULL; then
    buffer ``passes % 2`` holds the result. The first pass takes the positions as they are numbered.
    """
    cdef int64_t tile = RADIX_TILE_4 if key_bytes == 4 else RADIX_TILE_8
    cdef int64_t tiles = (args.n + tile - 1) // tile, most, cells, nbytes
    cdef pb_cuda_kernel *mover = movers[key_bytes == 8][order_bytes == 8]
    cdef char *memory
    cdef int digit, code = PB_OK
    most = max(<int64_t>1, <int64_t>BLOCKS * sm_count(call) // args.rows)
    args.chunk = (tiles + min(tiles, most) - 1) // min(tiles, most) * tile
    args.blocks = (args.n + args.chunk - 1) // args.chunk
    cells = args.rows * RADIX_DIGITS
    nbytes = cells * (args.blocks * (sizeof(uint64_t) + sizeof(uint32_t)) + sizeof(uint64_t))
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    args.starts = <uint64_t *>memory
    args.totals = args.starts + cells * args.blocks
    args.counts = <uint32_t *>(args.totals + cells)
    for digit in range(passes):
        args.digit = digit
        code = launch(call, counters[key_bytes == 8], args, sizeof(args[0]),
                      args.rows * args.blocks, RADIX_DIGITS, 0)
        if code == PB_OK:
            code = launch(call, summer, args, sizeof(args[0]), cells, RADIX_DIGITS, 0)
        if code == PB_OK:
            code = launch(call, mover, args, sizeof(args[0]), args.rows * args.blocks,
                          RADIX_DIGITS, 0)
        if code != PB_OK:
            break
    workspace_free(call, memory, nbytes)
    return code
