# build: small
"""Steps of optimizers: one primitive updates lists of parameters and their states in place.

Tensors at the same place of all lists belong together: a parameter, its gradient, its states. Calls
of the kernel take as many parameters as operands allow, all of one dtype, each with its states in
one order of memory. Others are updated as copies in such an order.
"""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_ARRAY_WRITE, PB_F32, PB_F64, PB_MAX_OPERANDS, pb_array, pb_call, pb_param)
from pullback._c.base.dtype cimport dtype_object
from pullback._c.base.layout cimport (
    layout_contiguous, layout_retain, layout_same_shape, layout_same_strides)
from pullback._c.base.state cimport capturing, captured_rate, globals_, pb_state, thread_state
from pullback._c.base.types cimport LAYOUT_DENSE, layout_shape, pb_layout
from pullback._c.device.device cimport DEVICE_META, device_types
from pullback._c.dispatch.call cimport op_call2
from pullback._c.dispatch.launch cimport (
    array_fill, copy_into, kernel_call, param_float, param_int)
from pullback._c.dispatch.lazy cimport resolved, scalar_of
from pullback._c.dispatch.operands cimport raise_argument_device, unsupported
from pullback._c.graph.op cimport ARG_TENSORS, NUMBER_FLOAT, Op, forward_register, op_named
from pullback._c.graph.tensor cimport TENSOR_LAZY, Tensor, same_device, tensor_data, tensor_new

from pullback._c.dispatch.fallback import KernelMissing

cdef enum:
    MAX_LISTS = 7               # of tensors of one op
    MAX_NUMBERS = 12            # parameters of a primitive

# Lists of one number for each parameter: steps, and states that are computed from them.
cdef frozenset number_lists = frozenset(("state_steps", "mu_products", "mus", "etas"))

# Lists that are empty unless a setting, another argument, is on.
cdef dict needed_if = {"momentum_buffer_list": "momentum", "max_exp_avg_sqs": "amsgrad",
                       "grad_avgs": "centered"}


# One call: the lists that are used, written ones first, the gradients as the first of the others.
cdef struct step_call:
    Py_ssize_t count            # parameters
    int nlists
    int nout                    # lists that are written
    bint is_number[MAX_LISTS]   # the list has a number for each parameter, such as its steps
    int positions[MAX_LISTS]    # among the arguments
    PyObject *lists[MAX_LISTS]  # borrowed tuples
    PyObject *found_inf         # borrowed; NULL: none, or it is not on the host's side
    int nparam
    pb_param params[MAX_NUMBERS]


cdef inline Tensor item_of(step_call *step, int which, Py_ssize_t number):
    return <Tensor><object>PyTuple_GET_ITEM(<object>step.lists[which], number)


# ---- checks --------------------------------------------------------------------------------------

cdef int add_list(Op op, PyObject **args, int position, step_call *step) except -1:
    """Add a list of tensors to a call; raises unless it has a tensor for each parameter."""
    name = op.arg_names[position]
    given = <Py_ssize_t>len(<object>args[position])
    setting = needed_if.get(name)
    if setting is not None and not <object>args[op.arg_names.index(setting)]:
        return 0
    if given != step.count:
        raise RuntimeError(f"{op.name}(): expected {step.count} tensors in {name}, one for each in "
                           f"self, but got {given}")
    step.positions[step.nlists] = position
    step.is_number[step.nlists] = name in number_lists
    step.lists[step.nlists] = args[position]
    step.nlists += 1
    return 0


cdef int read_arguments(Op op, PyObject **args, step_call *step) except -1:
    """Fill a call with lists and numbers of the arguments. The last two are scale and found_inf."""
    cdef int i
    step.count = len(<object>args[0])
    step.nlists = 0
    for i in range(op.nargs):
        if op.arg_kinds[i] == ARG_TENSORS and op.written >> i & 1:
            add_list(op, args, i, step)
    step.nout = step.nlists
    for i in range(op.nargs):
        if op.arg_kinds[i] == ARG_TENSORS and not op.written >> i & 1:
            add_list(op, args, i, step)
    step.nparam = 1
    for i in range(op.nargs):
        if op.numbers[i]:
            if op.numbers[i] & NUMBER_FLOAT:
                param_float(&step.params[step.nparam], <object>args[i])
            else:
                param_int(&step.params[step.nparam], <bint><object>args[i])
            step.nparam += 1
    return 0


cdef int check_tensors(Op op, step_call *step) except -1:
    """Raise unless what belongs together has one shape and dtype, and all is on one device."""
    cdef Tensor leader = item_of(step, 0, 0)
    cdef Tensor first, one
    cdef Py_ssize_t number
    cdef int which
    for number in range(step.count):
        first = item_of(step, 0, number)
        if not op.dtypes >> first.dtype & 1:
            unsupported(op, first.dtype)
        for which in range(step.nlists):
            one = item_of(step, which, number)
            if step.is_number[which]:
                check_number(op, step, which, one, leader, number)
                continue
            if not same_device(leader, one):
                raise_argument_device(op, leader, one, step.positions[which])
            if one.dtype != first.dtype:
                raise RuntimeError(
                    f"{op.name}(): expected scalar type {dtype_object(first.dtype).name} for "
                    f"{op.arg_names[step.positions[which]]}[{number}], as for self[{number}], but "
                    f"found {dtype_object(one.dtype).name}")
            if one.layout != first.layout and not layout_same_shape(one.layout, first.layout):
                raise RuntimeError(
                    f"{op.name}(): expected shape {list(first.shape)} for "
                    f"{op.arg_names[step.positions[which]]}[{number}], as for self[{number}], but "
                    f"got {list(one.shape)}")
    return 0


cdef int check_number(
        Op op, step_call *step, int which, Tensor one, Tensor leader, Py_ssize_t number) except -1:
    """Raise unless a tensor is a number on the parameters' device or the host."""
    if not same_device(leader, one) and (one.storage.device_type == DEVICE_META
                                         or not device_types()[one.storage.device_type].host
                                         or leader.storage.device_type == DEVICE_META):
        raise_argument_device(op, leader, one, step.positions[which])
    if one.layout.numel != 1 or one.dtype not in (PB_F32, PB_F64):
        raise RuntimeError(f"{op.name}(): expected one float32 or float64 number in "
                           f"{op.arg_names[step.positions[which]]}[{number}], but got a "
                           f"{dtype_object(one.dtype).name} tensor of shape {list(one.shape)}")
    return 0


# ---- gradients that are scaled -------------------------------------------------------------------

cdef int unscale(Op op, PyObject **args, step_call *step) except -1:
    """Divide the gradients by the scale, unless infinities were found. True to leave the step out.

    A flag on another device is not read here: the kernel looks at it.
    """
    cdef object scale = <object>args[op.nargs - 2]
    cdef object found = <object>args[op.nargs - 1]
    cdef Tensor leader = item_of(step, 0, 0)
    cdef Tensor flag
    step.found_inf = NULL
    for value in (scale, found):
        if value is not None:
            flag = <Tensor>value
            if flag.layout.numel != 1 or flag.dtype != PB_F32:
                raise RuntimeError(f"{op.name}(): grad_scale and found_inf must be float32 tensors "
                                   f"of one element")
            if not same_device(flag, leader):
                raise_argument_device(op, leader, flag, op.nargs - 1)
    if leader.storage.device_type == DEVICE_META:
        return 0
    if found is not None:
        flag = <Tensor>found
        if device_types()[flag.storage.device_type].host:
            if capturing():
                if globals_().capture.decided(globals_().capture.self, <PyObject *>flag,
                                              <PyObject *>None):
                    return 1
            elif scalar_of(flag, tensor_data(flag)):
                return 1
        else:
            step.found_inf = args[op.nargs - 1]
            if scale is not None:
                scale = op_named("where")(op_call2(op_named("eq"), flag, 0), scale, 1.0)
    if scale is not None:
        divide = op_named("div_")
        for grad in <object>step.lists[step.nout]:
            op_call2(divide, grad, scale)
    return 0


# ---- calls of the kernel -------------------------------------------------------------------------

cdef pb_layout *common_layout(Tensor first) except NULL:
    """Return the layout in which a parameter and its states are updated; owned."""
    if first.layout.flags & LAYOUT_DENSE:
        return layout_retain(first.layout)
    return layout_contiguous(first.layout.ndim, layout_shape(first.layout))


cdef bint is_flat(step_call *step, Py_ssize_t number):
    """True if a parameter, its gradient and its states have one order in memory without gaps."""
    cdef Tensor first = item_of(step, 0, number)
    cdef Tensor one
    cdef int which
    if not first.layout.flags & LAYOUT_DENSE:
        return False
    for which in range(step.nlists):
        one = item_of(step, which, number)
        if one.flags & TENSOR_LAZY or not step.is_number[which] and (
                one.layout != first.layout and not layout_same_strides(one.layout, first.layout)):
            return False
    return True


cdef bint has_numbers_like(step_call *step, Py_ssize_t number, Py_ssize_t other):
    """True if the numbers of two parameters have the same devices and dtypes, list by list."""
    cdef Tensor one, two
    cdef int which
    for which in range(step.nlists):
        if step.is_number[which]:
            one = item_of(step, which, number)
            two = item_of(step, which, other)
            if one.dtype != two.dtype or not same_device(one, two):
                return False
    return True


cdef int64_t unit_step = 1


cdef int fill_operand(pb_array *array, Tensor one, Tensor leader, bint is_number) noexcept:
    """Fill an operand: all elements in one dim, or a number on the host's side."""
    array_fill(array, one)
    array.ndim = 1
    array.shape = &one.layout.numel
    array.strides = &unit_step
    if is_number and not same_device(one, leader):
        array.flags |= PB_ARRAY_HOST
    return 0


cdef int run_kernel(Op op, step_call *step, Py_ssize_t start, Py_ssize_t count,
                    list copies) except -1:
    """Run the kernel on some parameters; on copies instead of all operands if they are given."""
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *pointers[PB_MAX_OPERANDS]
    cdef pb_call call
    cdef Tensor leader = item_of(step, 0, start)
    cdef Tensor one
    cdef int which, used = 0
    cdef Py_ssize_t number
    cdef int64_t work = 0
    for which in range(step.nlists):
        for number in range(start, start + count):
            one = item_of(step, which, number) if copies is None else <Tensor>copies[which]
            fill_operand(&arrays[used], one, leader, step.is_number[which])
            if which < step.nout:
                arrays[used].flags |= PB_ARRAY_WRITE
            work += one.layout.numel
            pointers[used] = &arrays[used]
            used += 1
    if step.found_inf != NULL:
        fill_operand(&arrays[used], <Tensor>step.found_inf, leader, False)
        pointers[used] = &arrays[used]
        used += 1
    param_int(&step.params[0], count)
    call.size = sizeof(pb_call)
    call.primitive = op.primitive
    call.nout = <int>(step.nout * count)
    call.nin = used - call.nout
    call.nparam = step.nparam
    call.device = leader.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[call.nout]
    call.param = step.params
    return kernel_call(leader.storage.device_type, &call, leader.dtype, work)


cdef int run_copies(Op op, step_call *step, Py_ssize_t number) except -1:
    """Update one parameter of an odd layout by way of copies in a common one."""
    cdef Tensor first = item_of(step, 0, number)
    cdef Tensor one, copy
    cdef int which
    cdef list copies = []
    for which in range(step.nlists):
        one = item_of(step, which, number)
        if step.is_number[which] and which >= step.nout:
            one = resolved(one)
        else:
            copy = tensor_new(common_layout(one if step.is_number[which] else first), one.dtype,
                              one.storage.device_type, one.storage.device_index)
            copy_into(copy, one)
            one = copy
        copies.append(one)
    run_kernel(op, step, number, 1, copies)
    for which in range(step.nout):
        copy_into(item_of(step, which, number), <Tensor>copies[which])
    return 0


cdef int decompose(Op op, PyObject **args, step_call *step, Py_ssize_t start,
                   Py_ssize_t count) except -1:
    """Update some parameters by the decomposition, where there is no kernel for their dtype."""
    cdef pb_state *state = thread_state()
    cdef bint before = state.grad_enabled
    cdef int i, rate = op.arg_names.index("lr")
    values = [(<object>args[i])[start:start + count] if op.arg_kinds[i] == ARG_TENSORS
              else <object>args[i] for i in range(op.nargs)]
    values[rate] = captured_rate(values[rate], count)
    state.grad_enabled = 0
    try:
        op.decompose(*values)
    finally:
        state.grad_enabled = before
    return 0


cdef int run_some(Op op, PyObject **args, step_call *step, Py_ssize_t start,
                  Py_ssize_t count, bint flat) except -1:
    """Update some parameters of one dtype, by the kernel or the decomposition."""
    cdef pb_state *state = thread_state()
    cdef int before = state.fallback_primitive
    cdef bint missing = False
    state.fallback_primitive = op.primitive
    try:
        if flat:
            run_kernel(op, step, start, count, None)
        else:
            run_copies(op, step, start)
    except KernelMissing:
        missing = True
    finally:
        state.fallback_primitive = before
    if missing:
        decompose(op, args, step, start, count)
    return 0


cdef object forward_optimizer(Op op, PyObject **args, PyObject *target):
    """A step of an optimizer: checks first, then calls of the kernel."""
    cdef step_call step
    cdef Py_ssize_t start = 0, end, most
    cdef bint flat
    cdef int dtype
    read_arguments(op, args, &step)
    if step.count == 0:
        return None
    check_tensors(op, &step)
    if unscale(op, args, &step) or item_of(&step, 0, 0).storage.device_type == DEVICE_META:
        return None
    most = (PB_MAX_OPERANDS - 1) // step.nlists
    while start < step.count:
        flat = is_flat(&step, start)
        dtype = item_of(&step, 0, start).dtype
        end = start + 1
        while (flat and end < step.count and end - start < most
               and item_of(&step, 0, end).dtype == dtype and is_flat(&step, end)
               and has_numbers_like(&step, end, start)):
            end += 1
        run_some(op, args, &step, start, end - start, flat)
        start = end
    return None


forward_register("optimizer", forward_optimizer)
