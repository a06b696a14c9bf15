"""The autograd surface of tensors and nodes, bound to their classes as properties and methods."""

import warnings
import weakref
from collections import OrderedDict
from types import MethodType

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t

from pullback._c.create import data_alias
from pullback._c.record import set_move_retained
from pullback._c.batch cimport batch_of
from pullback._c.dtype cimport dtype_code, dtype_differentiable, dtype_object
from pullback._c.entry cimport Op
from pullback._c.layout cimport (
    layout_release, layout_retain, layout_same_shape, layout_shape_tuple)
from pullback._c.node cimport (
    Node, node_extra, node_name, node_object, node_release, node_set_meta, saved_clear)
from pullback._c.record cimport (
    bump_version, tensor_edge, tensor_needs_grad)
from pullback._c.saved cimport node_check_alive, pack_into, saved_unpack
from pullback._c.state cimport thread_state
from pullback._c.storage cimport storage_release, storage_retain
from pullback._c.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_REQUIRES_GRAD, TENSOR_RETAINS_GRAD, Tensor,
    device_of, is_tensor, tensor_device, tensor_extra, tensor_set_node)
from pullback._c.types cimport (
    NODE_ACCUMULATE, NODE_HOOKED, NODE_OP, SAVED_NONE, SAVED_OBJECT, SAVED_OUTPUT, SAVED_PACKED,
    SAVED_SHAPE, STORAGE_INFERENCE, node_edges, node_meta, node_saved, pb_edge, pb_meta, pb_node,
    pb_saved, pb_storage)
from pullback._c.tensor import bind_attribute

cdef extern from "Python.h":
    void PyType_Modified(PyTypeObject *type)


# ---- requires_grad and history -------------------------------------------------------------------

def get_requires_grad(Tensor self not None):
    """Whether operations on this tensor are recorded."""
    if self.flags & TENSOR_IS_BATCHED:
        return get_requires_grad(batch_of(self))
    return bool(tensor_needs_grad(self))


def set_requires_grad(Tensor self not None, value):
    """Change the flag of a leaf."""
    if not isinstance(value, bool):
        raise TypeError(f"requires_grad must be a bool, not {type(value).__name__}")
    if self.flags & TENSOR_IS_BATCHED:
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using "
            "pullback.autograd.functional.* APIs) inside of a function being transformed by vmap. "
            "This is unsupported, please attempt to use the function transforms (e.g. grad, vjp, "
            "jacrev, jacfwd, hessian) or call requires_grad_() outside of a function being "
            "transformed instead.")
    tensor_needs_grad(self)             # a view's history catches up with its base's
    if self.node != NULL:
        if not value:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you "
                               "want to use a computed variable in a subgraph that doesn't require "
                               "differentiation use var_no_grad = var.detach().")
        return
    if value and not dtype_differentiable(self.dtype):
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require "
                           f"gradients, got {dtype_object(self.dtype).name}")
    if value and self.storage.flags & STORAGE_INFERENCE and not thread_state().inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode "
                           "is not allowed.")
    if value:
        self.flags |= TENSOR_REQUIRES_GRAD
    else:
        self.flags &= ~TENSOR_REQUIRES_GRAD


def requires_grad_(Tensor self not None, requires_grad=True):
    """Change whether operations on this leaf are recorded; returns the tensor.

    Raises: RuntimeError for non-leaves and for dtypes that have no derivatives.
    """
    if requires_grad is True and not dtype_differentiable(self.dtype):
        raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got "
                           f"{dtype_object(self.dtype).name}")
    set_requires_grad(self, requires_grad)
    return self


def require_grad_of_new(Tensor self not None):
    """Let a fresh tensor require grad, as factories do with requires_grad=True; returns it."""
    if not dtype_differentiable(self.dtype):
        raise RuntimeError(f"Only Tensors of floating point and complex dtype can require "
                           f"gradients, got {dtype_object(self.dtype).name}")
    set_requires_grad(self, True)
    return self


def get_is_leaf(Tensor self not None):
    """Whether no recorded operation made this tensor."""
    if self.flags & TENSOR_IS_BATCHED:
        return get_is_leaf(batch_of(self))
    tensor_needs_grad(self)
    return self.node == NULL


def get_grad_fn(Tensor self not None):
    """The node that made this tensor, or None."""
    if self.flags & TENSOR_IS_BATCHED:
        return get_grad_fn(batch_of(self))
    tensor_needs_grad(self)
    return None if self.node == NULL else node_object(self.node)


def get_output_nr(Tensor self not None):
    """Which output of ``grad_fn`` this tensor is."""
    tensor_needs_grad(self)
    return self.output_nr if self.node != NULL else 0


def get_version(Tensor self not None):
    """How often the memory was written in place."""
    if self.storage.flags & STORAGE_INFERENCE:
        raise RuntimeError("Inference tensors do not track version counter.")
    return self.storage.version


def get_base(Tensor self not None):
    """The tensor this one is a view of, or None."""
    if not self.flags & TENSOR_IS_VIEW:
        return None
    return <object>self.extra.base


def increment_version_of(Tensor self not None):
    """Count a write that another library made."""
    bump_version(self, -1)


def detach_(Tensor self not None):
    """Cut this tensor off from its history, in place; returns it.

    Raises: RuntimeError for views.
    """
    if self.flags & TENSOR_IS_VIEW:
        raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using "
                           "DistributedDataParallel (DDP) for training, and "
                           "gradient_as_bucket_view is set as True, gradients are views of DDP "
                           "buckets, and hence detach_() cannot be called on these gradients.")
    self.flags &= ~(TENSOR_REQUIRES_GRAD | TENSOR_RETAINS_GRAD)
    tensor_set_node(self, NULL, 0)
    return self


def set_data(Tensor self not None, value):
    """Exchange the memory; identity, history and version stay."""
    cdef Tensor source
    cdef pb_storage *storage
    if not is_tensor(value):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    source = <Tensor>value
    if not dtype_differentiable(source.dtype) and tensor_needs_grad(self):
        raise RuntimeError(f"data set to a tensor that requires gradients must be floating point "
                           f"or complex dtype, got {dtype_object(source.dtype).name}")
    source = data_alias(source)
    storage = storage_retain(source.storage)
    storage.version = self.storage.version
    layout_retain(source.layout)
    storage_release(self.storage)
    layout_release(self.layout)
    self.storage = storage
    self.layout = source.layout
    self.offset = source.offset
    self.dtype = source.dtype
    if self.extra != NULL and self.extra.accumulator != NULL:
        forget_accumulator(self)


cdef int forget_accumulator(Tensor self) except -1:
    """The accumulator describes the old geometry; describe the new one."""
    node_set_meta(self.extra.accumulator, 0, self.layout, self.dtype, self.storage)
    return 0


# ---- .grad ---------------------------------------------------------------------------------------

def get_grad(Tensor self not None):
    """The accumulated gradient, or None."""
    if self.extra != NULL and self.extra.grad != NULL:
        return <object>self.extra.grad
    if self.node != NULL and not self.flags & TENSOR_RETAINS_GRAD:
        warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being "
                      "accessed. Its .grad attribute won't be populated during "
                      "autograd.backward(). If you indeed want the .grad field to be populated "
                      "for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
                      "access the non-leaf Tensor by mistake, make sure you access the leaf "
                      "Tensor instead.", UserWarning, stacklevel=2)
    return None


def set_grad(Tensor self not None, value):
    """Assign the gradient: None, or a tensor of the same size, dtype and device."""
    cdef Tensor grad
    cdef PyObject *before
    cdef int wanted
    if value is None:
        if self.extra != NULL and self.extra.grad != NULL:
            before = self.extra.grad
            self.extra.grad = NULL
            Py_DECREF(<object>before)
        return
    if not is_tensor(value):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type "
                        f"{type(value).__name__}")
    if value is self:
        raise RuntimeError("can't assign Variable as its own grad")
    grad = <Tensor>value
    tensor_extra(self)
    wanted = self.extra.grad_dtype
    if wanted == -1:
        wanted = self.dtype
    if wanted >= 0 and grad.dtype != wanted:
        raise RuntimeError(f"attempting to assign a gradient with dtype "
                           f"'{dtype_object(grad.dtype).name}' to a tensor with grad_dtype "
                           f"'{dtype_object(wanted).name}'")
    if (grad.storage.device_type != self.storage.device_type
            or grad.storage.device_index != self.storage.device_index):
        raise RuntimeError(f"attempting to assign a gradient located on device "
                           f"'{tensor_device(grad)}' to a tensor on device '{tensor_device(self)}'")
    if not layout_same_shape(grad.layout, self.layout):
        raise RuntimeError(f"attempting to assign a gradient of size "
                           f"'{list(layout_shape_tuple(grad.layout))}' to a tensor of size "
                           f"'{list(layout_shape_tuple(self.layout))}'. Please ensure that the "
                           f"gradient and the tensor are the same size")
    before = self.extra.grad
    Py_INCREF(value)
    self.extra.grad = <PyObject *>value
    Py_XDECREF(before)


def get_grad_dtype(Tensor self not None):
    """The dtype that gradients are cast to; None lifts the check."""
    if self.extra == NULL or self.extra.grad_dtype == -1:
        return dtype_object(self.dtype)
    return None if self.extra.grad_dtype == -2 else dtype_object(self.extra.grad_dtype)


def set_grad_dtype(Tensor self not None, value):
    """Choose the dtype of ``.grad``."""
    if self.node != NULL:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    tensor_extra(self)
    if self.extra.grad != NULL and value is not None:
        if (<Tensor>self.extra.grad).dtype != dtype_code(value, "grad_dtype"):
            raise RuntimeError("Cannot set grad_dtype while there is a gradient of another dtype. "
                               "Set .grad to None first.")
    self.extra.grad_dtype = -2 if value is None else dtype_code(value, "grad_dtype")


# ---- hooks ---------------------------------------------------------------------------------------

cdef object hook_table(PyObject **slot):
    if slot[0] == NULL:
        table = OrderedDict()
        Py_INCREF(table)
        slot[0] = <PyObject *>table
    return <object>slot[0]


def tensor_hook_table(Tensor self not None):
    """Return (table, entry maker's output number) where hooks of this tensor are kept."""
    if not tensor_needs_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.node == NULL:
        return hook_table(&tensor_extra(self).hooks), None
    node_extra(self.node)
    self.node.flags |= NODE_HOOKED
    return hook_table(&self.node.extra.tensor_hooks), self.output_nr


def post_accumulate_table(Tensor self not None):
    """Return the table of post-accumulate hooks."""
    if not tensor_needs_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.node != NULL:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return hook_table(&tensor_extra(self).post_hooks)


def leaf_hooks(Tensor self not None):
    """Return the hooks of a leaf, for pickling's warning."""
    if self.extra == NULL or self.extra.hooks == NULL:
        return []
    return list((<object>self.extra.hooks).values())


def retain_grad(Tensor self not None):
    """Keep the gradient of this non-leaf in ``.grad``; nothing happens on leaves.

    Raises: RuntimeError when the tensor does not require grad.
    """
    if not tensor_needs_grad(self):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.node == NULL or self.flags & TENSOR_RETAINS_GRAD:
        return
    keep_on(self, self.node)
    self.flags |= TENSOR_RETAINS_GRAD


cdef int keep_on(Tensor self, pb_node *node) except -1:
    node_extra(node)
    if node.extra.retain == NULL:
        table = {}
        Py_INCREF(table)
        node.extra.retain = <PyObject *>table
    node.flags |= NODE_HOOKED
    (<dict>node.extra.retain)[self.output_nr] = weakref.ref(self)
    return 0


def move_retained(Tensor self not None, Node node not None, unsigned int number):
    """Let the gradient be kept where the tensor's history goes on after an in-place op."""
    if self.node != NULL and self.node.extra != NULL and self.node.extra.retain != NULL:
        (<dict>self.node.extra.retain).pop(self.output_nr, None)
    self.output_nr = number
    keep_on(self, node.node)


set_move_retained(move_retained)


def get_retains_grad(Tensor self not None):
    """Whether ``retain_grad`` was called on this non-leaf."""
    return bool(self.flags & TENSOR_RETAINS_GRAD and self.node != NULL)


# ---- edges ---------------------------------------------------------------------------------------

def gradient_edge(Tensor self not None):
    """Return (Node, output number) where the tensor's gradient goes, or None."""
    cdef pb_edge edge
    tensor_edge(self, &edge)
    if edge.node == NULL:
        return None
    try:
        return node_object(edge.node), edge.nr
    finally:
        node_release(edge.node)


def seed_description(Node node not None, unsigned int number):
    """Return shape, dtype and device of a forward output."""
    cdef pb_meta *meta
    if number >= node.node.noutputs:
        raise RuntimeError(f"{node_name(node.node)} has {node.node.noutputs} outputs, there is no "
                           f"number {number}")
    meta = node_meta(node.node) + number
    return (layout_shape_tuple(meta.layout), dtype_object(meta.dtype),
            device_of(meta.device_type, meta.device_index))


def accumulate_in_place_of(Tensor self not None, Tensor grad not None):
    """Add a captured gradient into .grad, as backward(inputs=[...]) does for a non-leaf."""
    if self.extra != NULL and self.extra.grad != NULL:
        set_grad(self, <object>self.extra.grad + grad)
    else:
        set_grad(self, grad.clone() if tensor_needs_grad(grad) else grad.detach().clone())


# ---- nodes ---------------------------------------------------------------------------------------

def node_name_of(Node self not None):
    """Return the name, such as ``MulBackward0``."""
    if self.node == NULL:
        return type(self).__name__
    return "pullback::autograd::AccumulateGrad" if self.node.kind == NODE_ACCUMULATE else (
        node_name(self.node))


def node_next_functions(Node self not None):
    """The nodes that receive this node's gradients: one (Node, output number) per input."""
    cdef uint32_t i
    if self.node == NULL:
        return ()
    found = []
    for i in range(self.node.nedges):
        if node_edges(self.node)[i].node == NULL:
            found.append((None, 0))
        else:
            found.append((node_object(node_edges(self.node)[i].node),
                          node_edges(self.node)[i].nr))
    return tuple(found)


def node_metadata(Node self not None):
    """A dict for the user's own notes on this node."""
    node_extra(self.node)
    if self.node.extra.metadata == NULL:
        table = {}
        Py_INCREF(table)
        self.node.extra.metadata = <PyObject *>table
    return <object>self.node.extra.metadata


def node_sequence(Node self not None):
    """Return the sequence number: nodes with higher numbers run first."""
    return self.node.sequence


def node_hook_table(Node self not None, bint before):
    """Return the table of pre- or post-hooks of a node."""
    if self.node == NULL:
        raise RuntimeError("hooks can only be registered on a node that is part of a graph")
    node_extra(self.node)
    self.node.flags |= NODE_HOOKED
    if before:
        return hook_table(&self.node.extra.pre_hooks)
    return hook_table(&self.node.extra.post_hooks)


def node_output_count(Node self not None):
    """Return how many outputs the forward op had."""
    return self.node.noutputs


def node_variable(Node self not None):
    """The leaf of an accumulator."""
    if self.node.kind != NODE_ACCUMULATE:
        raise AttributeError(f"'{node_name(self.node)}' object has no attribute 'variable'")
    return <object>self.node.op


def node_getattr(Node self not None, str name):
    """Return ``_saved_<name>`` and ``_raw_saved_<name>``."""
    cdef Op op
    cdef pb_node *node = self.node
    if node != NULL and node.kind == NODE_OP:
        op = <Op>node.op
        if name.startswith("_saved_") and name[7:] in saved_names(op):
            return read_saved(self, op.saved_names.index(name_of(op, name[7:])), name[7:])
        if name.startswith("_raw_saved_") and name[11:] in saved_names(op):
            raw = RawSaved(self, op.saved_names.index(name_of(op, name[11:])), name[11:])
            return raw
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


cdef list saved_names(Op op):
    return ["result" if name == "out" else name for name in op.saved_names]


cdef str name_of(Op op, str name):
    return "out" if name == "result" and "out" in op.saved_names else name


cdef object read_saved(Node self, int slot, str name):
    node_check_alive(self.node)
    return saved_unpack(self.node, slot, name)


class RawSaved:
    """One saved value of a node; ``register_hooks(pack, unpack)`` packs it at once."""

    def __init__(self, node, slot, name):
        self._node = node
        self._slot = slot
        self._name = name

    def register_hooks(self, pack_hook, unpack_hook):
        """Replace the saved tensor by ``pack_hook(tensor)``.

        Raises: RuntimeError when hooks were set before or the value was freed; TypeError when a
        hook is not callable or the value is no tensor.
        """
        pack_saved(self._node, self._slot, pack_hook, unpack_hook)

    @property
    def data(self):
        """The saved value."""
        return read_saved(self._node, self._slot, self._name)


cdef int pack_saved(Node self, int slot, object pack, object unpack) except -1:
    cdef pb_saved *saved = node_saved(self.node) + slot
    cdef pb_saved before
    cdef object value
    if not callable(pack) or not callable(unpack):
        raise TypeError("register_hooks(): pack_hook and unpack_hook must be callable")
    node_check_alive(self.node)
    if slot >= self.node.nsaved:
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    if saved.kind == SAVED_PACKED:
        raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been "
                           "set. Hint: only one pair of hooks is allowed at a time.")
    if saved.kind in (SAVED_NONE, SAVED_OBJECT, SAVED_SHAPE):
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    value = saved_unpack(self.node, slot, "")
    cdef bint is_output = saved.kind == SAVED_OUTPUT
    before = saved[0]
    saved.kind = SAVED_NONE
    saved.storage = NULL
    saved.layout = NULL
    saved.node = NULL
    saved.object = NULL
    try:
        pack_into(self.node, slot, <Tensor>value, is_output, pack, unpack)
    except BaseException:
        saved_clear(saved)
        saved[0] = before
        raise
    saved_clear(&before)
    return 0


# ---- binding -------------------------------------------------------------------------------------

def bind_node(str name, value):
    """Put an attribute on the class Node."""
    (<dict>(<PyTypeObject *>Node).tp_dict)[name] = value
    PyType_Modified(<PyTypeObject *>Node)


def install():
    """Bind properties and methods to Tensor and Node."""
    for name, pair in {
            "requires_grad": (get_requires_grad, set_requires_grad),
            "grad": (get_grad, set_grad, lambda self: set_grad(self, None)),
            "grad_dtype": (get_grad_dtype, set_grad_dtype),
            "data": (data_alias, set_data)}.items():
        bind_attribute(name, property(*pair))
    for name, getter in {
            "is_leaf": get_is_leaf, "grad_fn": get_grad_fn, "output_nr": get_output_nr,
            "_version": get_version, "_base": get_base, "retains_grad": get_retains_grad}.items():
        bind_attribute(name, property(getter))
    for name, method in {
            "requires_grad_": requires_grad_, "detach_": detach_,
            "retain_grad": retain_grad}.items():
        bind_attribute(name, Method(method))
    for name, getter in {
            "next_functions": node_next_functions, "metadata": node_metadata,
            "variable": node_variable}.items():
        bind_node(name, property(getter))
    for name, method in {
            "name": node_name_of, "_sequence_nr": node_sequence,
            "__getattr__": node_getattr}.items():
        bind_node(name, Method(method))


class Method:
    """Makes a builtin function bind to instances as methods do."""

    def __init__(self, function):
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __get__(self, instance, owner):
        return self if instance is None else MethodType(self.function, instance)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __repr__(self):
        return f"<method {self.__name__}>"
