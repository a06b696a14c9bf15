# build: small
"""Custom functions: the ctx, which is also the node, the steps around forward, and backward.

The class Function, vmap and jvp of custom functions are Python, in `autograd/function.py`.
"""

import gc

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_EVENT_FUNCTION
from pullback._c.graph.anomaly cimport is_sampled, note_node
from pullback._c.base.dtype cimport dtype_differentiable
from pullback._c.engine.formula cimport zeros_for
from pullback._c.base.layout cimport layout_release, layout_retain
from pullback._c.graph.node cimport (
    Node, hide_from_collector, node_name, node_new, node_release, node_release_saved, node_retain,
    node_set_meta, show_to_collector)
from pullback._c.dispatch.observer cimport begin_function, end_numbered
from pullback._c.graph.record cimport (
    bump_version, check_inplace, edge_as_it_is, move_retained, rebase, says_requires_grad,
    tensor_edge, tensor_needs_grad)
from pullback._c.graph.saved cimport (
    check_savable, node_check_alive, save_object, save_tensor, saved_unpack)
from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.device.storage cimport storage_release, storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, TENSOR_LAZY, TENSOR_REQUIRES_GRAD, Tensor, VIEW_IN_FUNCTION,
    VIEW_MULTI_OUTPUT, is_tensor, tensor_alias, tensor_is_exact, tensor_set_node)
from pullback._c.base.types cimport (
    NODE_ERROR, NODE_FREED, NODE_PYTHON, SAVED_INPUT, SAVED_TENSOR, node_edges, node_saved, pb_node,
    pb_saved)
from pullback._c.ops.views cimport make_view

__all__ = ["FunctionNode"]

cdef extern from "Python.h":
    PyObject **_PyObject_GetDictPtr(PyObject *object) noexcept

cdef pb_globals *process = globals_()


cdef class FunctionNode(Node):
    """The ctx of a custom Function and, once forward ran, its node in the graph."""
    cdef tuple to_save
    cdef tuple dirty
    cdef readonly tuple non_differentiable
    cdef public tuple saved_for_forward
    cdef tuple input_is_tensor
    cdef tuple output_is_tensor
    cdef public tuple needs_input_grad
    cdef bint materialize
    cdef bint recorded
    cdef uint64_t event             # id of the event that observers received; 0: none
    cdef bint clear_on_access
    cdef bint boxed_grads
    cdef bint accessed
    cdef int waiting                # index in `waiting`, plus 1; 0: not in it

    def __cinit__(self):
        self.materialize = True
        self.needs_input_grad = ()

    def __dealloc__(self):
        if self.waiting:
            waiting[self.waiting - 1] = NULL

    def save_for_backward(self, *tensors):
        """Save tensors for backward, with version checks and saved-tensor hooks.

        Raises: TypeError when something is neither a Tensor nor None.
        """
        for position, item in enumerate(tensors):
            if item is not None and not is_tensor(item):
                raise TypeError(f"save_for_backward can only save variables, but argument "
                                f"{position} is of type {type(item).__name__}")
        self.to_save = tensors

    def mark_dirty(self, *tensors):
        """Mark the inputs that forward wrote in place; call it at most once, from forward."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Mark the outputs that do not require grad; call it at most once, from forward."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, bint value):
        """Choose whether undefined gradients arrive in backward as zeros (the default) or None."""
        self.materialize = value

    @property
    def materialize_grads(self):
        """Whether undefined gradients arrive in backward as zeros."""
        return self.materialize

    @property
    def saved_tensors(self):
        """The tensors of save_for_backward, as a tuple.

        Raises: RuntimeError after the graph was freed, or when a tensor was modified in place.
        """
        cdef int i
        if self.saved_for_forward is not None:
            return self.saved_for_forward
        if self.node == NULL:
            return tuple(self.to_save or ())
        if self.accessed:
            raise RuntimeError("saved_tensors can only be accessed once when "
                               "clear_saved_tensors_on_access=True")
        node_check_alive(self.node)
        found = tuple([unpack_one(self.node, i) for i in range(self.node.nsaved)])
        if self.clear_on_access:
            self.accessed = True
            node_release_saved(self.node, NODE_FREED)
        return found

    @property
    def saved_variables(self):
        """The older name of saved_tensors."""
        return self.saved_tensors

    def forget(self):
        """Release the fields that only ``apply`` needs."""
        self.non_differentiable = None
        self.saved_for_forward = None


# ---- apply ---------------------------------------------------------------------------------------

# Shared tuples of bools: one for each node would be most of the collector's work for it.
cdef dict shared_tuples = {}


cdef tuple shared(list flags):
    """Return the flags as a tuple; short ones are shared."""
    cdef tuple made = tuple(flags)
    return made if len(made) > 8 else shared_tuples.setdefault(made, made)


def run(cls, tuple args, bint apart, otherwise):
    """Run a Function and return its outputs.

    Returns ``otherwise(cls, args)`` while levels are open or an observer is attached. ``apart``:
    the Function has a setup_context.
    """
    cdef pb_state *state = thread_state()
    cdef bint before = state.grad_enabled
    cdef FunctionNode ctx
    if state.levels or process.observer != NULL:
        return otherwise(cls, args)
    ctx = cls._backward_cls()
    begin(ctx, cls, args)
    state.grad_enabled = 0
    try:
        if apart:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
        else:
            outputs = cls.forward(ctx, *args)
    finally:
        state.grad_enabled = before
    outputs = finish(ctx, args, outputs)
    ctx.forget()
    if type(outputs) is Tensor and (<Tensor>outputs).node == ctx.node and ctx.node != NULL:
        hide_from_collector(ctx, 2)     # this variable and the tensor
    return outputs


def begin(FunctionNode ctx not None, cls, tuple args):
    """Store which inputs are tensors and need a gradient, before forward of `cls` runs."""
    cdef pb_state *state = thread_state()
    cdef bint any_grad = False
    needs = []
    kinds = []
    for item in args:
        if is_tensor(item):
            kinds.append(True)
            needs.append(bool(says_requires_grad(<Tensor>item)))
            any_grad = any_grad or needs[len(needs) - 1]
        else:
            kinds.append(False)
            needs.append(False)
    ctx.clear_on_access = cls.clear_saved_tensors_on_access
    ctx.boxed_grads = cls.boxed_grads_call
    ctx.input_is_tensor = shared(kinds)
    ctx.needs_input_grad = shared(needs)
    ctx.recorded = any_grad and state.grad_enabled and not state.inference
    if ctx.recorded:
        for item in args:
            if is_tensor(item):
                tensor_needs_grad(<Tensor>item)     # raises for a stale view before it is written


def is_observed():
    """True if an observer is attached."""
    return process.observer != NULL


def notify_begin(FunctionNode ctx not None, str name not None, tuple args not None):
    """Notify observers that forward begins. The ctx keeps the id, which no interrupt can lose."""
    ctx.event = begin_function(name, args, ctx.recorded)


def notify_end(FunctionNode ctx not None):
    """Notify observers that forward has ended, and which node it made."""
    cdef uint64_t number = ctx.event
    ctx.event = 0
    end_numbered(number, PB_EVENT_FUNCTION,
                 -1 if ctx.node == NULL else <int64_t>ctx.node.sequence)


cdef bint among(object item, tuple group) noexcept:
    if group is None:
        return False
    for member in group:
        if member is item:
            return True
    return False


def finish(FunctionNode ctx not None, tuple args, outputs):
    """Make the node after forward and attach it to the outputs, which are returned."""
    cdef bint single = not isinstance(outputs, (tuple, list))
    cdef list raw = [outputs] if single else list(outputs)
    cdef list tensors = [item for item in args if is_tensor(item)]
    check_dirty(ctx, raw, tensors)
    for item in ctx.non_differentiable or ():
        if not is_tensor(item):
            raise RuntimeError(f"mark_non_differentiable only accepts variable arguments, but got "
                               f"{type(item).__name__}")
    if not ctx.recorded:
        wrapped = [plain_output(ctx, item, tensors) for item in raw]
    else:
        wrapped = attach_outputs(ctx, raw, tensors)
    ctx.dirty = None
    if not ctx.recorded:
        ctx.to_save = None
    if single:
        return wrapped[0]
    return tuple(wrapped)


cdef int check_dirty(FunctionNode ctx, list raw, list inputs) except -1:
    cdef Tensor tensor
    if ctx.dirty is None:
        return 0
    for item in ctx.dirty:
        if not is_tensor(item):
            raise RuntimeError(f"mark_dirty can only accept variables, but argument is of type "
                               f"{type(item).__name__}")
        if not among(item, tuple(inputs)):
            raise RuntimeError("mark_dirty: only inputs of the Function can be marked dirty, but "
                               "got a tensor that is none of them")
        bump_version(<Tensor>item, -1)
        if not among(item, tuple(raw)):
            raise RuntimeError("Some elements marked as dirty during the forward method were not "
                               "returned as output. The inputs that are modified inplace must all "
                               "be outputs of the Function.")
        tensor = <Tensor>item
        if not ctx.recorded:
            continue
        if tensor.flags & TENSOR_IS_VIEW and len(raw) > 1:
            raise RuntimeError("If your Function modifies inplace an input that is a view of "
                               "another Tensor, your Function cannot return more than one Tensor.")
        if not tensor.flags & TENSOR_IS_VIEW and (
                tensor.node == NULL and tensor.flags & TENSOR_REQUIRES_GRAD):
            raise RuntimeError("a leaf Variable that requires grad has been used in an in-place "
                               "operation.")
        check_inplace(tensor, True)
    return 0


cdef object plain_output(FunctionNode ctx, object item, list inputs):
    """Return an output without a node; a new object for an input that forward returned."""
    cdef Tensor view
    if is_tensor(item) and among(item, tuple(inputs)) and not among(item, ctx.dirty):
        if tensor_needs_grad(<Tensor>item):
            return tensor_alias(<Tensor>item)
        view = make_view(<Tensor>item, layout_retain((<Tensor>item).layout),
                         (<Tensor>item).offset, (<Tensor>item).dtype)
        if view.flags & TENSOR_IS_VIEW:
            view.extra.view_kind = VIEW_IN_FUNCTION
        return view
    if is_tensor(item) and (<Tensor>item).flags & TENSOR_IS_VIEW and not among(item, ctx.dirty):
        if thread_state().grad_enabled and not thread_state().inference:
            (<Tensor>item).extra.view_kind = VIEW_IN_FUNCTION
    return item


cdef list attach_outputs(FunctionNode ctx, list raw, list inputs):
    cdef tuple saved = ctx.to_save or ()
    cdef pb_node *node = node_new(NODE_PYTHON, <uint32_t>len(inputs), <uint32_t>len(raw),
                                  <unsigned short>len(saved))
    cdef list wrapped = []
    cdef uint32_t i
    cdef Tensor tensor
    node.wrapper = <PyObject *>ctx
    ctx.node = node
    ctx.output_is_tensor = shared([is_tensor(item) for item in raw])
    for i in range(<uint32_t>len(inputs)):
        edge_as_it_is(<Tensor>inputs[i], node_edges(node) + i)     # forward may have written
    for i in range(<uint32_t>len(raw)):
        item = raw[i]
        if not is_tensor(item):
            describe_nothing(node, i, inputs)
            wrapped.append(item)
            continue
        tensor = <Tensor>attach_one(ctx, node, i, <Tensor>item, inputs)
        node_set_meta(node, i, tensor.layout, tensor.dtype, tensor.storage)
        wrapped.append(tensor)
    for i in range(<uint32_t>len(saved)):
        save_one(node, i, saved[i], raw, wrapped)
    if saved:
        wait_to_settle(ctx)
    ctx.to_save = None
    if process.anomaly and is_sampled(node.sequence):
        note_node(node)
    return wrapped


cdef int describe_nothing(pb_node *node, uint32_t number, list inputs) except -1:
    """Set the metadata of an output that is not a tensor, and never gets a gradient."""
    cdef Tensor some = <Tensor>inputs[0]
    node_set_meta(node, number, some.layout, some.dtype, some.storage)
    return 0


cdef object attach_one(FunctionNode ctx, pb_node *node, uint32_t number, Tensor output,
                       list inputs):
    cdef bint is_input = among(output, tuple(inputs))
    cdef bint is_dirty = among(output, ctx.dirty)
    cdef Tensor result = output
    if not dtype_differentiable(output.dtype) or among(output, ctx.non_differentiable):
        return tensor_alias(output) if is_input else output
    if is_dirty:
        if output.flags & TENSOR_IS_VIEW:
            node_set_meta(node, number, output.layout, output.dtype, output.storage)
            rebase(output, node)
            return output
        move_retained(output, node, number)
    elif is_input:
        result = make_view(output, layout_retain(output.layout), output.offset, output.dtype)
    if result.flags & TENSOR_IS_VIEW and not is_dirty:
        result.extra.view_kind = VIEW_MULTI_OUTPUT if node.noutputs > 1 else VIEW_IN_FUNCTION
        result.extra.view_version = result.storage.version
    result.flags &= ~TENSOR_REQUIRES_GRAD
    tensor_set_node(result, node_retain(node), number)
    return result


cdef int save_one(pb_node *node, uint32_t index, object value, list raw, list wrapped) except -1:
    """Save a tensor: an output without a count on the node, any other as the Python object."""
    cdef pb_saved *saved
    cdef uint32_t i
    cdef Tensor tensor
    if value is None:
        return save_object(node, index, None)
    for i in range(<uint32_t>len(raw)):
        if raw[i] is value and is_tensor(wrapped[i]) and (<Tensor>wrapped[i]).node == node:
            return save_tensor(node, index, <Tensor>wrapped[i], True)
    tensor = <Tensor>value
    if thread_state().saved_hooks != NULL:
        return save_tensor(node, index, tensor, False)
    check_savable(tensor)
    saved = node_saved(node) + index
    saved.kind = SAVED_TENSOR
    saved.dtype = tensor.dtype
    saved.version = tensor.storage.version
    Py_INCREF(tensor)
    saved.object = <PyObject *>tensor
    if tensor.node != NULL:
        saved.node = node_retain(tensor.node)
        saved.output_nr = tensor.output_nr
    return 0


# ---- saved tensors that only their node owns -----------------------------------------------------
# Tensors are saved as objects so that backward gets the same ones. With a million of them each
# collection would take long: before it begins, those that only their node owns become snapshots.
# No program can notice, because it has no reference to the objects.

cdef enum:
    ROOM = 1024

cdef Py_ssize_t weaklist_offset = (<type>Tensor).__weakrefoffset__
cdef PyObject *waiting[ROOM]            # borrowed nodes, NULL where one died
cdef int nwaiting = 0


cdef void wait_to_settle(FunctionNode ctx) noexcept:
    """Add a node to those whose saved tensors `settle` checks before the next collection."""
    global nwaiting
    if nwaiting == ROOM:
        settle()
    waiting[nwaiting] = <PyObject *>ctx
    nwaiting += 1
    ctx.waiting = nwaiting


cdef void settle() noexcept:
    """Replace saved tensors that only their nodes own by snapshots."""
    global nwaiting
    cdef FunctionNode ctx
    cdef uint32_t i
    cdef int k, count = nwaiting
    nwaiting = 0
    for k in range(count):
        if waiting[k] == NULL:
            continue
        ctx = <FunctionNode>waiting[k]
        ctx.waiting = 0
        if ctx.node != NULL:
            for i in range(ctx.node.nsaved):
                settle_one(node_saved(ctx.node) + i)


cdef void settle_one(pb_saved *saved) noexcept:
    cdef Tensor tensor
    cdef PyObject *held = saved.object
    if saved.kind != SAVED_TENSOR or held.ob_refcnt != 1 or not tensor_is_exact(<object>held):
        return
    tensor = <Tensor>held
    if (tensor.flags & ~TENSOR_LAZY or tensor.extra != NULL or tensor.node != saved.node
            or _PyObject_GetDictPtr(held)[0] != NULL
            or (<PyObject **>(<char *>held + weaklist_offset))[0] != NULL):
        return
    saved.kind = SAVED_INPUT
    saved.storage = storage_retain(tensor.storage)
    saved.layout = layout_retain(tensor.layout)
    saved.offset = tensor.offset
    saved.flags = tensor.flags
    saved.object = NULL
    Py_DECREF(tensor)


cdef object unpack_one(pb_node *node, int index):
    """Unpack a saved value; a snapshot becomes a saved object again."""
    cdef pb_saved *saved = node_saved(node) + index
    cdef object found = saved_unpack(node, index, "saved_tensors")
    if saved.kind == SAVED_INPUT:
        storage_release(saved.storage)
        layout_release(saved.layout)
        saved.storage = NULL
        saved.layout = NULL
        saved.kind = SAVED_TENSOR
        Py_INCREF(found)
        saved.object = <PyObject *>found
    return found


def on_collection(phase, info):
    """Reduce the work of a collection that is about to begin."""
    if phase == "start":
        settle()


gc.callbacks.append(on_collection)


# ---- backward ------------------------------------------------------------------------------------

cdef int apply_python(pb_node *node, PyObject **grads, PyObject **results) except -1:
    """Call the user's backward and assign the gradients to the edges."""
    cdef FunctionNode ctx = <FunctionNode>node.wrapper
    cdef list arguments = []
    cdef uint32_t i, edge = 0
    cdef Py_ssize_t expected = len(ctx.input_is_tensor)
    cdef object returned
    show_to_collector(ctx)
    for i in range(node.noutputs):
        if grads[i] != NULL:
            arguments.append(<object>grads[i])
        elif ctx.materialize and ctx.output_is_tensor[i]:
            arguments.append(zeros_for(node, i))
        else:
            arguments.append(None)
    returned = ctx.apply(arguments) if ctx.boxed_grads else ctx.apply(*arguments)
    if not isinstance(returned, (tuple, list)):
        returned = (returned,)
    if len(returned) > expected and all([item is None for item in returned[expected:]]):
        returned = returned[:expected]
    if len(returned) != expected:
        raise RuntimeError(f"function {node_name(node)} returned an incorrect number of gradients "
                           f"(expected {expected}, got {len(returned)})")
    for i in range(<uint32_t>expected):
        item = returned[i]
        if not ctx.input_is_tensor[i]:
            if item is not None:
                raise RuntimeError(f"function {node_name(node)} returned a gradient different from "
                                   f"None at position {i + 1}, but the corresponding forward input "
                                   f"was not a Variable")
            continue
        if item is not None:
            if not is_tensor(item):
                raise RuntimeError(f"expected Variable or None (got {type(item).__name__})")
            if node_edges(node)[edge].node != NULL:
                Py_INCREF(item)
                results[edge] = <PyObject *>item
        edge += 1
    return 0


# ---- nodes that raise ----------------------------------------------------------------------------

cdef int apply_error(pb_node *node) except -1:
    raise RuntimeError((<object>node.op)[1])


def attach_error(list tensors, list sources, str name, str message):
    """Give tensors a node that raises RuntimeError(message) when it runs."""
    cdef pb_node *node = node_new(NODE_ERROR, <uint32_t>len(sources), <uint32_t>len(tensors), 0)
    cdef uint32_t i
    cdef Tensor tensor
    payload = (name, message)
    Py_INCREF(payload)
    node.op = <PyObject *>payload
    try:
        for i in range(<uint32_t>len(sources)):
            tensor_edge(<Tensor?>sources[i], node_edges(node) + i)
        for i in range(<uint32_t>len(tensors)):
            tensor = <Tensor?>tensors[i]
            node_set_meta(node, i, tensor.layout, tensor.dtype, tensor.storage)
            tensor_set_node(tensor, node_retain(node), i)
    finally:
        node_release(node)
