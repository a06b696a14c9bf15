# build: small
"""Transform dispatch: which open level runs an op, by the wrapper states of its operands."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pullback._c.transforms.batching cimport run_batched
from pullback._c.dispatch.call cimport run_composite_plainly, set_transform_dispatch
from pullback._c.graph.op cimport (
    ARG_ANY, ARG_OPERAND, ARG_TENSORS, OP_INDEXED, OP_LISTS, OP_RANDOM, Op)
from pullback._c.transforms.jvp cimport run_inplace_with_tangents, run_with_tangents
from pullback._c.graph.levels cimport (
    Level, batch_level, innermost_level, raise_escaped, tangent_level)
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.graph.tensor cimport TENSOR_IS_BATCHED, Tensor, is_tensor
from pullback._c.transforms.dispatch_mode cimport (
    notify_write, run_in_dispatch_mode, run_inplace_in_dispatch_mode)


# The innermost levels of vmap and of forward mode at which some values are wrapped, or 0.
cdef struct levels_of:
    int batch
    int tangent


cdef int collect_levels(levels_of *found, object value, uint64_t disabled) except -1:
    """Add the levels of a value, if it is a tensor."""
    cdef Level level
    if not is_tensor(value):
        return 0
    level = batch_level(<Tensor>value)
    if level is not None:
        found.batch = max(found.batch, level.number)
    elif (<Tensor>value).flags & TENSOR_IS_BATCHED:
        raise_escaped()                 # or another thread's vmap made it
    else:
        found.tangent = max(found.tangent, tangent_level(<Tensor>value, disabled))
    return 0


cdef levels_of levels_of_call(Op op, PyObject **args) except *:
    """Find the levels of all operands. In inference mode tangents do not count."""
    cdef pb_state *state = thread_state()
    cdef levels_of found
    cdef int i
    found.batch = 0
    found.tangent = 0
    for i in range(op.nargs):
        value = <object>args[i]
        if op.arg_kinds[i] == ARG_TENSORS or (
                op.flags & OP_INDEXED and op.arg_kinds[i] == ARG_ANY
                and isinstance(value, (tuple, list))):
            for item in value:
                collect_levels(&found, item, state.disabled_levels)
        elif op.arg_kinds[i] != ARG_ANY:
            collect_levels(&found, value, state.disabled_levels)
    if op.flags & OP_RANDOM:
        found.batch = max(found.batch, innermost_vmap())
    if state.inference:
        found.tangent = 0
    return found


cdef int innermost_vmap() except -1:
    """Return the innermost enabled level of vmap, or 0."""
    cdef Level level = innermost_level(False)
    return 0 if level is None else level.number


cdef bint is_transformed_call(Op op, PyObject **args) except -1:
    cdef levels_of found = levels_of_call(op, args)
    return found.batch or found.tangent


cdef object run(Op op, PyObject **args):
    """Run an op at the level of its operands, whose batches and tangents override nothing."""
    cdef pb_state *state = thread_state()
    cdef int before = state.overrides_off
    cdef uint32_t autocast = state.autocast
    state.overrides_off = 2
    state.autocast = 0                  # it acted on the op; rules call others
    try:
        return run_at_level(op, args)
    finally:
        state.overrides_off = before
        state.autocast = autocast


cdef object run_at_level(Op op, PyObject **args):
    cdef levels_of found = levels_of_call(op, args)
    if found.batch:
        return run_batched(op, args, found.batch)
    if found.tangent:
        return run_with_tangents(op, args, found.tangent)
    return run_in_dispatch_mode(op, args)


cdef object run_inplace(Op op, PyObject **args):
    cdef pb_state *state = thread_state()
    cdef int before = state.overrides_off
    cdef uint32_t autocast = state.autocast
    state.overrides_off = 2
    state.autocast = 0
    try:
        return run_inplace_at_level(op, args)
    finally:
        state.overrides_off = before
        state.autocast = autocast


cdef object run_inplace_at_level(Op op, PyObject **args):
    cdef levels_of found = levels_of_call(op, args)
    if op.flags & OP_LISTS and (found.batch or found.tangent):
        raise NotImplementedError(
            f"Trying to use {'vmap' if found.batch else 'forward AD'} with {op.name} that does not "
            f"support it: it writes lists of tensors in place")
    if found.batch:
        return run_batched(op, args, found.batch)
    if found.tangent:
        return run_inplace_with_tangents(op, args, found.tangent)
    return run_inplace_in_dispatch_mode(op, args)


cdef object draw(Op op, PyObject **args):
    """Run a composite that draws random numbers; under vmap by its ``randomness``."""
    cdef int level = innermost_vmap()
    # Where tensors are given for numbers, its parts draw for each of their elements.
    if level == 0 or (op.arg_kinds[0] == ARG_OPERAND and (
            is_tensor(<object>args[0]) or is_tensor(<object>args[1]))):
        return run_composite_plainly(op, args)
    return run_batched(op, args, level)


set_transform_dispatch(run, run_inplace, draw, is_transformed_call, notify_write)
