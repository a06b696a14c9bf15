# Convolution parameters, and the offsets of a kernel's elements in padded images, for the forward
# pass and both gradients.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport pb_array, pb_call
from pullback_cpu.runtime.threads cimport thread_count

cdef enum:
    HELD = 1 << 18   # elements of images that are copied at a time, for each thread
    GRAIN = 1 << 18  # multiplications per thread, at least

# Sizes by dim, always three: those that are missing have one element.
ctypedef struct conv_params:
    int64_t images
    int64_t groups
    int64_t c           # channels of a group of the input
    int64_t o           # and of what comes out
    int64_t size[3]     # of the input
    int64_t count[3]    # of windows
    int64_t kernel[3]
    int64_t stride[3]
    int64_t padding[3]
    int64_t dilation[3]


cdef inline int64_t volume(const int64_t *sizes) noexcept nogil:
    return sizes[0] * sizes[1] * sizes[2]


cdef inline conv_params read_conv_params(
        pb_call *call, const pb_array *image, const pb_array *windows,
        const pb_array *weight) noexcept nogil:
    cdef conv_params shape
    cdef const int64_t *given = call.param[0].ints
    cdef int d, rank = image.ndim - 2, lead = 3 - rank
    shape.images = image.shape[0]
    shape.groups = given[3 * rank]
    shape.c = weight.shape[1]
    shape.o = weight.shape[0] // shape.groups
    for d in range(3):
        shape.size[d] = shape.count[d] = shape.kernel[d] = 1
        shape.stride[d] = shape.dilation[d] = 1
        shape.padding[d] = 0
    for d in range(rank):
        shape.size[lead + d] = image.shape[2 + d]
        shape.count[lead + d] = windows.shape[2 + d]
        shape.kernel[lead + d] = weight.shape[2 + d]
        shape.stride[lead + d] = given[d]
        shape.padding[lead + d] = given[rank + d]
        shape.dilation[lead + d] = given[2 * rank + d]
        if shape.count[lead + d] == 1:  # no second window is a stride away
            shape.stride[lead + d] = 1
    return shape


cdef inline bint fits_memory(const conv_params *shape) noexcept nogil:
    """Return whether an image with its padding could be held, so that its size can be computed."""
    cdef double elements = (<double>shape.groups) * (shape.c + shape.o)
    cdef int d
    for d in range(3):
        elements *= (<double>shape.size[d] + shape.stride[d] + 2 * <double>shape.padding[d]
                     + (<double>shape.kernel[d] - 1) * shape.dilation[d])
    return elements < 1e15


cdef inline int64_t offset_of_tap(
        const conv_params *shape, const int64_t *phases, const int64_t *length, int64_t x,
        int64_t y, int64_t z) noexcept nogil:
    """Return where in the planes of a channel the first window has an element of the kernel."""
    cdef int64_t position[3]
    cdef int64_t phase = 0, shift = 0, d
    position[0], position[1], position[2] = x, y, z
    for d in range(3):
        position[d] *= shape.dilation[d]
        phase = phase * phases[d] + position[d] % shape.stride[d]
        shift = shift * length[d] + position[d] // shape.stride[d]
    return phase * volume(length) + shift


cdef inline int64_t offset_of_row(
        const conv_params *shape, const int64_t *length, bint joined, int64_t row) noexcept nogil:
    """Return the same for a row of the kernel, in an image with its padding."""
    cdef int64_t z = 0
    if not joined:
        z = row % shape.kernel[2]
        row //= shape.kernel[2]
    return ((row // shape.kernel[1] * shape.dilation[0] * length[1]
             + row % shape.kernel[1] * shape.dilation[1]) * length[2] + z * shape.dilation[2])


cdef inline int64_t images_at_once(int64_t images, int64_t elements) noexcept nogil:
    cdef int64_t held = HELD * thread_count() // max(elements, <int64_t>1)
    return max(<int64_t>1, min(images, held))
