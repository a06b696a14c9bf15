"""Calling an op: arguments are parsed, the forward pass runs below autograd, a node is recorded.

This is the hot path. For compiled ops there is no Python frame, no dictionary look-up and no lock
from the vectorcall to the recorded node. Forward passes are in the layer `ops`.
"""

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint32_t, uint64_t

from pullback.abi cimport pb_event
from pullback._c.graph.anomaly cimport note_forward, note_result, operands_before, wants_result
from pullback._c.base.dtype cimport dtype as dtype_class
from pullback._c.base.dtype cimport dtype_differentiable
from pullback._c.dispatch.decompose cimport forward_or_decompose
from pullback._c.dispatch.operands cimport (
    OVERRIDING, check_argument_device, checked_operand, in_former_order, leading_tensor,
    raise_argument_device)
from pullback._c.graph.op cimport (
    ARG_ANY, ARG_TENSORS, MAX_ARGS, OP_AUTOCAST, OP_COMPOSITE, OP_DIFFERENTIABLE, OP_HAS_OUT,
    OP_INPLACE, OP_LISTS, OP_OVERLAP, OP_RANDOM, OP_SHARES, OP_VARARGS, OP_VIEW, Op,
    call_as_method, forward_function, is_plain_number, missing, op_named, plain_number, shown_name)
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.graph.node cimport node_release, node_set_meta
from pullback._c.dispatch.observer cimport begin_op, end_op
from pullback._c.dispatch.outputs cimport (
    check_fits, check_outputs, check_overlap, copy_to_out, own_result, run_written_lists,
    writes_directly)
from pullback._c.graph.overrides cimport (
    call_override_of_op, is_overriding, modes_enabled, overrides_enabled)
from pullback._c.graph.record cimport (
    bump_version, check_inplace, check_writable, needs_grad, node_begin, node_finish,
    node_save_outputs, rebase, tensor_needs_grad)
from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, TENSOR_OVERRIDES, Tensor, is_tensor, same_device)
from pullback._c.base.types cimport STORAGE_INFERENCE, pb_node
from pullback._c.base.vectorcall cimport (
    Py_TPFLAGS_METHOD_DESCRIPTOR, PyVectorcall_NARGS, pb_make_callable)

from types import MethodType

cdef extern from *:
    """
    static PyObject *pb_class_attribute(PyObject *type, PyObject *name) {
        return PyType_Type.tp_getattro(type, name);
    }
    /* Makes classes as `type` does, also where another metaclass calls it: without a __new__. */
    static inline int pb_set_metaclass(PyTypeObject *type, PyTypeObject *metaclass) {
        metaclass->tp_getattro = pb_class_attribute;
        metaclass->tp_new = PyType_Type.tp_new;
        Py_SET_TYPE(type, metaclass);
        if (PyDict_DelItemString(metaclass->tp_dict, "__new__") < 0) PyErr_Clear();
        PyType_Modified(metaclass);
        return 0;
    }
    """
    int set_metaclass "pb_set_metaclass"(PyTypeObject *type, PyTypeObject *metaclass) except -1

cdef pb_globals *process = globals_()
cdef bint *as_method = call_as_method()     # of the last call

# While a formula is traced, or a size has no value: receives op calls.
cdef object tracer = None


def swap_tracer(function):
    """Install the function that receives op calls, or None; return the old one.

    It is called with an op, a list of arguments and a dict, and returns the op's value, or
    NotImplemented where the op is to run as it does without.
    """
    global tracer
    before = tracer
    tracer = function
    return before


# ---- arguments -----------------------------------------------------------------------------------

cdef object op_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names):
    as_method[0] = False
    return op_parse_and_apply(<Op>self, args, PyVectorcall_NARGS(nargsf),
                              None if names == NULL else <object>names)


cdef int fail_missing(Op op, PyObject **out) except -1:
    cdef int i
    names = [op.arg_names[i] for i in range(op.nargs) if out[i] == <PyObject *>missing]
    listed = ", ".join(f'"{name}"' for name in names)
    raise TypeError(f"{shown_name(op)}() missing {len(names)} required positional arguments: "
                    f"{listed}")


cdef int bind_keyword(Op op, object name, PyObject *value, PyObject **out,
                      Py_ssize_t npositional) except -1:
    """Bind a keyword argument; returns 1 if only the op's overload has a parameter of the name."""
    cdef int i
    for i in range(op.nargs):
        if name is <object>PyTuple_GET_ITEM(op.arg_names, i) or name == op.arg_names[i]:
            if i < npositional:
                raise TypeError(f"{shown_name(op)}() got multiple values for argument '{name}'")
            out[i] = value
            return 0
    # NumPy's names, which torch accepts too, and those of its functions in Python.
    alias = {"axis": "dim", "keepdims": "keepdim", "x": "self", "x1": "self", "x2": "other",
             "input": "self", "a": "self", "from": "from_", "tensor": "self",
             "split_size_or_sections": "split_size", "exponent": "other"}.get(name)
    if alias is not None and alias in op.arg_names:
        return bind_keyword(op, alias, value, out, npositional)
    if op.overload is not None and name in op_named(op.overload).arg_names:
        return 1
    raise TypeError(f"{shown_name(op)}() got an unexpected keyword argument '{name}'")


cdef object op_parse_and_apply(Op op, PyObject *const *args, Py_ssize_t nargs, object names):
    """Bind arguments to the op's signature, check the tensors, and run the op."""
    cdef PyObject *out[MAX_ARGS]
    cdef Py_ssize_t i, first_spread, nnames = 0, given = nargs
    cdef object target = None
    cdef object spread = None
    cdef list held = None
    if tracer is not None:
        value = tracer(op, [<object>args[i] for i in range(nargs)],
                       {} if names is None else {
                           <object>PyTuple_GET_ITEM(names, i): <object>args[nargs + i]
                           for i in range(PyTuple_GET_SIZE(names))})
        if value is not NotImplemented:
            return value
    if process.overrides and modes_enabled():
        return call_override_of_op(op, args, nargs, names)
    if (op.flags & OP_VIEW and nargs == 2 and type(<object>args[1]) is dtype_class
            and op.overload is not None):
        return op_call2(op_named(op.overload), <object>args[0], <object>args[1])
    if nargs > op.npositional:
        if not op.flags & OP_VARARGS:
            given_arguments, keywords = in_former_order(
                op, [<object>args[i] for i in range(nargs)], {} if names is None else {
                    names[i]: <object>args[nargs + i] for i in range(len(names))})
            return op(*given_arguments, **keywords)
        first_spread = op.npositional - 1
        spread = PyTuple_New(nargs - first_spread)
        for i in range(first_spread, nargs):
            Py_INCREF(<object>args[i])
            PyTuple_SET_ITEM(spread, i - first_spread, <object>args[i])
        for i in range(first_spread):
            out[i] = args[i]
        out[first_spread] = <PyObject *>spread
        nargs = op.npositional
    else:
        for i in range(nargs):
            out[i] = args[i]
    for i in range(nargs, op.nargs):
        out[i] = PyTuple_GET_ITEM(op.defaults, i)
    if names is not None:
        nnames = PyTuple_GET_SIZE(names)
        for i in range(nnames):
            name = <object>PyTuple_GET_ITEM(names, i)
            if op.flags & OP_HAS_OUT and name == "out":
                target = <object>args[nargs + i] if spread is None else <object>args[
                    op.npositional - 1 + len(spread) + i]
                continue
            if bind_keyword(op, name, args[nargs + i] if spread is None else args[
                    op.npositional - 1 + len(spread) + i], out, nargs):
                return op_parse_and_apply(op_named(op.overload), args, nargs, names)
    for i in range(op.nargs):
        if out[i] == <PyObject *>missing:
            fail_missing(op, out)
        if op.numbers[i]:
            if is_plain_number(op, i, out[i]):
                continue
            if is_overriding(<object>out[i]):
                return call_override_of_op(op, args, given, names)
            value = plain_number(op, i, <object>out[i], i >= nargs)
        elif op.arg_kinds[i] == ARG_ANY or (
                type(<object>out[i]) is Tensor and op.arg_kinds[i] != ARG_TENSORS):
            continue
        elif is_tensor(<object>out[i]) and op.arg_kinds[i] != ARG_TENSORS:
            if not (<Tensor>out[i]).flags & TENSOR_OVERRIDES or not overrides_enabled():
                continue
            return call_override_of_op(op, args, given, names)
        else:
            value = checked_operand(op, i, <object>out[i], <object>out[0 if i else op.nargs > 1],
                                    i >= nargs)
            if value is OVERRIDING:
                return call_override_of_op(op, args, given, names)
        if <PyObject *>value != out[i]:
            if held is None:
                held = []
            held.append(value)
            out[i] = <PyObject *>value
    if target is not None:
        if is_overriding(target):
            return call_override_of_op(op, args, given, names)
        if not process.observed:
            return apply_out(op, out, target)
        return apply_observed(op, out, target, apply_out)
    if op.flags & OP_INPLACE:
        if not op.flags & OP_LISTS and not is_tensor(<object>out[0]):
            raise TypeError(f"{op.name}(): argument 'self' (position 1) must be Tensor, not "
                            f"{type(<object>out[0]).__name__}")
        return op_apply_inplace(op, out)
    return op_apply(op, out)


# ---- running -------------------------------------------------------------------------------------

cdef object run_forward(Op op, PyObject **args, PyObject *target):
    """Run the forward pass."""
    cdef forward_function forward = op.forward if op.decompose is None else forward_or_decompose
    return forward(op, args, target)


cdef int check_devices(Op op, PyObject **args) except -1:
    """Raise unless the tensors of an op are on one device.

    0-d tensors of the host are allowed on every device, but not in a list.
    """
    cdef PyObject *tensors[MAX_ARGS]
    cdef Tensor leader
    cdef int i, count = 0
    cdef bint mixed = False
    for i in range(op.nargs):
        if op.arg_kinds[i] == ARG_TENSORS:
            for item in <object>args[i]:
                if count == 0:
                    tensors[0] = <PyObject *>item
                    count = 1
                mixed = mixed or not same_device(<Tensor>tensors[0], <Tensor>item)
        elif op.arg_kinds[i] != ARG_ANY and is_tensor(<object>args[i]):
            tensors[count] = args[i]
            mixed = mixed or not same_device(<Tensor>tensors[0], <Tensor>args[i])
            count += 1
    if not mixed:
        return 0
    leader = leading_tensor(tensors, count)
    for i in range(op.nargs):
        if op.arg_kinds[i] == ARG_TENSORS:
            for item in <object>args[i]:
                if not same_device(leader, <Tensor>item):
                    raise_argument_device(op, leader, <Tensor>item, i)
        elif op.arg_kinds[i] != ARG_ANY and is_tensor(<object>args[i]):
            check_argument_device(op, leader, <Tensor>args[i], i)
    return 0


cdef object forward_python(Op op, PyObject **args, PyObject *target):
    """Run an entry's Python forward pass with recording off."""
    cdef pb_state *state = thread_state()
    cdef bint before = state.grad_enabled
    cdef uint32_t autocast = state.autocast
    cdef int i
    cdef object result
    if target != NULL and not op.flags & OP_SHARES:
        for i in range(1, op.nargs):
            check_overlap(<Tensor>target, <object>args[i])
    check_devices(op, args)
    state.grad_enabled = 0
    state.autocast = 0
    try:
        result = op.python(*[<object>args[i] for i in range(op.nargs)])
    finally:
        state.grad_enabled = before
        state.autocast = autocast
    if target != NULL:
        if <PyObject *>result != target:
            check_fits(<Tensor>target, <Tensor?>result)
            copy_into(<Tensor>target, <Tensor>result)
        return <object>target
    return own_result(result)


cdef object run_composite(Op op, PyObject **args):
    if op.flags & OP_RANDOM and thread_state().levels:
        return transform_draw(op, args)
    return run_composite_plainly(op, args)


cdef object run_composite_plainly(Op op, PyObject **args):
    if op.forward != NULL:
        return op.forward(op, args, NULL)
    return composite_python(op, args)


cdef object composite_python(Op op, PyObject **args):
    """Run a composite's Python function."""
    cdef int i
    return own_result(op.python(*[<object>args[i] for i in range(op.nargs)]))


# Set by transform_dispatch.pyx: how ops run while levels are open.
cdef object (*transform_run)(Op op, PyObject **args)
cdef object (*transform_run_inplace)(Op op, PyObject **args)
cdef object (*transform_draw)(Op op, PyObject **args)
cdef bint (*is_transformed_call)(Op op, PyObject **args) except -1
cdef int (*notify_write)(Op op, object targets) except -1


cdef void set_transform_dispatch(object (*run)(Op op, PyObject **args),
                                 object (*run_inplace)(Op op, PyObject **args),
                                 object (*draw)(Op op, PyObject **args),
                                 bint (*is_transformed)(Op op, PyObject **args) except -1,
                                 int (*announce)(Op op, object targets) except -1) noexcept:
    """Install how ops run while levels are open."""
    global transform_run, transform_run_inplace, transform_draw, is_transformed_call, notify_write
    transform_draw = draw
    is_transformed_call = is_transformed
    notify_write = announce
    transform_run = run
    transform_run_inplace = run_inplace


# Set by inplace_metadata.pyx: how the in-place forms of views run.
cdef object (*metadata_run)(Op op, PyObject **args)


cdef void set_metadata_run(object (*run)(Op op, PyObject **args)) noexcept:
    """Install how the in-place forms of views run."""
    global metadata_run
    metadata_run = run


cdef object apply_observed(Op op, PyObject **args, object target, way_to_apply apply):
    """Run an op and notify observers; in anomaly mode, check its results."""
    cdef pb_event event
    cdef object result
    cdef list operands = None
    cdef bint checked = wants_result()
    if not checked and process.observer == NULL:
        return apply(op, args, target)
    if checked and (op.flags & OP_INPLACE or target is not None):
        operands = operands_before(op.nargs, args,
                                   <object>args[0] if op.flags & OP_INPLACE else target)
    begin_op(&event, op, args)
    try:
        result = apply(op, args, target)
        if checked:
            note_forward(op.name, op.nargs, args, operands, result)
        return result
    finally:
        end_op(&event)


cdef object op_apply(Op op, PyObject **args):
    """Run an op on parsed arguments; returns its results, with their history and tangents."""
    if process.observed:
        return apply_observed(op, args, None, apply_plainly)
    return apply_plainly(op, args, None)


# Set by autocast.pyx: runs an op that autocast has a policy for.
cdef object (*autocast_run)(Op op, PyObject **args)


cdef void set_autocast_run(object (*run)(Op op, PyObject **args)) noexcept:
    """Install how ops run that autocast has a policy for."""
    global autocast_run
    autocast_run = run


cdef object apply_without_autocast(Op op, PyObject **args, object target, way_to_apply apply):
    """Run an op on operands that autocast does not cast, nor those of its parts."""
    cdef pb_state *state = thread_state()
    cdef uint32_t before = state.autocast
    state.autocast = 0
    try:
        return apply(op, args, target)
    finally:
        state.autocast = before


cdef inline object apply_plainly(Op op, PyObject **args, object target):
    if op.flags & OP_AUTOCAST and thread_state().autocast:
        return autocast_run(op, args)
    return apply_as_given(op, args, target)


cdef object apply_as_given(Op op, PyObject **args, object target):
    cdef pb_state *state
    if op.kind == OP_COMPOSITE:
        return run_composite(op, args)
    state = thread_state()
    if state.levels:
        return transform_run(op, args)
    return record(op, args, run_forward(op, args, NULL), state)


cdef object op_record(Op op, PyObject **args, object result):
    """Record an op that is not a composite; returns its result."""
    return record(op, args, result, thread_state())


cdef inline object record(Op op, PyObject **args, object result, pb_state *state):
    cdef pb_node *node
    cdef uint64_t mask
    if not op.flags & OP_DIFFERENTIABLE:
        return result
    if not state.grad_enabled or state.inference:
        return result
    mask = needs_grad(op, args)
    if mask == 0 or <PyObject *>result == args[0]:
        return result                   # an op may return its input itself
    if op.flags & OP_VIEW and (<Tensor>args[0]).storage.flags & STORAGE_INFERENCE:
        return result
    if is_tensor(result):
        node = node_begin(op, args, mask, 1)
    else:
        node = node_begin(op, args, mask, <unsigned int>len(result))
    try:
        node_finish(op, node, args, result, mask)
        if process.anomaly:
            note_result(result)
    finally:
        node_release(node)
    return result


cdef object op_apply_inplace(Op op, PyObject **args):
    """Run an op into its first argument; returns it, with its new history and tangents."""
    if process.observed:
        return apply_observed(op, args, None, apply_inplace)
    return apply_inplace(op, args, None)


cdef inline object apply_inplace(Op op, PyObject **args, object target):
    cdef pb_state *state = thread_state()
    if op.kind == OP_COMPOSITE:
        if state.autocast:
            return apply_without_autocast(op, args, target, apply_inplace)
        return run_composite(op, args)
    if op.flags & OP_VIEW:
        return metadata_run(op, args)
    if state.levels:
        return transform_run_inplace(op, args)
    return op_run_inplace(op, args)


cdef object op_run_inplace(Op op, PyObject **args):
    """Run an in-place op that is not a composite and record it."""
    cdef Tensor target
    cdef pb_state *state = thread_state()
    cdef pb_node *node = NULL
    cdef uint64_t mask = 0
    if op.flags & OP_LISTS:
        return run_written_lists(op, args)
    target = <Tensor>args[0]
    if state.grad_enabled and not state.inference:
        if target.flags & TENSOR_IS_VIEW:
            check_inplace(target, False)
        mask = needs_grad(op, args)
    check_inplace(target, mask != 0)
    check_writable(target, op.flags & OP_OVERLAP != 0)
    if mask != 0 and op.flags & OP_DIFFERENTIABLE and dtype_differentiable(target.dtype):
        node = node_begin(op, args, mask, 1)
    try:
        run_forward(op, args, args[0])
        bump_version(target, op.id)
        if node != NULL:
            node_set_meta(node, 0, target.layout, target.dtype, target.storage)
            rebase(target, node)
            node_save_outputs(op, node, args, target, mask)
            if process.anomaly:
                note_result(target)
    finally:
        if node != NULL:
            node_release(node)
    return target


cdef int check_out_without_grad(Op op, object value) except -1:
    """Raise if an operand or a result of a call with out= requires grad."""
    if is_tensor(value) and thread_state().grad_enabled and tensor_needs_grad(<Tensor>value):
        raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic "
                           f"differentiation, but one of the arguments requires grad.")
    return 0


cdef object apply_out(Op op, PyObject **args, object target):
    """Run an op and put the result into the tensor(s) given as out=."""
    cdef object value, results, targets
    cdef int i
    if thread_state().autocast:
        return apply_without_autocast(op, args, target, apply_out)
    targets = target if isinstance(target, (tuple, list)) else (target,)
    for item in targets:
        if not is_tensor(item):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not "
                            f"{type(item).__name__}")
        check_out_without_grad(op, item)
    if op.flags & OP_DIFFERENTIABLE:
        for i in range(op.nargs):
            check_out_without_grad(op, <object>args[i])
    if thread_state().levels and is_transformed_call(op, args):
        raise NotImplementedError(f"Trying to use forward AD or vmap with {op.name}_out that does "
                                  f"not support it because it is an out= function")
    if not thread_state().levels and len(targets) == 1 and writes_directly(
            op, args, <Tensor>targets[0]):
        check_writable(<Tensor>targets[0], False)
        run_forward(op, args, <PyObject *><Tensor>targets[0])
        bump_version(<Tensor>targets[0], op.id)
        return target
    value = op_apply(op, args)
    results = (value,) if is_tensor(value) else tuple(value)
    if len(results) != len(targets):
        raise TypeError(f"{op.name}(): argument 'out' must be {len(results)} tensors, "
                        f"got {len(targets)}")
    for item in results:                # of composites, and of lists of tensors
        check_out_without_grad(op, item)
    check_outputs(op, args, targets, results)
    if thread_state().levels:
        notify_write(op, targets)
    for item, found in zip(targets, results):
        copy_to_out(op, <Tensor>item, <Tensor?>found)
    return target


cdef object op_call1(Op op, object a):
    """Call an op with one argument and defaults."""
    cdef PyObject *args[1]
    args[0] = <PyObject *>a
    return op_parse_and_apply(op, args, 1, None)


cdef object op_call2(Op op, object a, object b):
    """Call an op with two arguments and defaults."""
    cdef PyObject *args[2]
    args[0] = <PyObject *>a
    args[1] = <PyObject *>b
    return op_parse_and_apply(op, args, 2, None)


def enable(Op op not None):
    """Make an op callable."""
    op.vectorcall = <void *>op_vectorcall


cdef object method_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                              PyObject *names):
    as_method[0] = True
    return op_parse_and_apply((<OpMethod>self).op, args, PyVectorcall_NARGS(nargsf),
                              None if names == NULL else <object>names)


cdef class OpMethod:
    """An op as an attribute of Tensor, which binds to tensors; as one of the class it is the op."""

    def __init__(self, Op op not None):
        self.vectorcall = <void *>method_vectorcall
        self.op = op

    def __get__(self, instance, owner):
        return self.op if instance is None else MethodType(self.op, instance)

    def __repr__(self):
        return f"<method {self.op.__name__} of 'pullback.Tensor' objects>"


cdef class TensorMeta(type):
    """The class of the class Tensor and of its subclasses, as torch has one.

    From Python 3.12 on, attributes of classes whose class is ``type`` are read from a cache, which
    takes what is in the class's dict for what ``__get__`` returns: ``Tensor.mul`` would be the op
    in the first calls of a function, and the OpMethod in all others.
    """


set_metaclass(<PyTypeObject *>Tensor, <PyTypeObject *>TensorMeta)
cdef OpMethod probe = OpMethod.__new__(OpMethod)
pb_make_callable(<PyTypeObject *>OpMethod,
                 <Py_ssize_t>(<char *>&probe.vectorcall - <char *><PyObject *>probe),
                 Py_TPFLAGS_METHOD_DESCRIPTOR)
