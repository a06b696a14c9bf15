"""Convolutions of one to three dims, forward and backward.

All are matrix products. A block computes a tile of one of two sizes; where there are few tiles,
sums are split, and added by a second launch. With few channels in a group, a thread or block
computes one element.
"""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.arrays cimport count_elements, item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport THREADS, blocks_for, make_divider, int_divider
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/nn/convolution.h":
    enum:
        CONV_RANK
        CONV_LARGE
        CONV_SMALL
        CONV_FORWARD
        CONV_BACKWARD_INPUT
        CONV_BACKWARD_WEIGHT
    ctypedef struct conv_side:
        int64_t size
        int64_t count
        int64_t kernel
        int64_t stride
        int64_t padding
        int64_t dilation
        int64_t common
        int64_t inverse
        int64_t phases
    ctypedef struct conv_arguments:
        const void *left
        const void *right
        const void *bias
        void *out
        void *partial
        int64_t elements
        int64_t images
        int64_t groups
        int64_t c
        int64_t o
        int64_t size
        int64_t count
        int64_t kernel
        int64_t row_tiles
        int64_t column_tiles
        int64_t splits
        int64_t chunk
        int32_t kind
        int32_t narrow
        conv_side sides[CONV_RANK]
        int_divider out_channels
        int_divider out_rows
        int_divider out_sides[CONV_RANK]

cdef enum:
    ENOUGH = 512            # used elements of a tile of 64 * 64 from which tiles pay
    CHUNK = 64              # summands of a split, at least
    DIRECT_CHUNK = 4096     # and of a block for one element
    MOST_SPLITS = 256
    PARTIAL = 1 << 28       # bytes of partial sums, about
    SAFE = 1 << 29          # coordinates and offsets below it can be added in 32 bits
    MOST_BLOCKS = 0x7FFFFFFF

# For f32 and f64; the second row is for the gradient of the weight.
cdef pb_cuda_kernel *large[2]
cdef pb_cuda_kernel *small[2][2]
cdef pb_cuda_kernel *direct[2][2]
cdef pb_cuda_kernel *direct_wide[2]
cdef pb_cuda_kernel *summers[2]
large[0] = kernel_named("convolution", "conv_large_f32")
large[1] = kernel_named("convolution", "conv_backward_weight_large_f32")
for _double, _name in enumerate(("f32", "f64")):
    small[0][_double] = kernel_named("convolution", f"conv_small_{_name}")
    small[1][_double] = kernel_named("convolution", f"conv_backward_weight_small_{_name}")
    direct[0][_double] = kernel_named("convolution_direct", f"conv_direct_{_name}")
    direct[1][_double] = kernel_named("convolution_direct", f"conv_backward_weight_direct_{_name}")
    direct_wide[_double] = kernel_named("convolution_direct", f"conv_direct_wide_{_name}")
    summers[_double] = kernel_named("convolution_direct", f"conv_sum_{_name}")


# ---- convolution parameters ----------------------------------------------------------------------

cdef int64_t common_divisor(int64_t a, int64_t b) noexcept nogil:
    cdef int64_t rest
    while b:
        rest = a % b
        a = b
        b = rest
    return a


cdef int64_t inverse_modulo(int64_t number, int64_t modulus) noexcept nogil:
    """Return the multiplicative inverse of a number modulo ``modulus``, which is prime to it."""
    cdef int64_t a = number % modulus, b = modulus, x = 1, y = 0, q, swap
    while b:
        q = a // b
        swap = a - q * b
        a = b
        b = swap
        swap = x - q * y
        x = y
        y = swap
    x %= modulus
    return x + modulus if x < 0 else x


cdef bint read_parameters(pb_call *call, pb_array *image, pb_array *windows, pb_array *weight,
                          conv_arguments *args) noexcept nogil:
    """Read the convolution parameters; false if they do not fit the operands."""
    cdef const int64_t *given = call.param[0].ints
    cdef int d, rank = image.ndim - 2, lead = CONV_RANK - rank
    cdef conv_side *side
    if (not 1 <= rank <= CONV_RANK or windows.ndim != image.ndim or weight.ndim != image.ndim
            or call.param[0].count != 3 * rank + 1 or given[3 * rank] < 1):
        return False
    args.images = image.shape[0]
    args.groups = given[3 * rank]
    args.c = weight.shape[1]
    args.o = weight.shape[0] // args.groups
    if (windows.shape[0] != args.images or args.o * args.groups != weight.shape[0]
            or image.shape[1] != args.c * args.groups or windows.shape[1] != weight.shape[0]):
        return False
    args.size = args.count = args.kernel = 1
    for d in range(CONV_RANK):
        side = &args.sides[d]
        side.size = side.count = side.kernel = side.stride = side.dilation = 1
        side.padding = 0
        if d >= lead:
            side.size = image.shape[2 + d - lead]
            side.count = windows.shape[2 + d - lead]
            side.kernel = weight.shape[2 + d - lead]
            side.stride = given[d - lead]
            side.padding = given[rank + d - lead]
            side.dilation = given[2 * rank + d - lead]
        if (side.stride < 1 or side.dilation < 1 or side.padding < 0
                or side.stride > MOST_BLOCKS or side.dilation > MOST_BLOCKS
                or side.padding > MOST_BLOCKS):
            return False
        if side.count == 1:     # the stride has no effect
            side.stride = 1
        side.common = common_divisor(side.stride, side.dilation)
        side.inverse = inverse_modulo(side.dilation // side.common, side.stride // side.common)
        side.phases = 1
        args.size *= side.size
        args.count *= side.count
        args.kernel *= side.kernel
    return True


# ---- choice of a kernel --------------------------------------------------------------------------

# The matrix product of a group, and of a phase: that with the most columns and summands.
ctypedef struct product:
    int64_t rows
    int64_t columns
    int64_t summands
    int64_t phases
    bint fits_tiles     # offsets of factors fit into 32 bits
    bint narrow         # and so do those of the output


cdef void find_product(conv_arguments *args, product *of) noexcept nogil:
    cdef conv_side *side
    cdef double near, extent, inner_size = 1, inner_count = 1
    cdef int64_t columns = args.images, taps = 1
    cdef int d
    of.phases = 1
    of.narrow = args.elements < MOST_BLOCKS and args.kernel < SAFE
    near = max(<double>args.c * args.size, <double>args.o * args.count)
    for d in range(CONV_RANK - 1, -1, -1):
        side = &args.sides[d]
        if args.kind == CONV_BACKWARD_INPUT:
            side.phases = max(<int64_t>1, min(side.stride, side.size))
            of.phases *= side.phases
            columns *= (side.size + side.stride - 1) // side.stride
            taps *= ((side.kernel + side.stride // side.common - 1)
                     // (side.stride // side.common))
        else:
            columns *= side.count
            taps *= side.kernel
        extent = (<double>side.size + side.padding + <double>side.kernel * side.dilation
                  + <double>side.count * side.stride)
        near += <double>side.kernel * side.dilation * max(inner_size, inner_count)
        inner_size *= side.size
        inner_count *= side.count
        of.narrow = of.narrow and extent < <double>SAFE and side.stride < 1 << 15
    if args.kind == CONV_BACKWARD_WEIGHT:
        of.rows = args.o
        of.columns = args.c * args.kernel
        of.summands = args.images * args.count
    else:
        of.rows = args.c if args.kind == CONV_BACKWARD_INPUT else args.o
        of.columns = columns
        of.summands = (args.o if args.kind == CONV_BACKWARD_INPUT else args.c) * taps
    of.fits_tiles = of.narrow and near < <double>SAFE
    args.narrow = (of.rows < MOST_BLOCKS and of.columns < MOST_BLOCKS
                   and of.summands < MOST_BLOCKS and args.elements < MOST_BLOCKS
                   and args.kernel < MOST_BLOCKS)


cdef inline int64_t ceil_div(int64_t number, int64_t each) noexcept nogil:
    return (number + each - 1) // each


cdef void split_sums(pb_call *call, conv_arguments *args, int64_t summands, int64_t blocks,
                     int64_t wanted, int64_t least, int64_t size) noexcept nogil:
    """Split sums where there would be too few blocks for all multiprocessors."""
    cdef int64_t splits = ceil_div(wanted, max(blocks, <int64_t>1))
    splits = min(splits, summands // least, <int64_t>MOST_SPLITS)
    splits = max(<int64_t>1, min(splits, <int64_t>PARTIAL // (args.elements * size)))
    args.chunk = max(<int64_t>1, ceil_div(ceil_div(summands, splits), 16) * 16)
    args.splits = max(<int64_t>1, ceil_div(summands, args.chunk))


cdef int64_t choose_tiles(pb_call *call, conv_arguments *args, const product *of,
                          bint is_large) noexcept nogil:
    """Divide the product into tiles; return how many blocks there are, or 0 if too many."""
    cdef int64_t tile = CONV_LARGE if is_large else CONV_SMALL, size = item_sizes[PB_F32]
    cdef double blocks
    args.row_tiles = ceil_div(of.rows, tile)
    args.column_tiles = ceil_div(of.columns, tile)
    blocks = <double>args.row_tiles * args.column_tiles * args.groups * of.phases
    if blocks * MOST_SPLITS > <double>MOST_BLOCKS:
        args.splits = 1
        args.chunk = max(<int64_t>1, of.summands)
        return <int64_t>blocks if blocks <= <double>MOST_BLOCKS else 0
    split_sums(call, args, of.summands, <int64_t>blocks,
               <int64_t>sm_count(call) * (2 if is_large else 3), CHUNK, size)
    return <int64_t>blocks * args.splits


cdef int convolve(pb_call *call, conv_arguments *args) noexcept nogil:
    """Choose a kernel and launch it."""
    cdef product of
    cdef int is_double = call.in_[0].dtype == PB_F64, code
    cdef int weight = args.kind == CONV_BACKWARD_WEIGHT
    cdef int64_t blocks = 0, nbytes
    cdef pb_cuda_kernel *kernel
    cdef bint is_large
    find_product(args, &of)
    kernel = small[weight][is_double]
    if of.fits_tiles and min(of.rows, <int64_t>CONV_SMALL) * min(
            of.columns, <int64_t>CONV_SMALL) >= ENOUGH:
        # Large tiles load less for each product, unless much of them is beyond the end.
        is_large = is_double == 0 and 4 * ceil_div(of.rows, CONV_LARGE) * ceil_div(
            of.columns, CONV_LARGE) * 4 <= 5 * ceil_div(of.rows, CONV_SMALL) * ceil_div(
            of.columns, CONV_SMALL)
        if is_large:
            kernel = large[weight]
        blocks = choose_tiles(call, args, &of, is_large)
    if blocks == 0:
        args.splits = 1
        args.chunk = max(<int64_t>1, of.summands)
        if weight:
            kernel = direct[1][is_double]
            split_sums(call, args, of.summands, args.elements, <int64_t>8 * sm_count(call),
                       DIRECT_CHUNK, item_sizes[PB_F64])
            blocks = min(args.elements * args.splits, <int64_t>MOST_BLOCKS)
        else:
            kernel = direct[0][is_double] if of.narrow else direct_wide[is_double]
            blocks = blocks_for(call, args.elements, THREADS)
    args.partial = NULL
    if args.splits == 1:
        return launch(call, kernel, args, sizeof(args[0]), blocks, THREADS, 0)
    nbytes = args.splits * args.elements * (8 if is_double else 4)
    code = workspace_alloc(call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = launch(call, kernel, args, sizeof(args[0]), blocks, THREADS, 0)
    if code == PB_OK:
        code = launch(call, summers[is_double], args, sizeof(args[0]), blocks_for(
            call, args.elements, THREADS), THREADS, 0)
    workspace_free(call, args.partial, nbytes)
    return code


# ---- calls ---------------------------------------------------------------------------------------

cdef int run(pb_call *call, int kind, pb_array *image, pb_array *windows,
             pb_array *weight) noexcept nogil:
    cdef conv_arguments args
    cdef int64_t rows
    cdef int d
    args.elements = count_elements(call.out[0])
    if args.elements == 0:
        return PB_OK
    args.kind = kind
    if not read_parameters(call, image, windows, weight, &args):
        return fail(call, PB_E_VALUE, b"the convolution parameters do not fit the operands")
    if call.in_[0].dtype != PB_F32 and call.in_[0].dtype != PB_F64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.left = windows.data if kind == CONV_BACKWARD_WEIGHT else weight.data
    args.right = windows.data if kind == CONV_BACKWARD_INPUT else image.data
    args.bias = call.in_[2].data if kind != CONV_BACKWARD_WEIGHT and call.nin > 2 else NULL
    args.out = call.out[0].data
    rows = args.c if kind == CONV_BACKWARD_INPUT else args.o
    make_divider(&args.out_rows, rows)
    make_divider(&args.out_channels, args.groups * rows)
    for d in range(CONV_RANK):
        make_divider(&args.out_sides[d], args.sides[d].size if kind == CONV_BACKWARD_INPUT
                     else args.sides[d].count)
    return convolve(call, &args)


cdef int kernel_conv(pb_call *call) noexcept nogil:
    return run(call, CONV_FORWARD, call.in_[0], call.out[0], call.in_[1])


cdef int kernel_conv_backward_input(pb_call *call) noexcept nogil:
    return run(call, CONV_BACKWARD_INPUT, call.out[0], call.in_[0], call.in_[1])


cdef int kernel_conv_backward_weight(pb_call *call) noexcept nogil:
    return run(call, CONV_BACKWARD_WEIGHT, call.in_[0], call.in_[1], call.out[0])


KERNELS = {
    "conv": new_kernel(0x300, kernel_conv),
    "conv_backward_input": new_kernel(0x300, kernel_conv_backward_input),
    "conv_backward_weight": new_kernel(0x300, kernel_conv_backward_weight),
}
