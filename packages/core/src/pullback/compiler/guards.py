"""What a function refers to beside its arguments: references to watch between calls.

A function's code names globals and attributes. From these, from its closure and its defaults, all
that it may reach is looked at: modules, optimizers, containers, objects, and functions that it may
call. Numbers and texts found there must stay equal, and objects the same.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from pullback._c.capture.signature import Guard, is_plain
from pullback._c.graph.tensor import Tensor
from pullback.func._tree import leaves

__all__ = ["CannotWatch", "guards_of"]

_MOST = 20_000  # references
# Code of these packages reads nothing that a program may change between calls.
_CLOSED = {*sys.stdlib_module_names, "numpy", "scipy", "pluggy", "pullback", "pullback_cpu"}
# Modules of this package whose code names the attributes of its objects, not the program's.
_STATEFUL = ("pullback.nn", "pullback.optim", "pullback.amp", "pullback.distributions")
# Of objects of this package: attributes that no kernel depends on.
_COUNTERS = {"_step_count", "_opt_called", "_version", "_non_persistent_buffers_set"}

# Names and keys by which code may read an option of an optimizer, as the optimizers of this package
# do to pass it to a fused step.
_READS_OPTIONS = {"param_groups", "get_last_lr", "get_lr", "_last_lr", "defaults"}
_OPTIONS = {
    *("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "alpha", "lr_decay"),
}

_BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "vars", "__dict__"}
_OPEN = {("types", "SimpleNamespace"), ("argparse", "Namespace")}  # for users' attributes
_UNCALLED = {"__init__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__"}


def _has_group(value: Any) -> bool:
    """Return True for a parameter group of an optimizer, and for lists of them."""
    if isinstance(value, dict):
        return "params" in value
    return isinstance(value, (list, tuple)) and any(
        isinstance(one, dict) and "params" in one for one in value
    )


class CannotWatch(Exception):
    """There is more to watch than would be worth it, or what cannot be watched."""


def _has(value: Any, *names: str) -> bool:
    """Return True if an object has attributes; without running code of it."""
    own = _own(value)
    return all(name in own or hasattr(type(value), name) for name in names)


def _own(value: Any) -> dict[str, Any]:
    """Return the attributes that are set on an object itself."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _dict_of(kind: type) -> dict[str, Any]:
    """Return the dict of a class itself, not a view of it."""
    (found,) = (one for one in gc.get_referents(kind.__dict__) if isinstance(one, dict))
    return found


def _slots_of(value: Any) -> Iterator[str]:
    """Yield the attributes in slots that an object has."""
    for kind in type(value).__mro__:
        slots = () if _is_closed(kind.__module__) else vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name


def _is_closed(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _CLOSED


class _Walk:
    """One walk: objects to look at, names that code uses, guards that were found."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # so that no address is used again
        self.names: set[str] = set()
        self.objects: list[tuple[Any, str]] = []  # whose attributes are watched by name
        self.watched: set[tuple[int, Any]] = set()
        self.pending: list[tuple[Any, str]] = []
        self.reads_options = False  # of optimizers, in code outside of this package

    @property
    def asks_types(self) -> bool:
        """Whether code may look at the types of its arguments."""
        return "type" in self.names or "__class__" in self.names

    def watch(self, holder: Any, key: Any, value: Any, where: str) -> None:
        """Watch a reference, and look at what it refers to later."""
        if (id(holder), key) in self.watched:
            return
        self.watched.add((id(holder), key))
        if len(self.guards) >= _MOST:
            raise CannotWatch(f"refers to too much, as {where}")
        if ".param_groups" not in where and _has_group(value):
            self.reads_options = True
        self.guards.append(Guard(holder, key, value, where))
        self.pending.append((value, where))

    def read(self, function: Callable[[], Any], where: str) -> None:
        """Watch what a function returns: what is in no dict, list or cell."""
        self.guards.append(Guard(function, None, function(), where))

    def run(self) -> None:
        """Look at everything; again at objects whose attributes later code turns out to use."""
        known = -1
        while known != len(self.names):
            known = len(self.names)
            for owner, where in list(self.objects):
                self.attributes(owner, where, self.names)
            while self.pending:
                value, where = self.pending.pop()
                if is_plain(value) or id(value) in self.seen:
                    continue
                if isinstance(value, Tensor) and not _own(value):
                    continue
                self.seen.add(id(value))
                self.kept.append(value)
                self.look(value, where)

    def look(self, value: Any, where: str) -> None:
        """Watch what a value refers to."""
        if isinstance(value, types.FunctionType):
            self.function(value, where)
        elif isinstance(value, Tensor):
            self.objects.append((value, where))
            self.attributes(value, where, self.names)
        elif isinstance(value, types.MethodType):
            self.pending += [(value.__func__, where), (value.__self__, where)]
        elif isinstance(value, (staticmethod, classmethod)):
            self.pending.append((value.__func__, where))
        elif isinstance(value, property):
            self.pending += [(value.fget, where), (value.fset, where)]
        elif isinstance(value, functools.partial):
            self.pending += [(value.func, where), (value.args, where), (value.keywords, where)]
        elif isinstance(value, (tuple, frozenset)):
            for number, item in enumerate(value):
                if isinstance(item, Tensor):
                    self.read(functools.partial(_same, item), f"{where}[{number}]")
                self.pending.append((item, f"{where}[{number}]"))
        elif isinstance(value, list):
            self.watch(value, None, len(value), f"len({where})")
            for number, item in enumerate(value):
                self.watch(value, number, item, f"{where}[{number}]")
        elif isinstance(value, dict):
            self.watch(value, None, len(value), f"len({where})")
            for key, item in value.items():
                self.watch(value, key, item, f"{where}[{key!r}]")
        elif isinstance(value, (set, deque, bytearray)):
            plain = all(map(is_plain, value))
            copied = frozenset if isinstance(value, set) else tuple
            self.read(lambda: copied(value) if plain else len(value), where)
            self.pending += [(item, where) for item in value]
        elif isinstance(value, (types.ModuleType, type)):
            if not _is_closed(value.__module__ if isinstance(value, type) else value.__name__):
                self.objects.append((value, where))
                self.attributes(value, where, self.names)
        elif isinstance(value, Iterator) and type(value).__module__ != "_io":
            raise CannotWatch(f"takes from an iterator, {where}")
        elif isinstance(value, functools._lru_cache_wrapper) or "__wrapped__" in _own(value):
            self.pending.append((value.__wrapped__, where))
        else:
            self.instance(value, where)

    def function(self, function: types.FunctionType, where: str) -> None:
        """Watch the globals that code names, the closure and the defaults."""
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self.pending.append((wrapped, where))
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.watch(cell, None, value, name)
        if _is_closed(function.__module__):
            return
        self.pending += [(function.__defaults__, where), (function.__kwdefaults__, where)]
        names, texts = _names(function.__code__)
        self.names |= names if names.isdisjoint(_BY_NAME) else names | texts
        if names & _READS_OPTIONS or texts & _OPTIONS:
            self.reads_options = True
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                self.watch(function.__globals__, name, value, name)

    def instance(self, value: Any, where: str) -> None:
        """Watch the attributes of an object, and look at its class's methods."""
        kind, own = type(value), _own(value)
        if (kind.__module__, kind.__name__) in _OPEN:
            self.watch(own, None, len(own), f"len(vars({where}))")
            self.attributes(value, where, set(own))
            return
        if _is_closed(kind.__module__) and not kind.__module__.startswith("pullback"):
            return
        if kind.__module__ == "pullback.utils.data.dataloader":
            raise CannotWatch(f"takes from a data loader, {where}")
        if _has(value, "_offset", "take"):
            return  # a generator of random numbers, whose position a program moves
        for name in _slots_of(value):
            self.read(functools.partial(getattr, value, name, None), f"{where}.{name}")
            self.pending.append((getattr(value, name), f"{where}.{name}"))
        is_model = _has(value, "_modules", "_parameters") or "param_groups" in own
        is_ours = kind.__module__.partition(".")[0] == "pullback"
        if is_model or not is_ours or kind.__module__.startswith(_STATEFUL):
            self.watch(own, None, len(own), f"len(vars({where}))")
        if is_model or kind.__module__.startswith(_STATEFUL):
            names = {name for name in own if "state_dict" not in name} - _COUNTERS
            self.attributes(value, where, names)
        else:
            self.objects.append((value, where))
            self.attributes(value, where, self.names)

    def attributes(self, owner: Any, where: str, names: set[str]) -> None:
        """Watch attributes of an object, a class or a module; look at methods."""
        kinds = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
        for base in () if isinstance(owner, types.ModuleType) else kinds:
            if not _is_closed(base.__module__):
                self.members(base, _dict_of(base))
        found = {} if isinstance(owner, type) else _own(owner)
        for name in names & found.keys() if len(names) > len(found) else names:
            if name in found:
                self.watch(found, name, found[name], f"{where}.{name}")

    def members(self, base: type, found: dict[str, Any]) -> None:
        """Watch what code uses of a class."""
        for name, value in list(found.items()):
            used = name in self.names or (name[:2] == "__" and name not in _UNCALLED)
            where = f"{base.__name__}.{name}"
            if name[:2] != "__" and (used or name == "forward"):
                self.watch(found, name, value, where)
            elif used and isinstance(value, types.FunctionType):
                self.pending.append((value, where))


def _same(value: Any) -> Any:
    return value


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the globals and attributes that code names, and its texts; functions inside too."""
    found: set[str] = set(code.co_names)
    texts: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_texts = _names(constant)
            found |= inner
            texts |= inner_texts
        elif isinstance(constant, str):
            texts.add(constant)
    return frozenset(found), frozenset(texts)


def guards_of(function: Any, arguments: Any) -> tuple[list[Guard], bool, bool]:
    """Return guards for all that a function may read beside the values of its arguments.

    That is also what objects among the arguments refer to, such as modules. And return whether code
    outside of this package may read options of an optimizer, and whether it may ask for types.

    Raises: CannotWatch where there are more than 20,000, and for iterators.
    """
    walk = _Walk()
    walk.pending.append((function, getattr(function, "__name__", type(function).__name__)))
    others = [one for one in leaves(arguments) if not isinstance(one, Tensor)]
    walk.pending += [(one, type(one).__name__) for one in others]
    walk.run()
    return walk.guards, walk.reads_options, walk.asks_types
