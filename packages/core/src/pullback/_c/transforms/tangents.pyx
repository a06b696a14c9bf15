# build: small
"""Forward mode: getting and setting the tangents of tensors, views included."""

from libc.stdint cimport uint64_t

from pullback._c.transforms.batching cimport batched, rewrap, unwrap
from pullback._c.dispatch.call cimport op_call1
from pullback._c.base.dtype cimport dtype_object
from pullback._c.graph.op cimport op_named
from pullback._c.base.layout cimport (
    layout_may_self_overlap, layout_same_shape, layout_same_strides, layout_shape_tuple,
    layout_strides_tuple)
from pullback._c.graph.levels cimport (
    Level, WrapperState, attach, batch_level, batch_of, disable_level, is_open_here, link,
    open_level, sees_base, tangent_level, whole, wrapper_state)
from pullback._c.graph.record cimport toggled
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_PRIMAL, TENSOR_LAZY, Tensor, is_tensor)
from pullback._c.transforms.batching import set_tangent_access

__all__ = ["get_tangent", "innermost_level", "make_dual", "put_tangent", "share_memory",
           "unpack_dual"]


cdef Tensor tangent_of(Tensor tensor, int level):
    """Return a tensor's tangent at a level, or None; of a view, a part of its base's tangent."""
    cdef Tensor base, own, found
    cdef Level batch = batch_level(tensor)
    if batch is not None:
        found = tangent_of(batch_of(tensor), level)
        return None if found is None else rewrap(found, batch)
    own = own_tangent(tensor, level)
    if not sees_base(tensor):
        return own
    base = <Tensor>tensor.extra.base
    found = tangent_of(base, level)
    if found is None or (own is not None and (
            whole(own).storage == whole(found).storage or layout_may_self_overlap(base.layout))):
        return own                      # a tensor that overlaps itself is never written to
    return tangent_again(tensor, level)


cdef Tensor own_tangent(Tensor tensor, int level):
    """Return the tangent that was set for a tensor at a level, or None."""
    cdef WrapperState tangent = wrapper_state(tensor)
    while tangent is not None:
        if (tangent.value is not None and tangent.level.number == level
                and is_open_here(tangent.level)):
            return tangent.value
        tangent = tangent.outer
    return None


cdef Tensor in_layout(Tensor primal, Tensor tangent):
    """Return a tangent, or a copy, with the strides of its primal: both have the same views."""
    cdef Level level = batch_level(primal)
    cdef Tensor value, kept
    if level is not None:
        value = unwrap(tangent, level)
        kept = in_layout(batch_of(primal), value)
        return tangent if kept is value else rewrap(kept, level)
    if same_strides(primal, tangent) or layout_may_self_overlap(primal.layout):
        return tangent
    kept = zeros_beside(layout_shape_tuple(primal.layout), layout_strides_tuple(primal.layout),
                        primal, tangent)
    op_named("copy_")(kept, tangent)
    return kept


cdef bint same_strides(Tensor a, Tensor b) noexcept:
    """True if two tensors of one shape have the same strides and lazy bits."""
    return layout_same_strides(a.layout, b.layout) and not (a.flags ^ b.flags) & TENSOR_LAZY


cdef Tensor zeros_beside(tuple shape, tuple strides, Tensor primal, Tensor tangent):
    """Return zeros with these strides, at the levels at which a tangent is batched.

    They have the lazy bits of the primal, so that both have the same views.
    """
    cdef Level level = None if tangent is None else batch_level(tangent)
    cdef Tensor flat, zeros
    cdef object length = reach(shape, strides)
    if level is not None:
        flat = zeros_beside((level.size, *shape), (length, *strides), primal, batch_of(tangent))
        return batched(flat, level)
    flat = <Tensor>op_named("new_zeros")(primal, (length,))
    zeros = <Tensor>op_named("same_memory")(op_named("as_strided")(flat, shape, strides))
    zeros.flags |= primal.flags & TENSOR_LAZY
    return zeros


cdef object reach(tuple shape, tuple strides):
    """Return the number of elements of memory that sizes and strides span."""
    if 0 in shape:
        return 0
    return 1 + sum([(size - 1) * stride for size, stride in zip(shape, strides)])


cdef Tensor tangent_again(Tensor view, int level):
    """Return a view's part of the base's tangent, and set it as the view's.

    It is recorded in every grad mode, since later calls return it too.
    """
    cdef Tensor base = <Tensor>view.extra.base
    cdef Tensor value = tangent_of(base, level), kept
    cdef pb_state *state = thread_state()
    cdef bint grad_enabled = state.grad_enabled, inference = state.inference
    state.grad_enabled = 1
    state.inference = 0
    try:
        kept = in_layout(base, value)
        if kept is not value:
            set_tangent(base, level, kept)
        set_tangent(view, level, view_like(view, base, kept))
    finally:
        state.grad_enabled = grad_enabled
        state.inference = inference
    return own_tangent(view, level)


cdef Tensor zeros_for_tangent(Tensor tensor):
    """Return zeros in a tensor's shape, strides and batches, so that both have the same views."""
    if tensor.flags & TENSOR_IS_BATCHED or layout_may_self_overlap(tensor.layout):
        return <Tensor>op_call1(op_named("zeros_like"), tensor)
    return zeros_beside(layout_shape_tuple(tensor.layout), layout_strides_tuple(tensor.layout),
                        tensor, None)


cdef Tensor view_like(Tensor view, Tensor base, Tensor value):
    """Return the view of `value` that corresponds to `view` of `base`; zeros outside the base."""
    cdef object offset = view.offset
    cdef Tensor source = <Tensor>toggled(value, base.flags)
    cdef tuple shape = layout_shape_tuple(view.layout), strides = layout_strides_tuple(view.layout)
    cdef tuple whole_args = (layout_shape_tuple(base.layout), layout_strides_tuple(base.layout))
    origin = base.offset
    if view.dtype < base.dtype:         # the real and imaginary parts of complex numbers
        source = op_named("view_as_real")(source.resolve_conj())
        origin = 2 * origin
    elif view.dtype > base.dtype:
        source = op_named("view_as_complex")(source)
        origin = origin // 2
    elif (offset < origin
            or offset + reach(shape, strides) > origin + reach(whole_args[0], whole_args[1])):
        return toggled(op_named("as_strided_backward")(
            source, (shape, strides, offset), *whole_args, origin), view.flags)
    return toggled(op_named("as_strided")(source, shape, strides, source.offset + offset - origin),
                   view.flags)


cdef int set_tangent(Tensor tensor, int level, Tensor value) except -1:
    """Set a tensor's tangent at a level."""
    cdef Level at = <Level>(<list>thread_state().level_stack)[level - 1]
    cdef WrapperState before, tangent = None
    cdef list inside = [], outside = []
    cdef Level batch = batch_level(tensor)
    if batch is not None:
        return set_tangent(batch_of(tensor), level, unwrap(value, batch))
    before = wrapper_state(tensor)
    while before is not None:
        if before.value is not None and before.level is not at:
            inner = is_open_here(before.level) and before.level.number > level
            (inside if inner else outside).append(before)
        before = before.outer
    for before in reversed(outside):
        tangent = link(before.value, before.level, tangent)
    tangent = link(value, at, tangent)
    for before in reversed(inside):
        tangent = link(before.value, before.level, tangent)
    return attach(tensor, tangent)


# ---- what Python sees ----------------------------------------------------------------------------

def make_dual(Tensor primal not None, Tensor tangent not None, int level):
    """Return an alias of ``primal`` with the tangent ``tangent`` at an open level."""
    cdef Tensor dual, kept = tangent
    open_level(level, "make_dual")
    check_shape(primal, tangent)
    if tangent_of(primal, level) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward "
                           f"gradient at the same level {level - 1} is not supported.")
    if tangent_of(tangent, level) is not None:
        raise RuntimeError(f"Setting a forward grad that itself has a forward gradient at the same "
                           f"level {level - 1} is not supported.")
    if tangent.dtype != primal.dtype:
        kept = op_named("to")(tangent, dtype_object(primal.dtype))
    kept = in_layout(primal, kept)
    dual = <Tensor>op_call1(op_named("alias"), primal)
    if not thread_state().inference:
        set_tangent(dual, level, kept)
    return dual


def innermost_level(values):
    """Return the innermost enabled level at which one of some values has a tangent, or 0."""
    cdef pb_state *state = thread_state()
    cdef int level = 0
    if state.levels == 0 or state.inference:
        return 0
    for value in values:
        if is_tensor(value):
            level = max(level, tangent_level(whole(<Tensor>value), state.disabled_levels))
    return level


def get_tangent(Tensor tensor not None, int level):
    """Return a tensor's tangent at an open level, or None."""
    open_level(level, "get_tangent")
    return tangent_of(tensor, level)


def put_tangent(Tensor tensor not None, Tensor tangent not None, int level):
    """Set a tensor's tangent at an open level.

    Raises: RuntimeError when they differ in shape.
    """
    open_level(level, "put_tangent")
    check_shape(tensor, tangent)
    set_tangent(tensor, level, tangent)


def share_memory(Tensor first not None, Tensor second not None):
    """Return True if two tensors share a storage."""
    return whole(first).storage == whole(second).storage


cdef int check_shape(Tensor primal, Tensor tangent) except -1:
    if not layout_same_shape(primal.layout, tangent.layout):
        raise RuntimeError(
            f"Trying to set a forward gradient that has a different size than that of the "
            f"original Tensor, this is not supported. Tensor is of size "
            f"{list(layout_shape_tuple(primal.layout))} while the given forward gradient is of "
            f"size {list(layout_shape_tuple(tangent.layout))}.")
    return 0


def unpack_dual(Tensor tensor not None, int level):
    """Return a tensor without its tangent at an open level, and that tangent or None."""
    cdef pb_state *state = thread_state()
    cdef uint64_t disabled = state.disabled_levels
    cdef Tensor primal
    open_level(level, "unpack_dual")
    tangent = None if disabled >> level & 1 else tangent_of(tensor, level)
    if tangent is None:
        return tensor, None
    disable_level(level)
    try:
        primal = <Tensor>op_call1(op_named("alias"), tensor)
        primal.flags |= TENSOR_IS_PRIMAL
    finally:
        state.disabled_levels = disabled
    return primal, tangent


set_tangent_access(get_tangent, put_tangent)
