# build: small
"""Kinds of objects that a function may refer to: what of them is watched."""

import functools
import operator
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = []

cdef enum:
    MADE_AT_RUNTIME = 1 << 9    # Py_TPFLAGS_HEAPTYPE

# Code of these packages reads nothing that a program may change between calls.
cdef set CLOSED = {*sys.stdlib_module_names, "numpy", "scipy", "pluggy", "pullback", "pullback_cpu"}
# Modules of this package whose code names the attributes of its objects, not the program's.
cdef tuple STATEFUL = ("pullback.nn", "pullback.optim", "pullback.amp", "pullback.distributions")
# Modules of the standard library whose objects hold what programs put into them.
cdef set HOLDERS = {
    *("collections", "weakref", "_weakrefset", "queue", "threading", "functools", "configparser"),
    "multiprocessing.sharedctypes",
}
cdef set OPEN = {("types", "SimpleNamespace"), ("argparse", "Namespace")}  # for users' attributes

# Where the bases of each nn.Module are.
cdef tuple MODULE_PARTS = (
    "pullback.nn.modules.module", "pullback.nn.base", "pullback._c.python.module_base", "builtins",
    "typing", "abc")

cdef tuple SETS = (set, deque, bytearray)
cdef tuple GETTERS = (operator.attrgetter, operator.methodcaller)
cdef tuple EXACT = (list, dict, tuple, set, frozenset, deque, bytearray, OrderedDict, defaultdict)


cdef bint is_closed(object module):
    return isinstance(module, str) and (<str>module).partition(".")[0] in CLOSED


cdef bint is_library(object kind):
    """Return True for a class of a closed module; not one that a program makes with its help."""
    if kind.__module__ == "types" and kind.__flags__ & MADE_AT_RUNTIME:
        return False
    return is_closed(kind.__module__)


# Of modules: functions whose results depend on the clock, or are random.
cdef dict OF_SYSTEM = {
    "time": {
        "time", "perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime",
        "time_ns", "perf_counter_ns", "monotonic_ns", "process_time_ns", "thread_time_ns",
        "clock_gettime_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"},
    "datetime": {"now", "utcnow", "today"},
    "random": {"SystemRandom"},
    "uuid": {"uuid1", "uuid4"},
    "secrets": {"token_bytes", "token_hex", "token_urlsafe", "randbelow"},
    "posix": {"urandom", "getrandom", "times"},
    "nt": {"urandom", "times"},
}


cdef bint asks_system(object function) except -1:
    """Return True for a function, or a class, whose results depend on the clock or are random."""
    cdef object owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        module = owner.__name__
    else:
        module = getattr(owner if isinstance(owner, type) else function, "__module__", None)
    return getattr(function, "__name__", None) in OF_SYSTEM.get(module, ())


cdef class Kind:
    """What is known of all objects of a class."""


KINDS = [
    (VALUE_FUNCTION, types.FunctionType),
    (VALUE_METHOD, types.MethodType),
    (VALUE_BUILTIN, types.BuiltinFunctionType),
    (VALUE_WRAPPER, (staticmethod, classmethod)),
    (VALUE_PROPERTY, property),
    (VALUE_PARTIAL, (functools.partial, functools.partialmethod)),
    (VALUE_TUPLE, (tuple, frozenset)),
    (VALUE_LIST, list),
    (VALUE_DICT, dict),
    (VALUE_SET, SETS),
    (VALUE_CLASS, (types.ModuleType, type)),
    (VALUE_CACHE, functools._lru_cache_wrapper),
    (VALUE_ARRAY, memoryview),
    (VALUE_GETTER, GETTERS),
    (VALUE_REFERENCE, weakref.ref),
    (VALUE_VARIABLE, ContextVar),
    (VALUE_OF_THREAD, threading.local),
    (VALUE_PROXY, types.MappingProxyType),
    (VALUE_VIEW, (type({}.keys()), type({}.values()), type({}.items()))),
]


cdef int kind_of_values(object kind, str module):
    """Return what is done with values of a class."""
    cdef str name = kind.__name__
    for known, bases in KINDS:
        if issubclass(kind, bases):
            return known
    if module.startswith("numpy.random") or any(
            [base.__module__ == "random" and base.__name__ == "Random" for base in kind.__mro__]):
        return VALUE_RANDOM
    if issubclass(kind, Iterator) and module != "_io":
        return VALUE_ITERATOR
    if (module, name) in OPEN:
        return VALUE_OPEN
    if (module, name) == ("array", "array") or any(
            [one.__name__ == "ndarray" or one.__module__ == "_ctypes" for one in kind.__mro__]):
        return VALUE_ARRAY
    if is_library(kind) and module not in HOLDERS and not module.startswith("pullback"):
        return VALUE_CLOSED
    if module == "pullback.utils.data.dataloader":
        return VALUE_LOADER
    if hasattr(kind, "_offset") and hasattr(kind, "take"):
        return VALUE_GENERATOR
    return VALUE_OBJECT


cdef list slots_of(object kind):
    """Return the names of the slots of a class that are the program's."""
    cdef list found = []
    for base in kind.__mro__:
        slots = () if is_library(base) else vars(base).get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return found


cdef Kind kind_of(object value):
    """Return what is known of a value by its class."""
    cdef object type_ = type(value)
    cdef Kind made = Kind.__new__(Kind)
    cdef str module = type_.__module__ if isinstance(type_.__module__, str) else ""
    made.kind = kind_of_values(type_, module)
    made.is_extended = type_ not in EXACT and VALUE_TUPLE <= made.kind <= VALUE_SET and (
        not is_library(type_))
    if made.kind == VALUE_OBJECT:
        made.is_model = hasattr(type_, "_modules") and hasattr(type_, "_parameters")
        made.is_ours = module.partition(".")[0] == "pullback"
        made.is_stateful = module.startswith(STATEFUL) or any(
            [base.__module__ in HOLDERS for base in type_.__mro__])
        made.is_named = not is_library(type_) and all(
            [base.__module__.startswith(MODULE_PARTS) for base in type_.__mro__
             if is_library(base)])
        made.slots = slots_of(type_)
    return made
