"""Forward mode: the tangents of tensors, level by level.

A level is one run of forward mode on one thread; levels nest. An op looks at the innermost level
that its operands have tangents of, computes its results with that level and those inside it out of
sight, and then gives them their tangents at it; so levels do not mix. When a level ends, its
tangents go, however many tensors still hold them.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from pullback._c.call cimport op_call1
from pullback._c.dtype cimport dtype_differentiable, dtype_object
from pullback._c.entry cimport op_named
from pullback._c.layout cimport (
    layout_contiguous, layout_retain, layout_same_shape, layout_same_strides, layout_shape_tuple,
    layout_strides_tuple)
from pullback._c.kernel cimport fill_with
from pullback._c.state cimport pb_state, thread_state
from pullback._c.tensor cimport (
    TENSOR_HAS_TANGENT, TENSOR_IS_PRIMAL, TENSOR_IS_VIEW, Tensor, is_tensor, tensor_extra,
    tensor_new)
from pullback._c.types cimport LAYOUT_DENSE, layout_shape

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t i)

cdef enum:
    MAX_LEVELS = 63             # one bit each in pb_state.hidden

__all__ = ["enter_level", "exit_level", "get_tangent", "hide_levels_from", "innermost_level", "level_count", "make_dual",
           "put_tangent", "restore_levels", "share_memory", "unpack_dual"]


@cython.no_gc_clear                     # a cycle is broken at the tensor; the links must hold
cdef class Tangent:
    """The tangent of one tensor at one level."""

    def __dealloc__(self):
        unlink(self)


cdef int unlink(Tangent self) except -1:
    if self.level is None:
        return 0
    if self.before != NULL:
        (<Tangent>self.before).after = self.after
    else:
        self.level.first = self.after
    if self.after != NULL:
        (<Tangent>self.after).before = self.before
    self.before = NULL
    self.after = NULL
    self.level = None
    return 0


# ---- levels --------------------------------------------------------------------------------------

def level_count():
    """Return how many levels of forward mode this thread has open."""
    return thread_state().levels


def enter_level():
    """Open a level of forward mode inside the others; returns its number, counted from 1.

    Raises: RuntimeError when too many are open.
    """
    cdef pb_state *state = thread_state()
    cdef Level level
    if state.levels == MAX_LEVELS:
        raise RuntimeError(f"forward mode: more than {MAX_LEVELS} levels are open")
    if state.level_stack == NULL:
        stack = []
        Py_INCREF(stack)
        state.level_stack = <PyObject *>stack
    level = Level.__new__(Level)
    level.number = state.levels + 1
    (<list>state.level_stack).append(level)
    state.levels += 1
    state.hidden &= ~(<uint64_t>1 << state.levels)
    return level.number


def exit_level(int number):
    """Close a level and those inside it; their tangents are gone."""
    cdef pb_state *state = thread_state()
    cdef Level level
    cdef Tangent tangent = None
    open_level(number, "exit_level")
    while state.levels >= number:
        level = <Level>(<list>state.level_stack).pop()
        state.levels -= 1
        while level.first != NULL:
            tangent = <Tangent>level.first
            unlink(tangent)
            tangent.value = None
        tangent = None
    if state.levels == 0:
        stack = <object>state.level_stack
        state.level_stack = NULL
        Py_DECREF(stack)


# ---- the tangents of a tensor --------------------------------------------------------------------

cdef Tangent tangents(Tensor tensor):
    """Return the first of a tensor's tangents, past those whose level has ended."""
    cdef Tangent tangent
    if not tensor.flags & TENSOR_HAS_TANGENT:
        return None
    tangent = <Tangent>tensor.extra.tangent
    if tangent.value is not None:
        return tangent
    while tangent is not None and tangent.value is None:
        tangent = tangent.outer
    attach(tensor, tangent)
    return tangent


cdef int attach(Tensor tensor, Tangent tangent) except -1:
    """Make a list of tangents, which may be empty, the tensor's."""
    cdef PyObject *before = tensor_extra(tensor).tangent
    if tangent is None:
        tensor.extra.tangent = NULL
        tensor.flags &= ~TENSOR_HAS_TANGENT
    else:
        Py_INCREF(tangent)
        tensor.extra.tangent = <PyObject *>tangent
        tensor.flags |= TENSOR_HAS_TANGENT
    Py_XDECREF(before)
    return 0


cdef bint is_open_here(Level level) noexcept:
    """True if it is one of this thread's levels; a tensor may have tangents of another thread's."""
    cdef pb_state *state = thread_state()
    return (level.number <= state.levels
            and <object>PyList_GET_ITEM(<object>state.level_stack, level.number - 1) is level)


cdef bint sees_base(Tensor tensor) noexcept:
    """True if a base's tangent is, in part, the tensor's."""
    return (tensor.flags & (TENSOR_IS_VIEW | TENSOR_IS_PRIMAL) == TENSOR_IS_VIEW
            and dtype_differentiable(tensor.dtype))


cdef uint64_t hide_levels(int level) noexcept:
    """Put an open level and those inside it out of sight; returns what was before."""
    cdef pb_state *state = thread_state()
    cdef uint64_t before = state.hidden
    cdef int number
    for number in range(level, state.levels + 1):
        state.hidden |= <uint64_t>1 << number
    return before


cdef int level_of(Tensor tensor, uint64_t hidden) except -1:
    """Return the innermost level that is not hidden at which a tensor has a tangent, or 0."""
    cdef Tangent tangent = tangents(tensor)
    while tangent is not None:
        if not hidden >> tangent.level.number & 1 and is_open_here(tangent.level):
            return tangent.level.number
        tangent = tangent.outer
    if sees_base(tensor):
        return level_of(<Tensor>tensor.extra.base, hidden)
    return 0


cdef Tensor tangent_of(Tensor tensor, int level):
    """Return a tensor's tangent at a level, or None; a view has part of its base's."""
    cdef Tangent tangent = tangents(tensor)
    cdef Tensor base
    while tangent is not None:
        if tangent.level.number == level and is_open_here(tangent.level):
            return tangent.value
        tangent = tangent.outer
    if not sees_base(tensor):
        return None
    base = <Tensor>tensor.extra.base
    if tangent_of(base, level) is None:
        return None
    set_tangent(tensor, level, view_like(tensor, base, tangent_in_layout(base, level)))
    return tangent_of(tensor, level)


cdef Tensor tangent_in_layout(Tensor base, int level):
    """Return a base's tangent, brought into the base's strides, so that it can be viewed alike."""
    cdef Tensor value = tangent_of(base, level), kept
    if layout_same_strides(value.layout, base.layout) or not base.layout.flags & LAYOUT_DENSE:
        return value
    kept = zeros_in_layout(base)
    op_named("copy_")(kept, value)
    set_tangent(base, level, kept)
    return kept


cdef Tensor zeros_in_layout(Tensor tensor):
    """Return zeros in a tensor's strides, or row-major if those leave gaps or overlap."""
    cdef Tensor zeros = tensor_new(
        layout_retain(tensor.layout) if tensor.layout.flags & LAYOUT_DENSE else
        layout_contiguous(tensor.layout.ndim, layout_shape(tensor.layout)),
        tensor.dtype, tensor.storage.device_type, tensor.storage.device_index)
    fill_with(zeros, 0)
    return zeros


cdef Tensor view_like(Tensor view, Tensor base, Tensor value):
    """Return the part of `value` that `view` is of `base`."""
    cdef object offset = view.offset
    cdef Tensor whole = value
    origin = base.offset
    if view.dtype < base.dtype:         # the real and imaginary parts of complex numbers
        whole = op_named("view_as_real")(value)
        origin = 2 * origin
    elif view.dtype > base.dtype:
        whole = op_named("view_as_complex")(value)
        origin = origin // 2
    return op_named("as_strided")(whole, layout_shape_tuple(view.layout),
                                  layout_strides_tuple(view.layout),
                                  whole.offset + offset - origin)


cdef int set_tangent(Tensor tensor, int level, Tensor value) except -1:
    """Give a tensor a tangent at a level, in place of one it may have."""
    cdef Level at = <Level>(<list>thread_state().level_stack)[level - 1]
    cdef Tangent before = tangents(tensor), tangent = None
    cdef list inside = [], outside = []
    while before is not None:
        if before.level is not at:
            inner = is_open_here(before.level) and before.level.number > level
            (inside if inner else outside).append(before)
        before = before.outer
    for before in reversed(outside):
        tangent = link(before.value, before.level, tangent)
    tangent = link(value, at, tangent)
    for before in reversed(inside):
        tangent = link(before.value, before.level, tangent)
    return attach(tensor, tangent)


cdef Tangent link(Tensor value, Level level, Tangent outer):
    cdef Tangent tangent = Tangent.__new__(Tangent)
    tangent.value = value
    tangent.level = level
    tangent.outer = outer
    tangent.before = NULL
    tangent.after = level.first
    if level.first != NULL:
        (<Tangent>level.first).before = <PyObject *>tangent
    level.first = <PyObject *>tangent
    return tangent


# ---- what Python sees ----------------------------------------------------------------------------

cdef Level open_level(int level, str name):
    cdef pb_state *state = thread_state()
    if level < 1 or level > state.levels:
        raise RuntimeError(f"Invalid level given to {name}")
    return <Level>(<list>state.level_stack)[level - 1]


def make_dual(Tensor primal not None, Tensor tangent not None, int level):
    """Return an alias of ``primal`` that has ``tangent`` at an open level."""
    cdef Tensor dual, kept = tangent
    open_level(level, "make_dual")
    check_shape(primal, tangent)
    if tangent_of(primal, level) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward "
                           f"gradient at the same level {level - 1} is not supported.")
    if tangent.dtype != primal.dtype:
        kept = op_named("to")(tangent, dtype_object(primal.dtype))
    if not layout_same_strides(primal.layout, kept.layout) and (
            primal.layout.flags & LAYOUT_DENSE):
        dual = zeros_in_layout(primal)
        op_named("copy_")(dual, kept)
        kept = dual
    dual = <Tensor>op_call1(op_named("alias"), primal)
    if not thread_state().inference:
        set_tangent(dual, level, kept)
    return dual


def innermost_level(values):
    """Return the innermost level in sight at which one of some values has a tangent, or 0."""
    cdef pb_state *state = thread_state()
    cdef int level = 0
    if state.levels == 0 or state.inference:
        return 0
    for value in values:
        if is_tensor(value):
            level = max(level, level_of(<Tensor>value, state.hidden))
    return level


def hide_levels_from(int level):
    """Put a level and those inside it out of this thread's sight; returns what to restore."""
    return hide_levels(level)


def restore_levels(uint64_t hidden):
    """Put levels back into this thread's sight."""
    thread_state().hidden = hidden


def get_tangent(Tensor tensor not None, int level):
    """Return a tensor's tangent at an open level, or None."""
    open_level(level, "get_tangent")
    return tangent_of(tensor, level)


def put_tangent(Tensor tensor not None, Tensor tangent not None, int level):
    """Give a tensor a tangent at an open level.

    Raises: RuntimeError when they differ in shape.
    """
    open_level(level, "put_tangent")
    check_shape(tensor, tangent)
    set_tangent(tensor, level, tangent)


def share_memory(Tensor first not None, Tensor second not None):
    """Return True if two tensors lie in the same storage."""
    return first.storage == second.storage


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
    cdef uint64_t hidden = state.hidden
    cdef Tensor primal
    open_level(level, "unpack_dual")
    tangent = None if hidden >> level & 1 else tangent_of(tensor, level)
    if tangent is None:
        return tensor, None
    hide_levels(level)
    try:
        primal = <Tensor>op_call1(op_named("alias"), tensor)
        primal.flags |= TENSOR_IS_PRIMAL
    finally:
        state.hidden = hidden
    return primal, tangent
