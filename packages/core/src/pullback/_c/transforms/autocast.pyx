# build: small
"""Autocast: the dtypes of operands by the policies of ops, the casts that are kept, and the state.

An op's entry names its policies. They act on a call before transforms and recording, so a cast is
an op as any other: recorded, batched, observed. Formulas, forward passes and `out=` forms run
without autocast.
"""

import weakref

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t

from pullback.abi cimport PB_BF16, PB_F16, PB_F32, PB_F64
from pullback._c.base.dtype cimport dtype as dtype_class
from pullback._c.base.dtype cimport CATEGORY_FLOATING, dtype_category, dtype_object
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.device cimport (
    DEVICE_CPU, DEVICE_META, DEVICE_REF, device_parse, device_type_id)
from pullback._c.dispatch.call cimport (
    apply_as_given, apply_without_autocast, op_apply, set_autocast_run)
from pullback._c.graph.op cimport (
    ARG_ANY, ARG_TENSORS, AUTOCAST_CALL, AUTOCAST_DTYPE, AUTOCAST_ERROR, AUTOCAST_FLOAT32,
    AUTOCAST_LOWER, AUTOCAST_NONE, AUTOCAST_OFF, AUTOCAST_PROMOTE, MAX_ARGS, Op, op_named)
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, TENSOR_IS_WRAPPED, TENSOR_REQUIRES_GRAD, Tensor, is_tensor, tensor_device_type)

cdef Op CAST = None


# ---- casts ---------------------------------------------------------------------------------------

cdef int autocast_code(pb_state *state, int where) noexcept:
    """Return the dtype that autocast lowers to on a device type."""
    if state.autocast_dtypes[where]:
        return state.autocast_dtypes[where] - 1
    return PB_BF16 if where == DEVICE_CPU or where == DEVICE_REF else PB_F16


cdef inline bint is_eligible(object value, int where):
    """True for what autocast may cast: a floating tensor of the device type, not float64."""
    return (is_tensor(value) and tensor_device_type(<Tensor>value) == where
            and dtype_category[(<Tensor>value).dtype] == CATEGORY_FLOATING
            and (<Tensor>value).dtype != PB_F64)


cdef Tensor cast_to(Tensor tensor, int code):
    cdef PyObject *args[2]
    cdef object wanted = dtype_object(code)
    args[0] = <PyObject *>tensor
    args[1] = <PyObject *>wanted
    return op_apply(CAST, args)


cdef Tensor cached_cast(pb_state *state, Tensor tensor, int code):
    """Return a cast of a float32 leaf: one made before in this region, or a new one that is kept.

    A cast made without recording serves only calls that are not recorded. A write of the leaf makes
    its casts stale.
    """
    cdef object key = (id(tensor), code)
    cdef dict cache
    if state.autocast_cache == NULL:
        cache = {}
        Py_INCREF(cache)
        state.autocast_cache = <PyObject *>cache
    cache = <dict>state.autocast_cache
    kept = cache.get(key)
    if kept is not None:
        reference, version, recorded, found = kept
        if reference() is tensor and version == tensor.storage.version and (
                recorded or not state.grad_enabled):
            return found
    found = cast_to(tensor, code)
    cache[key] = (weakref.ref(tensor), tensor.storage.version, bool(state.grad_enabled), found)
    return found


cdef object autocast_to(pb_state *state, object value, int code, int where):
    """Return an operand in a dtype, or as it is where autocast does not cast it."""
    cdef Tensor tensor
    if not is_eligible(value, where) or (<Tensor>value).dtype == code:
        return value
    tensor = <Tensor>value
    if (tensor.dtype == PB_F32 and code == autocast_code(state, where)
            and tensor.flags & (TENSOR_REQUIRES_GRAD | TENSOR_IS_VIEW | TENSOR_IS_WRAPPED)
            == TENSOR_REQUIRES_GRAD and tensor.node == NULL and not state.autocast_uncached
            and not state.levels and not state.tracing and not state.inference):
        return cached_cast(state, tensor, code)
    return cast_to(tensor, code)


cdef dict POLICIES = {None: AUTOCAST_NONE, "lower": AUTOCAST_LOWER, "float32": AUTOCAST_FLOAT32,
                      "dtype": AUTOCAST_DTYPE, "promote": AUTOCAST_PROMOTE, "off": AUTOCAST_OFF}


cdef int policy_code(object policy) except -1:
    """Return the number of a policy in an entry."""
    if callable(policy):
        return AUTOCAST_CALL
    return POLICIES.get(policy, AUTOCAST_ERROR)


# ---- calls ---------------------------------------------------------------------------------------

cdef list operands_of(Op op, PyObject **args):
    """Return the tensors of a call, those in lists too."""
    cdef int i
    cdef list found = []
    for i in range(op.nargs):
        if holds_tensors(op, i, args[i]):
            found.extend([item for item in <object>args[i] if is_tensor(item)])
        elif is_tensor(<object>args[i]):
            found.append(<object>args[i])
    return found


cdef bint holds_tensors(Op op, int position, PyObject *value):
    return op.arg_kinds[position] == ARG_TENSORS or (
        op.arg_kinds[position] == ARG_ANY and isinstance(<object>value, (tuple, list)))


cdef int widest_code(pb_state *state, list operands, int where) except -1:
    """Return the dtype that all operands are cast to: float32 if one has it."""
    cdef int code = autocast_code(state, where)
    cdef int found
    for tensor in operands:
        if not is_eligible(tensor, where):
            continue
        found = (<Tensor>tensor).dtype
        if found == PB_F32 or code == PB_F32:
            code = PB_F32
        elif found != code:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return code


cdef int give_dtype(Op op, PyObject **args, int where, object wide) except -1:
    """Set the argument `dtype`, where it is None and the first operand can be cast."""
    cdef Py_ssize_t position = op.arg_names.index("dtype")
    if args[position] == <PyObject *>None and is_eligible(<object>args[0], where):
        args[position] = <PyObject *>wide
    return 0


cdef object run(Op op, PyObject **args):
    """Run an op by its policy for the device type of its tensors, of several the last one."""
    cdef pb_state *state = thread_state()
    cdef PyObject *cast[MAX_ARGS]
    cdef int i, where = -1, away, policy, code
    cdef list held = [], operands = operands_of(op, args)
    global CAST
    for tensor in operands:
        i = tensor_device_type(<Tensor>tensor)
        if state.autocast >> i & 1 and i > where:
            where = i
    away = where != DEVICE_CPU and where != DEVICE_REF
    policy = AUTOCAST_NONE if where < 0 else op.autocast[away]
    if policy == AUTOCAST_CALL:
        policy = policy_code(op.entry.autocast[away](*[<object>args[i] for i in range(op.nargs)]))
    if policy == AUTOCAST_NONE:
        return apply_as_given(op, args, None)
    if policy == AUTOCAST_ERROR:
        raise RuntimeError(op.entry.autocast[away].removeprefix("error: "))
    if CAST is None:
        CAST = op_named("cast")
    wide = dtype_object(PB_F32)
    for i in range(op.nargs):
        cast[i] = args[i]
    if policy == AUTOCAST_DTYPE:
        give_dtype(op, cast, where, wide)
    elif policy in (AUTOCAST_LOWER, AUTOCAST_FLOAT32, AUTOCAST_PROMOTE):
        code = (PB_F32 if policy == AUTOCAST_FLOAT32 else autocast_code(state, where)
                if policy == AUTOCAST_LOWER else widest_code(state, operands, where))
        for i in range(op.nargs):
            if holds_tensors(op, i, args[i]):
                value = type(<object>args[i])(
                    [autocast_to(state, item, code, where) for item in <object>args[i]])
            else:
                value = autocast_to(state, <object>args[i], code, where)
            held.append(value)
            cast[i] = <PyObject *>value
    return apply_without_autocast(op, cast, None, apply_as_given)


set_autocast_run(run)


# ---- state ---------------------------------------------------------------------------------------

cdef int type_of(str function, object name, str absent) except -1:
    """Return the id of a device type by its name; raises for one without autocast."""
    cdef int found
    if not isinstance(name, str):
        raise TypeError(f"{function}(): argument 'device_type' (position 1) must be str, not "
                        f"{type(name).__name__}")
    found = device_type_id(name, False)
    if found < 0:
        found = device_parse(name).type_id
    if found == DEVICE_META and absent is not None:
        raise RuntimeError(absent)
    return found


cdef str NO_KEY = ("unknown device type for autocast in "
                   "get_autocast_dispatch_key_from_device_type")


def is_autocast_available(device_type):
    """Return whether autocast can act on a device type.

    >>> import pullback
    >>> pullback.amp.is_autocast_available("cpu"), pullback.amp.is_autocast_available("meta")
    (True, False)
    """
    return type_of("_is_autocast_available", device_type, None) != DEVICE_META


def is_autocast_enabled(device_type="cuda"):
    """Return whether autocast acts on a device type's tensors, on this thread.

    >>> import pullback
    >>> with pullback.autocast("cpu"):
    ...     pullback.is_autocast_enabled("cpu"), pullback.is_autocast_enabled()
    (True, False)
    """
    cdef int where = type_of("is_autocast_enabled", device_type, NO_KEY)
    return bool(thread_state().autocast >> where & 1)


def set_autocast_enabled(*args, **kwargs):
    """Switch autocast on or off for a device type, on this thread: ``(device_type, enabled)``.

    Without a device type it is CUDA's. ``pullback.autocast`` does it for a ``with`` block.

    >>> import pullback
    >>> where = pullback.get_default_device().type
    >>> pullback.set_autocast_enabled(where, True)
    >>> pullback.mm(pullback.ones(1, 2), pullback.ones(2, 1))
    tensor([[2.]], dtype=pullback.bfloat16)
    >>> pullback.set_autocast_enabled(where, False)
    """
    cdef uint32_t bit
    given = dict(zip(("device_type", "enabled") if len(args) + len(kwargs) > 1 else ("enabled",),
                     args))
    if len(given) != len(args) or given.keys() & kwargs.keys() or (
            (given | kwargs).keys() not in ({"device_type", "enabled"}, {"enabled"})):
        kinds = ", ".join([type(value).__name__ for value in args])
        raise TypeError("set_autocast_enabled() received an invalid combination of arguments - got "
                        f"({kinds}), but expected one of:\n * (str device_type, bool enabled)\n "
                        "* (bool enabled)\n")
    given.update(kwargs)
    bit = <uint32_t>1 << type_of("set_autocast_enabled", given.get("device_type", "cuda"), NO_KEY)
    if type(given["enabled"]) is not bool:
        raise TypeError(f"set_autocast_enabled(): argument 'enabled' (position {len(given)}) must "
                        f"be bool, not {type(given['enabled']).__name__}")
    if given["enabled"]:
        thread_state().autocast |= bit
    else:
        thread_state().autocast &= ~bit


def get_autocast_dtype(device_type):
    """Return the dtype that autocast lowers to on a device type, on this thread.

    By default bfloat16 on the host and float16 elsewhere.

    >>> import pullback
    >>> pullback.get_autocast_dtype("cpu"), pullback.get_autocast_dtype("cuda")
    (pullback.bfloat16, pullback.float16)
    """
    return dtype_object(autocast_code(
        thread_state(), type_of("get_autocast_dtype", device_type, "unsupported scalarType")))


def set_autocast_dtype(device_type, dtype):
    """Set the dtype that autocast lowers to on a device type, on this thread.

    >>> import pullback
    >>> pullback.set_autocast_dtype("cpu", pullback.float16)
    >>> pullback.get_autocast_dtype("cpu")
    pullback.float16
    >>> pullback.set_autocast_dtype("cpu", pullback.bfloat16)
    """
    if type(dtype) is not dtype_class:
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' (position 2) must be "
                        f"pullback.dtype, not {type(dtype).__name__}")
    thread_state().autocast_dtypes[
        type_of("set_autocast_dtype", device_type, None)] = <int>dtype.code + 1


def get_autocast_state():
    """Return this thread's state of autocast: device types, dtypes, whether casts are kept."""
    cdef pb_state *state = thread_state()
    return state.autocast, [state.autocast_dtypes[i] for i in range(32)], state.autocast_uncached


def set_autocast_state(wanted):
    """Set this thread's state of autocast; return the one before it.

    The casts that are kept stay: they belong to the region around both.
    """
    cdef pb_state *state = thread_state()
    before = get_autocast_state()
    state.autocast, dtypes, state.autocast_uncached = wanted
    for i in range(32):
        state.autocast_dtypes[i] = dtypes[i]
    return before


def is_autocast_cache_enabled():
    """Return whether autocast keeps its casts of parameters until the outermost region ends.

    >>> import pullback
    >>> pullback.is_autocast_cache_enabled()
    True
    """
    return not thread_state().autocast_uncached


def set_autocast_cache_enabled(enabled):
    """Set whether autocast keeps its casts of parameters, on this thread.

    >>> import pullback
    >>> pullback.set_autocast_cache_enabled(True)
    """
    if type(enabled) is not bool:
        raise TypeError(f"enabled must be a bool (got {type(enabled).__name__})")
    thread_state().autocast_uncached = not enabled


def clear_autocast_cache():
    """Free the casts of parameters that autocast keeps on this thread.

    >>> import pullback
    >>> pullback.clear_autocast_cache()
    """
    cdef PyObject *cache = thread_state().autocast_cache
    thread_state().autocast_cache = NULL
    Py_XDECREF(cache)


def autocast_increment_nesting():
    """Count one more region of autocast on this thread; return the count.

    >>> import pullback
    >>> pullback.autocast_increment_nesting() - pullback.autocast_decrement_nesting()
    1
    """
    thread_state().autocast_nesting += 1
    return thread_state().autocast_nesting


def autocast_decrement_nesting():
    """Count one region of autocast less on this thread; return the count.

    >>> import pullback
    >>> with pullback.autocast("cpu"):
    ...     pullback.autocast_decrement_nesting(), pullback.autocast_increment_nesting()
    (0, 1)
    """
    thread_state().autocast_nesting -= 1
    return thread_state().autocast_nesting
