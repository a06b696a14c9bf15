# build: small
"""Levels: runs of forward mode, vmap and dispatch modes on a thread, and their state in tensors.

Levels nest. A tensor may have a wrapper state at several: at a level of forward mode a tangent, at
one of vmap the batch that it represents, and then its tangents are those of the batch. An op runs
by the rule of the innermost enabled level at which an operand is wrapped, vmap before forward mode,
with that level disabled; so levels do not mix. When a level ends, its wrapper states are emptied in
all tensors that still exist. Tensors have no state at a level of a dispatch mode, which receives
the ops that remain after batching and forward mode.

How ops run at levels is in the layer `transforms`.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from pullback._c.base.dtype cimport dtype_differentiable
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_PRIMAL, TENSOR_IS_VIEW, TENSOR_IS_WRAPPED, Tensor, tensor_extra)

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t i)

cdef enum:
    MAX_LEVELS = 63             # one bit each in pb_state.disabled_levels

__all__ = ["disable_all_levels", "disable_levels_inside", "disable_one_level",
           "enter_dispatch_mode", "enter_level", "exit_level", "level_count", "restore_levels",
           "whole"]


@cython.no_gc_clear                     # a cycle is broken at the tensor; links stay valid
cdef class WrapperState:
    """The state of one tensor at one level: its tangent, or the batch that it represents."""

    def __dealloc__(self):
        unlink(self)


cdef int unlink(WrapperState self) except -1:
    if self.level is None:
        return 0
    if self.before != NULL:
        (<WrapperState>self.before).after = self.after
    else:
        self.level.first = self.after
    if self.after != NULL:
        (<WrapperState>self.after).before = self.before
    self.before = NULL
    self.after = NULL
    self.level = None
    return 0


# ---- levels --------------------------------------------------------------------------------------

def level_count():
    """Return the number of open levels of this thread."""
    return thread_state().levels


def enter_level(int size=-1, randomness=None):
    """Open an innermost level; returns its number, counted from 1.

    With a ``size`` it is a level of vmap, over batches of that size; else one of forward mode.

    Raises: RuntimeError when too many are open.
    """
    cdef Level level = Level.__new__(Level)
    level.size = size
    level.randomness = randomness
    return open_inside(level)


def enter_dispatch_mode(on_call=None, on_write=None):
    """Open a level of a dispatch mode, which receives this thread's ops; returns its number.

    ``on_call(op, args, run)`` receives each op that is not a composite, with all its arguments,
    before it runs; ``run()`` runs it and returns the result, not recorded yet. The return value of
    ``on_call`` becomes the op's result and is recorded; for a view or an in-place op it must be the
    result of ``run()``. ``on_write(op, targets)`` receives the tensors that an op is about to
    write. The level is disabled while they run.

    Raises: RuntimeError when too many levels are open.
    """
    cdef Level level = Level.__new__(Level)
    level.size = LEVEL_OF_DISPATCH_MODE
    level.on_call = on_call
    level.on_write = on_write
    return open_inside(level)


cdef int open_inside(Level level) except -1:
    """Make a level the innermost one of this thread; returns its number."""
    cdef pb_state *state = thread_state()
    if state.levels == MAX_LEVELS:
        raise RuntimeError(f"more than {MAX_LEVELS} levels of forward mode, vmap and dispatch "
                           f"modes are open")
    if state.level_stack == NULL:
        stack = [None] * MAX_LEVELS     # of full length: closing a level must not allocate
        Py_INCREF(stack)
        state.level_stack = <PyObject *>stack
    level.number = state.levels + 1
    (<list>state.level_stack)[state.levels] = level
    state.levels += 1
    state.disabled_levels &= ~(<uint64_t>1 << state.levels)
    return level.number


def exit_level(int number):
    """Close a level and those inside it, and empty their wrapper states."""
    cdef pb_state *state = thread_state()
    cdef Level level
    cdef WrapperState wrapper = None
    open_level(number, "exit_level")
    while state.levels >= number:
        state.levels -= 1
        level = <Level>(<list>state.level_stack)[state.levels]
        (<list>state.level_stack)[state.levels] = None
        while level.first != NULL:
            wrapper = <WrapperState>level.first
            unlink(wrapper)
            wrapper.value = None
        wrapper = None
    if state.levels == 0:
        stack = <object>state.level_stack
        state.level_stack = NULL
        Py_DECREF(stack)


# ---- wrapper states of tensors -------------------------------------------------------------------

cdef WrapperState wrapper_state(Tensor tensor):
    """Return a tensor's innermost wrapper state, after dropping those whose level has ended."""
    cdef WrapperState wrapper
    if not tensor.flags & TENSOR_IS_WRAPPED:
        return None
    wrapper = <WrapperState>tensor.extra.wrapper_state
    if wrapper.value is not None:
        return wrapper
    while wrapper is not None and wrapper.value is None:
        wrapper = wrapper.outer
    attach(tensor, wrapper)
    return wrapper


cdef int attach(Tensor tensor, WrapperState wrapper) except -1:
    """Set a tensor's list of wrapper states; None: no state."""
    cdef PyObject *before = tensor_extra(tensor).wrapper_state
    if wrapper is None:
        tensor.extra.wrapper_state = NULL
        tensor.flags &= ~TENSOR_IS_WRAPPED
    else:
        Py_INCREF(wrapper)
        tensor.extra.wrapper_state = <PyObject *>wrapper
        tensor.flags |= TENSOR_IS_WRAPPED
    Py_XDECREF(before)
    return 0


cdef bint is_open_here(Level level) noexcept:
    """True for a level of this thread; a tensor may be wrapped at one of another thread."""
    cdef pb_state *state = thread_state()
    return (level.number <= state.levels
            and <object>PyList_GET_ITEM(<object>state.level_stack, level.number - 1) is level)


cdef bint sees_base(Tensor tensor) noexcept:
    """True for a view whose tangent may be a part of its base's."""
    return (tensor.flags & (TENSOR_IS_VIEW | TENSOR_IS_PRIMAL) == TENSOR_IS_VIEW
            and dtype_differentiable(tensor.dtype))


cdef uint64_t disable_level(int level) noexcept:
    """Disable an open level; returns the disabled levels before."""
    cdef pb_state *state = thread_state()
    cdef uint64_t before = state.disabled_levels
    state.disabled_levels |= <uint64_t>1 << level
    return before


cdef Level batch_level(Tensor tensor):
    """Return the innermost level at which a tensor is batched, or None."""
    cdef WrapperState wrapper
    if not tensor.flags & TENSOR_IS_BATCHED:
        return None
    wrapper = wrapper_state(tensor)
    return None if wrapper is None or not is_open_here(wrapper.level) else wrapper.level


cdef int tangent_level(Tensor tensor, uint64_t disabled) except -1:
    """Return the innermost enabled level at which a tensor has a tangent, or 0.

    Of a view, also the levels of its base count: a write to the base may have given it a tangent.
    """
    cdef WrapperState wrapper = wrapper_state(tensor)
    cdef int found = 0
    while wrapper is not None and found == 0:
        if (wrapper.value is not None and not disabled >> wrapper.level.number & 1
                and is_open_here(wrapper.level)):
            found = wrapper.level.number
        wrapper = wrapper.outer
    if sees_base(tensor):
        found = max(found, tangent_level(<Tensor>tensor.extra.base, disabled))
    return found


cdef Level innermost_level(bint of_dispatch_mode):
    """Return the innermost enabled level of vmap, or of a dispatch mode; None without one."""
    cdef pb_state *state = thread_state()
    cdef Level level
    cdef int number
    for number in range(state.levels, 0, -1):
        if not state.disabled_levels >> number & 1:
            level = <Level>PyList_GET_ITEM(<object>state.level_stack, number - 1)
            if level.size == LEVEL_OF_DISPATCH_MODE if of_dispatch_mode else level.size >= 0:
                return level
    return None


cdef int level_size(int level) except? -3:
    """Return the batch size of an open level of vmap; a negative number for others."""
    return (<Level>(<list>thread_state().level_stack)[level - 1]).size


cdef WrapperState link(Tensor value, Level level, WrapperState outer):
    cdef WrapperState wrapper = WrapperState.__new__(WrapperState)
    wrapper.value = value
    wrapper.level = level
    wrapper.outer = outer
    wrapper.before = NULL
    wrapper.after = level.first
    if level.first != NULL:
        (<WrapperState>level.first).before = <PyObject *>wrapper
    level.first = <PyObject *>wrapper
    return wrapper


cdef Level open_level(int level, str name):
    cdef pb_state *state = thread_state()
    if level < 1 or level > state.levels:
        raise RuntimeError(f"Invalid level given to {name}")
    return <Level>(<list>state.level_stack)[level - 1]


def disable_all_levels():
    """Disable all levels of this thread; returns what `restore_levels` takes."""
    cdef pb_state *state = thread_state()
    cdef uint64_t before = state.disabled_levels
    cdef int number
    for number in range(1, state.levels + 1):
        state.disabled_levels |= <uint64_t>1 << number
    return before


def disable_levels_inside(int number):
    """Disable the levels inside one, except dispatch modes; returns what to restore."""
    cdef pb_state *state = thread_state()
    cdef uint64_t before = state.disabled_levels
    cdef int inner
    for inner in range(number + 1, state.levels + 1):
        if level_size(inner) != LEVEL_OF_DISPATCH_MODE:
            disable_level(inner)
    return before


def disable_one_level(int level):
    """Disable an open level of this thread; returns what `restore_levels` takes."""
    return disable_level(level)


def restore_levels(uint64_t disabled):
    """Set the disabled levels of this thread to those before a call of a disable function."""
    thread_state().disabled_levels = disabled


# ---- batches -------------------------------------------------------------------------------------

cdef Tensor batch_of(Tensor tensor):
    """Return the batch that a tensor represents.

    Raises: RuntimeError when the vmap that made it has ended.
    """
    cdef WrapperState wrapper = wrapper_state(tensor)
    if wrapper is not None:
        return wrapper.value
    raise_escaped()


cdef int raise_escaped() except -1:
    raise RuntimeError("a tensor escaped from inside a function that vmap ran: it stood for one "
                       "element of a batch, and the batch is gone. Return it from the function.")


cpdef Tensor whole(Tensor tensor):
    """Return the batch that a tensor represents, through all levels; any other tensor itself."""
    while tensor.flags & TENSOR_IS_BATCHED:
        tensor = batch_of(tensor)
    return tensor
