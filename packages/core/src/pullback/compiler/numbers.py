"""Numbers that vary from call to call while a function is captured: arguments, and elements.

Operators of tensors take a float as a 0-d tensor, so that a program takes another one in each run,
and what ``item()`` returns may be returned. Everything else reads its value. On that of an argument
the program then depends; with that of an element there is no program.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable
from types import CellType
from typing import Any

import numpy

import pullback
from pullback._c.capture.compiled import is_on_host, number_like, replace_items
from pullback._c.dispatch.operands import set_number_class
from pullback._c.graph.tensor import Tensor
from pullback.compiler.sizes import FUNCTIONS, SizeArgument, plain
from pullback.compiler.trees import leaves, tree_map

__all__ = [
    "Count",
    "Number",
    "NumberArgument",
    "device_of_numbers",
    "put_back",
    "with_numbers",
    "without_numbers",
]

_UNKEPT = 3  # references to a number argument that nothing keeps, when it is put back


class Number:
    """A Python number that notes whether its value is read.

    It is an argument or an element, with a ``tensor`` of no dims, or computed of such: then it has
    an ``operation`` and operands. ``origin.refuse`` is called when the value is first read.
    """

    __slots__ = ("is_read", "operands", "operation", "origin", "tensor", "value")

    shape = ()  # as a NumPy number, which operations take for a Python number

    def __init__(self, value: Any, tensor: Tensor | None, origin: Any = None):
        self.value = value
        self.tensor = tensor
        self.origin = origin
        self.operation: Callable[..., Any] | None = None
        self.operands: tuple[Any, ...] = ()
        self.is_read = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def item(self) -> Any:
        """Return the value."""
        if not self.is_read:
            self.is_read = True
            if self.origin is not None:
                self.origin.refuse()
            for one in self.operands:
                if isinstance(one, Number):
                    one.item()
        return self.value

    def as_tensor(self) -> Tensor | None:
        """Return the number as a tensor of float64; None where kernels may compute another one."""
        if self.tensor is not None:
            found = number_like(self.tensor, False)
            return found if found.dtype is pullback.float64 else found.double()
        if self.operation not in _EXACT:
            return None
        parts: list[Any] = []
        for one in self.operands:
            is_count = isinstance(one, Count)
            if is_count and (self.operation is _DIVIDE or one.operation is not None):
                return None
            parts.append(one.as_tensor() if isinstance(one, Number) else float(one))
        return None if any(one is None for one in parts) else self.operation(*parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.item(), name)

    def __reduce__(self) -> Any:
        value = self.item()
        return type(value), (value,)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return numpy.asarray(self.item(), *args)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Call a function of NumPy with the values, which promote as Python's numbers do."""
        return getattr(function, method)(*map(_plain, inputs), **kwargs)


class NumberArgument(Number):
    """A float, argument or not, which operators of tensors take as a tensor."""

    __slots__ = ()


class Count(Number):
    """An int or a bool."""

    __slots__ = ()


# Operations that raise nothing for other numbers; of two operands, the second is no element.
_COMPUTED: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": FUNCTIONS[f"__{name}__"] for name in "add sub mul neg pos abs".split()},
    **{f"__{name}__": FUNCTIONS[f"__{name}__"] for name in "truediv floordiv mod".split()},
    "__round__": round,
    "__radd__": lambda one, other: other + one,
    "__rsub__": lambda one, other: other - one,
    "__rmul__": lambda one, other: other * one,
}
_DIVIDE = FUNCTIONS["__truediv__"]
_EXACT = [
    one for name, one in _COMPUTED.items() if name not in ("__round__", "__floordiv__", "__mod__")
]
_DIVISIONS = {"__truediv__", "__floordiv__", "__mod__"}


def _is_computed(name: str, number: Number, args: tuple[Any, ...]) -> bool:
    """Return True if a result is a number that can be computed anew in each run."""
    if number.origin is None or name not in _COMPUTED:
        return False
    if not args:
        return name != "__round__"
    other = args[0]
    if isinstance(other, Number):
        return other.origin is not None and name not in _DIVISIONS
    if name == "__round__":
        return type(other) is int and other >= 0
    if type(other) is SizeArgument:
        return name not in _DIVISIONS or other.value != 0
    return type(other) in (int, float, bool) and bool(other or name not in _DIVISIONS)


def _method(name: str) -> Callable[..., Any]:
    is_reflected = name not in FUNCTIONS and name.startswith("__r")
    function = FUNCTIONS.get(f"__{name[3:]}" if is_reflected else name)

    def read(self: Number, *args: Any) -> Any:
        if any(isinstance(one, Tensor) for one in args):
            return NotImplemented
        if _is_computed(name, self, args):
            for one in args:
                if type(one) is SizeArgument:  # a run for another size has this one as well
                    one.size_log.note(name, (one.value,), None)
            return self.origin.computed(_COMPUTED[name], (self, *map(plain, args)))
        value, others = (
            self.item(),
            [one.item() if isinstance(one, Number) else one for one in args],
        )
        if len(others) != 1 or function is None:
            return getattr(type(value), name)(value, *others)
        return function(others[0], value) if is_reflected else function(value, others[0])

    read.__name__ = name
    return read


_SKIPPED = {"__new__", "__getattribute__", "__getformat__", "__getnewargs__", "__class_getitem__"}
for _kind, _like in ((NumberArgument, float), (Count, int)):
    for _name in vars(_like).keys() - {*vars(Number), *_SKIPPED}:
        if _name.startswith("__") and callable(getattr(_like, _name)):
            setattr(_kind, _name, _method(_name))


def _operand(number: NumberArgument, other: Any, as_tensor: bool) -> Tensor | float:
    """Return what an op takes for a number beside another operand."""
    if as_tensor and type(other) is Tensor and number.origin is not None:
        with pullback.no_grad():
            found = number.as_tensor()
        if found is not None and found.device == other.device and is_on_host(found):
            return number_like(found, True)
    return number.item()


set_number_class(NumberArgument, _operand)


def device_of_numbers(values: Any) -> Tensor | None:
    """Return a tensor of the device for numbers, if that is the host's.

    That is the device of the first argument; without one, the default device.
    """
    first = next((one for one in leaves(values) if isinstance(one, Tensor)), None)
    first = pullback.empty(()) if first is None else first
    return first if is_on_host(first) else None


def with_numbers(value: Any, where: str, numbers: dict[str, Number]) -> Any:
    """Return arguments with numbers at some places."""
    if where in numbers:
        return numbers[where]
    if isinstance(value, tuple):
        items = [with_numbers(one, f"{where}[{i}]", numbers) for i, one in enumerate(value)]
        if all(one is item for one, item in zip(value, items, strict=True)):
            return value
        return tuple(items) if type(value) is tuple else type(value)(*items)
    if where == "kwargs":
        return {key: with_numbers(one, f"{where}[{key!r}]", numbers) for key, one in value.items()}
    return value


def without_numbers(value: Any) -> Any:
    """Return a function's result with Python's numbers."""
    if any(isinstance(one, Number) for one in leaves(value)):
        return tree_map(lambda one: one.value if isinstance(one, Number) else one, value)
    return value


def put_back(numbers: list[Number], expected: dict[int, int], own: Any) -> None:
    """Replace numbers that a function has kept, such as in options.

    They are read: a program would not keep the next ones. ``expected`` has how many references to
    each there are besides those; ``own`` is a container of some that stays as it is.
    """
    kept = [one for one in numbers if sys.getrefcount(one) > _UNKEPT + expected.get(id(one), 0)]
    for one in kept:
        one.item()
    for _ in range(3):  # a number may be in a tuple in a tuple
        left = [one for one in kept if sys.getrefcount(one) > _UNKEPT + expected.get(id(one), 0)]
        for holder in gc.get_referrers(*left) if left else ():
            if not any(holder is one for one in (kept, left, numbers, own)):
                _mend(holder)


def _mend(holder: Any) -> None:
    """Replace the numbers that an object holds."""
    if isinstance(holder, CellType):
        holder.cell_contents = _plain(holder.cell_contents)
    elif isinstance(holder, dict):
        found = [(_plain(key), _plain(value)) for key, value in holder.items()]
        if any(isinstance(key, Number) for key in holder):
            dict.clear(holder)
        dict.update(holder, found)  # not that of a subclass, which may count
    elif isinstance(holder, (list, deque)):
        for i, one in enumerate(holder):
            holder[i] = _plain(one)
    elif isinstance(holder, set):
        found = [*map(_plain, holder)]
        holder.clear()
        holder.update(found)
    elif isinstance(holder, tuple):
        replace_items(holder, [*map(_plain, holder)])
    elif not isinstance(holder, Number):
        for name in _attributes_of(holder):
            if isinstance(getattr(holder, name, None), Number):
                setattr(holder, name, _plain(getattr(holder, name)))


def _attributes_of(value: Any) -> list[str]:
    found = [*getattr(value, "__dict__", ())]
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Number) else value
