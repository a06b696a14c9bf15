# build: small
"""Overrides: a call with an argument whose class has ``__torch_function__`` goes to that method.

The arguments that count are tensors with TENSOR_OVERRIDES, and other objects whose class has the
method, also inside a list or tuple. A TorchFunctionMode receives the calls of its thread first.
Who calls `call_override` has seen that an argument overrides, or that a mode is entered.
"""

import warnings

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from pullback._c.base.layout cimport layout_retain
from pullback._c.base.state cimport (
    globals_, overrides_on, pb_globals, pb_state, thread_state)
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.op cimport Op, op_named
from pullback._c.graph.tensor cimport (
    TENSOR_LAZY, TENSOR_OVERRIDES, Tensor, disabled_override, is_tensor, override_flag,
    tensor_alias)
from pullback._c.graph.tensor import set_override

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass",
           "_disabled_torch_function_impl", "call_overridden", "is_overridden_call", "mode_stack",
           "override_names", "overriding_arguments", "pop_mode", "push_mode"]

cdef extern from "Python.h":
    PyObject *_PyType_Lookup(PyTypeObject *type, object name)
    PyTypeObject *type_of "Py_TYPE"(object value)
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)

cdef pb_globals *process = globals_()
cdef int modes_entered = 0              # over all threads
cdef str NAME = "__torch_function__"


# ---- what overrides ------------------------------------------------------------------------------

cdef bint overrides_enabled() noexcept:
    """True unless this thread has turned off the overrides of arguments."""
    return thread_state().overrides_off == 0


cdef bint modes_enabled() noexcept:
    """True while this thread is in a TorchFunctionMode that receives calls."""
    return overrides_on(False)


cdef bint has_override(object value) noexcept:
    """True for one object that overrides calls."""
    cdef PyObject *found
    if not type_of(value).tp_flags & Py_TPFLAGS_HEAPTYPE:
        return False
    if isinstance(value, Tensor):
        return (<Tensor>value).flags & TENSOR_OVERRIDES != 0
    found = _PyType_Lookup(type_of(value), NAME)
    return found != NULL and not isinstance(value, type) and (
        found != <PyObject *>disabled_override)


cdef bint may_override(object value) noexcept:
    """True if an object, or an item of a list or tuple, overrides calls."""
    if not overrides_enabled():
        return False
    if isinstance(value, list):
        for item in <list>value:
            if type(item) is not Tensor and has_override(item):
                return True
    elif isinstance(value, tuple):
        for item in <tuple>value:
            if type(item) is not Tensor and has_override(item):
                return True
    return has_override(value)


cdef int collect(list found, object value) except -1:
    """Add an argument that overrides: before those of its superclasses, one for each class."""
    cdef Py_ssize_t i
    if type(value) is Tensor or not has_override(value):
        return 0
    kind = type(value)
    for i in range(len(found)):
        if type(found[i]) is kind:
            return 0
    for i in range(len(found)):
        if issubclass(kind, type(found[i])):
            found.insert(i, value)
            return 0
    found.append(value)
    return 0


cdef list collected(object args, object kwargs):
    """Return the arguments of a call that override it, in the order in which they are asked."""
    cdef list found = []
    for group in (args, () if kwargs is None else kwargs.values()):
        for value in group:
            if isinstance(value, (tuple, list)):
                for item in value:
                    collect(found, item)
            collect(found, value)
    return found


# ---- calls ---------------------------------------------------------------------------------------

cdef object ask(object hook, object function, tuple kinds, object args, object kwargs):
    """Call ``__torch_function__``; without keywords it gets three arguments, as in torch."""
    if kwargs is None:
        return hook(function, kinds, args)
    return hook(function, kinds, args, kwargs)


cdef object ask_mode(object function, tuple kinds, object args, object kwargs):
    """Ask the innermost mode, with that mode off; returns NotImplemented where none is on."""
    cdef list stack
    if not modes_enabled():
        return NotImplemented
    stack = <list>thread_state().function_modes
    mode = stack.pop()
    try:
        return ask(mode.__torch_function__, function, kinds, args, kwargs)
    finally:
        stack.append(mode)


cdef object bound_hook(object value):
    """Return the ``__torch_function__`` of an argument."""
    hook = getattr(value, NAME)
    if getattr(hook, "__self__", None) is value and is_tensor(value):
        warnings.warn("Defining your `__torch_function__ as a plain method is deprecated and will "
                      "be an error in future, please define it as a classmethod.",
                      DeprecationWarning, stacklevel=3)
    return hook


cdef object asked(object function, list found, object args, object kwargs):
    """Return the first answer that is not NotImplemented: of the mode, then of the arguments."""
    cdef tuple kinds = tuple([type(value) for value in found])
    result = ask_mode(function, kinds, args, kwargs)
    if result is not NotImplemented or not overrides_enabled():
        return result
    for value in found:
        result = ask(bound_hook(value), function, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


cdef object call_override(object function, object args, object kwargs):
    """Call the override of a function.

    Raises: TypeError when all return NotImplemented.
    """
    cdef list found = collected(args, kwargs)
    result = asked(function, found, args, kwargs)
    if result is NotImplemented:
        lines = "".join(f"\n  - tensor subclass {type(value)}" for value in found)
        if modes_enabled():
            lines = f"\n  - mode object {mode_stack().pop()}{lines}"
        raise TypeError(f"Multiple dispatch failed for '{shown(function)}'; all "
                        f"__torch_function__ handlers returned NotImplemented:\n{lines}")
    return result


cdef str shown(object function):
    """Return the public name of a function that is overridden."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, Op):
        entry = function.entry
        where = "pullback" if entry.function else "pullback.Tensor"
        if function.__name__.endswith("_") and not entry.name.endswith("_") and (
                not entry.inplace_function):
            where = "pullback.Tensor"
        elif "linalg" in entry.namespaces and "" not in entry.namespaces:
            where = "pullback.linalg"
        if entry.function and "functional" in entry.namespaces and "" not in entry.namespaces:
            where = "pullback.nn.functional"
        return f"{where}.{function.__name__}"
    if hasattr(owner, "__get__") and function.__name__ in ("__get__", "__set__", "__delete__"):
        return f"pullback.Tensor.{owner.__name__}.{function.__name__}"
    if getattr(function, "__objclass__", None) is Tensor:
        return f"pullback.Tensor.{function.__name__}"
    return f"{getattr(function, '__module__', 'pullback')}.{function.__qualname__}"


cdef object call_override_of_op(Op op, PyObject *const *args, Py_ssize_t nargs, object names):
    """Call the override of an op, with the arguments that it was called with."""
    cdef Py_ssize_t i
    cdef object kwargs = None
    if names is not None and PyTuple_GET_SIZE(names) > 0:
        kwargs = {<object>PyTuple_GET_ITEM(names, i): <object>args[nargs + i]
                  for i in range(PyTuple_GET_SIZE(names))}
    if "." in op.name and not isinstance(op.entry.function, str):   # an overload is not public
        op = op_named(op.encoded_name.decode())
    return call_override(op, tuple([<object>args[i] for i in range(nargs)]), kwargs)


cdef object call_override_of_operator(Op op, str name, str reflected, object a, object b):
    """Call the override of an operator of two operands; NotImplemented where all return that."""
    cdef tuple args = (a, b)
    cdef object function = op
    if not is_tensor(a):
        name = reflected
        args = (b, a)
    if name is not None:
        function = (<dict>(<PyTypeObject *>Tensor).tp_dict)[name]
    return asked(function, collected(args, None), args, None)


def call_of_class(str name not None, tuple args not None):
    """Call the override of an attribute of Tensor, such as ``dim`` or ``shape.__get__``."""
    name, _dot, accessor = name.partition(".")
    function = (<dict>(<PyTypeObject *>Tensor).tp_dict)[name]
    return call_override(getattr(function, accessor) if accessor else function, args, None)


def as_leaf(kind, Tensor data not None):
    """Return a leaf of a subclass over the memory of a tensor, without its history."""
    return as_instance(kind, tensor_alias(data))


def as_instance(kind, Tensor made not None):
    """Move the history of a new tensor to a new instance of a subclass over its memory."""
    cdef Tensor self
    if kind is Tensor:
        return made
    self = <Tensor>PyType_GenericAlloc(<PyTypeObject *>kind, 0)
    self.storage = storage_retain(made.storage)
    self.layout = layout_retain(made.layout)
    self.offset = made.offset
    self.dtype = made.dtype
    self.flags = made.flags | override_flag(kind)
    self.transform = made.transform
    self.node = made.node
    self.output_nr = made.output_nr
    self.extra = made.extra
    made.node = NULL
    made.extra = NULL
    made.flags &= TENSOR_LAZY
    return self


# ---- for Python code -----------------------------------------------------------------------------

def is_overridden_call(*args):
    """Return True if a call with these arguments is overridden, or a mode receives it."""
    if modes_enabled():
        return True
    for value in args:
        if is_overriding(value):
            return True
    return False


def call_overridden(function, tuple args not None, dict kwargs not None):
    """Call the override of a Python function."""
    return call_override(function, args, kwargs)


def overriding_arguments(args):
    """Return those of some arguments that override, in the order in which they are asked."""
    return collected(args, None)


def ask_arguments(function, list found not None, tuple args not None, dict kwargs not None):
    """Return the first answer to a call, or NotImplemented."""
    return asked(function, found, args, kwargs)


def override_names():
    """Return whether overrides of arguments, and those of modes, are on in this thread."""
    return overrides_enabled(), thread_state().overrides_off < 2


def mode_stack():
    """Return this thread's modes, the innermost last."""
    cdef pb_state *state = thread_state()
    return [] if state.function_modes == NULL else list(<object>state.function_modes)


def push_mode(mode):
    """Enter a mode on this thread."""
    global modes_entered
    cdef pb_state *state = thread_state()
    if state.function_modes == NULL:
        stack = []
        Py_INCREF(stack)
        state.function_modes = <PyObject *>stack
    (<list>state.function_modes).append(mode)
    modes_entered += 1
    process.overrides = TENSOR_OVERRIDES


def pop_mode():
    """Leave this thread's innermost mode; returns it."""
    global modes_entered
    cdef pb_state *state = thread_state()
    if state.function_modes == NULL or not <list>state.function_modes:
        raise RuntimeError("there is no TorchFunctionMode to leave on this thread")
    mode = (<list>state.function_modes).pop()
    modes_entered -= 1
    if modes_entered == 0:
        process.overrides = 0
    if not <list>state.function_modes:
        stack = <object>state.function_modes
        state.function_modes = NULL
        Py_DECREF(stack)
    return mode


cdef class DisableTorchFunctionSubclass:
    """A context manager: calls do not go to the ``__torch_function__`` of their arguments.

    Modes still receive them.

    >>> import pullback
    >>> class Named(pullback.Tensor):
    ...     pass
    >>> named = pullback.ones(2).as_subclass(Named)
    >>> with pullback.overrides.DisableTorchFunctionSubclass():
    ...     type(named + 1).__name__
    'Tensor'
    """

    cdef int before
    cdef int off

    def __cinit__(self):
        self.off = 1

    def __enter__(self):
        cdef pb_state *state = thread_state()
        self.before = state.overrides_off
        state.overrides_off = max(self.before, self.off)

    def __exit__(self, *error):
        thread_state().overrides_off = self.before


cdef class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A context manager: calls go neither to arguments' ``__torch_function__`` nor to modes.

    >>> import pullback
    >>> with pullback.overrides.DisableTorchFunction():
    ...     pullback.overrides.has_torch_function([pullback.ones(2)])
    False
    """

    def __cinit__(self):
        self.off = 2


def default_override(cls, function, types, args, kwargs):
    """Run a function that has been overridden, with the results as instances of ``cls``.

    Results stay as they are where the function returns tensors that exist already: a gradient, the
    base of a view.
    """
    cdef pb_state *state
    cdef int before
    for kind in types:
        if not issubclass(cls, kind):
            return NotImplemented
    state = thread_state()
    before = state.overrides_off
    state.overrides_off = max(before, 1)
    try:
        result = function(*args, **({} if kwargs is None else kwargs))
        if cls is Tensor or function in unconverted:
            return result
        return converted(result, cls)
    finally:
        state.overrides_off = before


# Functions whose results keep their class: set once the properties exist.
cdef object unconverted = ()


def keep_results_of(functions):
    """Set the functions whose results the default override does not convert."""
    global unconverted
    unconverted = functions


cdef object converted(object result, object cls):
    """Return a result with its tensors as instances of a subclass."""
    if is_tensor(result):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [converted(item, cls) for item in result]
        kind = type(result)
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    return result


def _disabled_torch_function_impl(function, types, args=(), kwargs=None):
    """The ``__torch_function__`` of a subclass whose results are plain tensors.

    >>> import pullback
    >>> class Plain(pullback.Tensor):
    ...     __torch_function__ = pullback.overrides._disabled_torch_function_impl
    >>> type(pullback.ones(2).as_subclass(Plain) + 1).__name__
    'Tensor'
    """
    cdef pb_state *state = thread_state()
    cdef int before = state.overrides_off
    state.overrides_off = max(before, 1)
    try:
        return function(*args, **({} if kwargs is None else kwargs))
    finally:
        state.overrides_off = before


set_override(call_of_class, _disabled_torch_function_impl)


# ---- what code written for torch asks of ``torch._C`` --------------------------------------------

def _log_api_usage_once(event):
    """Do nothing: uses are not counted."""


def _get_tracing_state():
    """Return None: no code is traced."""
