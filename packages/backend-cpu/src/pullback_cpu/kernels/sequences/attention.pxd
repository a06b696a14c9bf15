# Operands of attention kernels: heads, rows of a head, masks, and memory of a thread.
#
# All operands have the same leading dims; the last of them counts heads, of which keys and values
# may have fewer: each is shared by a group of the queries'.
from libc.math cimport INFINITY

from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.math.half cimport *
from pullback_cpu.math.vector_bits cimport add_product_f32, add_product_f64
from pullback_cpu.math.vector_exp cimport exp_inside_f32, exp_inside_f64

cdef extern from "runtime/workspace.h" nogil:
    void *pb_workspace_alloc(size_t bytes)
    void pb_workspace_free(void *data)

cdef enum:
    KEYS = 128            # of a block
    MOMENT = 1 << 24      # multiplications between two polls for an interrupt
    GRAIN = 1 << 19       # multiplications per thread, at least


# The operands of a call; the mask is NULL if there is none, and what a call lacks is not set.
ctypedef struct attention_call:
    const pb_array *query
    const pb_array *key
    const pb_array *value
    const pb_array *mask
    const pb_array *grad
    pb_array *out
    pb_array *sums          # the logarithms of the sums of exponentials
    int64_t heads           # of queries, of all leading dims together
    int64_t group           # of them that share a head of keys
    int64_t queries
    int64_t keys
    int64_t size            # of a query and a key
    int64_t out_size        # of a value
    int64_t panels          # of queries that share a block of keys
    bint is_causal
    double scale
    bint failed             # for want of memory


cdef inline int64_t product_of(const int64_t *sizes, int count) noexcept nogil:
    cdef int64_t product = 1
    cdef int d
    for d in range(count):
        product *= sizes[d]
    return product


cdef inline attention_call new_attention(pb_call *call, int first) noexcept nogil:
    """Describe a call with query, key and value from the input ``first`` on."""
    cdef attention_call task
    cdef int ndim
    task.query = call.in_[first]
    task.key = call.in_[first + 1]
    task.value = call.in_[first + 2]
    ndim = task.query.ndim
    task.heads = product_of(task.query.shape, ndim - 2)
    task.group = 1
    if ndim > 2 and task.key.shape[ndim - 3] and task.heads:
        task.group = task.query.shape[ndim - 3] // task.key.shape[ndim - 3]
    task.queries = task.query.shape[ndim - 2]
    task.keys = task.key.shape[ndim - 2]
    task.size = task.query.shape[ndim - 1]
    task.out_size = task.value.shape[ndim - 1]
    task.is_causal = call.param[0].i
    task.scale = call.param[1].d
    task.failed = False
    return task


cdef inline const char *head_of(
        const pb_array *array, int trailing, int64_t head, int64_t group) noexcept nogil:
    """Return the address of a head of the queries in an array with ``trailing`` further dims."""
    cdef int64_t offset = 0, size
    cdef int d
    head //= group
    for d in range(array.ndim - trailing - 1, -1, -1):
        size = array.shape[d]
        if size > 1:
            offset += head % size * array.strides[d]
            head //= size
    return <const char *>array.data + (offset << item_shift[array.dtype])


cdef inline int64_t up_to(int64_t size, int64_t step) noexcept nogil:
    """Return the next multiple of a step."""
    return (size + step - 1) // step * step


# exp(x) for x <= 0; what is below the normal numbers becomes 0. NaN stays.
cdef inline float weight_f32(float x) noexcept nogil:
    cdef float low = -87, zero = 0, inside = low if x < low else x
    return add_product_f32(zero, inside, zero if x < low else exp_inside_f32(inside))


cdef inline double weight_f64(double x) noexcept nogil:
    cdef double low = -708, inside = low if x < low else x
    return add_product_f64(0, inside, 0 if x < low else exp_inside_f64(inside))
