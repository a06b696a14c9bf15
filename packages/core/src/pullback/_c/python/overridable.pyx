# build: small
"""Functions and attributes of Python code that ``__torch_function__`` can override.

Ops and operators test their arguments themselves. Everything else that overrides receive is wrapped
in one of the classes here: `install` does it for the methods and properties of Tensor.
"""

from types import BuiltinFunctionType, FunctionType, MethodType

from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.base.vectorcall cimport (
    Py_TPFLAGS_METHOD_DESCRIPTOR, PyObject_Vectorcall, PyVectorcall_NARGS, pb_make_callable)
from pullback._c.dispatch.call cimport OpMethod
from pullback._c.graph.overrides cimport call_override, is_overriding, modes_enabled
from pullback._c.graph.tensor cimport Tensor
from pullback._c.graph.overrides import default_override, keep_results_of
from pullback._c.graph.tensor import bind_attribute
from pullback._c.python.node_methods import Method
from pullback._help import explain_members

__all__ = ["Attribute", "Overridable", "OverridableMethod", "install", "wrap"]

cdef pb_globals *process = globals_()


cdef object call_overridable(PyObject *self, PyObject *const *args, size_t nargsf,
                             PyObject *names):
    cdef Overridable function = <Overridable>self
    cdef Py_ssize_t i, given = PyVectorcall_NARGS(nargsf)
    cdef Py_ssize_t named = 0 if names == NULL else PyTuple_GET_SIZE(<object>names)
    cdef bint overridden = process.overrides != 0 and modes_enabled()
    cdef pb_state *state
    cdef int before
    if function.by_arguments:
        for i in range(given + named):
            overridden = overridden or (
                type(<object>args[i]) is not Tensor and is_overriding(<object>args[i]))
    if not overridden and function.by_arguments:
        return PyObject_Vectorcall(function.__wrapped__, args, nargsf, names)
    if not overridden and given and has_elements_elsewhere(<object>args[0]):
        return PyObject_Vectorcall(function.__wrapped__, args, nargsf, names)
    if not overridden:
        state = thread_state()
        before = state.overrides_off
        state.overrides_off = max(before, 1)
        try:
            return PyObject_Vectorcall(function.__wrapped__, args, nargsf, names)
        finally:
            state.overrides_off = before
    kwargs = None
    if named:
        kwargs = {<object>PyTuple_GET_ITEM(<object>names, i): <object>args[given + i]
                  for i in range(named)}
    return call_override(function, tuple([<object>args[i] for i in range(given)]), kwargs)


cdef bint has_elements_elsewhere(object value) except -1:
    """True for a tensor of a class that must see each call: its own memory means nothing."""
    return (type(value) is not Tensor and is_overriding(value)
            and getattr(type(value), "_elements_elsewhere", False))


cdef class Overridable:
    """A function that overrides of its arguments, or only modes, receive the calls of.

    >>> import pullback
    >>> pullback.equal
    <function pullback.equal>
    """

    cdef void *vectorcall
    cdef readonly object __wrapped__
    cdef bint by_arguments
    cdef dict __dict__

    def __init__(self, function, name, bint by_arguments=True):
        self.vectorcall = <void *>call_overridable
        self.__wrapped__ = function
        self.by_arguments = by_arguments
        self.__doc__ = function.__doc__
        self.__name__ = self.__qualname__ = name
        self.__module__ = "pullback"

    def __get__(self, instance, owner):
        return self

    def __repr__(self):
        return f"<function {self.__module__}.{self.__name__}>"

    def __reduce__(self):
        return self.__name__


cdef class OverridableMethod(Overridable):
    """A method of Tensor, which overrides of its arguments receive the calls of."""

    @property
    def __objclass__(self):
        return Tensor

    def __get__(self, instance, owner):
        return self if instance is None else MethodType(self, instance)

    def __repr__(self):
        return f"<function pullback.Tensor.{self.__name__}>"

    def __reduce__(self):
        return getattr, (Tensor, self.__name__)


cdef class Attribute:
    """A property of Tensor that overrides receive as ``Tensor.name.__get__`` and ``__set__``."""

    cdef readonly object fget
    cdef readonly object fset
    cdef readonly object fdel
    cdef readonly str __name__
    cdef readonly object __doc__
    cdef readonly object __objclass__

    def __init__(self, function, str name):
        self.fget, self.fset, self.fdel = function.fget, function.fset, function.fdel
        self.__name__ = name
        self.__doc__ = function.__doc__
        self.__objclass__ = Tensor

    def __get__(self, instance, owner):
        if instance is None:
            return self
        if (process.overrides != 0 and modes_enabled()) or is_overriding(instance):
            return call_override(self.__get__, (instance,), None)
        return self.fget(instance)

    def __set__(self, instance, value):
        if (process.overrides != 0 and modes_enabled()) or is_overriding(instance):
            call_override(self.__set__, (instance, value), None)
        elif self.fset is None:
            raise AttributeError(f"attribute '{self.__name__}' of 'pullback.Tensor' objects is not "
                                 f"writable")
        else:
            if self.__name__ == "data" and is_overriding(value):
                value = value.view_as(value)    # an override may compute the elements
            self.fset(instance, value)

    def __delete__(self, instance):
        if self.fdel is None:
            raise AttributeError(f"attribute '{self.__name__}' of 'pullback.Tensor' objects cannot "
                                 f"be deleted")
        self.fdel(instance)


# Methods that test their tensor themselves, and those that are not overridden.
cdef frozenset NOT_WRAPPED = frozenset((
    "__torch_function__", "__init__", "__new__", "__setattr__", "__delattr__", "__delitem__",
    "__hash__", "__iter__", "__buffer__", "__release_buffer__",
    "__getitem__", "__setitem__", "__len__", "__contains__", "__repr__", "__format__", "__array__",
    "__reduce_ex__", "__deepcopy__", "dim", "numel", "size", "stride",
    "_make_subclass", "_make_wrapper_subclass", "as_subclass", "_repr_html_"))


def torch_function(cls, function, types, args=(), kwargs=None):
    """Run a function that has been overridden, with the results as instances of the class.

    Subclasses call it as ``super().__torch_function__(func, types, args, kwargs)``.
    """
    return default_override(cls, function, types, args, kwargs)


def wrap(dict namespace not None, tuple names not None, bint by_arguments=True):
    """Make functions of a module overridable; with ``by_arguments=False`` by modes alone."""
    for name in names:
        made = namespace[name] = Overridable(namespace[name], name, by_arguments)
        made.__module__ = namespace["__name__"]


def install():
    """Wrap the methods and properties of Tensor; nothing is added to the class afterwards."""
    builtin = type(Tensor.dim)          # a method of compiled code
    operator = type(Tensor.__add__)     # tests its operands
    for name, value in dict(<object>(<PyTypeObject *>Tensor).tp_dict).items():
        if name in NOT_WRAPPED or isinstance(value, (OpMethod, operator)):
            continue
        if isinstance(value, property):
            bind_attribute(name, Attribute(value, name))
        elif isinstance(value, Method):
            bind_attribute(name, OverridableMethod(value.function, name))
        elif isinstance(value, (builtin, BuiltinFunctionType, FunctionType)):
            bind_attribute(name, OverridableMethod(value, name))
    bind_attribute("__torch_function__", classmethod(torch_function))
    bind_attribute("nelement", Tensor.numel)
    bind_attribute("ndimension", Tensor.dim)
    explain_members(bind_attribute, "torch.Tensor")
    keep_results_of((Tensor.grad.__get__, Tensor._base.__get__))


cdef Overridable probe = Overridable.__new__(Overridable)
cdef Py_ssize_t offset = <Py_ssize_t>(<char *>&probe.vectorcall - <char *><PyObject *>probe)
pb_make_callable(<PyTypeObject *>Overridable, offset, 0)
pb_make_callable(<PyTypeObject *>OverridableMethod, offset, Py_TPFLAGS_METHOD_DESCRIPTOR)
