# build: small
"""Calls in uint16, uint32, uint64 and complex32 on a device without a kernel for them.

A kernel of another dtype runs, on the same memory where the bits agree, and otherwise on copies.
How a primitive treats unsigned numbers is the field ``unsigned`` of its entry in the table.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_C32, PB_C64, PB_F16, PB_F32, PB_I32, PB_I64, PB_MAX_NDIM, PB_MAX_OPERANDS,
    PB_NUM_DTYPES, PB_U16, PB_U64, pb_array, pb_call)
from pullback._c.base.dtype cimport (
    CATEGORY_BOOL, CATEGORY_INTEGRAL, dtype_category, dtype_itemsize, dtype_signed, scalar_read,
    scalar_write)
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.device cimport device_type, pb_entry
from pullback._c.dispatch.fallback cimport call_missing
from pullback._c.dispatch.launch cimport (
    array_scalar, call_primitive, call_with_kernel, primitive_id, set_call_optional)
from pullback._c.dispatch.lazy cimport array_copy, array_like, copy_array, run_into
from pullback.ops.table.primitives import PRIMITIVES

cdef int AND = primitive_id("bitwise_and")
cdef int COPY = primitive_id("copy")
cdef int MINIMUM = primitive_id("minimum")
cdef int SCATTER_REDUCE = primitive_id("scatter_reduce")
cdef int SIGN = primitive_id("sign")
cdef int XOR = primitive_id("bitwise_xor")

cdef enum:
    BITS = 0        # the signed kernel gives the same bits
    ORDER = 1       # it does once the top bits are flipped
    WIDE = 2        # the next signed dtype holds operands and results
    SAME = 3        # the result is the operand

cdef list unsigned_modes = [
    {"bits": BITS, "order": ORDER, "wide": WIDE, "same": SAME}[primitive.unsigned]
    for primitive in PRIMITIVES.values()]
cdef list keeps_outputs = [primitive.family == "index" for primitive in PRIMITIVES.values()]


cdef int call_optional(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a primitive whose key, or the target of whose copy, is an optional dtype."""
    cdef pb_state *state = thread_state()
    cdef int before = state.fallback_primitive, stand_in = dtype_signed(key)
    if call.primitive == COPY:
        stand_in = call.out[0].dtype if call.out[0].dtype >= PB_U16 else key
        if serves(type_id, COPY, key) and serves(type_id, COPY, stand_in):
            return call_with_kernel(type_id, call, max(key, stand_in), work)
    elif serves(type_id, call.primitive, key):
        return call_with_kernel(type_id, call, key, work)
    elif key == PB_C32:
        if call.primitive == before and not serves(type_id, call.primitive, PB_C64):
            return call_missing(type_id, call, key)     # there is a decomposition
    elif (key == PB_U64 and unsigned_modes[call.primitive] == WIDE) or (    # none is wider
            not serves(type_id, MINIMUM if call.primitive == SIGN else call.primitive, stand_in)):
        return call_missing(type_id, call, key)
    state.fallback_primitive = -1
    try:
        if call.primitive == COPY:
            return copy_cast(type_id, call, work)
        if key == PB_C32:
            return call_converted(type_id, call, PB_C64, work)
        return call_unsigned(type_id, call, key, work)
    finally:
        state.fallback_primitive = before


cdef bint serves(int type_id, int primitive, int dtype) except -1:
    """True if a device has a kernel of its own for a primitive."""
    cdef pb_entry *entry = &device_type(type_id).table[primitive * PB_NUM_DTYPES + dtype]
    return entry.kernel != NULL or entry.callable != NULL


# ---- unsigned integers ---------------------------------------------------------------------------

cdef int call_unsigned(int type_id, pb_call *call, int key, int64_t work) except -1:
    cdef int mode = unsigned_modes[call.primitive]
    cdef pb_array one
    cdef int64_t number = 1
    if call.primitive == SIGN:                          # min(x, 1)
        array_scalar(&one, key, &number)
        return run_into(type_id, MINIMUM, call.out[0], call.in_[0], &one, work)
    if call.primitive == SCATTER_REDUCE and call.param[1].i == 0:
        mode = BITS                                     # a product
    if mode == WIDE:
        return call_converted(type_id, call, PB_I32 if key == PB_U16 else PB_I64, work)
    if mode == SAME:
        return run_into(type_id, COPY, call.out[0], call.in_[0], NULL, work)
    if mode == ORDER:
        return call_flipped(type_id, call, key, work)
    return call_as_signed(type_id, call, call.out, key, work)


cdef int call_as_signed(int type_id, pb_call *call, pb_array **operands, int key,
                        int64_t work) except -1:
    """Run a kernel of the signed dtype on the memory of `operands`, the outputs first."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *pointers[PB_MAX_OPERANDS]
    cdef pb_call inner = call[0]
    cdef int i
    for i in range(call.nout + call.nin):
        arrays[i] = operands[i][0]
        arrays[i].dtype = dtype_signed(arrays[i].dtype)
        pointers[i] = &arrays[i]
    inner.out = &pointers[0]
    inner.in_ = &pointers[call.nout]
    return call_primitive(type_id, &inner, dtype_signed(key), work)


cdef int call_flipped(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a kernel of the signed dtype, which orders unsigned numbers with the top bit flipped."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *operands[PB_MAX_OPERANDS]
    cdef uint64_t numbers[PB_MAX_OPERANDS]
    cdef int i
    cdef bint reads = keeps_outputs[call.primitive]
    cdef list kept = []
    for i in range(call.nout + call.nin):
        operands[i] = call.out[i]
        if i < call.nout or call.out[i].dtype != key:
            continue
        if call.out[i].flags & PB_ARRAY_HOST:
            arrays[i] = call.out[i][0]
            memcpy(&numbers[i], call.out[i].data, dtype_itemsize[key])
            numbers[i] ^= top_bit(key)
            arrays[i].data = arrays[i].base = &numbers[i]
        else:
            kept.append(array_copy(type_id, &arrays[i], call.out[i], key))
            flip(type_id, &arrays[i])
        operands[i] = &arrays[i]
    for i in range(call.nout if reads else 0):
        if call.out[i].dtype == key:
            flip(type_id, call.out[i])
    try:
        call_as_signed(type_id, call, operands, key, work)
    finally:
        for i in range(call.nout):
            if call.out[i].dtype == key:
                flip(type_id, call.out[i])
    return 0


cdef uint64_t top_bit(int dtype) noexcept:
    return <uint64_t>1 << (8 * dtype_itemsize[dtype] - 1)


cdef int flip(int type_id, pb_array *array) except -1:
    """Flip the top bit of every element."""
    return with_number(type_id, XOR, array, top_bit(array.dtype))


cdef int with_number(int type_id, int primitive, pb_array *array, uint64_t number) except -1:
    """Run a bitwise primitive with a number in place, on elements that are named once each."""
    cdef pb_array target = array[0]
    cdef pb_array operand
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t work = 1
    cdef int d
    target.dtype = dtype_signed(array.dtype)
    for d in range(array.ndim):
        shape[d] = 1 if array.strides[d] == 0 and array.shape[d] > 0 else array.shape[d]
        work *= shape[d]
    target.shape = shape
    if work == 0:
        return 0
    array_scalar(&operand, target.dtype, &number)
    return run_into(type_id, primitive, &target, &target, &operand, work)


# ---- other dtypes --------------------------------------------------------------------------------

cdef int call_converted(int type_id, pb_call *call, int stand_in, int64_t work) except -1:
    """Run a kernel of a wider dtype on copies of the operands, whose results are cast back."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *operands[PB_MAX_OPERANDS]
    cdef double numbers[PB_MAX_OPERANDS]
    cdef pb_call inner = call[0]
    cdef bint reads = keeps_outputs[call.primitive]
    cdef pb_array *array
    cdef int i, dtype
    cdef list kept = []
    for i in range(call.nout + call.nin):
        array = operands[i] = call.out[i]               # the inputs follow
        if array.dtype < PB_U16 and (array.dtype != PB_F16 or stand_in != PB_C64):
            continue
        dtype = PB_F32 if array.dtype == PB_F16 else stand_in
        if array.flags & PB_ARRAY_HOST:
            arrays[i] = array[0]
            scalar_write(scalar_read(array.data, array.dtype), dtype, &numbers[i])
            arrays[i].dtype = dtype
            arrays[i].data = arrays[i].base = &numbers[i]
        elif i < call.nout and not reads:
            kept.append(array_like(type_id, &arrays[i], array, dtype))
        else:
            kept.append(array_copy(type_id, &arrays[i], array, dtype))
        operands[i] = &arrays[i]
    inner.out = &operands[0]
    inner.in_ = &operands[call.nout]
    call_primitive(type_id, &inner, stand_in, work)
    for i in range(call.nout):
        if operands[i] != call.out[i]:
            copy_array(type_id, call.out[i], operands[i])
    return 0


# ---- copies --------------------------------------------------------------------------------------

cdef int copy_cast(int type_id, pb_call *call, int64_t work) except -1:
    """Copy from or to an optional dtype; the operands have one shape."""
    cdef pb_array *out = call.out[0]
    cdef pb_array *source = call.in_[0]
    cdef pb_array number, middle, taken
    cdef char value[16]
    cdef int to = out.dtype, of = source.dtype
    cdef bint to_integral = dtype_category[to] <= CATEGORY_INTEGRAL
    cdef object _kept
    if source.flags & PB_ARRAY_HOST and of != to:
        scalar_write(scalar_read(source.data, of), to, value)
        array_scalar(&number, to, value)
        return run_into(type_id, COPY, out, &number, NULL, work)
    if of == to:
        return copy_as(type_id, out, bits_of(to), source, bits_of(of), work)
    if of == PB_C32 or to == PB_C32:
        if of == PB_C64 or to == PB_C64:
            return copy_parts(type_id, out, source, work)
        return copy_by(type_id, PB_C64, out, source)
    if dtype_category[of] == CATEGORY_BOOL or (
            dtype_category[of] == CATEGORY_INTEGRAL and to_integral and to != 0
            and (of < PB_U16 or dtype_itemsize[to] <= dtype_itemsize[of])) or of == PB_U64 and (
            to_integral):
        return copy_as(type_id, out, dtype_signed(to), source, dtype_signed(of), work)
    if of == PB_U64 or (of < PB_U16 and to == PB_U64):
        return call_missing(type_id, call, of if of == PB_U64 else to)
    if of < PB_U16:                                     # real and complex numbers
        return copy_by(type_id, PB_I64, out, source)
    _kept = array_like(type_id, &middle, source, PB_I64)
    taken = source[0]
    taken.dtype = dtype_signed(of)
    copy_array(type_id, &middle, &taken)
    with_number(type_id, AND, &middle, (top_bit(of) << 1) - 1)
    return copy_array(type_id, out, &middle)


cdef int bits_of(int dtype) noexcept:
    """Return the integer dtype of the same size."""
    return PB_I32 if dtype == PB_C32 else dtype_signed(dtype)


cdef int copy_as(int type_id, pb_array *out, int to, pb_array *source, int of,
                 int64_t work) except -1:
    """Copy with both operands read as other dtypes of their sizes."""
    cdef pb_array target = out[0], taken = source[0]
    target.dtype = to
    taken.dtype = of
    return run_into(type_id, COPY, &target, &taken, NULL, work)


cdef int copy_by(int type_id, int dtype, pb_array *out, pb_array *source) except -1:
    """Copy to a third dtype and on."""
    cdef pb_array middle
    _kept = array_copy(type_id, &middle, source, dtype)
    return copy_array(type_id, out, &middle)


cdef int copy_parts(int type_id, pb_array *out, pb_array *source, int64_t work) except -1:
    """Copy between complex32 and complex64 as twice as many real numbers."""
    cdef pb_array arrays[2]
    cdef int64_t strides[2][PB_MAX_NDIM]
    cdef pb_array *given
    cdef int d, part, k
    cdef int64_t twice = 2 * work
    cdef bint flat = True
    arrays[0] = out[0]
    arrays[1] = source[0]
    for k in range(2):
        flat = flat and arrays[k].ndim == 1 and arrays[k].strides[0] == 1
    for part in range(1 if flat else 2):
        for k in range(2):
            given = out if k == 0 else source
            for d in range(given.ndim):
                strides[k][d] = 1 if flat else 2 * given.strides[d]
            arrays[k].dtype = PB_F16 if given.dtype == PB_C32 else PB_F32
            arrays[k].strides = strides[k]
            if flat:
                arrays[k].shape = &twice
            arrays[k].offset = 2 * given.offset + part
            arrays[k].data = <char *>given.data + part * dtype_itemsize[arrays[k].dtype]
        run_into(type_id, COPY, &arrays[0], &arrays[1], NULL, work)
    return 0


set_call_optional(call_optional)
