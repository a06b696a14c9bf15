# build: small
"""What a program depends on: the arguments of its call, modes, and what its function refers to.

Checked before each run, so all of it is compiled: a few nanoseconds for each argument and guard.
"""

from cpython.dict cimport PyDict_GetItem, PyDict_GetItemWithError, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from pullback.abi cimport PB_F64
from pullback._c.base.dtype cimport dtype as dtype_class
from pullback._c.base.dtype cimport dtype_default, dtype_itemsize, dtype_object
from pullback._c.base.layout cimport (
    layout_contiguous, layout_release, layout_retain, layout_same_shape, layout_same_strides,
    layout_shape_tuple)
from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.base.types cimport STORAGE_INFERENCE, pb_storage
from pullback._c.program.run_values cimport Option
from pullback._c.device.device cimport device as device_class
from pullback._c.device.device cimport device_type
from pullback._c.graph.tensor cimport (
    TENSOR_IS_NUMBER, TENSOR_IS_WRAPPED, TENSOR_LAZY, Tensor, device_key, is_tensor, tensor_data,
    tensor_new, tensor_requires_grad)

__all__ = ["Guard", "Signature", "is_plain"]

cdef extern from *:
    """
    /* A number that changes with each change of a dict, where CPython has one for attributes too;
       else 0. */
    #if PY_VERSION_HEX < 0x030D0000 && !defined(PYPY_VERSION)
    #define pb_dict_version(dict) (((PyDictObject *)(dict))->ma_version_tag)
    #else
    #define pb_dict_version(dict) ((void)(dict), (uint64_t)0)
    #endif
    """
    PyObject *PyCell_GET(object cell)
    uint64_t dict_version "pb_dict_version"(PyObject *dict) noexcept nogil

cdef pb_globals *process = globals_()

cdef enum guard_kind:
    GUARD_DICT
    GUARD_LIST
    GUARD_CELL
    GUARD_LENGTH
    GUARD_CALL

cdef enum:
    MANY = 32                           # arguments, of which not each is compared with each

cdef tuple PLAIN = (
    bool, int, float, complex, str, bytes, type(None), dtype_class, device_class, type(Ellipsis),
    slice, range)


def is_plain(value):
    """Return True for values that are compared by value: numbers, texts, dtypes, devices."""
    return type(value) in PLAIN


cdef bint same_value(object value, object expected):
    """True for equal values of one type; numbers must have the same bits."""
    if value is expected:
        return True
    if type(value) is not type(expected):
        return False
    if type(value) is float or type(value) is complex:
        return repr(value) == repr(expected)
    return value == expected


# ---- arguments -----------------------------------------------------------------------------------

cdef class Spec:
    """What one argument, or an item of one, must be."""

    def __dealloc__(self):
        if self.layout != NULL:
            layout_release(self.layout)

    def __repr__(self):
        if self.kind == SPEC_TENSOR:
            return (f"{dtype_object(self.dtype).name}{list(layout_shape_tuple(self.layout))}"
                    f"{' requires_grad' if self.requires_grad else ''}")
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


cdef Spec spec_of(object value, str where, list tensors, dict numbers=None):
    """Return what a value is, and append its tensors.

    ``numbers`` has of each place with a float that may vary a tensor of the device where it is
    needed, and gets the float's tensor.
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
        made.inference = tensor.storage.flags & STORAGE_INFERENCE != 0
        tensors.append(tensor)
    elif made.type is tuple or isinstance(value, tuple) and hasattr(value, "_fields"):
        made.kind = SPEC_TUPLE
        made.items = [spec_of(one, f"{where}[{i}]", tensors, numbers)
                      for i, one in enumerate(value)]
    elif made.type is list:
        made.kind = SPEC_LIST
        made.items = [spec_of(one, f"{where}[{i}]", tensors) for i, one in enumerate(value)]
    elif made.type is dict:
        made.kind = SPEC_DICT
        made.keys = tuple(value)
        made.items = [spec_of(one, f"{where}[{key!r}]", tensors, numbers)
                      for key, one in value.items()]
    elif numbers is not None and where in numbers and made.type is float:
        made.kind = SPEC_NUMBER
        tensor = <Tensor>numbers[where]
        made.device_type = tensor.storage.device_type
        made.device_index = tensor.storage.device_index
        numbers[where] = number_tensor(value, made.device_type, made.device_index)
        tensors.append(numbers[where])
    else:
        made.kind = SPEC_VALUE if is_plain(value) else SPEC_OBJECT
        made.value = value
    return made


cdef bint tensor_fits(Spec spec, Tensor tensor) noexcept:
    return (tensor.dtype == spec.dtype and device_key(tensor) == spec.device
            and tensor.flags & (TENSOR_LAZY | TENSOR_IS_WRAPPED) == spec.flags
            and tensor_requires_grad(tensor) == spec.requires_grad
            and (tensor.storage.flags & STORAGE_INFERENCE != 0) == spec.inference
            and (tensor.layout == spec.layout
                 or layout_same_shape(tensor.layout, spec.layout)
                 and layout_same_strides(tensor.layout, spec.layout)))


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
    if PyDict_Size(value) != PyList_GET_SIZE(spec.items) or tuple(value) != spec.keys:
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
    if spec.kind >= SPEC_TUPLE and type(value) is spec.type and len(value) == len(spec.items):
        items = value.values() if spec.kind == SPEC_DICT else value
        for one, item in zip(spec.items, items):
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
    if spec.kind == SPEC_DICT and tuple(value) != spec.keys:
        return False
    return all([differs_in_numbers(one, item, found) for one, item in zip(
        spec.items, value.values() if spec.kind == SPEC_DICT else value)])


cdef int set_read(Spec spec, object value, set read) except -1:
    """Let numbers whose values were read be as they are."""
    if spec.kind == SPEC_NUMBER and spec.where in read:
        spec.value = value
    elif spec.kind == SPEC_TUPLE or spec.kind == SPEC_DICT:
        for one, item in zip(spec.items, value.values() if spec.kind == SPEC_DICT else value):
            set_read(one, item, read)
    return 0


# ---- guards --------------------------------------------------------------------------------------

cdef class Guard:
    """A reference that a function follows, and what was found there.

    ``holder`` is a dict, a list, a cell or a function that reads it, ``key`` the place in it (None
    of a cell or function). What is expected there is the same object, or for plain values an equal
    one; a tensor must also have the same sizes, dtype and device. Of a list or dict with the key
    None the length is meant.
    """
    cdef readonly object holder, key
    cdef object expected
    cdef list options                   # instead of what is expected
    cdef Spec spec
    cdef int kind
    cdef Py_ssize_t number              # in a list, or the length
    cdef bint plain
    cdef pb_storage *storage            # of a tensor; borrowed: programs own those that they use
    cdef readonly str where

    def __init__(self, holder, key, expected, str where):
        self.holder = holder
        self.key = key
        self.expected = expected
        self.plain = is_plain(expected)
        self.where = where
        if callable(holder):
            self.kind = GUARD_CALL
            self.plain = self.plain or type(expected) in (frozenset, tuple)
        elif not isinstance(holder, (dict, list)):
            self.kind = GUARD_CELL
        elif key is None:
            self.kind = GUARD_LENGTH
            self.number = expected
        elif isinstance(holder, list):
            self.kind = GUARD_LIST
            self.number = key
        else:
            self.kind = GUARD_DICT
        if is_tensor(expected):
            self.spec = spec_of(expected, where, [])
            self.storage = (<Tensor>expected).storage

    cdef bint holds(self) except -1:
        cdef PyObject *found
        cdef Option option
        if self.options is not None:
            for option in self.options:
                if not option.holds():
                    return False
            return True
        if self.kind == GUARD_DICT:
            found = PyDict_GetItemWithError(self.holder, self.key)
        elif self.kind == GUARD_LIST:
            found = NULL
            if self.number < PyList_GET_SIZE(self.holder):
                found = <PyObject *>PyList_GET_ITEM(self.holder, self.number)
        elif self.kind == GUARD_CELL:
            found = PyCell_GET(self.holder)
        elif self.kind == GUARD_CALL:
            value = self.holder()
            found = <PyObject *>value
        elif isinstance(self.holder, dict):
            return PyDict_Size(self.holder) == self.number
        else:
            return PyList_GET_SIZE(self.holder) == self.number
        if found == <PyObject *>self.expected:
            return self.spec is None or ((<Tensor>found).storage == self.storage
                                         and tensor_fits(self.spec, <Tensor>found))
        return found != NULL and self.plain and same_value(<object>found, self.expected)

    def __repr__(self):
        return f"<Guard {self.where}>"


cdef class WatchedDict:
    """Guards of one dict: while it has not changed, only its tensors are looked at."""
    cdef object holder
    cdef uint64_t version               # at which all guards held; 0: unknown
    cdef list guards
    cdef list tensors                   # the guards of tensors among them

    cdef bint hold(self) except -1:
        cdef Guard guard
        cdef uint64_t now = dict_version(<PyObject *>self.holder)
        cdef bint changed = now == 0 or now != self.version
        for guard in (self.guards if changed else self.tensors):
            if not guard.holds():
                return False
        self.version = now
        return True


# ---- signatures ----------------------------------------------------------------------------------

cdef class Signature:
    """Arguments and modes of a call, and what its function refers to.

    ``tensors`` are those of the arguments, in the order in which programs take them. Floats at the
    places that ``numbers`` has are among them: see spec_of.
    """

    def __init__(self, tuple args not None, dict kwargs not None, dict numbers=None):
        cdef list tensors = []
        cdef pb_state *state = thread_state()
        self.args = spec_of(args, "args", tensors, numbers)
        self.kwargs = spec_of(kwargs, "kwargs", tensors, numbers)
        self.guards, self.watched_dicts, self.others = [], [], []
        self.tensors = tuple(tensors)
        self.grad_enabled = state.grad_enabled
        self.inference = state.inference
        self.layout_policy = state.layout_policy
        self.dtype = dtype_default()
        self.autocast = state.autocast
        memcpy(self.autocast_dtypes, state.autocast_dtypes, sizeof(self.autocast_dtypes))
        self.aliases = aliases_of(tensors)
        self.distances = [begin(<Tensor>tensors[i]) - begin(<Tensor>tensors[first])
                          for i, first in enumerate(self.aliases)]
        self.apart = False
        self.outer, self.shared = [], []

    def varying(self, tuple args not None, dict kwargs not None):
        """Return the places of floats in which alone a call differs; None if more does."""
        cdef set found = set()
        if differs_in_numbers(self.args, args, found) and (
                differs_in_numbers(self.kwargs, kwargs, found)):
            return found
        return None

    def fix(self, tuple args not None, dict kwargs not None, set read not None):
        """Let floats, by their places, be as they are in a call."""
        set_read(self.args, args, read)
        set_read(self.kwargs, kwargs, read)

    def overlaps(self, list guards not None):
        """Return True if tensors have memory in common without sharing their storages' begins."""
        for _, number, _ in relations_of(list(self.tensors), outer_of(guards)):
            if number < 0:
                return True
        return False

    def guard(self, list guards not None, bint apart, object options=()):
        """Set what the function refers to, and whether tensors must not share more memory.

        What programs read in each run may change.
        """
        cdef Guard guard
        cdef Option option
        cdef WatchedDict watched
        cdef dict read = {}, by_holder = {}
        for option in options:
            read.setdefault((id(option.group), option.key), []).append(option)
        for guard in guards if read else ():
            guard.options = read.get((id(guard.holder), guard.key))
        self.guards = guards
        self.watched_dicts = []
        self.others = []
        for guard in guards:
            if not isinstance(guard.holder, dict) or guard.options is not None:
                self.others.append(guard)
                continue
            watched = by_holder.get(id(guard.holder))
            if watched is None:
                watched = by_holder[id(guard.holder)] = WatchedDict.__new__(WatchedDict)
                watched.holder = guard.holder
                watched.guards, watched.tensors = [], []
                self.watched_dicts.append(watched)
            watched.guards.append(guard)
            if guard.spec is not None:
                watched.tensors.append(guard)
        self.apart = apart
        self.outer = outer_of(guards)
        if self.tensors:
            self.shared = relations_of(list(self.tensors), self.outer)
        self.tensors = ()           # the arguments are not kept alive

    def guard_as(self, Signature like not None, bint apart, object options):
        """Refer to what another call refers to; False if memory is shared in another way."""
        if relations_of(list(self.tensors), outer_of(like.guards)) != like.shared:
            return False
        self.guard(like.guards, apart, options)
        return True

    cpdef list match(self, tuple args, dict kwargs):
        """Return the tensors of a call that is alike, else None."""
        cdef list tensors = []
        cdef pb_state *state = thread_state()
        cdef Py_ssize_t i, first
        cdef Tensor tensor, other
        if (state.grad_enabled != self.grad_enabled or state.inference != self.inference
                or state.layout_policy != self.layout_policy or state.autocast != self.autocast
                or dtype_default() != self.dtype
                or state.autocast and memcmp(self.autocast_dtypes, state.autocast_dtypes, 32)):
            return None
        if not fits(self.args, args, tensors) or not fits(self.kwargs, kwargs, tensors):
            return None
        for i in range(len(tensors)):
            tensor = <Tensor>tensors[i]
            first = <Py_ssize_t>self.aliases[i]
            if first != i:
                other = <Tensor>tensors[first]
                if tensor.storage.data != other.storage.data or (
                        begin(tensor) - begin(other) != <int64_t>self.distances[i]):
                    return None
        if not are_aliased_as(tensors, self.aliases) or (
                self.apart and relations_of(tensors, self.outer) != self.shared):
            return None
        for i, first, distance in self.shared:
            tensor, other = <Tensor>tensors[i], <Tensor>self.outer[first]
            if tensor.storage.data != other.storage.data or (
                    begin(tensor) - begin(other) != <int64_t>distance):
                return None
        return tensors if self.holds() else None

    def takes(self, tuple args not None, dict kwargs not None):
        """Return True for arguments of these sizes, dtypes, devices and values."""
        return fits(self.args, args, []) and fits(self.kwargs, kwargs, [])

    def described(self):
        """Return what the arguments were, as text."""
        shown = [repr(one) for one in self.args.items]
        shown += [f"{key}={one!r}" for key, one in zip(self.kwargs.keys, self.kwargs.items)]
        return f"({', '.join(shown)}){'' if self.grad_enabled else ', no_grad'}"

    def watched(self):
        """Return the references that are watched, as text."""
        return [(<Guard>guard).where for guard in self.guards]

    def outdated(self):
        """Return True if an object that the function refers to was replaced by another."""
        cdef Guard guard
        for guard in self.guards:
            if not guard.plain and not guard.holds():
                return True
        return False

    cpdef bint holds(self) except -1:
        """Return True if everything that the function refers to is as it was."""
        cdef WatchedDict watched
        cdef Guard guard
        for watched in self.watched_dicts:
            if not watched.hold():
                return False
        for guard in self.others:
            if not guard.holds():
                return False
        return True

    def difference(self, tuple args not None, dict kwargs not None):
        """Return what is not alike in a call, as text; None if all is."""
        cdef pb_state *state = thread_state()
        cdef Guard guard
        found = first_difference(self.args, args)
        if found is None:
            found = first_difference(self.kwargs, kwargs)
        if found is not None:
            return found
        for guard in self.guards:
            if not guard.holds():
                return guard.where
        if state.grad_enabled != self.grad_enabled:
            return "the grad mode"
        if dtype_default() != self.dtype:
            return "the default dtype"
        if state.autocast or self.autocast:
            return "autocast"
        return "which arguments share memory"


cdef int64_t begin(Tensor tensor) noexcept:
    """Return the offset of a tensor in bytes."""
    return tensor.offset * dtype_itemsize[tensor.dtype]


cdef list outer_of(list guards):
    """Return the tensors that are watched, each once."""
    return list({id((<Guard>one).expected): (<Guard>one).expected
                 for one in guards if (<Guard>one).spec is not None}.values())


cdef bint overlap(pb_storage *one, pb_storage *other) noexcept:
    """True if two storages on the host have bytes in common, or are the same memory elsewhere."""
    if one.data == NULL or one.device_type != other.device_type:
        return False
    if not device_type(one.device_type).host:
        return one.data == other.data and one.device_index == other.device_index
    return (<char *>one.data < <char *>other.data + other.nbytes
            and <char *>other.data < <char *>one.data + one.nbytes)


cdef list relations_of(list tensors, list outer):
    """Return which tensors share memory with outer ones: (number, number, bytes between them).

    The second number is -1 where the memory of one begins inside that of the other, which may be
    another of the tensors.
    """
    cdef list found = []
    cdef Tensor tensor, other
    cdef Py_ssize_t i, k
    for i in range(len(tensors)):
        tensor = <Tensor>tensors[i]
        for k in range(i):
            other = <Tensor>tensors[k]
            if tensor.storage.data != other.storage.data and (
                    overlap(tensor.storage, other.storage)):
                found.append((i, -1, 0))
        for k in range(len(outer)):
            other = <Tensor>outer[k]
            if not overlap(tensor.storage, other.storage):
                continue
            if tensor.storage.data == other.storage.data:
                found.append((i, k, begin(tensor) - begin(other)))
            else:
                found.append((i, -1, 0))
    return found


cdef list aliases_of(list tensors):
    """Return of each tensor the number of the first one that has the same memory."""
    cdef dict seen = {}
    cdef list found = []
    cdef Tensor tensor
    for i, tensor in enumerate(tensors):
        if tensor.storage.data == NULL:
            found.append(i)
        else:
            found.append(seen.setdefault(<size_t>tensor.storage.data, i))
    return found


cdef bint are_aliased_as(list tensors, list aliases) except -1:
    """Return whether ``aliases_of`` some tensors are these."""
    cdef Py_ssize_t i, k, count = len(tensors)
    cdef void *data
    if count > MANY:
        return aliases_of(tensors) == aliases
    for i in range(1, count):
        data = (<Tensor>tensors[i]).storage.data
        k = 0
        while k < i and (data == NULL or (<Tensor>tensors[k]).storage.data != data):
            k += 1
        if k != <Py_ssize_t>aliases[i]:
            return False
    return True


cdef bint must_run_eagerly() noexcept:
    """True if this thread's calls run eagerly now, so that all of their ops are seen."""
    cdef pb_state *state = thread_state()
    return (process.capture != NULL or state.levels or process.anomaly or state.saved_hooks != NULL
            or process.overrides)
