# build: small
"""What an argument, or a tensor that a function refers to, must be in a later call."""

from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from collections import OrderedDict, defaultdict

from pullback.abi cimport PB_F64
from pullback._c.base.dtype cimport dtype as dtype_class
from pullback._c.base.dtype cimport dtype_itemsize, dtype_object
from pullback._c.base.layout cimport (
    layout_contiguous, layout_release, layout_retain, layout_same_shape, layout_same_strides,
    layout_shape_tuple)
from pullback._c.base.types cimport STORAGE_INFERENCE
from pullback._c.device.device cimport device as device_class
from pullback._c.graph.tensor cimport (
    TENSOR_IS_NUMBER, TENSOR_IS_WRAPPED, TENSOR_LAZY, Tensor, device_key, is_tensor, tensor_data,
    tensor_new, tensor_requires_grad)

from pullback._c.graph.size import Size

__all__ = ["fields_of", "has_fields", "is_plain"]

cdef Py_ssize_t dict_offset = (<type>Tensor).__dictoffset__     # the same in subclasses


def storage_part(Tensor tensor not None):
    """Return where in which memory a tensor begins, as text: the offset, and bytes in all."""
    return f"{tensor.offset} of {tensor.storage.nbytes} bytes"


# What Python code may ask a tensor for, beside what its spec has, and what is compared then.
cdef dict ASKED = {
    "grad_fn": lambda tensor: type(tensor.grad_fn),
    "output_nr": lambda tensor: tensor.output_nr,
    "_version": lambda tensor: tensor._version,
    "retains_grad": lambda tensor: tensor.retains_grad,
    "is_shared": lambda tensor: tensor.is_shared(),
    "_backward_hooks": lambda tensor: tensor._backward_hooks is None,
    **dict.fromkeys(("_base", "_is_view"), lambda tensor: tensor._base is None),
    **dict.fromkeys(
        ("as_strided", "as_strided_", "as_strided_scatter", "set_", "storage_offset",
         "untyped_storage", "storage", "_typed_storage"), storage_part),
}

cdef enum:
    MADE_AT_RUNTIME = 1 << 9            # Py_TPFLAGS_HEAPTYPE

cdef tuple PLAIN = (
    bool, int, float, complex, str, bytes, type(None), dtype_class, device_class, type(Ellipsis),
    slice, range)


cpdef bint is_plain(value):
    """Return True for values that are compared by value: numbers, texts, dtypes, devices."""
    return type(value) in PLAIN


cdef bint is_numpy_number(object value):
    """True for a scalar of NumPy; without an import of it."""
    return type(value).__module__ == "numpy" and hasattr(type(value), "__array_priority__") and (
        not hasattr(type(value), "__setitem__"))


cdef bint same_value(object value, object expected):
    """True for equal values of one type; numbers must have the same bits."""
    if value is expected:
        return True
    if type(value) is not type(expected):
        return False
    if type(value) is tuple:
        return len(value) == len(expected) and all(
            [same_value(one, other) for one, other in zip(value, expected)])
    if type(value) is slice:
        return same_value((value.start, value.stop, value.step),
                          (expected.start, expected.stop, expected.step))
    if type(value) is float or type(value) is complex or (
            not is_plain(value) and is_numpy_number(value)):
        return repr(value) == repr(expected)
    return value == expected


cdef class Spec:
    """What one argument, or an item of one, must be."""

    def __dealloc__(self):
        if self.layout != NULL:
            layout_release(self.layout)

    def __repr__(self):
        if self.kind == SPEC_TENSOR:
            attributes = [f" {name}={value!r}" for name, value in (self.attributes or {}).items()]
            return (f"{dtype_object(self.dtype).name}{list(layout_shape_tuple(self.layout))}"
                    f"{' requires_grad' if self.requires_grad else ''}"
                    f"{'' if self.is_leaf else ' with a history'}{''.join(attributes)}")
        if self.kind == SPEC_VALUE or self.kind == SPEC_NUMBER and self.value is not None:
            return repr(self.value)
        if self.kind == SPEC_NUMBER:
            return "float"
        if self.kind == SPEC_OBJECT:
            return f"<{type(self.value).__name__}>"
        return f"{self.type.__name__} of {len(self.items)}"


cdef Tensor number_tensor(double value, int type_id, int index):
    """Return a number as a tensor of a host device, which promotes as a number does."""
    cdef Tensor made = tensor_new(layout_contiguous(0, NULL), PB_F64, type_id, index)
    (<double *>tensor_data(made))[0] = value
    made.flags |= TENSOR_IS_NUMBER
    return made


cdef dict own_attributes(Tensor tensor):
    """Return the dict of a tensor's attributes, without making it; None if it has none."""
    cdef PyObject *found = (<PyObject **>(<char *><PyObject *>tensor + dict_offset))[0]
    return <dict>found if found != NULL and PyDict_Size(<dict>found) else None


cdef dict attributes_of(Tensor tensor, object names):
    """Return of a tensor what code that names these may read: attributes, and facts of ASKED."""
    cdef dict own = own_attributes(tensor)
    cdef dict found = {}
    if own is not None:
        found = {name: value for name, value in own.items() if name in names}
    for name in ASKED:
        if name in names:
            found[name] = ASKED[name](tensor)
    return found or None


cdef int note_attributes(Spec spec, Tensor tensor, object names) except -1:
    """Let a tensor have the attributes that it has now, of those that code names."""
    spec.names = names
    spec.is_asked = not names.isdisjoint(ASKED)
    spec.attributes = attributes_of(tensor, names)


cdef bint same_attributes(dict some, dict others) except -1:
    """True for the same attributes: equal numbers and texts, and the same objects."""
    if some is None or others is None:
        return some is others
    if len(some) != len(others):
        return False
    for name, value in some.items():
        if name not in others or not (value is others[name] or (
                is_plain(value) and same_value(others[name], value))):
            return False
    return True


cdef Spec spec_of(object value, str where, list tensors, dict numbers=None, object names=None):
    """Return what a value is, and append its tensors.

    ``numbers`` has of each place with a float that may vary a tensor of the device where it is
    needed, and gets the float's tensor. ``names`` are those of attributes that code may read of
    tensors.
    """
    cdef Spec made = Spec.__new__(Spec)
    cdef Tensor tensor
    made.type = type(value)
    made.where = where
    if is_tensor(value):
        tensor = <Tensor>value
        made.kind = SPEC_TENSOR
        made.layout = layout_retain(tensor.layout)
        made.dtype = tensor.dtype
        made.device = device_key(tensor)
        made.flags = tensor.flags & (TENSOR_LAZY | TENSOR_IS_WRAPPED)
        made.requires_grad = tensor_requires_grad(tensor)
        made.is_leaf = tensor.node == NULL
        made.inference = tensor.storage.flags & STORAGE_INFERENCE != 0
        if names is not None:
            note_attributes(made, tensor, names)
        tensors.append(tensor)
    elif made.type is tuple or made.type is Size or (
            isinstance(value, tuple) and hasattr(value, "_fields")):
        made.kind = SPEC_TUPLE
        made.items = [spec_of(one, f"{where}[{i}]", tensors, numbers, names)
                      for i, one in enumerate(value)]
    elif made.type is list:
        made.kind = SPEC_LIST
        made.items = [spec_of(one, f"{where}[{i}]", tensors, None, names)
                      for i, one in enumerate(value)]
    elif made.type is dict or made.type is OrderedDict or made.type is defaultdict:
        made.kind = SPEC_DICT
        made.value = getattr(value, "default_factory", None)
        made.keys = tuple(value)
        made.items = [spec_of(one, f"{where}[{key!r}]", tensors, numbers, names)
                      for key, one in value.items()]
    elif has_fields(value):
        made.kind = SPEC_FIELDS
        made.keys = tuple(fields_of(value))
        made.items = [spec_of(one, f"{where}.{key}", tensors, None, names)
                      for key, one in fields_of(value).items()]
    elif numbers is not None and where in numbers and made.type is float:
        made.kind = SPEC_NUMBER
        tensor = <Tensor>numbers[where]
        made.device_type = tensor.storage.device_type
        made.device_index = tensor.storage.device_index
        numbers[where] = number_tensor(value, made.device_type, made.device_index)
        tensors.append(numbers[where])
    else:
        made.kind = SPEC_OBJECT
        if is_plain(value) or is_numpy_number(value):
            made.kind = SPEC_VALUE
        made.value = value
    return made


cdef bint tensor_fits(Spec spec, Tensor tensor) except -1:
    if spec.names is not None and (
            spec.is_asked or spec.attributes is not None or own_attributes(tensor) is not None):
        if not same_attributes(spec.attributes, attributes_of(tensor, spec.names)):
            return False
    return (tensor.dtype == spec.dtype and device_key(tensor) == spec.device
            and tensor.flags & (TENSOR_LAZY | TENSOR_IS_WRAPPED) == spec.flags
            and tensor_requires_grad(tensor) == spec.requires_grad
            and (tensor.node == NULL) == spec.is_leaf
            and (tensor.storage.flags & STORAGE_INFERENCE != 0) == spec.inference
            and (tensor.layout == spec.layout
                 or layout_same_shape(tensor.layout, spec.layout)
                 and layout_same_strides(tensor.layout, spec.layout)))


cdef bint has_own_memory(Tensor tensor, Py_ssize_t owners) noexcept:
    """True if a tensor is all of its memory, which so many have, and which nobody else knows."""
    return (tensor.storage.owner == NULL and tensor.storage.memory == NULL and tensor.offset == 0
            and tensor.storage.data != NULL and tensor.storage.refcount <= owners
            and tensor.storage.nbytes == tensor.layout.numel * dtype_itemsize[tensor.dtype])


cpdef bint has_fields(value):
    """Return True for an instance of a dataclass that has its fields, and attributes, alone."""
    kind = type(value)
    if not hasattr(kind, "__dataclass_fields__") or isinstance(value, type) or (
            hasattr(value, "_parameters")):
        return False
    for base in kind.__mro__:
        if base is not object and not base.__flags__ & MADE_AT_RUNTIME:
            return False                # a container, or an exception
        slots = vars(base).get("__slots__", ())
        if slots and (kind.__dictoffset__ != 0 or not set(slots) <= set(kind.__dataclass_fields__)):
            return False
    return kind.__dictoffset__ != 0 or all(
        [hasattr(value, name) for name in kind.__dataclass_fields__])


cpdef dict fields_of(value):
    """Return the fields and attributes of an instance of a dataclass, by their names."""
    if type(value).__dictoffset__ != 0:
        return value.__dict__
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


cdef object items_of(Spec spec, object value):
    """Return what a container holds that is like one with a spec."""
    if spec.kind == SPEC_DICT:
        return value.values()
    return fields_of(value).values() if spec.kind == SPEC_FIELDS else value


cdef bint same_keys(object value, tuple keys) except -1:
    """True for a dict with these keys in this order."""
    if type(value) is OrderedDict:
        return same_value(tuple(value), keys)
    cdef Py_ssize_t position = 0, number = 0
    cdef PyObject *key
    cdef object expected
    if PyDict_Size(value) != PyTuple_GET_SIZE(keys):
        return False
    while number < PyTuple_GET_SIZE(keys) and PyDict_Next(value, &position, &key, NULL):
        expected = <object>PyTuple_GET_ITEM(keys, number)
        if key != <PyObject *>expected and not (
                is_plain(expected) and same_value(<object>key, expected)):
            return False
        number += 1
    return number == PyTuple_GET_SIZE(keys)


cdef bint has_repeated(Spec spec, object value, set seen) except -1:
    """True if a list, dict or dataclass that fits is there more than once."""
    if spec.items is None:
        return False
    if spec.kind != SPEC_TUPLE:
        if <size_t><PyObject *>value in seen:
            return True
        seen.add(<size_t><PyObject *>value)
    for one, item in zip(spec.items, items_of(spec, value)):
        if (<Spec>one).items is not None and has_repeated(<Spec>one, item, seen):
            return True
    return False


cdef bint fits(Spec spec, object value, list tensors):
    """True if a value is as it was; appends its tensors."""
    cdef Py_ssize_t i
    cdef PyObject *found
    if spec.kind == SPEC_TENSOR:
        if type(value) is not spec.type or not tensor_fits(spec, <Tensor>value):
            return False
        tensors.append(value)
        return True
    if spec.kind == SPEC_NUMBER:
        if type(value) is not float or spec.value is not None and not same_value(value, spec.value):
            return False
        tensors.append(number_tensor(value, spec.device_type, spec.device_index))
        return True
    if spec.kind == SPEC_VALUE:
        return same_value(value, spec.value)
    if spec.kind == SPEC_OBJECT:
        return value is spec.value
    if type(value) is not spec.type:
        return False
    if spec.kind == SPEC_TUPLE:
        if PyTuple_GET_SIZE(value) != PyList_GET_SIZE(spec.items):
            return False
        for i in range(PyTuple_GET_SIZE(value)):
            if not fits(<Spec>PyList_GET_ITEM(spec.items, i),
                        <object>PyTuple_GET_ITEM(value, i), tensors):
                return False
        return True
    if spec.kind == SPEC_LIST:
        if PyList_GET_SIZE(value) != PyList_GET_SIZE(spec.items):
            return False
        for i in range(PyList_GET_SIZE(spec.items)):
            if i >= PyList_GET_SIZE(value) or not fits(
                    <Spec>PyList_GET_ITEM(spec.items, i), (<list>value)[i], tensors):
                return False
        return True
    if spec.kind == SPEC_FIELDS:
        value = fields_of(value)
    elif spec.type is defaultdict and value.default_factory is not spec.value:
        return False
    if not same_keys(value, spec.keys):
        return False
    for i in range(PyList_GET_SIZE(spec.items)):
        found = PyDict_GetItem(value, spec.keys[i])
        if found == NULL or not fits(<Spec>PyList_GET_ITEM(spec.items, i), <object>found, tensors):
            return False
    return True


cdef str first_difference(Spec spec, object value):
    """Return which argument is not as it was, and how; None if all are."""
    cdef list unused = []
    if fits(spec, value, unused):
        return None
    if spec.items is not None and type(value) is spec.type:
        items = items_of(spec, value)
        for one, item in zip(spec.items, items if len(items) == len(spec.items) else ()):
            found = first_difference(one, item)
            if found is not None:
                return found
    return f"{spec.where}: {spec_of(value, spec.where, [])!r} instead of {spec!r}"


cdef bint differs_in_numbers(Spec spec, object value, set found):
    """True if a value is as it was but for floats in it; adds the places of those."""
    if spec.kind == SPEC_VALUE and type(spec.value) is float and type(value) is float:
        if not same_value(value, spec.value):
            found.add(spec.where)
        return True
    if spec.kind == SPEC_NUMBER and type(value) is float:
        found.add(spec.where)
        return True
    if spec.kind != SPEC_TUPLE and not (spec.kind == SPEC_DICT and spec.where == "kwargs"):
        return fits(spec, value, [])
    if type(value) is not spec.type or len(value) != len(spec.items):
        return False
    if spec.kind == SPEC_DICT and not same_keys(value, spec.keys):
        return False
    return all([differs_in_numbers(one, item, found) for one, item in zip(
        spec.items, items_of(spec, value))])


cdef int set_read(Spec spec, object value, set read) except -1:
    """Let numbers whose values were read be as they are."""
    if spec.kind == SPEC_NUMBER and spec.where in read:
        spec.value = value
    elif spec.kind == SPEC_TUPLE or spec.kind == SPEC_DICT:
        for one, item in zip(spec.items, items_of(spec, value)):
            set_read(one, item, read)
    return 0
