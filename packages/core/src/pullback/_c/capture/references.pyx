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
from collections import OrderedDict

from cpython.object cimport PyObject_GenericGetAttr

from pullback._c.capture.code_names cimport (
    ASKS_BY_NAME, COMPARES_OBJECTS, IMPORTS, NAMES_LATER, code_names, reads_texts, uses_by_text,
    uses_of)
from pullback._c.capture.guards cimport (
    GUARD_ABSENT, GUARD_CALL, GUARD_CELL, GUARD_CLASS, GUARD_DICT, GUARD_FUNCTION, GUARD_ITEMS,
    GUARD_LENGTH, GUARD_LIST, IGNORED, Guard, guard_of, parts_of, shown_key)
from pullback._c.capture.kinds cimport (
    Kind, VALUE_ARRAY, VALUE_BUILTIN, VALUE_CACHE, VALUE_CLASS, VALUE_CLOSED, VALUE_DICT,
    VALUE_FUNCTION, VALUE_GENERATOR, VALUE_GETTER, VALUE_ITERATOR, VALUE_LIST, VALUE_LOADER,
    VALUE_METHOD, VALUE_OF_THREAD, VALUE_OPEN, VALUE_PARTIAL, VALUE_PROPERTY, VALUE_PROXY,
    VALUE_RANDOM, VALUE_REFERENCE, VALUE_SET, VALUE_TUPLE, VALUE_VARIABLE, VALUE_VIEW,
    VALUE_WRAPPER, asks_system, is_closed, is_library, kind_of)
from pullback._c.capture.spec cimport is_plain, own_attributes
from pullback._c.graph.tensor cimport Tensor, is_tensor

__all__ = ["CannotWatch", "guards_of"]

cdef enum:
    MOST = 20000                # references
    LARGE_ARRAY = 1 << 16       # bytes that are compared before each run, at most

# Of objects of this package: attributes that no kernel depends on.
cdef set COUNTERS = {"_step_count", "_opt_called", "_version", "_non_persistent_buffers_set"}

# Names and keys by which code may read an option of an optimizer, as the optimizers of this package
# do to pass it to a fused step.
cdef set READS_OPTIONS = {"_last_lr", "defaults"}
cdef set BY_KEY = {"get", "pop", "setdefault", "itemgetter", "__getitem__"}
cdef set STEPS = {"step", "state", "load_state_dict", "state_dict", "_step"}
cdef set FORMATS = {"format", "format_map", "__getattribute__", "__getattr__"}
cdef set OPTIONS = {
    *("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "alpha", "lr_decay"),
}

cdef set RUN_BY_NAME = {"forward", "backward", "setup_context", "jvp", "vmap"}  # nothing names them
cdef set UNCALLED = {"__init__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__"}

# Modules and classes of which code uses functions whose results differ from call to call.
cdef object VARYING = frozenset(
    {"random", "numpy", "numpy.random", "time", "datetime", "date", "uuid", "secrets", "os"})
cdef str SYSTEM = "asks the system for the time or for random bytes"
cdef object STATE = frozenset({"get_rng_state", "default_generator"})      # of random numbers


class CannotWatch(Exception):
    """There is more to watch than would be worth it, or what cannot be watched."""


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


def same(value):
    """Return a value itself."""
    return value


def identities(value, kept):
    """Return the addresses of what a set or a deque holds; ``kept`` is what it held."""
    return tuple(map(id, value))


def of_thread(value):
    """Return what a thread keeps in an object of threading.local."""
    return tuple(value.__dict__.items())


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
    cdef bint has_optimizer
    cdef list optimizers                # (attributes, where): their state is watched for a step
    cdef int does                       # what code does: COMPARES_OBJECTS and others
    cdef list keys                      # tensors that are keys, or items of a set
    cdef dict modes                     # of names of functions: the function that tells a mode
    cdef dict absent                    # address of globals -> (them, where, names they lack)
    cdef dict kinds                     # of each class its Kind
    cdef dict members_seen              # of each class: the names at the last look; -1: closed

    def __init__(self, dict modes not None):
        self.modes = modes
        self.keys, self.optimizers = [], []
        self.guards, self.kept, self.objects, self.tensors, self.pending = [], [], [], [], []
        self.seen, self.names, self.watched = set(), set(), set()
        self.kinds, self.members_seen, self.absent = {}, {}, {}

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
        cdef size_t address
        known = None
        while known != (len(self.names), self.does):
            known = len(self.names), self.does
            for owner, where in list(self.objects):
                self.attributes(owner, where, self.names)
            for name in list(self.modes):
                if name in self.names:
                    self.read(self.modes.pop(name), f"{name}()")
            for base in list(self.members_seen):
                self.members(base)
            for owner, where in self.tensors:
                self.tensor_attributes(owner, where)
            if not self.names.isdisjoint(STEPS) or self.does & NAMES_LATER:
                for own, where in self.optimizers:
                    self.watch(GUARD_DICT, own, "state", own["state"], f"{where}.state")
                self.optimizers = []
            while self.pending:
                value, where = self.pending.pop()
                address = <size_t><void *>value
                if address in self.seen:
                    continue
                self.seen.add(address)
                self.kept.append(value)
                if is_tensor(value):
                    self.tensor(value, where)
                else:
                    self.look(value, where)
        return 0

    cdef int absences(self) except -1:
        """Watch that globals, classes and modules get none of the names that they lack."""
        cdef list spaces = [(dict_of(base), base.__name__) for base, seen in (
            self.members_seen.items()) if seen != -1]
        spaces += [(own_of(value), where) for value, where in self.objects
                   if issubclass(type(value), types.ModuleType)]
        for found, where, names in self.absent.values():
            if names:
                self.add(GUARD_ABSENT, found, None, tuple(names), f"new globals of {where}")
        for found, where in spaces:
            absent = tuple([name for name in self.names if name not in found])
            if absent:
                self.add(GUARD_ABSENT, found, None, absent, f"new attributes of {where}")
        return 0

    cdef int tensor(self, Tensor tensor, str where) except -1:
        """Look at a tensor's hooks, attributes, and class."""
        if tensor.extra != NULL and tensor.extra.hooks != NULL:
            self.later(tuple((<object>tensor.extra.hooks).values()), where)
        if tensor.extra != NULL and tensor.extra.post_hooks != NULL:
            self.later(tuple((<object>tensor.extra.post_hooks).values()), where)
        if not is_library(type(tensor)):
            self.members_of(type(tensor))
        if own_attributes(tensor) is not None:
            self.tensors.append((tensor, where))
            self.tensor_attributes(tensor, where)
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
        cdef Kind known = <Kind>self.kinds.get(type(value))
        cdef int kind
        if known is None:
            known = self.kinds[type(value)] = kind_of(value)
        kind = known.kind
        if kind == VALUE_FUNCTION:
            self.function(value, where)
        elif kind == VALUE_METHOD:
            self.names.add(getattr(value, "__name__", ""))
            self.later(value.__func__, where)
            self.later(value.__self__, where)
        elif kind == VALUE_BUILTIN:
            if asks_system(value):
                raise CannotWatch(f"{SYSTEM}, {where}")
            if not isinstance(value.__self__, (type, types.ModuleType)):
                self.later(value.__self__, where)
        elif kind == VALUE_RANDOM:
            raise CannotWatch(f"draws numbers of another generator, {where}")
        elif kind == VALUE_WRAPPER:
            self.later(value.__func__, where)
        elif kind == VALUE_PROPERTY:
            self.later(value.fget, where)
            self.later(value.fset, where)
        elif kind == VALUE_PARTIAL:
            self.later(value.func, where)
            self.later(value.args, where)
            self.later(value.keywords, where)
        elif kind == VALUE_ARRAY:
            self.array(value, where)
        elif kind == VALUE_GETTER:
            self.names |= {name for one in flat(value.__reduce__()[1]) if isinstance(one, str)
                           for name in one.split(".")}
        elif kind == VALUE_REFERENCE:
            self.read(value, where)
            self.later(value(), where)
        elif kind == VALUE_VARIABLE:
            self.read(functools.partial(value.get, None), where)
            self.later(value.get(None), where)
        elif kind == VALUE_OF_THREAD:
            if not all([is_plain(one) for one in value.__dict__.values()]):
                raise CannotWatch(f"refers to objects of one thread, {where}")
            self.read(functools.partial(of_thread, value), where)
        elif kind == VALUE_VIEW:
            self.later(value.mapping, where)
        elif kind == VALUE_PROXY:
            self.pending += [(one, where) for one in gc.get_referents(value)]
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
            if isinstance(value, type):
                if asks_system(value):
                    raise CannotWatch(f"{SYSTEM}, {where}")
                if is_library(value):
                    return 0
                if type(value) is not type:
                    self.members_of(type(value))
                for base in value.__mro__:      # an object may be made
                    for name in () if is_library(base) else ("__init__", "__new__"):
                        if name in vars(base):
                            self.later(vars(base)[name], f"{where}.{name}")
            elif is_closed(value.__name__):
                return 0
            self.objects.append((value, where))
            self.attributes(value, where, self.names)
        elif kind == VALUE_ITERATOR:
            raise CannotWatch(f"takes from an iterator, {where}")
        elif kind == VALUE_CACHE:
            self.later(value.__wrapped__, where)
        elif kind != VALUE_GENERATOR:
            self.instance(known, value, where)
        if known.is_extended:
            self.objects.append((value, where))
            self.attributes(value, where, self.names)
        return 0

    cdef int array(self, object value, str where) except -1:
        """Watch the elements of a small array of another package."""
        if not isinstance(value, memoryview) and hasattr(value, "dtype") and value.dtype.hasobject:
            raise CannotWatch(f"refers to an array of objects, {where}")
        nbytes = value.nbytes if hasattr(value, "nbytes") else len(bytes(value))
        if nbytes > LARGE_ARRAY:
            raise CannotWatch(f"refers to an array of {nbytes} bytes, {where}: pass it")
        return self.read(functools.partial(bytes, value), where)

    cdef int dict_items(self, object value, str where) except -1:
        if "params" in value:           # programs may read options in each run
            self.add(GUARD_LENGTH, value, None, len(value), f"len({where})")
            self.reads_options = self.reads_options or ".param_groups" not in where
            for key, item in value.items():
                self.watch(GUARD_DICT, value, key, item, f"{where}[{shown_key(key)}]")
            return 0
        self.add(GUARD_ITEMS, value, tuple(value), tuple(value.values()), where)
        self.keys += [key for key in value if is_tensor(key)]
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
        if all([is_plain(item) for item in value]):
            return self.read(functools.partial(tuple, value), where)
        self.read(functools.partial(identities, value, list(value)), where)
        for item in value:
            if is_tensor(item):
                self.keys.append(item)
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
                    self.add(GUARD_CELL, cell, None, IGNORED, name)
                    continue
                self.watch(GUARD_CELL, cell, None, value, name)
        spaces = function.__globals__
        if is_closed(spaces.get("__name__")):
            if asks_system(function):
                raise CannotWatch(f"{SYSTEM}, {where}")
            return 0
        if function.__dict__:
            self.objects.append((function, where))
            self.attributes(function, where, self.names)
        self.add(GUARD_FUNCTION, function, None, parts_of(function), f"the code of {where}")
        self.later(function.__defaults__, where)
        self.later(function.__kwdefaults__, where)
        names, texts, does = code_names(function.__code__)
        self.does |= does
        if does & ASKS_BY_NAME:
            names = names | texts
        self.names |= names
        if "globals" in names:
            names = names | texts
        if not names.isdisjoint(STATE):
            raise CannotWatch(f"may ask for the state of random numbers, {where}")
        if not self.reads_options:
            self.reads_options = may_read_options(function.__code__, names, texts)
        absent = self.absent.setdefault(<size_t><void *>spaces, (spaces, where, set()))[2]
        for name in names & VARYING if does & IMPORTS else ():
            for used in uses_of(function.__code__, name, sys.modules.get(name)):
                self.later(used, name)
        for name in names:
            if name in spaces:
                self.watch(GUARD_DICT, spaces, name, spaces[name], name)
                if getattr(spaces[name], "__name__", None) in VARYING:
                    for used in uses_of(function.__code__, name, spaces[name]):
                        self.later(used, name)
                continue
            if does & IMPORTS and name in sys.modules:
                self.watch(GUARD_DICT, sys.modules, name, sys.modules[name], name)
            absent.add(name)
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
            self.read(functools.partial(getattr, value, name, None), f"{where}.{name}")
            self.later(getattr(value, name, None), f"{where}.{name}")
        if not kind.is_ours or kind.is_stateful:
            self.add(GUARD_CLASS, value, None, type(value), f"type({where})")
        self.has_optimizer = self.has_optimizer or "param_groups" in own
        is_model = kind.is_model or "param_groups" in own or (
            "_modules" in own and "_parameters" in own)
        if is_model and kind.is_named:
            self.members_of(type(value))
            self.all_attributes(own, where, True)
            self.objects.append((value, where))
            return self.attributes(value, where, self.names)
        if is_model or kind.is_stateful:
            self.members_of(type(value))
            if "param_groups" in own and isinstance(own.get("state"), dict):
                self.optimizers.append((own, where))
            return self.all_attributes(own, where)
        if not kind.is_ours:
            self.add(GUARD_ITEMS, own, tuple(own), (IGNORED,) * len(own), f"vars({where})")
        self.objects.append((value, where))
        return self.attributes(value, where, self.names)

    cdef int all_attributes(self, dict own, str where, bint named=False) except -1:
        """Watch all attributes of an object but those that no kernel depends on.

        With ``named`` those that only the program's own code can know are watched elsewhere.
        """
        cdef list values = []
        for name, value in own.items():
            if "state_dict" in name or name in COUNTERS or (
                    name == "state" and "param_groups" in own) or (
                    named and name[0] != "_" and name != "training"):
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
        if not issubclass(type(owner), types.ModuleType):
            self.members_of(type(owner))
        found = own_of(owner)
        if found is None:
            return 0
        by_any_name = self.does & NAMES_LATER and not issubclass(type(owner), types.ModuleType)
        if by_any_name or len(names) > len(found):
            for name in list(found):
                if by_any_name or name in names:
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
                self.members_seen[base] = -1 if is_library(base) else -2
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
            if not used and name not in RUN_BY_NAME:
                continue
            where = f"{base.__name__}.{name}"
            if name[:2] != "__":
                self.watch(GUARD_DICT, found, name, value, where)
            elif isinstance(value, types.FunctionType) and not (
                    value.__code__.co_filename == "<string>" and "__dataclass_fields__" in found):
                self.later(value, where)        # not what dataclasses generate
        return 0


cdef bint may_read_options(object code, object names, object texts):
    """Return True if code may read options of an optimizer, besides by methods, which note it."""
    if not names.isdisjoint(READS_OPTIONS):
        return True
    if not texts.isdisjoint(OPTIONS) and (
            not names.isdisjoint(BY_KEY) or reads_texts(code, OPTIONS)):
        return True
    return "param_groups" in names and not uses_by_text(code, "param_groups")


cdef list flat(object value):
    """Return what is in nested tuples and dicts."""
    if isinstance(value, dict):
        value = tuple(value.values())
    return [item for one in value for item in flat(one)] if isinstance(value, tuple) else [value]


def guards_of(function, list arguments not None, dict modes not None):
    """Return guards for all that a function may read beside the values of its arguments.

    That is also what objects among the arguments refer to, such as modules. And return whether code
    outside of this package may read options of an optimizer, the names that code uses, the objects
    that were found, and the tensors with which code may compare arguments by ``is`` or as keys;
    None if it does not. ``modes`` has functions that tell a mode, by the names with which code asks
    for it.

    Raises: CannotWatch where there are more than 20,000, and for iterators.
    """
    cdef Walk walk = Walk(dict(modes))
    cdef Guard guard
    cdef list known = None
    walk.later(function, getattr(function, "__name__", type(function).__name__))
    for one in arguments:
        if not is_tensor(one):
            walk.later(one, type(one).__name__)
        else:
            walk.tensor(<Tensor>one, "a tensor")
    walk.run()
    if walk.has_optimizer and (walk.does & NAMES_LATER or not walk.names.isdisjoint(FORMATS)):
        walk.reads_options = True
    walk.absences()
    names = frozenset(walk.names)
    for guard in walk.guards:
        guard.name_attributes(names)
    if walk.keys or walk.does & COMPARES_OBJECTS:
        known = walk.keys + [(<Guard>one).expected for one in walk.guards
                             if (<Guard>one).spec is not None]
    return walk.guards, walk.reads_options, names, walk.kept, known
