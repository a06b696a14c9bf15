"""An unpickler that makes data and calls nothing but the functions of a list.

It knows the opcodes that pickles of data have. Each length is compared with what is left of the
pickle before memory is allocated, and tuples have a limited depth, because hashing one recurses.
"""

from __future__ import annotations

import collections
import contextlib
import struct
from pickle import UnpicklingError

from pullback.serialization.names import ALLOWED, CALLED, brief

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "safe_globals",
]

_DEPTH = 200
_HASHED_BY_ITEMS = (tuple, frozenset)
_BLOCKED = {"sys", "os", "posix", "nt"}
_safe: dict[str, object] = {}


# ---- the list of users ---------------------------------------------------------------------------


def _named(items):
    """Yield (name, object) of objects, or of pairs of an object and its name."""
    for item in items:
        if isinstance(item, tuple):
            if len(item) != 2 or not isinstance(item[1], str):
                raise ValueError(f"expected an object, or an object and its name, got {item!r}")
            yield item[1], item
        else:
            yield f"{item.__module__}.{item.__qualname__}", item


def add_safe_globals(safe_globals):
    """Let ``load`` use further functions and classes: a list of them, or of pairs with a name.

    A file may then call them with any arguments, so they must be harmless.
    Raises: ValueError for a tuple that is no pair of an object and a name.

    >>> import fractions, pullback
    >>> pullback.serialization.add_safe_globals([fractions.Fraction])
    >>> pullback.serialization.get_safe_globals()
    [<class 'fractions.Fraction'>]
    >>> pullback.serialization.clear_safe_globals()
    """
    _safe.update(_named(safe_globals))


def get_safe_globals():
    """Return the list that ``add_safe_globals`` has made.

    >>> import pullback
    >>> pullback.serialization.get_safe_globals()
    []
    """
    return list(_safe.values())


def clear_safe_globals():
    """Empty the list that ``add_safe_globals`` has made.

    >>> import pullback
    >>> pullback.serialization.clear_safe_globals()
    """
    _safe.clear()


@contextlib.contextmanager
def _added(safe_globals):
    before = dict(_safe)
    _safe.update(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


def safe_globals(safe_globals):
    """Return a context in which ``load`` may use further functions and classes.

    >>> import fractions, pullback
    >>> with pullback.serialization.safe_globals([fractions.Fraction]):
    ...     len(pullback.serialization.get_safe_globals())
    1
    """
    return _added(dict(_named(safe_globals)))


# ---- the unpickler -------------------------------------------------------------------------------


class _OfStorage(Exception):
    """An error of reading or placing a storage, which is none of the pickle."""

    def __init__(self, error):
        self.error = error


class RestrictedUnpickler:
    """Reads one pickle in a buffer, from a position; ``position`` is behind it afterwards.

    ``persistent_load`` makes storages of their descriptions; ``encoding`` is that of byte strings
    of Python 2.
    """

    def __init__(self, data, position, persistent_load, encoding="utf-8"):
        self.data, self.position = memoryview(data), position
        self.persistent_load, self.encoding = persistent_load, encoding
        self.stack: list = []
        self.marks: list[int] = []
        self.memo: dict = {}
        self.depths: dict[int, int] = {}

    def load(self):
        """Return the object.

        Raises: UnpicklingError for anything that the list does not allow and for broken pickles;
        RuntimeError for tensors that are not within their storage.
        """
        data, codes = self.data, _CODES
        try:
            while True:
                code = data[self.position]
                self.position += 1
                if code == 0x2E:  # STOP
                    return self.stack.pop()
                step = codes.get(code)
                if step is None:
                    raise UnpicklingError(f"Unsupported operand {code}")
                step(self)
        except _OfStorage as error:
            raise error.error from None
        except (UnpicklingError, RuntimeError, MemoryError):
            raise
        except Exception as error:
            raise UnpicklingError(
                f"the pickle is broken: {type(error).__name__}: {error}"
            ) from None

    # ---- bytes ----

    def take(self, count):
        """Return the next bytes."""
        begin = self.position
        if not 0 <= count <= len(self.data) - begin:
            raise UnpicklingError("pickle data was truncated")
        self.position = begin + count
        return self.data[begin : begin + count]

    def unsigned(self, count):
        """Return the next little-endian number."""
        return int.from_bytes(self.take(count), "little")

    def line(self):
        """Return the text up to the next newline."""
        rest = bytes(self.data[self.position : self.position + 4096])
        end = rest.find(b"\n")
        if end < 0:
            raise UnpicklingError("pickle data was truncated")
        self.position += end + 1
        return rest[:end].decode("utf-8")

    # ---- the stack ----

    def push(self, value):
        self.stack.append(value)

    def push_tuple(self, value):
        """Push a tuple or frozenset, unless it is too deep to be hashed without danger."""
        depths = self.depths
        depth = 1
        for item in value:
            if type(item) in _HASHED_BY_ITEMS:
                depth = max(depth, 1 + depths.get(id(item), 0))
        if depth > _DEPTH:
            raise UnpicklingError(f"tuples are nested deeper than {_DEPTH}")
        depths[id(value)] = depth
        self.stack.append(value)

    def since_mark(self):
        """Remove and return what is above the last mark."""
        begin = self.marks.pop()
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    # ---- names and calls ----

    def found(self, module, name):
        """Return what a name stands for."""
        module = "builtins" if module == "__builtin__" else module
        full = f"{module}.{name}"
        if full in _safe:
            item = _safe[full]
            return item[0] if isinstance(item, tuple) else item
        if full in ALLOWED:
            return ALLOWED[full]
        if module.partition(".")[0] in _BLOCKED:
            raise UnpicklingError(
                f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked."
            )
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use "
            f"`pullback.serialization.add_safe_globals([{full}])` or the "
            f"`pullback.serialization.safe_globals([{full}])` context manager to allowlist this "
            "global if you trust this class/function."
        )

    def users(self, value):
        """Return True for what users have put on the list."""
        return any(
            value is (item[0] if isinstance(item, tuple) else item) for item in _safe.values()
        )

    def call(self, function, args):
        """Push the result of a function of the list."""
        try:
            allowed = function in CALLED
        except TypeError:
            allowed = False
        if not isinstance(args, tuple) or not (allowed or self.users(function)):
            raise UnpicklingError(
                f"Trying to call reduce for unrecognized function {brief(function)}"
            )
        self.stack.append(function(*args))

    def build(self):
        """Set the state of an object whose class is on the list."""
        state = self.stack.pop()
        instance = self.stack[-1]
        kind = type(instance)
        if kind is collections.OrderedDict:
            instance.__dict__.update(state)
        elif not self.users(kind):
            raise UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                f"`add_safe_globals`, but got {kind}"
            )
        elif hasattr(instance, "__setstate__"):
            instance.__setstate__(state)
        else:
            slots = None
            if isinstance(state, tuple) and len(state) == 2:
                state, slots = state
            if state:
                instance.__dict__.update(state)
            for name, value in (slots or {}).items():
                setattr(instance, name, value)

    def new_object(self):
        """Push an object of a class of the list, made by ``__new__``."""
        args, kind = self.stack.pop(), self.stack.pop()
        if kind is collections.OrderedDict and not args:
            self.stack.append(kind())
        elif isinstance(kind, type) and isinstance(args, tuple) and self.users(kind):
            self.stack.append(kind.__new__(kind, *args))
        else:
            raise UnpicklingError(
                f"Trying to create new object for unrecognized class {brief(kind)}"
            )

    def from_stack(self):
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("a global has no name")
        self.stack.append(self.found(module, name))

    # ---- containers ----

    def append(self, items):
        target = self.stack[-1]
        if type(target) is not list:
            raise UnpicklingError(f"Can only append to lists, but got {type(target)}")
        target.extend(items)

    def set_items(self, items):
        target = self.stack[-1]
        if type(target) not in (dict, collections.OrderedDict, collections.Counter):
            raise UnpicklingError(f"Can only set items of dicts, but got {type(target)}")
        for i in range(0, len(items), 2):
            target[items[i]] = items[i + 1]

    def add_items(self, items):
        target = self.stack[-1]
        if type(target) is not set:
            raise UnpicklingError(f"Can only add to sets, but got {type(target)}")
        target.update(items)

    def pop(self):
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def pops(self, count):
        """Remove and return the uppermost values."""
        if len(self.stack) < count:
            raise UnpicklingError("the stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def reduce(self):
        args, function = self.stack.pop(), self.stack.pop()
        self.call(function, args)

    def frame(self):
        if self.unsigned(8) > len(self.data) - self.position:
            raise UnpicklingError("pickle data was truncated")

    def persistent(self):
        description = self.stack.pop()
        try:
            self.stack.append(self.persistent_load(description))
        except Exception as error:
            raise _OfStorage(error) from None

    def text(self, count):
        return str(self.take(self.unsigned(count)), "utf-8", "surrogatepass")

    def raw_string(self, count):
        data = bytes(self.take(self.unsigned(count)))
        return data if self.encoding == "bytes" else data.decode(self.encoding)

    def protocol(self):
        if self.unsigned(1) > 5:
            raise UnpicklingError("the pickle has a protocol that is not supported")


def _long(data):
    return int.from_bytes(data, "little", signed=True)


def _constant(value):
    return lambda u: u.stack.append(value)


def _remember(u, index):
    u.memo[index] = u.stack[-1]


_STEPS = {
    b"\x80": RestrictedUnpickler.protocol,
    b"\x95": RestrictedUnpickler.frame,
    b"(": lambda u: u.marks.append(len(u.stack)),
    b"0": RestrictedUnpickler.pop,
    b"1": lambda u: u.since_mark() and None,
    b"2": lambda u: u.push(u.stack[-1]),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"J": lambda u: u.push(struct.unpack("<i", u.take(4))[0]),
    b"K": lambda u: u.push(u.unsigned(1)),
    b"M": lambda u: u.push(u.unsigned(2)),
    b"\x8a": lambda u: u.push(_long(u.take(u.unsigned(1)))),
    b"\x8b": lambda u: u.push(_long(u.take(u.unsigned(4)))),
    b"G": lambda u: u.push(struct.unpack(">d", u.take(8))[0]),
    b"X": lambda u: u.push(u.text(4)),
    b"\x8c": lambda u: u.push(u.text(1)),
    b"\x8d": lambda u: u.push(u.text(8)),
    b"T": lambda u: u.push(u.raw_string(4)),
    b"U": lambda u: u.push(u.raw_string(1)),
    b"B": lambda u: u.push(bytes(u.take(u.unsigned(4)))),
    b"C": lambda u: u.push(bytes(u.take(u.unsigned(1)))),
    b"\x8e": lambda u: u.push(bytes(u.take(u.unsigned(8)))),
    b"\x96": lambda u: u.push(bytearray(u.take(u.unsigned(8)))),
    b"}": lambda u: u.push({}),
    b"]": lambda u: u.push([]),
    b")": lambda u: u.push(()),
    b"\x8f": lambda u: u.push(set()),
    b"t": lambda u: u.push_tuple(tuple(u.since_mark())),
    b"\x85": lambda u: u.push_tuple(tuple(u.pops(1))),
    b"\x86": lambda u: u.push_tuple(tuple(u.pops(2))),
    b"\x87": lambda u: u.push_tuple(tuple(u.pops(3))),
    b"l": lambda u: u.push(u.since_mark()),
    b"\x91": lambda u: u.push_tuple(frozenset(u.since_mark())),
    b"a": lambda u: u.append(u.pops(1)),
    b"e": lambda u: u.append(u.since_mark()),
    b"s": lambda u: u.set_items(u.pops(2)),
    b"u": lambda u: u.set_items(u.since_mark()),
    b"\x90": lambda u: u.add_items(u.since_mark()),
    b"h": lambda u: u.push(u.memo[u.unsigned(1)]),
    b"j": lambda u: u.push(u.memo[u.unsigned(4)]),
    b"q": lambda u: _remember(u, u.unsigned(1)),
    b"r": lambda u: _remember(u, u.unsigned(4)),
    b"\x94": lambda u: _remember(u, len(u.memo)),
    b"c": lambda u: u.push(u.found(u.line(), u.line())),
    b"\x93": RestrictedUnpickler.from_stack,
    b"R": RestrictedUnpickler.reduce,
    b"\x81": RestrictedUnpickler.new_object,
    b"b": RestrictedUnpickler.build,
    b"Q": RestrictedUnpickler.persistent,
}
_CODES = {code[0]: step for code, step in _STEPS.items()}
