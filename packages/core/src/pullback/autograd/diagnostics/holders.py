"""What keeps the memory of a tensor alive: variables, attributes, nodes, other tensors."""

from __future__ import annotations

import gc
import inspect
import sys
from types import CellType, FrameType, FunctionType, ModuleType
from typing import NamedTuple

from pullback._c.graph.node import Node
from pullback._c.graph.overrides import DisableTorchFunction
from pullback._c.graph.tensor import Tensor
from pullback._c.interop.storages import StorageBase
from pullback._c.python.node_methods import memory_owners
from pullback._interop import notebook
from pullback.autograd.diagnostics.walk import (
    node_title,
    nodes_from,
    saved_tensors,
    source_line,
)

__all__ = ["Holder", "Holders", "who_holds"]

_DEPTH = 3  # containers on the way from a tensor to a variable
_MOST = 12  # holders of one object that are described


class Holder(NamedTuple):
    """One reference to the memory of a tensor: what kind it is, and where."""

    kind: str
    where: str


class Holders:
    """What holds the memory of a tensor; ``print`` shows it.

    ``holders`` is a list of (kind, where), whose kinds are "python" (a variable, an attribute, an
    element), "node" (a saved value), "grad" (``.grad`` of a leaf) and "view" (a view, whose base
    the tensor is). ``unknown`` is the number of references that no Python object shows, such as
    those of other libraries.
    """

    def __init__(self, what, holders, unknown):
        self.what = what
        self.holders = holders
        self.unknown = unknown

    def to_dict(self):
        """Return the same as a dict that ``json`` can write."""
        return {
            "tensor": self.what,
            "holders": [holder._asdict() for holder in self.holders],
            "unknown": self.unknown,
        }

    def __str__(self):
        lines = [f"The memory of {self.what} is held by"]
        lines += [f"  {holder.where}" for holder in self.holders]
        if self.unknown:
            lines.append(f"  {self.unknown} references that Python does not show")
        return "\n".join(lines)

    def _repr_html_(self):
        return notebook.text(str(self))

    def __repr__(self):
        return f"<Holders: {len(self.holders)} of {self.what}>"


def who_holds(tensor):
    """Find what keeps the memory of a tensor alive; return ``Holders``, which prints as text.

    It looks for tensors over the same memory, and for what refers to each: local variables of all
    threads, variables of modules, attributes, elements of containers, variables of closures,
    ``.grad``, views, storage objects, and the saved values of every node that a tensor or a node in
    Python leads to.
    The result is text: it keeps nothing alive. The search visits all objects that the garbage
    collector knows, which takes up to seconds.

    Raises: TypeError for anything but a tensor.

    >>> import pullback
    >>> def run():
    ...     h = pullback.ones(3, requires_grad=True).exp()
    ...     loss = (h * 2).sin().sum()
    ...     print(pullback.autograd.graph.who_holds(h))
    >>> run()                                                   # doctest: +ELLIPSIS
    The memory of a tensor float32 [3] is held by
      local variable 'h' in function run at ...
      saved as 'out' by ExpBackward0 #...
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"who_holds(): expected a Tensor, not {type(tensor).__name__}")
    with DisableTorchFunction():
        search = _Search(memory_owners(tensor)[2])
        try:
            return search.run(tensor, _described(tensor))
        finally:
            search.__dict__.clear()


def _described(tensor):
    return f"a tensor {str(tensor.dtype).rpartition('.')[2]} {list(tensor.shape)}"


class _Search:
    """One search; the references that it makes are attributes, which its end removes."""

    def __init__(self, memory):
        self.memory = memory
        self.tensors: dict = {}  # id -> tensor over the memory
        self.storages: dict = {}  # id -> storage object of the memory
        self.roots: list = []  # nodes that have an object in Python
        self.names: dict = {}  # id of an object -> the local variables that refer to it
        self.snapshots = 0
        self.mine = {id(self.tensors), id(self.storages), id(self.roots), id(self.__dict__)}

    def run(self, tensor, what):
        """Return the holders."""
        self.tensors[id(tensor)] = tensor
        self.address = tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()
        self.read_locals()
        self.read_objects()
        self.modules = {
            id(vars(module)): name
            for name, module in list(sys.modules.items())
            if isinstance(module, ModuleType)
        }
        found = []
        for number in list(self.tensors):
            other = "" if number == id(tensor) else f"{_described(self.tensors[number])}: "
            for kind, where in self.holders_of(self.tensors[number], _DEPTH, set()):
                found.append(Holder(kind, other + where))
        for number in list(self.storages):
            for kind, where in self.holders_of(self.storages[number], _DEPTH, set()):
                found.append(Holder(kind, f"its storage: {where}"))
        found += self.saved()
        storage, _, memory, owners, _ = memory_owners(tensor)
        shown = self.snapshots + len(self.tensors) + len(self.storages)
        unknown = owners - shown if storage == memory else 0
        return Holders(what, list(dict.fromkeys(found)), max(unknown, 0))

    # ---- finding tensors and nodes ---------------------------------------------------------------

    def read_locals(self):
        """Note the local variables of all threads' functions."""
        waiting: list = list(sys._current_frames().values())
        while waiting:  # emptied, for one of the frames is that of this function
            frame = waiting.pop()
            if frame.f_code.co_filename != __file__:
                self.read_frame(frame)
            waiting += [frame.f_back] if frame.f_back is not None else []
            del frame

    def read_frame(self, frame):
        """Note the local variables of a function that runs."""
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # of a module, whose variables are found there, or of a class
        values = frame.f_locals
        code = frame.f_code
        for name, value in values.items():
            self.names.setdefault(id(value), []).append(
                f"local variable '{name}' in function {code.co_name} at "
                f"{code.co_filename}:{frame.f_lineno}"
            )
            if issubclass(type(value), Tensor):
                self.add(value)
        value = None
        # Before Python 3.13 the frame keeps this dict, and with it the values.
        if type(values) is dict and sys.getrefcount(values) <= 3:
            values.clear()

    def read_objects(self):
        """Find the tensors over the memory, and the nodes that have an object in Python."""
        for item in gc.get_objects():
            kind = type(item)
            if issubclass(kind, Node):
                self.roots.append(item)
            elif issubclass(kind, Tensor):
                self.add(item)
            elif issubclass(kind, StorageBase):
                if self.address and item.data_ptr() == self.address:
                    self.storages[id(item)] = item
            elif kind is not FrameType and id(item) not in self.mine:
                for inner in gc.get_referents(item):
                    if issubclass(type(inner), Tensor):
                        self.add(inner)

    def add(self, tensor):
        """Note a tensor if it is over the memory, and its node."""
        try:
            node = tensor.grad_fn
        except RuntimeError:  # a tensor that escaped from a vmap: its batch is gone
            return
        if node is not None:
            self.roots.append(node)
        for item in (tensor, tensor.grad if tensor.is_leaf else None, tensor._base):
            if item is not None and memory_owners(item)[2] == self.memory:
                self.tensors.setdefault(id(item), item)

    def saved(self):
        """Return the saved values over the memory."""
        found = []
        for node in nodes_from(self.roots):
            leaf = getattr(node, "variable", None)
            if leaf is not None and memory_owners(leaf)[2] == self.memory:
                found.append(Holder("node", f"leaf of the graph, by its {node.name()}"))
            for name, kind, tensor in saved_tensors(node):
                if tensor is None or memory_owners(tensor)[2] != self.memory:
                    continue
                self.snapshots += kind == "snapshot"
                line = source_line(node)
                how = "packed by a hook for" if kind == "packed" else "saved as"
                where = f"{how} '{name}' by {node_title(node)}"
                found.append(Holder("node", f"{where} at {line}" if line else where))
        return found

    # ---- describing what refers to them ----------------------------------------------------------

    def holders_of(self, item, depth, passed):
        """Return what refers to an object; of containers also what refers to them."""
        found = [Holder("python", where) for where in self.names.get(id(item), ())]
        passed = {*passed, id(item)}
        referrers = gc.get_referrers(item)
        self.mine.add(id(referrers))
        for referrer in referrers:
            if id(referrer) in self.mine or id(referrer) in passed:
                continue
            if isinstance(referrer, FrameType):
                found += self.suspended(referrer)
            if isinstance(referrer, (FrameType, Node)):
                continue  # local variables were found already, saved values are found by the walk
            found += self.described(referrer, item, depth, passed)
            if len(found) > _MOST:
                found[_MOST:] = [Holder("python", "and more")]
                break
        return found

    def suspended(self, frame):
        """Return the generator or coroutine of a frame: before Python 3.11 it is no referrer."""
        for owner in gc.get_referrers(frame):
            frames = getattr(owner, "gi_frame", None), getattr(owner, "cr_frame", None)
            is_running = getattr(owner, "gi_running", getattr(owner, "cr_running", False))
            if frame in frames and not is_running:
                return [Holder("python", self.position(owner, None)[0])]
        return []

    def described(self, referrer, item, depth, passed):
        """Return the holders that an object with a reference to another stands for."""
        if isinstance(referrer, Tensor):
            if referrer.is_leaf and referrer.grad is item:
                return [Holder("grad", f".grad of {_described(referrer)}")]
            if referrer._base is item:
                return [Holder("view", f"{_described(referrer)}, a view of it")]
            return []
        if isinstance(referrer, CellType):
            return [Holder("python", text) for text in _closures(referrer)]
        text, is_container = self.position(referrer, item)
        further = self.holders_of(referrer, depth - 1, passed) if is_container and depth else []
        return [Holder(kind, f"{text}, {where}") for kind, where in further] or (
            [Holder("python", text)]
        )

    def position(self, referrer, item):
        """Return where in an object another is, and whether the object is a plain container."""
        if isinstance(referrer, dict):
            key = next((key for key, value in referrer.items() if value is item), None)
            if id(referrer) in self.modules or "__builtins__" in referrer:
                module = self.modules.get(id(referrer), referrer.get("__name__"))
                return f"variable '{key}' of module {module}", False
            for owner in gc.get_referrers(referrer):
                if isinstance(owner, type) and owner.__dict__.get(str(key)) is item:
                    return f"attribute '{key}' of {owner!r}", False
                if getattr(owner, "__dict__", None) is referrer:
                    return f"attribute '{key}' of an object of class {_class(owner)}", False
            return f"key {key!r} of a dict", True
        if isinstance(referrer, (list, tuple)):
            where = next((k for k, value in enumerate(referrer) if value is item), 0)
            return f"element {where} of a {type(referrer).__name__}", True
        if isinstance(referrer, (set, frozenset)):
            return f"element of a {type(referrer).__name__}", True
        if isinstance(referrer, FunctionType):
            is_default = item is referrer.__defaults__ or item is referrer.__kwdefaults__
            what = "the defaults" if is_default else "an attribute"
            return f"{what} of function {referrer.__qualname__}", False
        frame = getattr(referrer, "gi_frame", None) or getattr(referrer, "cr_frame", None)
        if frame is not None:
            return f"a local variable of the suspended {referrer.__qualname__}", False
        name = _attribute(referrer, item)
        what = f"attribute '{name}' of an" if name else "an"
        return f"{what} object of class {_class(referrer)}", False


def _class(item):
    kind = type(item)
    return f"{kind.__module__}.{kind.__qualname__}"


def _attribute(owner, item):
    """Return the name of the attribute with this value, if there is one."""
    for name, value in getattr(owner, "__dict__", {}).items():
        if value is item:
            return name
    for kind in type(owner).__mro__:
        for name in vars(kind).get("__slots__", ()):
            if getattr(owner, name, None) is item:
                return name
    return None


def _closures(cell):
    """Return descriptions of the functions whose closure has a cell."""
    found = []
    for closure in gc.get_referrers(cell):
        if isinstance(closure, tuple):
            for function in gc.get_referrers(closure):
                if isinstance(function, FunctionType) and function.__closure__ is closure:
                    name = function.__code__.co_freevars[closure.index(cell)]
                    found.append(
                        f"variable '{name}' of the closure of function {function.__qualname__}"
                    )
    return found
