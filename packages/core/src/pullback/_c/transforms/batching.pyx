# build: small
"""vmap: batched tensors, which represent one element of a batch, and how ops run on them.

A batched tensor has the shape of an element and no memory. Its batch, with the batch dim first, is
an ordinary tensor (or one wrapped at an outer level), which has the history. An op on it runs by
its batching rule on the batches. The rules are in `_batching.py`.
"""

import threading

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.dispatch.call cimport op_apply, op_apply_inplace, op_call1, op_call2
from pullback._c.device.device cimport DEVICE_META
from pullback._c.graph.op cimport (
    MAX_ARGS, OP_COMPOSITE, OP_INDEXED, OP_INPLACE, OP_RANDOM, Op, op_named)
from pullback._c.engine.grad_utils cimport check_implicit_seed
from pullback._c.base.layout cimport layout_new, layout_shape_tuple
from pullback._c.graph.levels cimport (
    Level, WrapperState, attach, batch_level, batch_of, disable_level, level_size, link, open_level,
    whole, wrapper_state)
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.storage cimport storage_new
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_LAZY, Tensor, is_tensor, tensor_wrap)
from pullback._c.base.types cimport layout_shape, layout_strides
from pullback._c.engine.engine import run_backward

__all__ = ["apply_op", "are_batched", "describe", "gradients_of", "get_batch", "make_batched"]


cdef Tensor batched_value(Tensor tensor, Level level):
    """Return the batch that a tensor represents at a level, or None."""
    return batch_of(tensor) if batch_level(tensor) is level else None


cdef Tensor batched(Tensor value, Level level):
    """Return the batched tensor of a batch, whose first dim is the batch dim."""
    cdef Tensor made
    if value.layout.ndim == 0 or layout_shape(value.layout)[0] != level.size:
        raise RuntimeError(f"vmap: a batching rule gave the shape "
                           f"{list(layout_shape_tuple(value.layout))} in a batch of {level.size}")
    made = tensor_wrap(
        storage_new(DEVICE_META, 0, 0),
        layout_new(value.layout.ndim - 1, layout_shape(value.layout) + 1,
                   layout_strides(value.layout) + 1), value.offset, value.dtype)
    attach(made, link(value, level, None))
    made.flags |= TENSOR_IS_BATCHED | value.flags & TENSOR_LAZY
    nested = value.flags & TENSOR_IS_BATCHED
    made.extra.device_type = (value.extra.device_type if nested else
                              value.storage.device_type)
    made.extra.device_index = (value.extra.device_index if nested else
                               value.storage.device_index)
    return made


cdef Tensor unwrap(Tensor tensor, Level level):
    """Return a tensor's batch at a level, or a batch of equal elements; keeps inner levels."""
    cdef Level inner = batch_level(tensor)
    cdef Tensor value
    cdef uint64_t before = thread_state().disabled_levels
    if inner is level:
        return batch_of(tensor)
    if inner is not None and inner.number > level.number:
        value = unwrap(batch_of(tensor), level)
        return rewrap(<Tensor>op_named("transpose")(value, 0, 1), inner)
    numbers = tangent_numbers(whole(tensor))
    for number in numbers:
        disable_level(number)
    try:
        value = <Tensor>op_named("expand")(tensor, (level.size, *tensor.shape))
    finally:
        thread_state().disabled_levels = before
    for number in numbers:
        put_tangent(value, unwrap(get_tangent(tensor, number), level), number)
    return value


cdef list tangent_numbers(Tensor tensor):
    """Return the numbers of the levels at which an ordinary tensor has tangents."""
    cdef WrapperState wrapper = wrapper_state(tensor)
    cdef list numbers = []
    while wrapper is not None:
        if wrapper.value is not None:
            numbers.append(wrapper.level.number)
        wrapper = wrapper.outer
    return numbers


cdef Tensor rewrap(Tensor value, Level level):
    """Return the batched tensor of a batch that may be batched at inner levels too."""
    cdef Level inner = batch_level(value)
    if inner is level:
        raise RuntimeError("vmap: a result is batched twice: it was made of a tensor of the vmap "
                           "that differentiates it")
    if inner is None or inner.number < level.number:
        return batched(value, level)
    value = <Tensor>op_named("transpose")(batch_of(value), 0, 1)
    return rewrap(rewrap(value, level), inner)


cdef bint has_batched_tangent(Tensor tensor, Level level) except -1:
    """True if a tensor that is not batched at a level has a tangent that is batched there."""
    cdef WrapperState wrapper = wrapper_state(whole(tensor))
    while wrapper is not None:
        if wrapper.value is not None and is_batched_at(wrapper.value, level):
            return True
        wrapper = wrapper.outer
    return False


cdef bint is_batched_at(Tensor tensor, Level level) except -1:
    """True if a tensor or one of its tangents is batched at a level, perhaps inside others."""
    while tensor.flags & TENSOR_IS_BATCHED:
        if batch_level(tensor) is level:
            return True
        tensor = batch_of(tensor)
    return has_batched_tangent(tensor, level)


cdef object batched_results(object result, Level level):
    if is_tensor(result):
        return batched(<Tensor>result, level)
    if isinstance(result, (tuple, list)):
        parts = [batched_results(item, level) for item in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


# Set by tangents.pyx.
cdef object get_tangent = None
cdef object put_tangent = None


def set_tangent_access(getter, setter):
    """Install the functions that get and set the tangent of a tensor at a level."""
    global get_tangent, put_tangent
    get_tangent = getter
    put_tangent = setter


# ---- differentiating -----------------------------------------------------------------------------

cdef Level innermost_batch(list tensors):
    """Return the innermost level at which one of some tensors is batched, or None."""
    cdef Level found = None, level
    for tensor in tensors:
        if is_tensor(tensor) and (<Tensor>tensor).flags & TENSOR_IS_BATCHED:
            batch_of(<Tensor>tensor)        # raises when vmap has ended
            level = batch_level(<Tensor>tensor)
            if found is None or (level is not None and level.number > found.number):
                found = level
    return found


cdef object unwrapped = threading.local()   # its `levels` are those whose batches a pass runs on


def gradients_of(list outputs, list seeds, list inputs, bint keep_graph, bint create_graph):
    """Run a pass from ``outputs``, which may be batched, and return the gradients of ``inputs``.

    A seed is a tensor, or None for 1. The graph is that of the batches.
    """
    cdef Level level = innermost_batch(outputs + inputs)
    cdef Tensor value
    cdef list values = [], given = [], outside = [], outer_seeds = [], targets, found
    if level is None:
        return run_backward(outputs, seeds, keep_graph, create_graph, inputs, False)
    for output, seed in zip(outputs, seeds):
        value = batched_value(<Tensor>output, level) if is_tensor(output) else None
        if value is None:
            outside.append(output)
            outer_seeds.append(seed)
            continue
        if seed is None:
            check_implicit_seed((<Tensor>output).layout, (<Tensor>output).dtype)
            seed = op_call1(op_named("ones_like"), output)
        values.append(value)
        given.append(unwrap(<Tensor>seed, level))
    targets = [batched_value(<Tensor>item, level) if is_tensor(item) else None for item in inputs]
    found = [None] * len(inputs)
    if values:
        passes = unwrapped.__dict__.setdefault("levels", [])
        passes.append(level)
        try:
            found = gradients_of(values, given, [item if target is None else target for item,
                                                 target in zip(inputs, targets)],
                                 keep_graph or len(outside) > 0, create_graph)
        finally:
            passes.pop()
        for i, target in enumerate(targets):
            if found[i] is not None and target is None:
                raise RuntimeError("vmap: the gradient of a tensor that is the same for the whole "
                                   "batch would be summed over it: use pullback.func.grad, which "
                                   "makes an element of the batch of it")
        found = [None if grad is None else rewrap(<Tensor>grad, level) for grad in found]
    others = [i for i, target in enumerate(targets) if target is None]
    if outside and others:      # no output outside of vmap depends on an input inside
        rest = gradients_of(outside, outer_seeds, [inputs[i] for i in others], keep_graph,
                            create_graph)
        for i, other in zip(others, rest):
            found[i] = (other if found[i] is None else found[i] if other is None else
                        op_call2(op_named("add"), found[i], other))
    return found


# ---- running an op -------------------------------------------------------------------------------

# Functions of pullback._batching, which is imported at first use.
cdef object rule = None
cdef object random_rule = None


cdef Tensor value_at(Tensor tensor, Level level):
    """Return the batch to run an op on, or None for a tensor that is not batched at the level."""
    if batch_level(tensor) is level or has_batched_tangent(tensor, level):
        return unwrap(tensor, level)
    return None


cdef object run_batched(Op op, PyObject **args, int number):
    """Run an op on operands some of which are batched at a level, the innermost enabled one."""
    global rule, random_rule
    cdef pb_state *state = thread_state()
    cdef uint64_t before = state.disabled_levels
    cdef Level level = open_level(number, "vmap")
    cdef list values = [], mapped = []
    cdef Tensor found
    cdef object value, result
    cdef int i
    if rule is None:
        from pullback._batching import run, run_random
        rule, random_rule = run, run_random
    for i in range(op.nargs):
        value = <object>args[i]
        if is_tensor(value):
            found = value_at(<Tensor>value, level)
            values.append(value if found is None else found)
            mapped.append(found is not None)
        elif i == op.list_arg or (op.flags & OP_INDEXED and isinstance(value, (tuple, list))):
            parts = [value_at(<Tensor>item, level) if is_tensor(item) else None
                     for item in value]
            values.append([item if part is None else part for item, part in zip(value, parts)])
            mapped.append([part is not None for part in parts])
        else:
            values.append(value)
            mapped.append(False)
    disable_level(number)
    try:
        if op.flags & OP_RANDOM:
            result = random_rule(op, values, mapped, level.size, level.randomness)
        else:
            result = rule(op, values, mapped, level.size)
    finally:
        state.disabled_levels = before
    if op.flags & OP_INPLACE:
        return <object>args[0]
    if op.flags & OP_RANDOM and level.randomness == "same" and (
            True not in mapped or op.kind == OP_COMPOSITE):
        return result                   # not batched
    return batched_results(result, level)


def apply_op(Op op not None, list values):
    """Run an op on a list of all its arguments."""
    cdef PyObject *args[MAX_ARGS]
    cdef int i
    if len(values) != op.nargs:
        raise TypeError(f"{op.name}() takes {op.nargs} arguments, got {len(values)}")
    for i in range(op.nargs):
        args[i] = <PyObject *>values[i]
    if op.flags & OP_INPLACE:
        return op_apply_inplace(op, args)
    return op_apply(op, args)


def make_batched(Tensor value not None, int level):
    """Return the batched tensor of ``value``, whose first dim is the batch dim."""
    return batched(value, open_level(level, "make_batched"))


def are_batched(values):
    """Return True if one of some values is a batched tensor."""
    for value in values:
        if is_tensor(value) and (<Tensor>value).flags & TENSOR_IS_BATCHED:
            return True
    return False


def describe(Tensor tensor not None):
    """Return (level, batch) of a batched tensor; None for others."""
    cdef Level level = batch_level(tensor)
    return None if level is None else (level.number, batch_of(tensor))


def open_batches():
    """Return the numbers of the enabled levels of vmap, from the outermost.

    A level whose batches a running backward pass is on is none: its formulas get those batches.
    """
    cdef pb_state *state = thread_state()
    cdef Level one
    left_out = [one.number for one in unwrapped.__dict__.get("levels", ())]
    return [level for level in range(1, state.levels + 1)
            if not state.disabled_levels >> level & 1 and level_size(level) >= 0
            and level not in left_out]


def batch_size(int level):
    """Return the size of the batch at an open level."""
    return level_size(level)


def batch_randomness(int level):
    """Return the ``randomness`` argument of vmap at an open level."""
    return open_level(level, "batch_randomness").randomness


def get_batch(Tensor tensor not None, int level):
    """Return the batch that a tensor represents at an open level, or None."""
    return batched_value(tensor, open_level(level, "get_batch"))
