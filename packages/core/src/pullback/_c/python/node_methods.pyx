# build: small
"""Methods and properties of nodes, bound to their class: edges, metadata, saved values, calls."""

from collections import OrderedDict
from types import MethodType

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from pullback._c.engine.apply_node cimport node_apply
from pullback._c.base.dtype cimport dtype_object
from pullback._c.graph.op cimport Op
from pullback._c.base.layout cimport layout_retain, layout_same_shape, layout_shape_tuple
from pullback._c.device.storage cimport storage_original, storage_retain
from pullback._c.graph.node cimport (
    Node, node_extra, node_gradient_count, node_name, node_notes, node_object, node_of,
    saved_clear)
from pullback._c.graph.record cimport SliceWrite
from pullback._c.graph.saved cimport KeptTuple, node_check_alive, pack_into, saved_unpack
from pullback._c.base.state cimport capturing, globals_, refuse_capture, thread_state
from pullback._c.graph.tensor cimport Tensor, device_of, is_tensor, tensor_wrap
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_COPY_SLICES, NODE_HOOKED, NODE_OP, NODE_PYTHON, SAVED_NONE, SAVED_OBJECT,
    SAVED_OUTPUT, SAVED_PACKED, SAVED_SHAPE, SAVED_TENSOR, SAVED_TUPLE, node_edges, node_meta,
    node_saved, pb_meta, pb_node, pb_saved, pb_storage)

cdef extern from "Python.h":
    void PyType_Modified(PyTypeObject *type)


cdef object hook_table(PyObject **field):
    if field[0] == NULL:
        table = OrderedDict()
        Py_INCREF(table)
        field[0] = <PyObject *>table
    return <object>field[0]


def seed_description(Node node not None, unsigned int number):
    """Return shape, dtype and device of a forward output."""
    cdef pb_meta *meta
    if number >= node_of(node).noutputs:
        raise RuntimeError(f"{node_name(node.node)} has {node.node.noutputs} outputs, there is no "
                           f"number {number}")
    meta = node_meta(node.node) + number
    return (layout_shape_tuple(meta.layout), dtype_object(meta.dtype),
            device_of(meta.device_type, meta.device_index))


def node_name_of(Node self not None):
    """Return the name, such as ``MulBackward0``."""
    if self.node == NULL:
        return type(self).__name__
    if self.node == NULL:               # the ctx of a Function whose forward runs
        return type(self).__name__
    return "pullback::autograd::AccumulateGrad" if self.node.kind == NODE_ACCUMULATE else (
        node_name(self.node))


def node_next_functions(Node self not None):
    """The nodes that receive this node's gradients: one (Node, output number) per input."""
    cdef uint32_t i
    if self.node == NULL:
        return ()
    inert = inert_inputs(self.node)
    found = []
    for i in range(self.node.nedges):
        if i in inert:
            continue
        if node_edges(self.node)[i].node == NULL:
            found.append((None, 0))
        else:
            found.append((node_object(node_edges(self.node)[i].node),
                          node_edges(self.node)[i].nr))
    return tuple(found)


cdef object inert_inputs(pb_node *node):
    """Return the positions of tensor arguments without derivatives, such as indices and masks."""
    cdef Op op
    cdef int i
    if node.kind != NODE_OP or (<Op>node.op).list_arg >= 0:
        return ()
    op = <Op>node.op
    names = [name for joint in op.formulas for name in joint]
    return [i for i in range(op.ntensors) if op.arg_names[op.tensor_args[i]] not in names]


def node_inert_inputs(Node self not None):
    """Return the positions among the gradients that hooks receive which next_functions leaves out.
    """
    return inert_inputs(node_of(self))


def node_retained(Node self not None):
    """Return the outputs whose gradients retain_grad() keeps, if they are alive."""
    if node_of(self).extra == NULL or self.node.extra.retain == NULL:
        return []
    found = [reference() for reference in (<dict>self.node.extra.retain).values()]
    return [tensor for tensor in found if tensor is not None]


def node_metadata(Node self not None):
    """A dict for the user's own notes on this node."""
    if self.node == NULL:
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'metadata' before "
                             f"forward has ended")
    return node_notes(self.node)


def node_sequence(Node self not None):
    """Return the sequence number; of ready nodes, the one with the highest runs first."""
    return node_of(self).sequence


def node_hook_table(Node self not None, bint before):
    """Return the table of pre- or post-hooks of a node."""
    node_extra(node_of(self))
    if capturing() and (self.node.kind == NODE_ACCUMULATE
                        or self.node.sequence < globals_().capture.oldest):
        refuse_capture(b"a hook on a node from outside")
    self.node.flags |= NODE_HOOKED
    if before:
        return hook_table(&self.node.extra.pre_hooks)
    return hook_table(&self.node.extra.post_hooks)


def node_output_count(Node self not None):
    """Return the number of gradients that the node takes."""
    return 0 if self.node == NULL else node_gradient_count(self.node)


def node_variable(Node self not None):
    """The leaf of an accumulator."""
    if self.node == NULL or self.node.kind != NODE_ACCUMULATE:
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'variable'")
    return <object>self.node.op


def node_getattr(Node self not None, str name):
    """Return ``_saved_<name>`` and ``_raw_saved_<name>``; of a ctx ``_raw_saved_tensors``."""
    cdef Op op
    cdef pb_node *node = self.node
    if node != NULL and node.kind == NODE_OP:
        op = <Op>node.op
        if name.startswith("_saved_") and name[7:] in saved_names(op):
            return read_saved(self, op.saved_names.index(name_of(op, name[7:])), name[7:])
        if name.startswith("_raw_saved_") and name[11:] in saved_names(op):
            return raw_saved(self, op.saved_names.index(name_of(op, name[11:])), name[11:])
    if node != NULL and node.kind == NODE_PYTHON and name == "_raw_saved_tensors":
        node_check_alive(node)
        return tuple([raw_saved(self, index, "saved_tensors") for index in range(node.nsaved)])
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def node_dir(Node self not None):
    """Return the names of the attributes, those of saved values among them."""
    cdef list names = object.__dir__(self)
    if self.node != NULL and self.node.kind == NODE_OP:
        for name in saved_names(<Op>self.node.op):
            names += [f"_saved_{name}", f"_raw_saved_{name}"]
    return names


cdef list saved_names(Op op):
    return ["result" if name == "out" else name for name in op.saved_names]


cdef str name_of(Op op, str name):
    return "out" if name == "result" and "out" in op.saved_names else name


cdef SavedTensor raw_saved(Node self, int index, str name):
    cdef SavedTensor raw = <SavedTensor>SavedTensor.__new__(SavedTensor)
    raw.node = self
    raw.name = name
    raw.index = index
    return raw


cdef object read_saved(Node self, int index, str name):
    node_check_alive(self.node)
    return saved_unpack(self.node, index, name)


@cython.auto_pickle(False)
cdef class SavedTensor:
    """One saved value of a node; ``register_hooks(pack, unpack)`` packs it immediately.

    >>> import pullback
    >>> y = pullback.ones(2, requires_grad=True).exp()
    >>> y.grad_fn._raw_saved_result.data
    tensor([2.7183, 2.7183], grad_fn=<ExpBackward0>)
    """
    cdef Node node
    cdef int index
    cdef str name

    def __init__(self):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    def register_hooks(self, pack_hook, unpack_hook):
        """Replace the saved tensor by ``pack_hook(tensor)``.

        Raises: RuntimeError when hooks were set before or the value was freed; TypeError when a
        hook is not callable or the value is no tensor.
        """
        if self.node is None:
            self.__init__()
        pack_saved(self.node, self.index, pack_hook, unpack_hook)

    @property
    def data(self):
        """The saved value."""
        if self.node is None:
            self.__init__()
        return read_saved(self.node, self.index, self.name)


cdef int pack_saved(Node self, int index, object pack, object unpack) except -1:
    cdef pb_saved *saved = node_saved(self.node) + index
    cdef pb_saved before
    cdef object value
    if not callable(pack) or not callable(unpack):
        raise TypeError("register_hooks(): pack_hook and unpack_hook must be callable")
    node_check_alive(self.node)
    if index >= self.node.nsaved:
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    if saved.kind == SAVED_PACKED:
        raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been "
                           "set. Hint: only one pair of hooks is allowed at a time.")
    if saved.kind in (SAVED_NONE, SAVED_OBJECT, SAVED_SHAPE, SAVED_TUPLE):
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    value = saved_unpack(self.node, index, "")
    cdef bint is_output = saved.kind == SAVED_OUTPUT
    before = saved[0]
    saved.kind = SAVED_NONE
    saved.storage = NULL
    saved.layout = NULL
    saved.node = NULL
    saved.object = NULL
    try:
        pack_into(self.node, index, <Tensor>value, is_output, pack, unpack)
    except BaseException:
        saved_clear(saved)
        saved[0] = before
        raise
    saved_clear(&before)
    return 0


# ---- what diagnostics read -----------------------------------------------------------------------

def saved_entries(Node self not None):
    """Return the saved tensors and packed values of a node, unchecked: (name, kind, value).

    No hook runs, no version is compared and no tensor gets a history. The kinds: "leaf" and
    "object", the saved object itself; "snapshot", a new tensor over the saved memory; "packed", a
    tuple of what the pack hook returned, and the shape and dtype of what it packed.
    """
    cdef pb_node *node = self.node
    cdef pb_saved *saved
    cdef uint32_t i
    cdef list found = []
    if node == NULL:
        return found
    for i in range(node.nsaved):
        saved = node_saved(node) + i
        if saved.kind in (SAVED_NONE, SAVED_OBJECT, SAVED_SHAPE):
            continue
        name = f"saved_tensors[{i}]" if node.kind == NODE_PYTHON else (<Op>node.op).saved_names[i]
        if saved.kind == SAVED_TUPLE:
            kept = <KeptTuple>saved.object
            for k, value in enumerate(kept.values):
                if kept.versions[k] is not None:
                    found.append((f"{name}[{k}]", "object", value) if is_tensor(value)
                                 else (f"{name}[{k}]", "packed", (value, None, None)))
        elif saved.kind == SAVED_PACKED:
            found.append((name, "packed", (<object>saved.object, layout_shape_tuple(saved.layout),
                                           dtype_object(saved.dtype))))
        elif saved.kind == SAVED_TENSOR:
            found.append((name, "object" if (<Tensor>saved.object).node != NULL else "leaf",
                          <object>saved.object))
        else:
            found.append((name, "snapshot", tensor_wrap(
                storage_retain(saved.storage), layout_retain(saved.layout), saved.offset,
                saved.dtype)))
    return found


def memory_owners(Tensor tensor not None):
    """Return numbers of a tensor's memory, and of the storage that was allocated for it.

    (address of the tensor's storage, its owners, address of the allocated one, its owners, bytes).
    Both are the same unless the tensor's storage has a version counter of its own over the memory
    of another. Owners are tensors, saved values, storage objects, and storages over this one.
    """
    cdef pb_storage *memory = storage_original(tensor.storage)
    cdef int64_t nbytes = memory.nbytes
    if memory.extra != NULL and memory.extra.capacity > nbytes:
        nbytes = memory.extra.capacity
    return (<size_t>tensor.storage, tensor.storage.refcount, <size_t>memory, memory.refcount,
            nbytes)


def node_inside(Node self not None):
    """Return the op of a node; of an in-place write to a view the node of the op; else None."""
    if self.node != NULL and self.node.kind == NODE_OP:
        return <object>self.node.op
    if self.node != NULL and self.node.kind == NODE_COPY_SLICES:
        return node_object((<SliceWrite>self.node.op).inner)
    return None


def known_metadata(Node self not None):
    """Return the dict ``metadata`` of a node if there is one, else None."""
    if self.node == NULL or self.node.extra == NULL or self.node.extra.metadata == NULL:
        return None
    return <object>self.node.extra.metadata


# ---- calling -------------------------------------------------------------------------------------

def node_call(Node self not None, *grad_outputs):
    """Run this node alone on gradients of its outputs; returns those of its inputs.

    Gradients are tensors in the shapes of the outputs, or None. Operations are recorded as usual.
    Raises: TypeError for another number of gradients or anything but tensors; RuntimeError
    for a gradient of another shape, or when the saved values were freed.

    >>> import pullback
    >>> x = pullback.tensor([3.], requires_grad=True)
    >>> (x * x).grad_fn(pullback.tensor([1.]))
    (tensor([3.], grad_fn=<MulBackward0>), tensor([3.], grad_fn=<MulBackward0>))
    """
    cdef pb_node *node = self.node
    cdef PyObject **grads
    cdef uint32_t i
    cdef uint32_t count = 0 if node == NULL else node_gradient_count(node)
    if node == NULL or <uint32_t>len(grad_outputs) != count:
        raise TypeError(f"{self.name()}: expected {count} arguments, got {len(grad_outputs)} "
                        "instead")
    for i, value in enumerate(grad_outputs):
        if value is None:
            continue
        if not is_tensor(value):
            raise TypeError(f"{self.name()}: argument {i} is not a Tensor but "
                            f"{type(value).__name__}")
        if not layout_same_shape((<Tensor>value).layout, node_meta(node)[i].layout):
            raise RuntimeError(f"{self.name()}: the gradient of output {i} must have shape "
                               f"{list(layout_shape_tuple(node_meta(node)[i].layout))}, got "
                               f"{list(value.shape)}")
    grads = <PyObject **>calloc(node.noutputs + node.nedges, sizeof(PyObject *))
    if grads == NULL:
        raise MemoryError()
    try:
        for i, value in enumerate(grad_outputs):
            grads[i] = NULL if value is None else <PyObject *>value
        node_apply(node, grads, grads + node.noutputs, thread_state().grad_enabled, 0, NULL)
        found = [None if grads[node.noutputs + i] == NULL else <object>grads[node.noutputs + i]
                 for i in range(node.nedges)]
    finally:
        for i in range(node.nedges):
            Py_XDECREF(grads[node.noutputs + i])
        free(grads)
    return found[0] if len(found) == 1 else tuple(found)


# ---- binding -------------------------------------------------------------------------------------

def bind_node(str name, value):
    """Set an attribute of the class Node."""
    (<dict>(<PyTypeObject *>Node).tp_dict)[name] = value
    PyType_Modified(<PyTypeObject *>Node)


def install():
    """Bind properties and methods to Node."""
    for name, getter in {
            "next_functions": node_next_functions, "metadata": node_metadata,
            "variable": node_variable}.items():
        bind_node(name, property(getter))
    for name, method in {
            "name": node_name_of, "_sequence_nr": node_sequence, "__call__": node_call,
            "__dir__": node_dir, "__getattr__": node_getattr}.items():
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
