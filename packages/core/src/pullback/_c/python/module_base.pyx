"""What every call of a module and every access to its attributes goes through.

`nn.Module` is written in Python; here are its call without hooks, and the lookup of parameters,
buffers and submodules, which are attributes that are kept in dicts of their own.
"""

cimport cython
from cpython.dict cimport PyDict_Contains, PyDict_GetItem
from cpython.exc cimport PyErr_Fetch, PyErr_NormalizeException, PyErr_Restore
from cpython.object cimport PyObject, PyObject_GenericSetAttr
from cpython.ref cimport Py_XDECREF

from pullback._c.base.state cimport globals_, pb_globals
from pullback._c.graph.tensor cimport is_tensor

__all__ = ["ModuleBase", "observe_module_calls", "set_call_hooked", "set_note_failure"]

cdef extern from "Python.h":
    # With `suppress` a missing attribute gives NULL without an AttributeError.
    PyObject *_PyObject_GenericGetAttrWithDict(
        object, object, PyObject *, int suppress) except? NULL
    PyObject **_PyObject_GetDictPtr(object)
    PyObject *_PyType_Lookup(type, object)      # through the cache of types; borrowed
    int delete_attribute "PyObject_GenericSetAttr"(object, object, PyObject *) except -1
    PyObject *call_or_null "PyObject_Call"(object, object, PyObject *)

# The dicts with members, in the order in which a name is looked up.
cdef tuple MEMBERS = ("_parameters", "_buffers", "_modules")
# A call with an entry in one of these goes through `_call_impl`.
cdef tuple HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks",
                    "_forward_pre_hooks")
cdef pb_globals *process = globals_()


def set_call_hooked(bint hooked):
    """Say that every call of every module goes through ``_call_impl``, for hooks of all modules."""
    process.module_hooks = hooked


cdef object own_call = None             # nn.Module._call_impl


def set_own_call(function):
    """Set what runs where a subclass has no ``_call_impl`` of its own."""
    global own_call
    own_call = function


# Pairs of functions around every call; None: there are none.
cdef tuple observers = None


def observe_module_calls(begin, end):
    """Call ``begin(module)`` before every call of a module, and ``end()`` after it.

    Calls are properly nested in each thread, also where a module raises. Returns a function that
    ends the observation.

    >>> import pullback
    >>> names = []
    >>> stop = pullback.backend.observe_module_calls(
    ...     lambda module: names.append(type(module).__name__), lambda: None)
    >>> _ = pullback.nn.Sequential(pullback.nn.Identity())(1)
    >>> stop()
    >>> names
    ['Sequential', 'Identity']
    """
    global observers
    pair = (begin, end)
    observers = (*(observers or ()), pair)

    def stop():
        global observers
        observers = tuple([other for other in observers or () if other is not pair]) or None

    return stop


cdef object observed(function, ModuleBase self, tuple args, dict kwargs):
    """Call a function of a module between the observers' functions."""
    begun = []
    try:
        for begin, end in observers:
            begin(self)
            begun.append(end)
        return function(*args, **kwargs)
    except BaseException as error:
        if note_failure is not None:
            note_failure(self, error)
        raise
    finally:
        for end in reversed(begun):
            end()


cdef object note_failure = None


def set_note_failure(function):
    """Set the function that an error of a module's call is given to: ``function(module, error)``.

    It adds what the traceback should say of the module, and must not raise.
    """
    global note_failure
    note_failure = function


cdef int fail(ModuleBase self) except -1:
    """Let the raised error say which module it is from."""
    cdef PyObject *kind = NULL
    cdef PyObject *error = NULL
    cdef PyObject *traceback = NULL
    if note_failure is None:
        return -1
    PyErr_Fetch(&kind, &error, &traceback)
    PyErr_NormalizeException(&kind, &error, &traceback)
    try:
        note_failure(self, <object>error)
    finally:
        PyErr_Restore(kind, error, traceback)
    return -1


cdef PyObject *member_of(ModuleBase self, name):
    """Return the dict of members with a name, or NULL."""
    cdef PyObject **attributes = _PyObject_GetDictPtr(self)
    cdef PyObject *members
    if attributes == NULL or attributes[0] == NULL:
        return NULL
    for kind in MEMBERS:
        members = PyDict_GetItem(<object>attributes[0], kind)
        if members != NULL and PyDict_Contains(<object>members, name):
            return members
    return NULL


@cython.auto_pickle(False)              # the attributes are the state
cdef class ModuleBase:
    """The compiled base of ``nn.Module``."""

    cdef dict __dict__
    cdef object __weakref__

    def __call__(self, *args, **kwargs):
        cdef PyObject **attributes = _PyObject_GetDictPtr(self)
        cdef PyObject *hooks
        cdef PyObject *result
        cdef bint hooked = process.module_hooks != 0
        for name in HOOKS:
            hooks = NULL
            if attributes[0] != NULL:
                hooks = PyDict_GetItem(<object>attributes[0], name)
            if hooks == NULL:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            hooked = hooked or <object>hooks
        if (hooked or PyDict_Contains(<object>attributes[0], "_compiled_call_impl")
                or _PyType_Lookup(type(self), "_call_impl") != <PyObject *>own_call):
            run = self._wrapped_call_impl
        else:
            run = self.forward
        if observers is not None:
            return observed(run, self, args, kwargs)
        result = call_or_null(run, args, <PyObject *>kwargs)
        if result == NULL:
            fail(self)
        returned = <object>result
        Py_XDECREF(result)              # Cython counted a new reference
        return returned

    def __getattribute__(self, name):
        cdef PyObject *found = _PyObject_GenericGetAttrWithDict(self, name, NULL, 1)
        cdef PyObject *members
        if found != NULL:
            result = <object>found
            Py_XDECREF(found)           # Cython counted a new reference
            return result
        if _PyType_Lookup(type(self), "__getattr__") == own_getattr:
            members = member_of(self, name)
            if members != NULL:
                return (<dict>members)[name]
        raise AttributeError            # the text comes from __getattr__, which is called now

    # nn.Module has the next three functions as `__getattr__`, `__setattr__` and `__delattr__`. A
    # compiled `__getattr__` would be called by `__getattribute__`, before that of a subclass, which
    # receives the names of members, too. With the other two in a compiled class,
    # `object.__setattr__(module, name, value)` would raise TypeError, with which programs set an
    # attribute that does not become a member.

    def _missing_attribute(self, name):
        cdef PyObject *members = member_of(self, name)
        if members != NULL:
            return (<dict>members)[name]
        from pullback._help.names import missing_member
        raise missing_member("torch.nn.Module", name, self, type(self))

    def _set_attribute(self, name, value):
        if is_tensor(value) or isinstance(value, ModuleBase) or member_of(self, name) != NULL:
            if self._set_member(name, value):
                return
        PyObject_GenericSetAttr(self, name, value)

    def _delete_attribute(self, name):
        cdef PyObject *members = member_of(self, name)
        if members == NULL:
            delete_attribute(self, name, NULL)
            return
        del (<dict>members)[name]
        self._non_persistent_buffers_set.discard(name)


cdef PyObject *own_getattr = _PyType_Lookup(ModuleBase, "_missing_attribute")
