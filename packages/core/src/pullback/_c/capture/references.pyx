# build: small
"""What a function refers to beside its arguments: references to watch between calls.

A function's code names globals and attributes. From these, from its closure and its defaults, all
that it may reach is looked at: modules, optimizers, containers, objects, and functions that it may
call. Numbers and texts found there must stay equal, and objects the same.
"""

import functools
import gc
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterator

from cpython.object cimport PyObject_GenericGetAttr

from pullback._c.capture.guards cimport (
    GUARD_CALL, GUARD_CELL, GUARD_DICT, GUARD_FUNCTION, GUARD_ITEMS, GUARD_LENGTH, GUARD_LIST,
    IGNORED, Guard, guard_of, parts_of, shown_key)
from pullback._c.capture.spec cimport is_plain, own_attributes
from pullback._c.graph.tensor cimport Tensor, is_tensor

__all__ = ["CannotWatch", "guards_of"]

cdef enum:
    MOST = 20000                # references

# What is looked at in one way.
cdef enum kind_of_value:
    VALUE_FUNCTION
    VALUE_METHOD
    VALUE_WRAPPER               # a static or class method
    VALUE_PROPERTY
    VALUE_PARTIAL
    VALUE_TUPLE
    VALUE_LIST
    VALUE_DICT
    VALUE_SET
    VALUE_CLASS                 # or a module
    VALUE_ITERATOR
    VALUE_CACHE
    VALUE_OPEN                  # an object whose attributes are the program's
    VALUE_LOADER
    VALUE_GENERATOR             # of random numbers, whose position a program moves
    VALUE_CLOSED
    VALUE_OBJECT

# Code of these packages reads nothing that a program may change between calls.
cdef set CLOSED = {*sys.stdlib_module_names, "numpy", "scipy", "pluggy", "pullback", "pullback_cpu"}
# Modules of this package whose code names the attributes of its objects, not the program's.
cdef tuple STATEFUL = ("pullback.nn", "pullback.optim", "pullback.amp", "pullback.distributions")
# Of objects of this package: attributes that no kernel depends on.
cdef set COUNTERS = {"_step_count", "_opt_called", "_version", "_non_persistent_buffers_set"}

# Names and keys by which code may read an option of an optimizer, as the optimizers of this package
# do to pass it to a fused step.
cdef set READS_OPTIONS = {"param_groups", "get_last_lr", "get_lr", "_last_lr", "defaults"}
cdef set OPTIONS = {
    *("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "alpha", "lr_decay"),
}

cdef set BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "vars", "__dict__"}
cdef set OPEN = {("types", "SimpleNamespace"), ("argparse", "Namespace")}  # for users' attributes
cdef set UNCALLED = {"__init__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__"}

cdef tuple SETS = (set, deque, bytearray)
cdef dict names_of = {}         # of code objects


class CannotWatch(Exception):
    """There is more to watch than would be worth it, or what cannot be watched."""


cdef bint is_closed(object module):
    return isinstance(module, str) and (<str>module).partition(".")[0] in CLOSED


cdef bint has_group(object value):
    """Return True for a parameter group of an optimizer, and for lists of them."""
    if isinstance(value, dict):
        return "params" in value
    if isinstance(value, (list, tuple)):
        for one in value:
            if isinstance(one, dict) and "params" in one:
                return True
    return False


cdef dict own_of(object value):
    """Return the attributes that are set on an object itself; without running code of it."""
    if not type(value).__dictoffset__:
        return None
    found = PyObject_GenericGetAttr(value, "__dict__")
    return found if isinstance(found, dict) else None


cdef dict dict_of(object kind):
    """Return the dict of a class itself, not a view of it."""
    for one in gc.get_referents(kind.__dict__):
        if isinstance(one, dict):
            return one
    return {}


cdef class Kind:
    """What is known of all objects of a class."""
    cdef int kind
    cdef bint is_model                  # its class has what modules have
    cdef bint is_ours, is_stateful
    cdef list slots


cdef int kind_of_values(object value, object kind):
    """Return what is done with values of a class; of which one is given."""
    if isinstance(value, types.FunctionType):
        return VALUE_FUNCTION
    if isinstance(value, types.MethodType):
        return VALUE_METHOD
    if isinstance(value, (staticmethod, classmethod)):
        return VALUE_WRAPPER
    if isinstance(value, property):
        return VALUE_PROPERTY
    if isinstance(value, functools.partial):
        return VALUE_PARTIAL
    if isinstance(value, (tuple, frozenset)):
        return VALUE_TUPLE
    if isinstance(value, list):
        return VALUE_LIST
    if isinstance(value, dict):
        return VALUE_DICT
    if isinstance(value, SETS):
        return VALUE_SET
    if isinstance(value, (types.ModuleType, type)):
        return VALUE_CLASS
    if isinstance(value, Iterator) and kind.__module__ != "_io":
        return VALUE_ITERATOR
    if isinstance(value, functools._lru_cache_wrapper):
        return VALUE_CACHE
    if (kind.__module__, kind.__name__) in OPEN:
        return VALUE_OPEN
    if is_closed(kind.__module__) and not kind.__module__.startswith("pullback"):
        return VALUE_CLOSED
    if kind.__module__ == "pullback.utils.data.dataloader":
        return VALUE_LOADER
    if hasattr(kind, "_offset") and hasattr(kind, "take"):
        return VALUE_GENERATOR
    return VALUE_OBJECT


cdef list slots_of(object kind):
    """Return the names of the slots of a class that are the program's."""
    cdef list found = []
    for base in kind.__mro__:
        slots = () if is_closed(base.__module__) else vars(base).get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return found


cdef tuple code_names(object code):
    """Return the globals and attributes that code names, and its texts; functions inside too."""
    cdef set found, texts
    known = names_of.get(code)
    if known is not None:
        return known
    found, texts = set(code.co_names), set()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_texts = code_names(constant)
            found |= inner
            texts |= inner_texts
        elif isinstance(constant, str):
            texts.add(constant)
    if len(names_of) > 4096:
        names_of.clear()
    known = names_of[code] = frozenset(found), frozenset(texts)
    return known


def same(value):
    """Return a value itself."""
    return value


def identities(value, kept):
    """Return the addresses of what a set or a deque holds; ``kept`` is what it held."""
    return frozenset(map(id, value)) if isinstance(value, set) else tuple(map(id, value))


cdef class Walk:
    """One walk: objects to look at, names that code uses, guards that were found."""
    cdef list guards
    cdef set seen                       # addresses
    cdef list kept                      # so that no address is used again
    cdef set names
    cdef list objects                   # (value, where) whose attributes are watched by name
    cdef list tensors                   # (value, where) with attributes of their own
    cdef set watched                    # (address of the holder, key)
    cdef list pending                   # (value, where)
    cdef bint reads_options             # of optimizers, in code outside of this package
    cdef dict kinds                     # of each class its Kind
    cdef dict members_seen              # of each class: the names at the last look; -1: closed

    def __init__(self):
        self.guards, self.kept, self.objects, self.tensors, self.pending = [], [], [], [], []
        self.seen, self.names, self.watched = set(), set(), set()
        self.kinds, self.members_seen = {}, {}

    cdef Kind kind(self, object value):
        cdef object type_ = type(value)
        cdef Kind made = <Kind>self.kinds.get(type_)
        if made is None:
            made = Kind.__new__(Kind)
            made.kind = kind_of_values(value, type_)
            if made.kind == VALUE_OBJECT:
                made.is_model = hasattr(type_, "_modules") and hasattr(type_, "_parameters")
                made.is_ours = type_.__module__.partition(".")[0] == "pullback"
                made.is_stateful = type_.__module__.startswith(STATEFUL)
                made.slots = slots_of(type_)
            self.kinds[type_] = made
        return made

    cdef int later(self, object value, str where) except -1:
        """Look at a value later, unless it is a number or a text."""
        if not is_plain(value):
            self.pending.append((value, where))
        return 0

    cdef int add(self, int kind, object holder, object key, object value, str where) except -1:
        if len(self.guards) >= MOST:
            raise CannotWatch(f"refers to too much, as {where}")
        self.guards.append(guard_of(kind, holder, key, value, where))
        return 0

    cdef int watch(self, int kind, object holder, object key, object value, str where) except -1:
        """Watch a reference, and look at what it refers to later."""
        cdef tuple place = (<size_t><void *>holder, key)
        if place in self.watched:
            return 0
        self.watched.add(place)
        if not self.reads_options and has_group(value) and ".param_groups" not in where:
            self.reads_options = True
        self.add(kind, holder, key, value, where)
        return self.later(value, where)

    cdef int read(self, object function, str where) except -1:
        """Watch what a function returns: what is in no dict, list or cell."""
        return self.add(GUARD_CALL, function, None, function(), where)

    cdef int run(self) except -1:
        """Look at everything; again at objects whose attributes later code turns out to use."""
        cdef Py_ssize_t known = -1
        cdef size_t address
        while known != len(self.names):
            known = len(self.names)
            for owner, where in list(self.objects):
                self.attributes(owner, where, self.names)
            for base in list(self.members_seen):
                self.members(base)
            for owner, where in self.tensors:
                self.tensor_attributes(owner, where)
            while self.pending:
                value, where = self.pending.pop()
                address = <size_t><void *>value
                if address in self.seen:
                    continue
                self.seen.add(address)
                self.kept.append(value)
                if not is_tensor(value):
                    self.look(value, where)
                elif own_attributes(<Tensor>value) is not None:
                    self.tensors.append((value, where))
                    self.tensor_attributes(value, where)
        return 0

    cdef int tensor_attributes(self, Tensor tensor, str where) except -1:
        """Look at attributes of a tensor, which are watched with the tensor itself."""
        for name, value in list((own_attributes(tensor) or {}).items()):
            if name in self.names and (<size_t><void *>tensor, name) not in self.watched:
                self.watched.add((<size_t><void *>tensor, name))
                if is_tensor(value):
                    self.read(functools.partial(same, value), f"{where}.{name}")
                self.later(value, f"{where}.{name}")
        return 0

    cdef int look(self, object value, str where) except -1:
        """Watch what a value refers to."""
        cdef Kind known = self.kind(value)
        cdef int kind = known.kind
        if kind == VALUE_FUNCTION:
            self.function(value, where)
        elif kind == VALUE_METHOD:
            self.later(value.__func__, where)
            self.later(value.__self__, where)
        elif kind == VALUE_WRAPPER:
            self.later(value.__func__, where)
        elif kind == VALUE_PROPERTY:
            self.later(value.fget, where)
            self.later(value.fset, where)
        elif kind == VALUE_PARTIAL:
            self.later(value.func, where)
            self.later(value.args, where)
            self.later(value.keywords, where)
        elif kind == VALUE_TUPLE:
            for number, item in enumerate(value):
                if is_tensor(item):
                    self.read(functools.partial(same, item), f"{where}[{number}]")
                self.later(item, f"{where}[{number}]")
        elif kind == VALUE_LIST:
            self.add(GUARD_LENGTH, value, None, len(value), f"len({where})")
            for number, item in enumerate(value):
                self.watch(GUARD_LIST, value, number, item, f"{where}[{number}]")
        elif kind == VALUE_DICT:
            self.dict_items(value, where)
        elif kind == VALUE_SET:
            self.set_items(value, where)
        elif kind == VALUE_CLASS:
            if not is_closed(value.__module__ if isinstance(value, type) else value.__name__):
                self.objects.append((value, where))
                self.attributes(value, where, self.names)
        elif kind == VALUE_ITERATOR:
            raise CannotWatch(f"takes from an iterator, {where}")
        elif kind == VALUE_CACHE:
            self.later(value.__wrapped__, where)
        elif kind != VALUE_GENERATOR:
            self.instance(known, value, where)
        return 0

    cdef int dict_items(self, object value, str where) except -1:
        if "params" in value:           # programs may read options in each run
            self.add(GUARD_LENGTH, value, None, len(value), f"len({where})")
            self.reads_options = self.reads_options or ".param_groups" not in where
            for key, item in value.items():
                self.watch(GUARD_DICT, value, key, item, f"{where}[{shown_key(key)}]")
            return 0
        self.add(GUARD_ITEMS, value, tuple(value), tuple(value.values()), where)
        for key, item in value.items():
            if not is_plain(item):
                self.item(value, key, item, f"{where}[{shown_key(key)}]")
        return 0

    cdef int item(self, object holder, object key, object value, str where) except -1:
        """Look at an object in a dict all of whose items are watched; watch a tensor itself, too.
        """
        if is_tensor(value):
            self.add(GUARD_DICT, holder, key, value, where)
        elif (type(value) is dict or type(value) is OrderedDict) and not value:
            return self.add(GUARD_ITEMS, value, (), (), where)
        elif not self.reads_options and has_group(value) and ".param_groups" not in where:
            self.reads_options = True
        self.pending.append((value, where))
        return 0

    cdef int set_items(self, object value, str where) except -1:
        copied = frozenset if isinstance(value, set) else tuple
        if all([is_plain(item) for item in value]):
            return self.read(functools.partial(copied, value), where)
        self.read(functools.partial(identities, value, list(value)), where)
        for item in value:
            if is_tensor(item):
                self.read(functools.partial(same, item), where)
            self.later(item, where)
        return 0

    cdef int function(self, object function, str where) except -1:
        """Watch the globals that code names, the closure and the defaults."""
        cdef dict spaces
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self.later(wrapped, where)
        if function.__closure__:
            for name, cell in zip(function.__code__.co_freevars, function.__closure__):
                try:
                    value = cell.cell_contents
                except ValueError:  # not assigned yet
                    continue
                self.watch(GUARD_CELL, cell, None, value, name)
        if is_closed(function.__module__):
            return 0
        self.add(GUARD_FUNCTION, function, None, parts_of(function), f"the code of {where}")
        self.later(function.__defaults__, where)
        self.later(function.__kwdefaults__, where)
        names, texts = code_names(function.__code__)
        self.names |= names if names.isdisjoint(BY_NAME) else names | texts
        if not (names.isdisjoint(READS_OPTIONS) and texts.isdisjoint(OPTIONS)):
            self.reads_options = True
        spaces = function.__globals__
        for name in names:
            if name in spaces:
                self.watch(GUARD_DICT, spaces, name, spaces[name], name)
        return 0

    cdef int instance(self, Kind kind, object value, str where) except -1:
        """Watch the attributes of an object, and look at its class's methods."""
        cdef dict own = own_of(value)
        cdef bint is_model
        if own is not None and "__wrapped__" in own:
            return self.later(value.__wrapped__, where)
        if own is None:
            own = {}
        if kind.kind == VALUE_OPEN:
            return self.all_attributes(own, where)
        if kind.kind == VALUE_CLOSED:
            return 0
        if kind.kind == VALUE_LOADER:
            raise CannotWatch(f"takes from a data loader, {where}")
        if "_offset" in own and hasattr(type(value), "take"):
            return 0                    # a generator in Python
        for name in kind.slots:
            if hasattr(value, name):
                self.read(functools.partial(getattr, value, name, None), f"{where}.{name}")
                self.later(getattr(value, name), f"{where}.{name}")
        is_model = kind.is_model or "param_groups" in own or (
            "_modules" in own and "_parameters" in own)
        if is_model or kind.is_stateful:
            self.members_of(type(value))
            return self.all_attributes(own, where)
        if not kind.is_ours:
            self.add(GUARD_LENGTH, own, None, len(own), f"len(vars({where}))")
        self.objects.append((value, where))
        return self.attributes(value, where, self.names)

    cdef int all_attributes(self, dict own, str where) except -1:
        """Watch all attributes of an object but those that no kernel depends on."""
        cdef list values = []
        for name, value in own.items():
            if "state_dict" in name or name in COUNTERS:
                values.append(IGNORED)
                continue
            values.append(value)
            if not is_plain(value):
                self.item(own, name, value, f"{where}.{name}")
        return self.add(GUARD_ITEMS, own, tuple(own), tuple(values), f"vars({where})")

    cdef int attributes(self, object owner, str where, set names) except -1:
        """Watch attributes of an object, a class or a module; look at methods."""
        cdef dict found
        if isinstance(owner, type):
            return self.members_of(owner)
        if not isinstance(owner, types.ModuleType):
            self.members_of(type(owner))
        found = own_of(owner)
        if found is None:
            return 0
        if len(names) > len(found):
            for name in list(found):
                if name in names:
                    self.watch(GUARD_DICT, found, name, found[name], f"{where}.{name}")
        else:
            for name in list(names):
                if name in found:
                    self.watch(GUARD_DICT, found, name, found[name], f"{where}.{name}")
        return 0

    cdef int members_of(self, object kind) except -1:
        """Watch what code uses of a class and of its bases."""
        for base in kind.__mro__:
            if base not in self.members_seen:
                self.members_seen[base] = -1 if is_closed(base.__module__) else -2
                self.members(base)
        return 0

    cdef int members(self, object base) except -1:
        """Watch what code uses of one class; again where it names more by now."""
        cdef dict found
        if self.members_seen[base] in (-1, len(self.names)):
            return 0
        self.members_seen[base] = len(self.names)
        found = dict_of(base)
        for name, value in list(found.items()):
            used = name in self.names or (name[:2] == "__" and name not in UNCALLED)
            if not used and name != "forward":
                continue
            where = f"{base.__name__}.{name}"
            if name[:2] != "__":
                self.watch(GUARD_DICT, found, name, value, where)
            elif isinstance(value, types.FunctionType):
                self.later(value, where)
        return 0


def guards_of(function, list arguments not None):
    """Return guards for all that a function may read beside the values of its arguments.

    That is also what objects among the arguments refer to, such as modules. And return whether code
    outside of this package may read options of an optimizer, and the names that code uses.

    Raises: CannotWatch where there are more than 20,000, and for iterators.
    """
    cdef Walk walk = Walk()
    cdef Guard guard
    walk.later(function, getattr(function, "__name__", type(function).__name__))
    for one in arguments:
        if not is_tensor(one):
            walk.later(one, type(one).__name__)
        elif own_attributes(<Tensor>one) is not None:
            walk.tensors.append((one, "a tensor"))
    walk.run()
    names = frozenset(walk.names)
    for guard in walk.guards:
        guard.name_attributes(names)
    return walk.guards, walk.reads_options, names
