# build: small
"""Methods and properties of tensors for autograd, bound to their class."""

import warnings
import weakref

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF

from pullback._c.ops.create import data_alias
from pullback._c.python.node_methods import Method
from pullback._c.graph.record import set_move_retained
from pullback._c.graph.tensor import bind_attribute
from pullback._c.ops.clone import is_contiguous
from pullback._c.graph.levels cimport batch_of
from pullback._c.base.dtype cimport dtype_code, dtype_differentiable, dtype_object
from pullback._c.engine.accumulate cimport is_sparse
from pullback._c.engine.engine cimport run_pass
from pullback._c.engine.grad_utils cimport (
    check_not_batched, check_not_in_transform, implicit_seed, why_no_grad)
from pullback._c.base.layout cimport (
    layout_release, layout_retain, layout_same_shape, layout_shape_tuple, layout_strides_tuple)
from pullback._c.graph.node cimport Node, node_extra, node_object, node_release, node_set_meta
from pullback._c.python.node_methods cimport hook_table
from pullback._c.graph.record cimport (
    bump_version, says_requires_grad, tensor_edge, tensor_needs_grad)
from pullback._c.base.state cimport (
    GRAD_ADDED, GRAD_CLEARED, GRAD_READ, GRAD_SET, HOOKED, LEAF_MADE, captured_change,
    captured_read, capturing, globals_, refuse_capture, thread_state)
from pullback._c.device.storage cimport storage_release, storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_LAZY, TENSOR_REQUIRES_GRAD, TENSOR_RETAINS_GRAD,
    Tensor, is_tensor, same_device, set_run_from_root, tensor_data, tensor_device, tensor_extra,
    tensor_set_node)
from pullback._c.base.types cimport (
    NODE_HOOKED, STORAGE_INFERENCE, pb_edge, pb_node, pb_storage)


cdef extern from *:
    """
    #include <Python.h>
    static Py_ssize_t pb_type_size(PyObject *object) {
        return Py_TYPE(object)->tp_basicsize;
    }
    static void pb_swap_types_and_attributes(PyObject *a, PyObject *b) {
        PyTypeObject *type = Py_TYPE(a);
        PyObject **one = (PyObject **)((char *)a + type->tp_dictoffset);    /* the same in all */
        PyObject **other = (PyObject **)((char *)b + type->tp_dictoffset);
        PyObject *attributes = *one;
        *one = *other;
        *other = attributes;
        Py_SET_TYPE(a, Py_TYPE(b));
        Py_SET_TYPE(b, type);
    }
    """
    Py_ssize_t pb_type_size(object tensor)
    void pb_swap_types_and_attributes(object a, object b)


# ---- requires_grad and history -------------------------------------------------------------------

def get_requires_grad(Tensor self not None):
    """Whether operations on this tensor are recorded."""
    if self.flags & TENSOR_IS_BATCHED:
        return get_requires_grad(batch_of(self))
    return bool(says_requires_grad(self))


def set_requires_grad(Tensor self not None, value):
    """Change the flag of a leaf."""
    if not isinstance(value, bool):
        raise RuntimeError(f"requires_grad must be a bool, not {type(value).__name__}")
    if value and self.node != NULL:
        raise RuntimeError("you can only change requires_grad flags of leaf variables.")
    change_requires_grad(self, value)


cdef int change_requires_grad(Tensor self, bint value) except -1:
    if self.flags & TENSOR_IS_BATCHED:
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using "
            "pullback.autograd.functional.* APIs) inside of a function being transformed by vmap. "
            "This is unsupported, please attempt to use the function transforms (e.g. grad, vjp, "
            "jacrev, jacfwd, hessian) or call requires_grad_() outside of a function being "
            "transformed instead.")
    says_requires_grad(self)            # updates a view's history to its base's
    if self.node != NULL:
        if not value:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you "
                               "want to use a computed variable in a subgraph that doesn't require "
                               "differentiation use var_no_grad = var.detach().")
        return 0
    if value and not dtype_differentiable(self.dtype):
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require "
                           f"gradients, got {dtype_object(self.dtype).name}")
    if value and self.storage.flags & STORAGE_INFERENCE and not thread_state().inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode "
                           "is not allowed.")
    if value:
        if not self.flags & TENSOR_REQUIRES_GRAD:
            captured_change(<PyObject *>self, LEAF_MADE)
        self.flags |= TENSOR_REQUIRES_GRAD
    else:
        self.flags &= ~TENSOR_REQUIRES_GRAD
    return 0


def requires_grad_(Tensor self not None, requires_grad=True):
    """Change whether operations on this leaf are recorded; returns the tensor.

    Raises: RuntimeError for non-leaves and for dtypes without derivatives.
    """
    if not isinstance(requires_grad, bool):
        raise TypeError(f"requires_grad_(): argument 'requires_grad' must be bool, not "
                        f"{type(requires_grad).__name__}")
    if requires_grad and not dtype_differentiable(self.dtype):
        raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got "
                           f"{dtype_object(self.dtype).name}")
    change_requires_grad(self, requires_grad)
    return self


def require_grad_of_new(Tensor self not None):
    """Set requires_grad of a new tensor, for factories; returns it."""
    if not dtype_differentiable(self.dtype):
        raise RuntimeError(f"Only Tensors of floating point and complex dtype can require "
                           f"gradients, got {dtype_object(self.dtype).name}")
    change_requires_grad(self, True)
    return self


def get_is_leaf(Tensor self not None):
    """Whether the tensor is a leaf: no recorded operation made it."""
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
    says_requires_grad(self)            # updates a view's history to its base's
    return self.output_nr if self.node != NULL else 0


def get_version(Tensor self not None):
    """The number of in-place writes to the memory."""
    if self.storage.flags & STORAGE_INFERENCE:
        raise RuntimeError("Inference tensors do not track version counter.")
    return self.storage.version


def get_base(Tensor self not None):
    """The tensor of which this one is a view, or None."""
    if not self.flags & TENSOR_IS_VIEW:
        return None
    return <object>self.extra.base


def increment_version_of(Tensor self not None):
    """Count an in-place write by another library."""
    bump_version(self, -1)


def detach_(Tensor self not None):
    """Detach the tensor from its history in place; returns it.

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
    """Replace the memory; identity, history and version stay."""
    cdef Tensor source
    cdef pb_storage *storage
    if not is_tensor(value):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    source = <Tensor>value
    if (self.flags | source.flags) & TENSOR_IS_BATCHED:
        raise RuntimeError("assigning to `data` under vmap transform is not allowed")
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
    self.flags = self.flags & ~TENSOR_LAZY | source.flags & TENSOR_LAZY
    if self.extra != NULL and self.extra.accumulator != NULL:
        update_accumulator(self)


cdef int update_accumulator(Tensor self) except -1:
    """Set the metadata of the leaf's accumulator to the new memory's."""
    node_set_meta(self.extra.accumulator, 0, self.layout, self.dtype, self.storage)
    return 0


def get_post_accumulate_hooks(Tensor self not None):
    """The post-accumulate hooks of a leaf by number, or None."""
    if self.extra == NULL or self.extra.post_hooks == NULL:
        return None
    return <object>self.extra.post_hooks


def get_backward_hooks(Tensor self not None):
    """The hooks of a tensor by number, or None."""
    if self.node == NULL:
        return None if self.extra == NULL or self.extra.hooks == NULL else <object>self.extra.hooks
    if self.node.extra == NULL or self.node.extra.tensor_hooks == NULL:
        return None
    return {number: entry[1] for number, entry in (<object>self.node.extra.tensor_hooks).items()
            if entry[0] == self.output_nr}


cdef object raise_on_deletion(str message):
    def delete(self):
        raise RuntimeError(message)

    return delete


# ---- .grad ---------------------------------------------------------------------------------------

def get_grad(Tensor self not None):
    """The accumulated gradient, or None."""
    captured_change(<PyObject *>self, GRAD_READ)
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
    captured_change(<PyObject *>self, GRAD_CLEARED if value is None else GRAD_SET)
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
    if not same_device(grad, self) and not (
            is_sparse(<PyObject *>grad) and grad.device == self.device):
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


def clear_grad(Tensor self not None):
    """Drop the gradient."""
    set_grad(self, None)


def get_grad_dtype(Tensor self not None):
    """The dtype that gradients are cast to; None turns the check off."""
    if self.extra == NULL or self.extra.grad_dtype == -1:
        return dtype_object(self.dtype)
    return None if self.extra.grad_dtype == -2 else dtype_object(self.extra.grad_dtype)


def set_grad_dtype(Tensor self not None, value):
    """Set the dtype of ``.grad``."""
    if self.node != NULL:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    tensor_extra(self)
    if self.extra.grad != NULL and value is not None:
        if (<Tensor>self.extra.grad).dtype != dtype_code(value, "grad_dtype"):
            raise RuntimeError("Cannot set grad_dtype while there is a gradient of another dtype. "
                               "Set .grad to None first.")
    self.extra.grad_dtype = -2 if value is None else dtype_code(value, "grad_dtype")


# ---- hooks ---------------------------------------------------------------------------------------

cdef int note_hook(Tensor self) except -1:
    """Let a capture know that a tensor gets a hook; on one from outside it cannot replay that."""
    if capturing():
        if self.node == NULL:
            captured_change(<PyObject *>self, HOOKED)
        elif self.node.sequence < globals_().capture.oldest:
            refuse_capture(b"a hook on a tensor from outside, or retain_grad() of it")
    return 0


def tensor_hook_table(Tensor self not None):
    """Return the table of this tensor's hooks, and the number of its output at the node."""
    if not tensor_needs_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    note_hook(self)
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
    note_hook(self)
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
    note_hook(self)
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
    """Move retain_grad() to the tensor's new node after an in-place op."""
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
    """Return the edge (Node, output number) that the tensor's gradient flows to, or None."""
    cdef pb_edge edge
    tensor_edge(self, &edge)
    if edge.node == NULL:
        return None
    try:
        return node_object(edge.node), edge.nr
    finally:
        node_release(edge.node)


def accumulate_in_place_of(Tensor self not None, Tensor grad not None):
    """Accumulate a captured gradient into .grad, for backward(inputs=[...]) of a non-leaf."""
    captured_change(<PyObject *>self, GRAD_ADDED)
    if self.extra != NULL and self.extra.grad != NULL:
        set_grad(self, <object>self.extra.grad + grad)
    else:
        set_grad(self, grad.clone() if tensor_needs_grad(grad) else grad.detach().clone())


def is_set_to(Tensor self not None, tensor):
    """Return True if both tensors have the same memory, offset, sizes and strides."""
    cdef Tensor other
    if not is_tensor(tensor):
        raise TypeError(f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not "
                        f"{type(tensor).__name__}")
    other = <Tensor>tensor
    return (self.storage.data == other.storage.data and self.offset == other.offset
            and (self.storage == other.storage or self.storage.data != NULL)
            and layout_same_shape(self.layout, other.layout)
            and layout_strides_tuple(self.layout) == layout_strides_tuple(other.layout))


def swap_tensors(t1, t2):
    """Exchange memory, history, attributes and class of two tensors; the objects stay.

    Raises: TypeError when an argument is no tensor; RuntimeError when a weak reference to one
    exists, or their classes have different slots.

    >>> import pullback
    >>> x, y = pullback.zeros(2), pullback.ones(3)
    >>> pullback.utils.swap_tensors(x, y)
    >>> x, y
    (tensor([1., 1., 1.]), tensor([0., 0.]))
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if not is_tensor(tensor):
            raise TypeError(f"swap_tensors(): {name} must be Tensor, not {type(tensor).__name__}")
        if weakref.getweakrefcount(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    if pb_type_size(t1) != pb_type_size(t2):
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    if t1 is not t2:
        exchange(<Tensor>t1, <Tensor>t2)


cdef int exchange(Tensor a, Tensor b) except -1:
    """Exchange the fields of two tensors, and the leaf of each live accumulator."""
    tensor_extra(a)                     # both become objects of the collector
    tensor_extra(b)
    a.storage, b.storage = b.storage, a.storage
    a.layout, b.layout = b.layout, a.layout
    a.node, b.node = b.node, a.node
    a.extra, b.extra = b.extra, a.extra
    a.offset, b.offset = b.offset, a.offset
    a.output_nr, b.output_nr = b.output_nr, a.output_nr
    a.dtype, b.dtype = b.dtype, a.dtype
    a.flags, b.flags = b.flags, a.flags
    a.transform, b.transform = b.transform, a.transform
    pb_swap_types_and_attributes(a, b)
    for tensor in (a, b):
        own_accumulator(<Tensor>tensor)
    return 0


cdef int own_accumulator(Tensor self) except -1:
    """Make the accumulator of a leaf that a graph refers to add into this object."""
    cdef pb_node *node = self.extra.accumulator
    cdef PyObject *before
    if node == NULL or node.op == NULL or node.op == <PyObject *>self:
        return 0
    before = node.op
    Py_INCREF(self)
    node.op = <PyObject *>self
    Py_DECREF(<object>before)
    return 0


def data_ptr(Tensor self not None):
    """Return the address of the first element; 0 if there is none.

    Raises: RuntimeError for a tensor that ``vmap`` has wrapped as a batch.

    >>> import pullback
    >>> x = pullback.zeros(3)
    >>> x[1:].data_ptr() - x.data_ptr()
    4
    """
    if self.flags & TENSOR_IS_BATCHED:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    captured_read(self.storage, b"data_ptr()")
    return <size_t>tensor_data(self) if self.storage.data != NULL else 0


# ---- backward ------------------------------------------------------------------------------------

cdef object run_from_root(Tensor root, object gradient, bint keep_graph):
    """Run a backward pass from one tensor to the leaves; the default gradient is 1."""
    cdef pb_edge edge
    edge.node = NULL
    check_not_in_transform()
    check_not_batched(root)
    try:
        tensor_edge(root, &edge)
        if edge.node == NULL:
            raise RuntimeError(why_no_grad(0, root))
        seed = implicit_seed(&edge) if gradient is None else gradient
        run_pass(&edge, 1, [seed], keep_graph, False, False, 0, True)
    finally:
        if edge.node != NULL:
            node_release(edge.node)


def install():
    """Bind properties and methods to Tensor."""
    set_run_from_root(run_from_root)
    for name, pair in {
            "requires_grad": (get_requires_grad, set_requires_grad,
                              raise_on_deletion("requires_grad must be a bool")),
            "grad": (get_grad, set_grad, clear_grad),
            "grad_dtype": (get_grad_dtype, set_grad_dtype),
            "_grad_fn": (get_grad_fn, None, raise_on_deletion(
                "Deletion of _grad_fn not allowed. Detach tensor instead!")),
            "_backward_hooks": (get_backward_hooks, None, raise_on_deletion(
                "Deletion of _backward_hooks not allowed!")),
            "_post_accumulate_grad_hooks": (get_post_accumulate_hooks, None, raise_on_deletion(
                "Deletion of _post_accumulate_grad_hooks not allowed!")),
            "data": (data_alias, set_data, raise_on_deletion(
                "Deleting tensor data is not allowed. Delete tensor instead!"))}.items():
        bind_attribute(name, property(*pair))
    for name, getter in {
            "is_leaf": get_is_leaf, "grad_fn": get_grad_fn, "output_nr": get_output_nr,
            "_version": get_version, "_base": get_base, "retains_grad": get_retains_grad}.items():
        bind_attribute(name, property(getter))
    for name, method in {
            "requires_grad_": requires_grad_, "detach_": detach_, "retain_grad": retain_grad,
            "is_contiguous": is_contiguous, "data_ptr": data_ptr}.items():
        bind_attribute(name, Method(method))
