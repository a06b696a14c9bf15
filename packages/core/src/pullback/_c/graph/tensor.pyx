"""The tensor: sizes and strides over a storage, a dtype, and a history in the graph.

This module has memory, layout and lifetime. Ops, indexing, printing and the methods of autograd are
bound to the class by other modules.
"""

from cpython.object cimport (
    PyObject, PyTypeObject, destructor, inquiry, traverseproc, visitproc)
from cpython.ref cimport Py_DECREF, Py_XDECREF
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memset

from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.device.device cimport (
    DEVICE_CUDA, DEVICE_META, device_check_dtype, device_make, device_types)
from pullback._c.base.dtype cimport dtype_differentiable, dtype_itemsize, dtype_object
from pullback._c.base.layout cimport (
    layout_release, layout_retain, layout_same_shape, layout_shape_tuple, layout_strides_tuple)
from pullback._c.graph.node cimport gc_begin, node_dead, node_release, node_traverse, release_later
from pullback._c.base.state cimport (
    captured_key, captured_length, captured_size, globals_, overrides_on, pb_globals, process_pool)
from pullback._c.device.storage cimport storage_new, storage_release, storage_retain
from pullback._c.base.types cimport (
    STORAGE_INFERENCE, layout_shape, layout_strides, pb_layout, pb_node, pb_storage)

from pullback._c.graph.size import Size

__all__ = ["Tensor"]

cdef extern from "Python.h":
    void PyObject_GC_Del(void *object)
    void PyObject_GC_Track(void *object)
    void PyObject_GC_UnTrack(void *object)
    bint PyObject_GC_IsTracked(PyObject *object)
    void PyObject_ClearWeakRefs(PyObject *object)
    PyObject *_PyObject_GC_New(PyTypeObject *type)
    PyObject *_PyType_Lookup(PyTypeObject *type, object name)
    PyObject *PyObject_Init(PyObject *object, PyTypeObject *type)
    void PyType_Modified(PyTypeObject *type)
    int PyObject_GenericSetAttr(PyObject *object, PyObject *name, PyObject *value) except -1

cdef enum:
    FREELIST_LENGTH = 128

cdef pb_pool *pool = process_pool()
cdef pb_globals *process = globals_()
cdef Py_ssize_t dict_offset, weaklist_offset
cdef PyObject *free_objects[FREELIST_LENGTH]
cdef int free_count = 0


# ---- making --------------------------------------------------------------------------------------

cdef Tensor tensor_wrap(pb_storage *storage, pb_layout *layout, int64_t offset, int dtype):
    """Return a leaf over a storage and a layout; steals both counts."""
    global free_count
    cdef PyObject *object
    cdef Tensor self
    if free_count > 0:
        free_count -= 1
        object = free_objects[free_count]
        PyObject_Init(object, <PyTypeObject *>Tensor)
    else:
        object = _PyObject_GC_New(<PyTypeObject *>Tensor)
        if object == NULL:
            storage_release(storage)
            layout_release(layout)
            raise MemoryError()
    self = <Tensor>object
    Py_DECREF(self)                     # Cython counted a new reference
    self.storage = storage
    self.layout = layout
    self.node = NULL
    self.extra = NULL
    self.offset = offset
    self.output_nr = 0
    self.gc_mark = 0
    self.dtype = dtype
    self.flags = 0
    self.transform = process.transform
    (<PyObject **>(<char *>object + dict_offset))[0] = NULL
    (<PyObject **>(<char *>object + weaklist_offset))[0] = NULL
    return self


cdef Tensor tensor_new(pb_layout *layout, int dtype, int device_type, int device_index):
    """Return an uninitialised tensor of a layout; steals the layout's count."""
    cdef pb_storage *storage
    try:
        if device_type > DEVICE_CUDA:   # of a plugin, which may have stated its dtypes
            device_check_dtype(device_type, dtype)
        storage = storage_new(device_type, device_index, layout.numel * dtype_itemsize[dtype])
    except BaseException:
        layout_release(layout)
        raise
    return tensor_wrap(storage, layout, 0, dtype)


cdef Tensor tensor_alias(Tensor self):
    """Return a leaf over the same memory and version counter."""
    return tensor_over(self, storage_retain(self.storage), layout_retain(self.layout), self.offset)


cdef Tensor tensor_over(Tensor self, pb_storage *storage, pb_layout *layout, int64_t offset):
    """Return a leaf over other memory, of the dtype and lazy bits of `self`; steals both counts."""
    cdef Tensor made = tensor_wrap(storage, layout, offset, self.dtype)
    made.flags = self.flags & TENSOR_LAZY
    return made


# ---- subclasses ----------------------------------------------------------------------------------

cdef object disabled_override = None
cdef object call_of_class = None


def set_override(call, disabled):
    """Install the call of an override, and the ``__torch_function__`` that overrides nothing."""
    global call_of_class, disabled_override
    call_of_class = call
    disabled_override = disabled


cdef uint16_t override_flag(object kind) noexcept:
    """Return TENSOR_OVERRIDES for a class whose ``__torch_function__`` receives calls, else 0."""
    cdef PyObject *found = _PyType_Lookup(<PyTypeObject *>kind, "__torch_function__")
    if found == NULL or found == <PyObject *>disabled_override:
        return 0
    return TENSOR_OVERRIDES


cdef object overridden(str name, Tensor self):
    """Return what the override of an attribute gives: kept out of line."""
    return call_of_class(name, (self,))


cdef object overridden_with(str name, Tensor self, object argument):
    return call_of_class(name, (self, argument))


cdef inline bint is_overridden(Tensor self) noexcept:
    """True if a call with this tensor goes to a ``__torch_function__`` or to a mode."""
    return (self.flags | process.overrides) & TENSOR_OVERRIDES != 0 and (
        overrides_on(self.flags & TENSOR_OVERRIDES != 0))


cdef pb_tensor_extra *tensor_extra(Tensor self) except NULL:
    """Return the fields that few tensors have, allocated on first use."""
    if self.extra == NULL:
        self.extra = <pb_tensor_extra *>pb_pool_allocate(pool, sizeof(pb_tensor_extra))
        if self.extra == NULL:
            raise MemoryError()
        memset(self.extra, 0, sizeof(pb_tensor_extra))
        self.extra.grad_dtype = -1
        track(<PyObject *>self)
    return self.extra


cdef void track(PyObject *self) noexcept:
    if not PyObject_GC_IsTracked(self):
        PyObject_GC_Track(self)


cdef void tensor_set_node(Tensor self, pb_node *node, uint32_t output_nr) noexcept:
    """Make `self` output `output_nr` of `node`; steals one count, which may be NULL."""
    cdef pb_node *before = self.node
    self.node = node
    self.output_nr = output_nr
    if node != NULL and self.extra == NULL:     # a tensor with extra is tracked already
        track(<PyObject *>self)
    if before != NULL:
        node_release(before)


cdef bint view_requires_grad(Tensor self) noexcept nogil:
    """True if the base of a view requires grad, and the view's dtype is differentiable."""
    return (dtype_differentiable(self.dtype)
            and tensor_requires_grad(<Tensor>self.extra.base))


cdef void *tensor_data(Tensor self) noexcept nogil:
    """Return the address of the first element."""
    return <char *>self.storage.data + self.offset * dtype_itemsize[self.dtype]


# ---- freeing, and traversal by the garbage collector ---------------------------------------------

cdef void tensor_dealloc(PyObject *object) noexcept:
    global free_count
    PyObject_GC_UnTrack(object)
    if (<PyObject **>(<char *>object + weaklist_offset))[0] != NULL:
        PyObject_ClearWeakRefs(object)
    tensor_release(object)
    if Py_TYPE(object) == <PyTypeObject *>Tensor and free_count < FREELIST_LENGTH:
        free_objects[free_count] = object
        free_count += 1
    else:
        Py_TYPE(object).tp_free(object)


cdef extern from *:
    PyTypeObject *Py_TYPE(PyObject *object)
    ctypedef struct tensor_fields "struct __pyx_obj_8pullback_2_c_5graph_6tensor_Tensor":
        pb_storage *storage
        pb_layout *layout
        pb_node *node
        pb_tensor_extra *extra
        uint32_t gc_mark


cdef void tensor_release(PyObject *object) noexcept:
    """Release everything the tensor owns. Its count is 0: no reference to it may be made."""
    cdef tensor_fields *self = <tensor_fields *>object
    tensor_clear(object)
    if self.storage != NULL:
        storage_release(self.storage)
        self.storage = NULL
    if self.layout != NULL:
        layout_release(self.layout)
        self.layout = NULL


cdef void extra_release(tensor_fields *self) noexcept:
    cdef pb_tensor_extra *extra = self.extra
    self.extra = NULL
    if extra.grad != NULL:
        release_later(extra.grad)       # a chain of .grad must not recurse
    if extra.wrapper_state != NULL:
        release_later(extra.wrapper_state)
    if extra.accumulator != NULL and extra.accumulator.op == NULL:
        node_dead(extra.accumulator)    # its count is 0: the tensor owns it
    Py_XDECREF(extra.base)
    Py_XDECREF(extra.hooks)
    Py_XDECREF(extra.post_hooks)
    Py_XDECREF(extra.name)
    pb_pool_release(pool, extra)


cdef int tensor_traverse(PyObject *object, visitproc visit, void *arg) noexcept:
    cdef tensor_fields *self = <tensor_fields *>object
    cdef PyObject **attributes = <PyObject **>(<char *>object + dict_offset)
    cdef pb_tensor_extra *extra = self.extra
    if attributes[0] != NULL and visit(attributes[0], arg):
        return 1
    if extra != NULL:
        if extra.grad != NULL and visit(extra.grad, arg):
            return 1
        if extra.base != NULL and visit(extra.base, arg):
            return 1
        if extra.hooks != NULL and visit(extra.hooks, arg):
            return 1
        if extra.post_hooks != NULL and visit(extra.post_hooks, arg):
            return 1
        if extra.wrapper_state != NULL and visit(extra.wrapper_state, arg):
            return 1
    gc_begin(&self.gc_mark, visit)
    if self.node != NULL:
        return node_traverse(self.node, visit, arg)
    return 0


cdef int tensor_clear(PyObject *object) noexcept:
    """Break cycles: release history, hooks, gradient and attributes; keep memory and layout."""
    cdef tensor_fields *self = <tensor_fields *>object
    cdef PyObject **attributes = <PyObject **>(<char *>object + dict_offset)
    cdef pb_node *node = self.node
    cdef PyObject *held
    self.node = NULL
    if node != NULL:
        node_release(node)
    if self.extra != NULL:
        extra_release(self)
    if attributes[0] != NULL:
        held = attributes[0]
        attributes[0] = NULL
        release_later(held)             # a chain of attributes must not recurse
    return 0


# ---- the class -----------------------------------------------------------------------------------

cdef Late late = Late()


cdef class Late:
    pass


cdef bint is_seed_of(Tensor root, object gradient) noexcept:
    """True for None, and a tensor of the root's shape, dtype and device, without wrapper state."""
    if type(gradient) is not Tensor or (
            (root.flags | (<Tensor>gradient).flags) & TENSOR_IS_WRAPPED):
        return gradient is None
    return root.dtype == (<Tensor>gradient).dtype and same_device(root, <Tensor>gradient) and (
        layout_same_shape(root.layout, (<Tensor>gradient).layout))


cdef object (*run_from_root)(Tensor root, object gradient, bint keep_graph)


cdef void set_run_from_root(
        object (*function)(Tensor root, object gradient, bint keep_graph)) noexcept:
    """Install the backward pass from one tensor, of the engine."""
    global run_from_root
    run_from_root = function


cdef object (*read_item)(Tensor self, object key)
cdef int (*write_item)(Tensor self, object key, object value) except -1


cdef void set_indexing(object (*read)(Tensor self, object key),
                       int (*write)(Tensor self, object key, object value) except -1) noexcept:
    """Install the functions of indexing."""
    global read_item, write_item
    read_item = read
    write_item = write


def bind_late(**functions):
    """Install functions of other modules as special methods."""
    for name, function in functions.items():
        setattr(late, name, function)


def bind_attribute(str name, value):
    """Set an attribute of the class, which is not possible from Python for extension types."""
    (<dict>(<PyTypeObject *>Tensor).tp_dict)[name] = value
    PyType_Modified(<PyTypeObject *>Tensor)


def adopt(Tensor self not None, Tensor source not None):
    """Make a newly allocated tensor a leaf over the memory of another one."""
    cdef pb_storage *storage = storage_retain(source.storage)
    cdef pb_layout *layout = layout_retain(source.layout)
    if self.storage != NULL:
        storage_release(self.storage)
        layout_release(self.layout)
    self.storage = storage
    self.layout = layout
    self.offset = source.offset
    self.dtype = source.dtype
    self.flags = self.flags & ~TENSOR_LAZY | source.flags & TENSOR_LAZY


cdef int64_t wrap_dim(Tensor self, object dim, const char *op) except -1:
    cdef int64_t d = dim
    cdef int64_t ndim = self.layout.ndim if self.layout.ndim > 0 else 1
    if d < -ndim or d >= ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, "
                         f"{ndim - 1}], but got {d})")
    return d + ndim if d < 0 else d


cdef class Tensor:
    """An n-dimensional array of one dtype on one device, with a history in a graph.

    Make one with :func:`pullback.tensor`, :func:`pullback.zeros` and their like.

    >>> import pullback
    >>> x = pullback.tensor([[1., 2.], [3., 4.]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([[2., 4.],
            [6., 8.]])
    """

    def __cinit__(self, *args, **kwargs):
        self.storage = NULL
        if type(self) is not Tensor:
            self.flags = override_flag(type(self))
        late.new(self, args, kwargs)

    def __init__(self, *args, **kwargs):
        pass

    @property
    def shape(self):
        """The sizes of the dims, as a tuple."""
        if is_overridden(self):
            return overridden("shape.__get__", self)
        return tuple.__new__(Size, captured_size(layout_shape_tuple(self.layout)))

    @property
    def dtype(self):
        """The type of the elements."""
        if is_overridden(self):
            return overridden("dtype.__get__", self)
        return dtype_object(self.dtype)

    @property
    def device(self):
        """Where the memory is."""
        if is_overridden(self):
            return overridden("device.__get__", self)
        return tensor_device(self)

    @property
    def ndim(self):
        """The number of dims."""
        if is_overridden(self):
            return overridden("ndim.__get__", self)
        return self.layout.ndim

    @property
    def itemsize(self):
        """Bytes of one element."""
        if is_overridden(self):
            return overridden("itemsize.__get__", self)
        return dtype_itemsize[self.dtype]

    @property
    def nbytes(self):
        """Bytes of all elements."""
        if is_overridden(self):
            return overridden("nbytes.__get__", self)
        return captured_size(dtype_itemsize[self.dtype] * self.layout.numel)

    def dim(self):
        """Return the number of dims."""
        if is_overridden(self):
            return overridden("dim", self)
        return self.layout.ndim

    def numel(self):
        """Return the number of elements."""
        if is_overridden(self):
            return overridden("numel", self)
        return captured_size(self.layout.numel)

    def element_size(self):
        """Return the bytes of one element."""
        return dtype_itemsize[self.dtype]

    def size(self, dim=None):
        """Return all sizes, or the size of one dim.

        Raises: IndexError when ``dim`` is out of range.
        """
        if is_overridden(self):
            return call_of_class("size", (self,) if dim is None else (self, dim))
        if dim is None:
            return tuple.__new__(Size, captured_size(layout_shape_tuple(self.layout)))
        cdef int64_t d = wrap_dim(self, dim, "size")
        if self.layout.ndim == 0:
            raise IndexError("Dimension specified as 0 but tensor has no dimensions")
        return captured_size(layout_shape(self.layout)[d])

    def stride(self, dim=None):
        """Return the strides in elements, or the stride of one dim."""
        if is_overridden(self):
            return call_of_class("stride", (self,) if dim is None else (self, dim))
        if dim is None:
            return captured_size(layout_strides_tuple(self.layout))
        cdef int64_t d = wrap_dim(self, dim, "stride")
        if self.layout.ndim == 0:
            raise IndexError("Dimension specified as 0 but tensor has no dimensions")
        return captured_size(layout_strides(self.layout)[d])

    def storage_offset(self):
        """Return the offset of the first element in the storage, in elements."""
        return captured_size(self.offset)

    def is_floating_point(self):
        """Return True for float16, bfloat16, float32 and float64."""
        return dtype_object(self.dtype).is_floating_point

    def is_complex(self):
        """Return True for complex64 and complex128."""
        return dtype_object(self.dtype).is_complex

    def is_signed(self):
        """Return True if the dtype has negative values."""
        return dtype_object(self.dtype).is_signed

    def get_device(self):
        """Return the device's number; -1 on host devices."""
        index = tensor_device(self).index
        return -1 if index is None else index

    def is_conj(self):
        """Return True if the elements are the conjugates of the values in memory."""
        return self.flags & TENSOR_CONJ != 0

    def is_neg(self):
        """Return True if the elements are the negatives of the values in memory."""
        return self.flags & TENSOR_NEG != 0

    def is_inference(self):
        """Return True if the tensor was allocated in inference mode."""
        return self.storage.flags & STORAGE_INFERENCE != 0

    def _is_view(self):
        """Return True if the tensor is a view of another one."""
        return self.flags & TENSOR_IS_VIEW != 0

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Add the gradients of this tensor to the ``.grad`` of the leaves it depends on.

        ``gradient`` has the tensor's shape; None stands for 1 where there is one element. For the
        other arguments, and what is raised, see ``pullback.autograd.backward``.

        >>> import pullback
        >>> x = pullback.tensor(2., requires_grad=True)
        >>> (x * 5).backward()
        >>> x.grad
        tensor(5.)
        """
        if inputs is None and create_graph is False and is_seed_of(self, gradient) and (
                retain_graph is None or type(retain_graph) is bool):
            return run_from_root(self, gradient, retain_graph is True)
        return late.backward(self, gradient, retain_graph, create_graph, inputs)

    def __len__(self):
        if is_overridden(self):
            return overridden("__len__", self)
        if self.layout.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return captured_length(layout_shape(self.layout)[0])

    def __hash__(self):
        return <Py_ssize_t>(<size_t><PyObject *>self >> 4)

    def __getitem__(self, key):
        if is_overridden(self):
            return overridden_with("__getitem__", self, key)
        return read_item(self, captured_key(key))

    def __setitem__(self, key, value):
        if is_overridden(self):
            call_of_class("__setitem__", (self, key, value))
        else:
            write_item(self, captured_key(key), value)

    def __delitem__(self, key):
        raise TypeError("Tensor does not support deleting items")

    def __contains__(self, element):
        if is_overridden(self):
            return overridden_with("__contains__", self, element)
        return late.contains(self, element)

    def __iter__(self):
        captured_length(layout_shape(self.layout)[0] if self.layout.ndim else 0)
        return late.iterate(self)

    def __repr__(self):
        if is_overridden(self):
            return overridden("__repr__", self)
        return late.repr(self)

    def __format__(self, spec):
        if is_overridden(self):
            return overridden_with("__format__", self, spec)
        return late.format(self, spec)

    def __array__(self, dtype=None, copy=None):
        if is_overridden(self):
            return overridden_with("__array__", self, dtype)
        return late.array(self, dtype, copy)

    def __reduce_ex__(self, protocol):
        if is_overridden(self):
            return overridden_with("__reduce_ex__", self, protocol)
        return late.reduce(self, protocol)

    def __deepcopy__(self, memo):
        if is_overridden(self):
            return overridden_with("__deepcopy__", self, memo)
        return late.deepcopy(self, memo)

    def __setattr__(self, name, value):
        track(<PyObject *>self)         # an attribute can close a cycle
        PyObject_GenericSetAttr(<PyObject *>self, <PyObject *>name, <PyObject *>value)
        if name == "__class__":
            self.flags = self.flags & ~TENSOR_OVERRIDES | override_flag(type(self))

    def __delattr__(self, name):
        PyObject_GenericSetAttr(<PyObject *>self, <PyObject *>name, NULL)


cdef object tensor_device(Tensor self):
    if self.flags & TENSOR_IS_BATCHED:
        return device_of(self.extra.device_type, self.extra.device_index)
    return device_of(self.storage.device_type, self.storage.device_index)


cdef object device_of(int type_id, int index):
    """Return the device of a tensor; without an index where the type has one device."""
    if device_types()[type_id].host or (type_id == DEVICE_META and index == 0):
        return device_make(type_id, -1)
    return device_make(type_id, index)


dict_offset = (<type>Tensor).__dictoffset__     # the same in subclasses
weaklist_offset = (<type>Tensor).__weakrefoffset__
(<PyTypeObject *>Tensor).tp_dealloc = <destructor>tensor_dealloc
(<PyTypeObject *>Tensor).tp_traverse = <traverseproc>tensor_traverse
(<PyTypeObject *>Tensor).tp_clear = <inquiry>tensor_clear
