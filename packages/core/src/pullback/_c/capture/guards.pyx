# build: small
"""References that a function follows: what was found there must be there in a later call."""

from collections import OrderedDict

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint64_t

from pullback._c.capture.spec cimport is_plain, note_attributes, same_value, spec_of, tensor_fits
from pullback._c.graph.tensor cimport Tensor, is_tensor
from pullback._c.program.run_values cimport Option

__all__ = ["Guard"]

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
    PyTypeObject *Py_TYPE(object value)
    PyObject *PyFunction_GetCode(object function)
    PyObject *PyFunction_GetDefaults(object function)
    PyObject *PyFunction_GetKwDefaults(object function)
    uint64_t dict_version "pb_dict_version"(PyObject *dict) noexcept nogil


cdef object IGNORED = object()          # in GUARD_ITEMS


cdef Guard guard_of(int kind, object holder, object key, object expected, str where):
    """Return a guard for a reference to what is expected; of one kind of guard_kind."""
    cdef Guard made = Guard.__new__(Guard)
    made.kind = kind
    made.holder = holder
    made.key = key
    made.expected = expected
    made.where = where
    made.plain = is_plain(expected) or (
        kind == GUARD_ABSENT or kind == GUARD_CALL and type(expected) is tuple)
    if kind == GUARD_LENGTH:
        made.number = expected
    elif kind == GUARD_LIST:
        made.number = key
    if not made.plain and is_tensor(expected):
        made.spec = spec_of(expected, where, [])
        made.storage = (<Tensor>expected).storage
    return made


cdef tuple parts_of(object function):
    """Return what of a function may be replaced."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


cdef class Guard:
    """A reference that a function follows, and what was found there.

    What is expected there is the same object, or for plain values an equal one; a tensor must also
    have the same sizes, dtype and device.
    """

    cdef bint holds(self) except -1:
        return self.refers(True)

    cdef bint refers(self, bint as_it_was) except -1:
        """True if what was found is there; `as_it_was`: a tensor with its sizes, flags and so on.
        """
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
            if self.expected is IGNORED:        # nothing was in it
                return found == NULL
        elif self.kind == GUARD_CALL:
            value = self.holder()
            found = <PyObject *>value
        elif self.kind == GUARD_ITEMS:
            return same_items(self.holder, <tuple>self.key, <tuple>self.expected)
        elif self.kind == GUARD_FUNCTION:
            return (PyFunction_GetCode(self.holder) == PyTuple_GET_ITEM(self.expected, 0)
                    and or_none(PyFunction_GetDefaults(self.holder))
                    == PyTuple_GET_ITEM(self.expected, 1)
                    and or_none(PyFunction_GetKwDefaults(self.holder))
                    == PyTuple_GET_ITEM(self.expected, 2))
        elif self.kind == GUARD_CLASS:
            return <object>Py_TYPE(self.holder) is self.expected
        elif self.kind == GUARD_ABSENT:
            for name in <tuple>self.expected:
                if PyDict_GetItemWithError(self.holder, name) != NULL:
                    return False
            return True
        elif isinstance(self.holder, dict):
            return PyDict_Size(self.holder) == self.number
        else:
            return PyList_GET_SIZE(self.holder) == self.number      # GUARD_LENGTH
        if found == <PyObject *>self.expected:
            return self.spec is None or ((<Tensor>found).storage == self.storage
                                         and (not as_it_was
                                              or tensor_fits(self.spec, <Tensor>found)))
        return found != NULL and self.plain and same_value(<object>found, self.expected)

    cdef int name_attributes(self, object names) except -1:
        """Expect of a tensor the attributes that code with these names may read."""
        if self.spec is not None:
            note_attributes(self.spec, <Tensor>self.expected, names)
        return 0

    cdef bint outdated(self) except -1:
        """True if an object that was found is not there any more."""
        if self.kind != GUARD_ITEMS:
            return not self.plain and not self.refers(False)
        for key, expected in zip(self.key, self.expected):
            if not (is_plain(expected) or expected is IGNORED) and (
                    self.holder.get(key) is not expected):
                return True
        return False

    cdef list places(self):
        """Return the references, as text."""
        cdef str shown = self.where.removeprefix("vars(").removesuffix(")")
        if self.kind != GUARD_ITEMS or not self.key:
            return [self.where if self.kind != GUARD_ITEMS else f"len({self.where})"]
        if shown != self.where:
            return [f"{shown}.{key}" for key, value in zip(self.key, self.expected)
                    if value is not IGNORED]
        return [f"{shown}[{shown_key(key)}]" for key in self.key]

    cdef str difference(self):
        """Return which reference is not as it was."""
        cdef list places = self.places()
        if self.kind == GUARD_ITEMS and len(places) == len(self.holder):
            for place, item, expected in zip(places, self.holder.values(), self.expected):
                if not same_item(item, expected):
                    return place
        return self.where

    def __repr__(self):
        return f"<Guard {self.where}>"


cdef str shown_key(object key):
    """Return the key of a dict as text: of a tensor its class."""
    return repr(key) if is_plain(key) else f"<{type(key).__name__}>"


cdef inline PyObject *or_none(PyObject *value) noexcept:
    return value if value != NULL else <PyObject *>None


cdef bint same_item(object found, object expected) except -1:
    return expected is IGNORED or same_key(found, expected)


cdef bint same_key(object found, object expected) except -1:
    return found is expected or (is_plain(expected) and same_value(found, expected))


cdef bint same_items(object holder, tuple keys, tuple values) except -1:
    """True if a dict has these items in this order; values that are IGNORED may be others."""
    cdef Py_ssize_t position = 0, number = 0
    cdef PyObject *key
    cdef PyObject *value
    if PyDict_Size(holder) != PyTuple_GET_SIZE(keys):
        return False
    if keys and isinstance(holder, OrderedDict):        # it has an order of its own
        for (name, item), expected_name, expected in zip(list(holder.items()), keys, values):
            if not (same_key(name, expected_name) and same_item(item, expected)):
                return False
        return True
    while PyDict_Next(holder, &position, &key, &value):
        if number >= PyTuple_GET_SIZE(keys):
            return False
        if key != PyTuple_GET_ITEM(keys, number) and not same_key(<object>key, keys[number]):
            return False
        if value != PyTuple_GET_ITEM(values, number) and not same_item(
                <object>value, values[number]):
            return False
        number += 1
    return True


cdef class WatchedDict:
    """Guards of one dict: while it has not changed, only its tensors are looked at."""

    cdef bint hold(self) except -1:
        cdef Guard guard
        cdef uint64_t now = dict_version(<PyObject *>self.holder)
        cdef bint changed = now == 0 or now != self.version
        for guard in (self.guards if changed else self.tensors):
            if not guard.holds():
                return False
        self.version = now
        return True
