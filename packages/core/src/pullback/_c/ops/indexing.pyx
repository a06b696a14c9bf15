"""Indexing with [ ]: ints, slices, None and ... become views; tensors go to the op `index`."""

from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject

from libc.stdint cimport int64_t

from pullback.abi cimport PB_BOOL, PB_I64
from pullback._c.dispatch.call cimport op_apply, op_apply_inplace
from pullback._c.base.dtype cimport dtype_object, dtype_of_scalar
from pullback._c.graph.op cimport Op, op_named
from pullback._c.base.layout cimport layout_same_shape, small_int
from pullback._c.graph.overrides cimport is_overriding
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_OVERRIDES, Tensor, call_of_class, is_tensor, same_device,
    set_indexing)
from pullback._c.base.types cimport layout_shape

cdef extern from "Python.h":
    ctypedef struct PySliceObject:
        PyObject *start
        PyObject *stop
        PyObject *step

cdef Op SELECT, SLICE, UNSQUEEZE, ALIAS, FILL, COPY, INDEX


def install():
    """Look up the ops that indexing calls."""
    global SELECT, SLICE, UNSQUEEZE, ALIAS, FILL, COPY, INDEX
    SELECT, SLICE = op_named("select"), op_named("slice")
    UNSQUEEZE, ALIAS = op_named("unsqueeze"), op_named("alias")
    FILL, COPY, INDEX = op_named("fill_"), op_named("copy_"), op_named("index")


cdef object select(Tensor self, int where, object index):
    cdef PyObject *args[3]
    cdef object dim = where
    cdef int64_t at, size
    if self.layout.ndim == 0:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to "
                         "convert a 0-dim tensor to a number")
    size = layout_shape(self.layout)[where] if where < self.layout.ndim else 0
    if not small_int(index, &at) and not small_int(int(index), &at):
        at = size                       # larger than 64 bits
    if at < -size or at >= size:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
    args[0] = <PyObject *>self
    args[1] = <PyObject *>dim
    args[2] = <PyObject *>index
    return op_apply(SELECT, args)


cdef object one = 1                     # the interned int, which defaults are too


cdef object slice_dim(Tensor self, int where, object bounds, bint always=False):
    """self[bounds] along a dim; for ``:`` the tensor itself, unless ``always``."""
    cdef PyObject *args[5]
    cdef object dim = where
    cdef object start = as_bound(<object>(<PySliceObject *>bounds).start)
    cdef object stop = as_bound(<object>(<PySliceObject *>bounds).stop)
    cdef object step = <object>(<PySliceObject *>bounds).step
    step = one if step is None else as_bound(step)
    if step is one:
        if start is None and stop is None and not always:
            return self
    elif step <= 0:
        raise ValueError("step must be greater than zero")
    args[0] = <PyObject *>self
    args[1] = <PyObject *>dim
    args[2] = <PyObject *>start
    args[3] = <PyObject *>stop
    args[4] = <PyObject *>step
    return op_apply(SLICE, args)


cdef object as_bound(object value):
    if value is None or type(value) is int:
        return value
    if not PyIndex_Check(value):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    return PyNumber_Index(value)


cdef object unsqueeze(Tensor self, int where):
    cdef PyObject *args[2]
    cdef object dim = where
    args[0] = <PyObject *>self
    args[1] = <PyObject *>dim
    return op_apply(UNSQUEEZE, args)


cdef int dims_used(object item) except -1:
    """Return the number of dims that one item of a key indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if is_tensor(item) and (<Tensor>item).dtype == 0:
        return (<Tensor>item).layout.ndim
    return 1


cdef dict noted(dict advanced, int dim, object item):
    """Add an advanced item to the mapping, which is None before the first."""
    if advanced is None:
        return {dim: item}
    advanced[dim] = item
    return advanced


cdef tuple basic_part(Tensor self, tuple key):
    """Apply ints, slices, None and ...; return (view, {dim: index tensor or bool} or None).

    Advanced items keep their dim and are returned in the mapping.
    """
    cdef object result = self
    cdef dict advanced = None
    cdef int used = 0, dim = 0
    for item in key:
        used += dims_used(item)
    if used > self.layout.ndim and not (self.layout.ndim == 0 and type(key[0]) is int):
        raise IndexError(f"too many indices for tensor of dimension {self.layout.ndim}")
    for item in key:
        check_left(<Tensor>result, item, dim)
        if type(item) is int:
            result = select(<Tensor>result, dim, item)
        elif type(item) is slice:
            result = slice_dim(<Tensor>result, dim, item)
            dim += 1
        elif item is None:
            result = unsqueeze(<Tensor>result, dim)
            dim += 1
        elif item is Ellipsis:
            dim += self.layout.ndim - used
        elif isinstance(item, bool):
            result = unsqueeze(<Tensor>result, dim)
            advanced = noted(advanced, dim, item)
            dim += 1
        elif is_tensor(item):
            if (<Tensor>item).dtype == 0:
                check_mask(<Tensor>item, <Tensor>result, dim)
            advanced = noted(advanced, dim, item)
            dim += dims_used(item)
            if (<Tensor>item).layout.ndim == 0 and (<Tensor>item).dtype == 0:
                result = unsqueeze(<Tensor>result, dim)
                dim += 1
        elif PyIndex_Check(item):
            result = select(<Tensor>result, dim, PyNumber_Index(item))
        else:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                             "Variables are valid indices (got "
                             f"{type(item).__name__})")
    return result, advanced


cdef int check_left(Tensor self, object item, int dim) except -1:
    """Raise for an item of a key past the last dim: each ... takes all remaining dims."""
    if dim + dims_used(item) > self.layout.ndim and type(item) is not int:
        raise IndexError(f"too many indices for tensor of dimension {self.layout.ndim} (got "
                         f"{dim + dims_used(item)})")
    return 0


cdef int check_mask(Tensor mask, Tensor self, int dim) except -1:
    cdef int d
    for d in range(mask.layout.ndim):
        if layout_shape(mask.layout)[d] != layout_shape(self.layout)[dim + d]:
            raise IndexError(f"The shape of the mask {list(mask.shape)} at index {d} does not "
                             f"match the shape of the indexed tensor {list(self.shape)} at index "
                             f"{dim + d}")
    return 0


# Set by bind(): normalizes other keys, and runs advanced indexing.
cdef object normalize_key = None
cdef object advanced_getitem = None
cdef object advanced_setitem = None


def bind(normalize, read, write):
    """Install the functions for lists, arrays and index tensors."""
    global normalize_key, advanced_getitem, advanced_setitem
    normalize_key = normalize
    advanced_getitem = read
    advanced_setitem = write


cdef bint is_plain(object key) noexcept:
    """True for a tuple of ints, slices, None and ..., which needs no normalization."""
    if type(key) is not tuple:
        return False
    for item in <tuple>key:
        if not (type(item) is int or type(item) is slice or item is None or item is Ellipsis):
            return False
    return True


cdef bint are_indices(Tensor self, tuple key) except -1:
    """True for a tuple of index tensors and masks that the op `index` takes."""
    cdef Tensor index
    cdef int used = 0
    if self.flags & TENSOR_IS_BATCHED:
        return False
    for item in key:
        if not is_tensor(item):
            return False
        index = <Tensor>item
        if (index.layout.ndim == 0 or index.flags & (TENSOR_IS_BATCHED | TENSOR_OVERRIDES)
                or (index.dtype != PB_I64 and index.dtype != PB_BOOL)
                or not same_device(index, self)):
            return False
        used += dims_used(item)
    if used == 0 or used > self.layout.ndim:
        return False
    used = 0
    for item in key:
        if (<Tensor>item).dtype == PB_BOOL:
            check_mask(<Tensor>item, self, used)
        used += dims_used(item)
    return True


cdef object getitem(Tensor self, object key):
    """Return self[key]: a view for ints, slices, None and ..., else a copy."""
    cdef object result
    cdef PyObject *args[2]
    if type(key) is int:
        return select(self, 0, key)
    if type(key) is slice and self.layout.ndim > 0:
        return slice_dim(self, 0, key, True)
    if is_tensor(key):
        key = (key,)
    if type(key) is tuple and are_indices(self, <tuple>key):
        args[0] = <PyObject *>self
        args[1] = <PyObject *>key
        return op_apply(INDEX, args)
    if is_plain(key):
        result, advanced = basic_part(self, key)
    elif is_overriding(key):
        return call_of_class("__getitem__", (self, key))
    else:
        result, advanced = basic_part(self, normalize_key(self, key))
    if advanced:
        return advanced_getitem(result, advanced)
    if result is self:
        return op_alias(self)
    return result


cdef object NOT_BLOCKING = False      # an object: <PyObject *>False would be NULL


cdef int setitem(Tensor self, object key, object value) except -1:
    """self[key] = value, broadcast and cast as torch does."""
    cdef object part, advanced = None
    cdef PyObject *args[3]
    if is_overriding(value):
        call_of_class("__setitem__", (self, key, value))
        return 0
    value = assigned_value(self, value)
    if key is False:
        return 0                        # an empty selection: as in torch, any value is accepted
    if key is True:
        part = unsqueeze(self, 0)
    elif type(key) is int:
        part = select(self, 0, key)
    elif type(key) is slice and self.layout.ndim > 0:
        part = slice_dim(self, 0, key)
    elif is_plain(key):
        part, advanced = basic_part(self, key)
    elif is_overriding(key):
        call_of_class("__setitem__", (self, key, value))
        return 0
    else:
        part, advanced = basic_part(self, normalize_key(self, key))
    if advanced:
        advanced_setitem(part, advanced, value)
        return 0
    if is_tensor(value):
        value = fitted(<Tensor>value, <Tensor>part)
    args[0] = <PyObject *>part
    args[1] = <PyObject *>value
    args[2] = <PyObject *>NOT_BLOCKING
    op_apply_inplace(COPY if is_tensor(value) else FILL, args)
    return 0


cdef object assigned_value(Tensor self, object value):
    """Convert the value of an assignment to a tensor or a Python number."""
    if is_tensor(value) or dtype_of_scalar(value) >= 0:
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()            # NumPy numbers
        if dtype_of_scalar(value) >= 0:
            return value
    raise TypeError(f"can't assign a {type(value).__name__} to a {dtype_object(self.dtype)} tensor")


cdef object fitted(Tensor value, Tensor part):
    """Return a value in the shape of the part that it is assigned to."""
    cdef int d, extra = value.layout.ndim - part.layout.ndim
    if layout_same_shape(value.layout, part.layout):
        return value
    for d in range(extra):
        if layout_shape(value.layout)[d] != 1:
            return op_named("expand")(value, part.shape)        # raises
    if extra > 0:
        value = op_named("reshape")(value, value.shape[extra:])
    return op_named("expand")(value, part.shape)


cdef object op_alias(Tensor self):
    cdef PyObject *args[1]
    args[0] = <PyObject *>self
    return op_apply(ALIAS, args)


set_indexing(getitem, setitem)
