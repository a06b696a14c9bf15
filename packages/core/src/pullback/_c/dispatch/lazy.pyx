"""Lazy conjugates and negatives: views whose elements are computed when memory is read or written.

Such a tensor has the flag TENSOR_CONJ or TENSOR_NEG, and a kernel's operand PB_ARRAY_CONJ or
PB_ARRAY_NEG. Kernels get copies instead; other readers of memory call `resolved` or `scalar_of`.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_CONJ, PB_ARRAY_HOST, PB_ARRAY_NEG, PB_ARRAY_WRITE,
    PB_MAX_NDIM, PB_MAX_OPERANDS, PB_NUM_DTYPES, pb_array, pb_call)
from pullback._c.device.device cimport device_type, pb_entry
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, CATEGORY_FLOATING, dtype_category, dtype_itemsize, dtype_real, scalar_read,
    scalar_write)
from pullback._c.dispatch.launch cimport (
    array_fill, array_scalar, call_primitive, copy_into, merge_dims, set_call_lazy, primitive_id)
from pullback._c.base.layout cimport layout_contiguous, layout_new, layout_retain
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_CONJ, TENSOR_LAZY, TENSOR_NEG, Tensor, tensor_new, tensor_over)
from pullback._c.base.types cimport LAYOUT_DENSE, layout_shape

cdef enum:
    ARRAY_LAZY = PB_ARRAY_CONJ | PB_ARRAY_NEG

cdef int CONJ = primitive_id("conj")
cdef int COPY = primitive_id("copy")
cdef int NEG = primitive_id("neg")
cdef int SUB = primitive_id("sub")


# ---- kernels -------------------------------------------------------------------------------------

cdef int call_resolved(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a kernel with lazy operands: on resolved copies, and into ones that are copied back."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *operands[PB_MAX_OPERANDS]
    cdef pb_array **given = call.out
    cdef pb_entry *entry = &device_type(type_id).table[call.primitive * PB_NUM_DTYPES + key]
    cdef int i, flags, taken
    cdef list kept = []
    if call.primitive == COPY and call.in_[0].dtype == call.out[0].dtype:
        return copy_array(type_id, call.out[0], call.in_[0])
    for i in range(call.nout + call.nin):
        operands[i] = given[i]
        taken = PB_ARRAY_CONJ if i >= call.nout and entry.takes_conj else 0
        flags = given[i].flags & ARRAY_LAZY
        if flags & ~taken:
            kept.append(array_copy(type_id, &arrays[i], given[i], given[i].dtype))
            operands[i] = &arrays[i]
    call.out = &operands[0]
    call.in_ = &operands[call.nout]
    try:
        call_primitive(type_id, call, key, work)
    finally:
        call.out = given
        call.in_ = given + call.nout
    for i in range(call.nout):
        if operands[i] != given[i]:
            copy_array(type_id, given[i], operands[i])
    return 0


cdef Tensor array_copy(int type_id, pb_array *made, pb_array *source, int dtype):
    """Fill `made` with a copy of an array, without lazy bits; returns the owner of its memory."""
    cdef Tensor memory = array_like(type_id, made, source, dtype)
    copy_array(type_id, made, source)
    return memory


cdef Tensor array_like(int type_id, pb_array *made, pb_array *source, int dtype):
    """Fill `made` with an array of new memory; returns the owner of that."""
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t size = 1
    cdef int d
    cdef Tensor memory
    for d in range(source.ndim - 1, -1, -1):
        strides[d] = 0
        if source.strides[d] != 0 or source.shape[d] == 0:      # an expanded dim is copied once
            strides[d] = size
            size *= source.shape[d]
    memory = tensor_new(layout_contiguous(1, &size), dtype, type_id, source.device)
    memory = tensor_over(memory, storage_retain(memory.storage),
                         layout_new(source.ndim, source.shape, strides), 0)
    array_fill(made, memory)
    made.flags = source.flags & ~ARRAY_LAZY
    return memory


cdef int copy_array(int type_id, const pb_array *target, const pb_array *source) except -1:
    """target = source, of one shape, both read by their lazy bits, which agree if dtypes do not."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[2][PB_MAX_NDIM]
    cdef pb_array arrays[2]
    cdef int64_t work = 1
    cdef int d, ndim = target.ndim, change = (target.flags ^ source.flags) & ARRAY_LAZY
    memcpy(shape, target.shape, ndim * sizeof(int64_t))
    memcpy(strides[0], target.strides, ndim * sizeof(int64_t))
    memcpy(strides[1], source.strides, ndim * sizeof(int64_t))
    for d in range(ndim):
        if strides[0][d] == 0 and strides[1][d] == 0 and shape[d] > 0:
            shape[d] = 1                # expanded in both
        work *= shape[d]
    if work == 0:
        return 0
    ndim = merge_dims(2, shape, strides, ndim)
    arrays[0] = target[0]
    arrays[1] = source[0]
    for d in range(2):
        arrays[d].flags &= ~ARRAY_LAZY
        arrays[d].ndim = ndim
        arrays[d].shape = shape
        arrays[d].strides = strides[d]
    arrays[0].flags |= PB_ARRAY_WRITE
    if change & PB_ARRAY_CONJ:
        conjugate(type_id, &arrays[0], &arrays[1], work)
    elif change:
        negate(type_id, &arrays[0], &arrays[1], work)
    else:
        run_into(type_id, COPY, &arrays[0], &arrays[1], NULL, work)
    if change == ARRAY_LAZY:
        negate(type_id, &arrays[0], &arrays[0], work)
    return 0


cdef int conjugate(int type_id, pb_array *target, pb_array *source, int64_t work) except -1:
    """target = conj(source); on a device without that kernel, by negating the imaginary parts."""
    cdef int64_t strides[PB_MAX_NDIM]
    cdef pb_array imaginary = target[0]
    cdef int d
    if is_served(type_id, CONJ, target.dtype):
        return run_into(type_id, CONJ, target, source, NULL, work)
    run_into(type_id, COPY, target, source, NULL, work)
    for d in range(target.ndim):
        strides[d] = 2 * target.strides[d]
    imaginary.dtype = dtype_real(target.dtype)
    imaginary.strides = strides
    imaginary.offset = 2 * target.offset + 1
    imaginary.data = <char *>target.data + dtype_itemsize[imaginary.dtype]
    return negate(type_id, &imaginary, &imaginary, work)


cdef int negate(int type_id, pb_array *target, pb_array *source, int64_t work) except -1:
    """target = -source; on a device without that kernel, as a difference."""
    cdef char zero[16]
    cdef pb_array left
    if is_served(type_id, NEG, target.dtype):
        return run_into(type_id, NEG, target, source, NULL, work)
    # -0.0 - x equals -x for zeros too; 0 - x has another sign there.
    if dtype_category[target.dtype] == CATEGORY_COMPLEX:
        scalar_write(complex(-0.0, -0.0), target.dtype, zero)
    elif dtype_category[target.dtype] == CATEGORY_FLOATING:
        scalar_write(-0.0, target.dtype, zero)
    else:
        scalar_write(0, target.dtype, zero)
    array_scalar(&left, target.dtype, zero)
    return run_into(type_id, SUB, target, &left, source, work)


cdef bint is_served(int type_id, int primitive, int dtype) except -1:
    """True if a device has a kernel of its own for a primitive."""
    cdef pb_entry *entry = &device_type(type_id).table[primitive * PB_NUM_DTYPES + dtype]
    return entry.kernel != NULL or entry.callable != NULL


cdef int run_into(int type_id, int primitive, pb_array *target, pb_array *first, pb_array *second,
                  int64_t work) except -1:
    """Run an elementwise primitive on one or two arrays, with the fallback, within any op."""
    cdef pb_state *state = thread_state()
    cdef int before = state.fallback_primitive
    cdef int64_t strides[PB_MAX_NDIM]
    cdef pb_array inputs[2]
    cdef pb_array *pointers[3]
    cdef pb_call call
    cdef int d
    for d in range(target.ndim):
        strides[d] = 0
    pointers[0] = target
    inputs[0] = first[0]
    if second != NULL:
        inputs[1] = second[0]
    for d in range(1 if second == NULL else 2):
        pointers[d + 1] = &inputs[d]
        inputs[d].flags &= ~PB_ARRAY_WRITE
        if inputs[d].flags & PB_ARRAY_HOST:
            inputs[d].ndim, inputs[d].shape, inputs[d].strides = target.ndim, target.shape, strides
    call.size = sizeof(pb_call)
    call.primitive = primitive
    call.nout = 1
    call.nin = 1 if second == NULL else 2
    call.nparam = 0
    call.device = target.device
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = NULL
    state.fallback_primitive = -1
    try:
        return call_primitive(type_id, &call, first.dtype, work)
    finally:
        state.fallback_primitive = before


# ---- whole tensors -------------------------------------------------------------------------------

cdef Tensor resolved(Tensor self):
    """Return a tensor whose memory holds its elements: itself, or a copy outside the graph."""
    cdef Tensor out
    if not self.flags & TENSOR_LAZY:
        return self
    out = tensor_new(layout_retain(self.layout) if self.layout.flags & LAYOUT_DENSE else
                     layout_contiguous(self.layout.ndim, layout_shape(self.layout)),
                     self.dtype, self.storage.device_type, self.storage.device_index)
    copy_into(out, self)
    return out


cdef object scalar_of(Tensor self, const void *data):
    """Return an element as a Python number; `data` is its address, or that of a copy of it."""
    cdef char negative[16]
    cdef object value = scalar_read(data, self.dtype)
    if self.flags & TENSOR_LAZY:
        if self.flags & TENSOR_CONJ:
            value = value.conjugate()
        if self.flags & TENSOR_NEG:     # integers wrap around
            scalar_write(-value, self.dtype, negative)
            value = scalar_read(negative, self.dtype)
    return value


set_call_lazy(call_resolved)
