"""Launching kernels: broadcasting, merging of dims, the call.

All kernels are called here (`kernel_call`). Dtypes are chosen by the callers.
"""

import threading

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_CONJ, PB_ARRAY_HOST, PB_ARRAY_NEG, PB_ARRAY_WRITE, PB_E_PYTHON, PB_I64, PB_MAX_NDIM,
    PB_MAX_OPERANDS, PB_MESSAGE_SIZE, PB_NUM_DTYPES, PB_OK, PB_PARAM_FLOAT, PB_PARAM_INT,
    PB_PARAM_INTS, PB_U16, pb_array, pb_backend, pb_call, pb_event, pb_kernel, pb_param)
from pullback._c.device.device cimport (
    DEVICE_META, device_type, device_types, has_field, pb_device_type, pb_entry)
from pullback._c.base.dtype cimport dtype_itemsize, scalar_write
from pullback._c.base.errors cimport raise_code
from pullback._c.base.interrupts cimport interrupts_begin, interrupts_end, interrupts_left_writes
from pullback._c.base.layout cimport (
    broadcast_pair, layout_contiguous, layout_release, layout_retain, layout_same_shape)
from pullback._c.base.state cimport capturing, globals_, pb_globals, thread_state
from pullback._c.dispatch.fallback cimport call_python
from pullback._c.graph.tensor cimport TENSOR_LAZY, Tensor, tensor_device
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, LAYOUT_DENSE, layout_shape, layout_strides, pb_layout)
from pullback.ops.table.numbered import NAMES
from pullback.ops.table.primitives import PRIMITIVE_IDS, PRIMITIVES

cdef enum:
    NOGIL_ELEMENTS = 16384      # below this, releasing the interpreter lock does not pay
    LONG_SUM = 1 << 20          # elements from which on an accumulation must be interruptible

cdef pb_globals *process = globals_()
cdef bint keep_lock = False     # only ever set while the lock is held

cdef list primitive_names = NAMES
cdef dict primitive_ids = PRIMITIVE_IDS
cdef dict primitive_keys = {name: primitive.key for name, primitive in PRIMITIVES.items()}
cdef dict primitive_inputs = {name: primitive.inputs for name, primitive in PRIMITIVES.items()}
cdef object accumulating = threading.RLock()


cdef int primitive_id(str name) except -1:
    """Return the number of a primitive, its index in tables of kernels."""
    found = primitive_ids.get(name)
    if found is None:
        raise ValueError(f"there is no primitive named {name!r}")
    return found


# ---- shapes --------------------------------------------------------------------------------------

cdef pb_layout *elementwise_layout(operand *inputs, int count) except NULL:
    """Return the layout of an elementwise result; owned. A dense input determines the strides."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef pb_layout *first = NULL
    cdef pb_layout *other
    cdef pb_layout *grown
    cdef int i, ndim
    cdef bint own = False
    for i in range(count):
        if inputs[i].tensor == NULL:
            continue
        other = (<Tensor>inputs[i].tensor).layout
        if first == NULL:
            first = other
        elif not layout_same_shape(first, other):
            try:
                ndim = broadcast_pair(first, other, shape)
                grown = layout_contiguous(ndim, shape)
            finally:
                if own:
                    layout_release(first)
                    own = False
            first = grown
            own = True
    if own:
        for i in range(count):
            if inputs[i].tensor == NULL:
                continue
            other = (<Tensor>inputs[i].tensor).layout
            if other.flags & LAYOUT_DENSE and layout_same_shape(first, other):
                layout_release(first)
                return layout_retain(other)
        return first
    if first.flags & LAYOUT_DENSE:
        return layout_retain(first)
    return layout_contiguous(first.ndim, layout_shape(first))


# ---- elementwise calls ---------------------------------------------------------------------------

cdef int64_t unit_step = 1
cdef int64_t no_step = 0


cdef inline void array_begin(pb_array *array, Tensor tensor) noexcept:
    """Fill the fields of a pb_array that describe a tensor's memory."""
    if process.capture != NULL and process.capture.state == thread_state():
        process.capture.used(process.capture.self, tensor.storage)
    array.size = sizeof(pb_array)
    array.dtype = tensor.dtype
    array.flags = (tensor.flags & TENSOR_LAZY) >> 4       # TENSOR_CONJ becomes PB_ARRAY_CONJ
    array.device = tensor.storage.device_index
    array.data = <char *>tensor.storage.data + tensor.offset * dtype_itemsize[tensor.dtype]
    array.base = tensor.storage.data
    array.offset = tensor.offset


cdef void array_scalar(pb_array *array, int dtype, void *value) noexcept:
    """Fill a pb_array with a number in host memory."""
    array.size = sizeof(pb_array)
    array.dtype = dtype
    array.flags = PB_ARRAY_HOST
    array.device = 0
    array.data = value
    array.base = value
    array.offset = 0


cdef void array_fill(pb_array *array, Tensor tensor) noexcept:
    """Fill a pb_array with a tensor, from which it borrows sizes, strides and memory."""
    array_begin(array, tensor)
    array.ndim = tensor.layout.ndim
    array.shape = layout_shape(tensor.layout)
    array.strides = layout_strides(tensor.layout)


cdef int raise_operand_device(int primitive, Tensor out, Tensor tensor, int number) except -1:
    """Raise for a kernel operand on another device; `number` is negative for an output."""
    names = PRIMITIVES[primitive_names[primitive]].inputs.split()
    name = "out" if number < 0 else names[number] if number < len(names) else f"input {number}"
    raise_two_devices(tensor_device(out), tensor_device(tensor), name, primitive_names[primitive])
    return 0


cdef int raise_two_devices(object one, object other, str argument, str name) except -1:
    """Raise torch's error for an argument on another device than the rest."""
    raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two "
                       f"devices, {one} and {other}! (when checking argument for argument "
                       f"{argument} in method {name})")


cdef int merge_dims(int nop, int64_t *shape, int64_t (*strides)[PB_MAX_NDIM], int ndim) noexcept:
    """Sort dims by the output's strides and merge contiguous ones; return the new number."""
    cdef int d, e, k, last = 0
    cdef bint joined
    # Drop dims of one element.
    for d in range(ndim):
        if shape[d] != 1:
            if last != d:
                shape[last] = shape[d]
                for k in range(nop):
                    strides[k][last] = strides[k][d]
            last += 1
    ndim = last
    if ndim <= 1:
        return ndim
    # Insertion sort, largest output stride first; ties keep their order.
    for d in range(1, ndim):
        e = d
        while e > 0 and strides[0][e - 1] < strides[0][e]:
            shape[e], shape[e - 1] = shape[e - 1], shape[e]
            for k in range(nop):
                strides[k][e], strides[k][e - 1] = strides[k][e - 1], strides[k][e]
            e -= 1
    last = 0
    for d in range(1, ndim):
        joined = True
        for k in range(nop):
            if strides[k][last] != strides[k][d] * shape[d]:
                joined = False
                break
        if joined:
            shape[last] *= shape[d]
            for k in range(nop):
                strides[k][last] = strides[k][d]
        else:
            last += 1
            shape[last] = shape[d]
            for k in range(nop):
                strides[k][last] = strides[k][d]
    return last + 1


cdef int launch_elementwise(int primitive, int key, Tensor out, operand *inputs,
                            int count) except -1:
    """Run an elementwise primitive into `out`, which has the broadcast shape."""
    cdef pb_array arrays[MAX_ELEMENTWISE]
    cdef pb_array *pointers[MAX_ELEMENTWISE]
    cdef pb_layout *target = out.layout
    cdef pb_layout *layout
    cdef pb_call call
    cdef PyObject *written = <PyObject *>out
    cdef int i
    cdef bint flat = target.flags & LAYOUT_DENSE != 0
    for i in range(count):
        if inputs[i].tensor != NULL:
            layout = (<Tensor>inputs[i].tensor).layout
            if layout != target and (layout.flags & target.flags & LAYOUT_CONTIGUOUS == 0
                                     or layout.numel != target.numel):
                flat = False
                break
    call.size = sizeof(pb_call)
    call.primitive = primitive
    call.nout = 1
    call.nin = count
    call.nparam = 0
    call.device = out.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = NULL
    pointers[0] = &arrays[0]
    array_begin(&arrays[0], out)
    arrays[0].flags |= PB_ARRAY_WRITE
    for i in range(count):
        pointers[i + 1] = &arrays[i + 1]
        if inputs[i].tensor != NULL:
            array_begin(&arrays[i + 1], <Tensor>inputs[i].tensor)
            mark_host(primitive, out, <Tensor>inputs[i].tensor, i, &arrays[i + 1])
        else:
            array_scalar(&arrays[i + 1], key, &inputs[i].scalar[0])
    if not flat:
        return launch_strided(&call, key, out, inputs)
    # All operands have one order of elements in memory: one dim is enough.
    for i in range(count + 1):
        arrays[i].ndim = 1
        arrays[i].shape = &target.numel
        arrays[i].strides = &no_step if arrays[i].flags & PB_ARRAY_HOST else &unit_step
    return kernel_into(&call, key, target.numel, &written, 1)


cdef int launch_strided(pb_call *call, int key, Tensor out, operand *inputs) except -1:
    """Finish launch_elementwise for operands of different orders in memory."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[MAX_ELEMENTWISE][PB_MAX_NDIM]
    cdef pb_layout *target = out.layout
    cdef pb_layout *layout
    cdef PyObject *written = <PyObject *>out
    cdef int i, d, shift, ndim = target.ndim
    memcpy(shape, layout_shape(target), ndim * sizeof(int64_t))
    memcpy(strides[0], layout_strides(target), ndim * sizeof(int64_t))
    for i in range(call.nin):
        if inputs[i].tensor == NULL:
            for d in range(ndim):
                strides[i + 1][d] = 0
            continue
        layout = (<Tensor>inputs[i].tensor).layout
        shift = ndim - layout.ndim
        for d in range(ndim):
            if d < shift or (layout_shape(layout)[d - shift] == 1):
                strides[i + 1][d] = 0
            else:
                strides[i + 1][d] = layout_strides(layout)[d - shift]
    ndim = merge_dims(call.nin + 1, shape, strides, ndim)
    for i in range(call.nin + 1):
        call.out[i].ndim = ndim         # the inputs follow the output
        call.out[i].shape = shape
        call.out[i].strides = strides[i]
    return kernel_into(call, key, target.numel, &written, 1)


# ---- the call ------------------------------------------------------------------------------------

cdef inline int kernel_into(pb_call *call, int key, int64_t work, PyObject **outs,
                            int nout) except -1:
    """Run the kernel of a primitive; counts a write to the outputs also if Ctrl-C interrupts it."""
    cdef int i, failed = -1
    try:
        failed = kernel_call((<Tensor>outs[0]).storage.device_type, call, key, work)
    finally:
        if failed and interrupts_left_writes():
            for i in range(nout):
                (<Tensor>outs[i]).storage.version += 1
    return 0


cdef int kernel_call(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run the kernel of a primitive, with lazy operands resolved; raises for its error code."""
    cdef int i, flags = 0
    if type_id == DEVICE_META:
        return 0
    for i in range(call.nout + call.nin):
        flags |= call.out[i].flags      # the inputs follow the outputs
    if flags & (PB_ARRAY_CONJ | PB_ARRAY_NEG):
        return call_lazy(type_id, call, key, work)
    return call_plainly(type_id, call, key, work)


# Set by lazy.pyx: runs a kernel with lazy operands.
cdef int (*call_lazy)(int type_id, pb_call *call, int key, int64_t work) except -1


cdef void set_call_lazy(int (*run)(int type_id, pb_call *call, int key,
                                   int64_t work) except -1) noexcept:
    """Install the function that runs kernels on lazy conjugates and negatives."""
    global call_lazy
    call_lazy = run


cdef int call_primitive(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run the kernel of a primitive on operands without lazy bits, or with those it supports."""
    return call_plainly(type_id, call, key, work)


cdef inline int call_plainly(int type_id, pb_call *call, int key, int64_t work) except -1:
    if key >= PB_U16 or call.out[0].dtype >= PB_U16:
        return call_optional(type_id, call, key, work)
    return call_present(type_id, call, key, work)


# Set by optional_dtypes.pyx: runs a kernel in a dtype for which the device may have none.
cdef int (*call_optional)(int type_id, pb_call *call, int key, int64_t work) except -1


cdef void set_call_optional(int (*run)(int type_id, pb_call *call, int key,
                                       int64_t work) except -1) noexcept:
    """Install the function that runs kernels in optional dtypes."""
    global call_optional
    call_optional = run


cdef int call_with_kernel(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run the kernel that the table has for a primitive and dtype, or what replaces it."""
    return call_present(type_id, call, key, work)


cdef inline int call_present(int type_id, pb_call *call, int key, int64_t work) except -1:
    cdef pb_device_type *found = device_types() + type_id
    if not found.loaded:
        device_type(type_id)
    if process.capture != NULL:
        return call_captured(type_id, call, key, work)
    return call_noted(found, type_id, call, key, work)


cdef int call_captured(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a kernel, and record it for a capture of this thread."""
    if capturing() and process.capture.launching != NULL:
        process.capture.launching(process.capture.self, type_id, call)
    call_noted(device_types() + type_id, type_id, call, key, work)
    if capturing():
        process.capture.launched(process.capture.self, type_id, call, key, work)
    return 0


cdef inline int call_noted(pb_device_type *found, int type_id, pb_call *call, int key,
                           int64_t work) except -1:
    if process.observer != NULL and is_timed(found.backend):
        return call_observed(type_id, call, key, work)
    return call_kernel(found, call, key, work)


cdef int call_again(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a kernel that was recorded, as the first time."""
    return call_noted(device_types() + type_id, type_id, call, key, work)


cdef inline int call_kernel(pb_device_type *found, pb_call *call, int key,
                            int64_t work) except -1:
    cdef char message[PB_MESSAGE_SIZE]
    cdef pb_entry *entry = &found.table[call.primitive * PB_NUM_DTYPES + key]
    cdef pb_kernel kernel = entry.kernel
    cdef int code
    cdef bint listening
    if kernel == NULL:
        return call_python(found, entry, call, key)
    call.message = message
    message[0] = 0
    call.backend = NULL
    call.stream = NULL
    if found.backend != NULL:
        call.backend = found.backend.self
        if found.backend.current_stream != NULL:
            call.stream = found.backend.current_stream(found.backend.self, call.device)
    if work >= NOGIL_ELEMENTS and found.host and not keep_lock:     # device kernels return quickly
        listening = interrupts_begin()
        with nogil:
            code = kernel(call)
        if interrupts_end(listening):
            code = PB_E_PYTHON
    else:
        code = kernel(call)
    if code != PB_OK:
        raise_code(code, message, <str>primitive_names[call.primitive])
    return 0


cdef bint is_timed(const pb_backend *backend) noexcept:
    """True if a backend has marks, by which kernels are timed."""
    return backend != NULL and has_field(backend, &backend.release_mark) and backend.mark != NULL


# Set by observer.pyx: notifies observers when a kernel begins and ends.
cdef void (*begin_kernel)(pb_event *event, int primitive, int type_id, int device) noexcept
cdef void (*end_kernel)(pb_event *event) noexcept


cdef void set_kernel_events(void (*begin)(pb_event *event, int primitive, int type_id,
                                          int device) noexcept,
                            void (*end)(pb_event *event) noexcept) noexcept:
    """Install the functions that notify observers of kernels."""
    global begin_kernel, end_kernel
    begin_kernel = begin
    end_kernel = end


cdef int call_observed(int type_id, pb_call *call, int key, int64_t work) except -1:
    """Run a kernel of a backend with marks and notify observers."""
    cdef pb_event event
    begin_kernel(&event, call.primitive, type_id, call.device)
    try:
        return call_kernel(device_types() + type_id, call, key, work)
    finally:
        end_kernel(&event)


# ---- other calls ---------------------------------------------------------------------------------

cdef int param_fill(pb_param *param, object value, int64_t *room, int left) except -1:
    """Fill a parameter; a tuple is written into ``room``, which has ``left`` free entries."""
    cdef int i
    if isinstance(value, float):
        param_float(param, value)
    elif isinstance(value, tuple):
        if len(value) > left:
            raise ValueError("too many values in kernel parameters")
        for i in range(<int>len(value)):
            room[i] = value[i]
        param.kind = PB_PARAM_INTS
        param.count = <int>len(value)
        param.ints = room
    else:
        param_int(param, value)
    return 0


cdef void param_int(pb_param *param, int64_t value) noexcept:
    param.kind = PB_PARAM_INT
    param.count = 0
    param.i = value
    param.d = <double>value


cdef void param_float(pb_param *param, double value) noexcept:
    param.kind = PB_PARAM_FLOAT
    param.count = 0
    param.i = 0
    param.d = value


cdef int launch(int primitive, int key, tuple outs, tuple ins, tuple params) except -1:
    """Run any primitive: outputs and inputs as tensors, parameters in the primitive's order."""
    cdef PyObject *operands[PB_MAX_OPERANDS]
    cdef pb_param values[8]
    cdef int64_t room[PB_MAX_NDIM]
    cdef int i, nout = <int>len(outs), nin = <int>len(ins), used = 0
    if nout + nin > PB_MAX_OPERANDS or len(params) > 8:
        raise ValueError(f"{primitive_names[primitive]}: too many operands")
    for i in range(nout + nin):
        item = <Tensor?>(outs[i] if i < nout else ins[i - nout])
        operands[i] = <PyObject *>item
    for i in range(<int>len(params)):
        param_fill(&values[i], params[i], room + used, PB_MAX_NDIM - used)
        used += values[i].count
    return launch_operands(primitive, key, operands, nout, nin, values, <int>len(params))


cdef int launch_with_int(int primitive, int key, PyObject **operands, int nout, int nin,
                         int64_t param) except -1:
    """As launch_operands, with one integer parameter."""
    cdef pb_param value
    param_int(&value, param)
    return launch_operands(primitive, key, operands, nout, nin, &value, 1)


cdef int launch_operands(int primitive, int key, PyObject **operands, int nout, int nin,
                         pb_param *params, int nparam) except -1:
    """Run any primitive: tensors (borrowed), the outputs first, and filled parameters."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *pointers[PB_MAX_OPERANDS]
    cdef pb_call call
    cdef Tensor first = <Tensor>operands[0]
    cdef int64_t work = 0
    cdef int i
    for i in range(nout + nin):
        check_device(primitive, first, <Tensor>operands[i], i - nout)
        array_fill(&arrays[i], <Tensor>operands[i])
        if i < nout:
            arrays[i].flags |= PB_ARRAY_WRITE
        pointers[i] = &arrays[i]
        work += (<Tensor>operands[i]).layout.numel
    call.size = sizeof(pb_call)
    call.primitive = primitive
    call.nout = nout
    call.nin = nin
    call.nparam = nparam
    call.device = first.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[nout]
    call.param = params
    return kernel_into(&call, key, work, operands, nout)


cdef int check_index_shape(str primitive, Tensor index, Tensor near, Tensor far, int dim) except -1:
    """Raise unless an index fits `near`, which has its shape, and `far`: kernels rely on it."""
    cdef int d
    cdef bint fits = (index.dtype == PB_I64 and layout_same_shape(index.layout, near.layout)
                      and far.layout.ndim == index.layout.ndim)
    for d in range(index.layout.ndim if fits else 0):
        if d != dim and layout_shape(index.layout)[d] > layout_shape(far.layout)[d]:
            fits = False
    if not fits:
        raise RuntimeError(f"{primitive}: an index of shape {list(index.shape)} does not fit "
                           f"tensors of shapes {list(near.shape)} and {list(far.shape)}")
    return 0


def run_primitive(str primitive, outs, ins, *params):
    """Run a primitive on tensors, below autograd; forward passes in Python call this.

    The primitive's key decides which operand's dtype selects the kernel.
    """
    cdef int number = primitive_id(primitive), key = primitive_keys[primitive]
    cdef str operands = primitive_inputs[primitive]
    cdef Tensor keyed
    if isinstance(outs, Tensor):
        outs = (outs,)
    if isinstance(ins, Tensor):
        ins = (ins,)
    keyed = (<tuple?>ins)[key] if key >= 0 else (<tuple?>outs)[0]
    if operands == "self index":        # it reads there
        check_index_shape(primitive, ins[1], outs[0], ins[0], params[0])
    elif operands == "index src":       # it writes there
        check_index_shape(primitive, ins[0], ins[1], outs[0], params[0])
    launch(number, keyed.dtype, <tuple?>outs, <tuple?>ins, params)


cdef int copy_into(Tensor out, Tensor source) except -1:
    """out = source, cast and broadcast; on one device."""
    cdef operand one
    one.tensor = <PyObject *>source
    if out.layout.numel == 0:
        return 0
    return launch_elementwise(COPY, source.dtype, out, &one, 1)


cdef int fill_with(Tensor out, object value) except -1:
    """Set every element to a number, cast to the dtype of `out`."""
    cdef operand one
    one.tensor = NULL
    scalar_write(value, out.dtype, &one.scalar[0])
    if out.layout.numel == 0:
        return 0
    return launch_elementwise(COPY, out.dtype, out, &one, 1)


cdef int add_into(Tensor out, Tensor other) except -1:
    """out += other with the interpreter lock held: no update of another thread is lost."""
    cdef operand inputs[2]
    inputs[0].tensor = <PyObject *>out
    inputs[1].tensor = <PyObject *>other
    if out.layout.numel == 0:
        return 0
    if device_types()[out.storage.device_type].table[
            ADD * PB_NUM_DTYPES + out.dtype].kernel == NULL:
        # a Python kernel may let another thread run
        accumulating.acquire()
        try:
            return launch_elementwise(ADD, out.dtype, out, inputs, 2)
        finally:
            accumulating.release()
    return launch_locked(ADD, out, inputs, 2)


cdef int launch_locked(int primitive, Tensor out, operand *inputs, int count) except -1:
    """Run a compiled elementwise kernel with the interpreter lock held.

    A long kernel, which Ctrl-C must be able to interrupt, releases it, but holds another lock.
    """
    global keep_lock
    cdef bint before = keep_lock
    if out.layout.numel >= LONG_SUM:
        accumulating.acquire()
        try:
            return launch_elementwise(primitive, out.dtype, out, inputs, count)
        finally:
            accumulating.release()
    keep_lock = True
    try:
        return launch_elementwise(primitive, out.dtype, out, inputs, count)
    finally:
        keep_lock = before


cdef int COPY = primitive_id("copy")
cdef int ADD = primitive_id("add")
