"""Floats that are arguments of a compiled function while it is captured.

Operators of tensors take such a number as a 0-d tensor, so that a program takes another one in each
run. Everything else reads its value, on which the program then depends.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from pullback._c.capture.compiled import is_on_host
from pullback._c.dispatch.operands import set_number_class
from pullback._c.graph.tensor import Tensor
from pullback.func._tree import leaves, tree_map

__all__ = ["NumberArgument", "device_of_numbers", "put_back", "with_numbers", "without_numbers"]

_UNKEPT = 3  # references to a number argument that nothing keeps, when it is put back


class NumberArgument:
    """A float that notes whether its value is read."""

    __slots__ = ("is_read", "tensor", "value")

    shape = ()  # as a NumPy number, which operations take for a Python number

    def __init__(self, value: float, tensor: Tensor):
        self.value = value
        self.tensor: Tensor | None = tensor
        self.is_read = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def item(self) -> float:
        """Return the value."""
        self.is_read = True
        return self.value

    def close(self) -> bool:
        """Be a number like another from now on; return whether it was read."""
        self.tensor = None
        return self.is_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.item(), name)

    def __reduce__(self) -> Any:
        return float, (self.item(),)


def _method_of_float(name: str) -> Callable[..., Any]:
    method = getattr(float, name)

    def read(self: NumberArgument, *args: Any) -> Any:
        if any(isinstance(one, Tensor) for one in args):
            return NotImplemented
        return method(
            self.item(), *[one.item() if type(one) is NumberArgument else one for one in args]
        )

    read.__name__ = name
    return read


_SKIPPED = {"__new__", "__getattribute__", "__getformat__", "__getnewargs__", "__class_getitem__"}
for _name in vars(float).keys() - {*vars(NumberArgument), *_SKIPPED}:
    if _name.startswith("__") and callable(getattr(float, _name)):
        setattr(NumberArgument, _name, _method_of_float(_name))


def _operand(number: NumberArgument, other: Any, as_tensor: bool) -> Tensor | float:
    """Return what an op takes for a number beside another operand."""
    if (
        number.tensor is not None
        and as_tensor
        and type(other) is Tensor
        and other.device == number.tensor.device
    ):
        return number.tensor
    return number.item()


set_number_class(NumberArgument, _operand)


def device_of_numbers(values: Any) -> Tensor | None:
    """Return a tensor of the device for numbers: the first argument's, if that is the host's."""
    first = next((one for one in leaves(values) if isinstance(one, Tensor)), None)
    return first if first is not None and is_on_host(first) else None


def with_numbers(value: Any, where: str, numbers: dict[str, Tensor], made: dict[str, Any]) -> Any:
    """Return arguments with number arguments at some places; ``made`` gets those."""
    if where in numbers:
        made[where] = NumberArgument(value, numbers[where])
        return made[where]
    if isinstance(value, tuple):
        items = [with_numbers(one, f"{where}[{i}]", numbers, made) for i, one in enumerate(value)]
        if all(one is item for one, item in zip(value, items, strict=True)):
            return value
        return tuple(items) if type(value) is tuple else type(value)(*items)
    if where == "kwargs":
        return {
            key: with_numbers(one, f"{where}[{key!r}]", numbers, made) for key, one in value.items()
        }
    return value


def without_numbers(value: Any) -> Any:
    """Return a function's result with floats for number arguments."""
    if any(type(one) is NumberArgument for one in leaves(value)):
        return tree_map(lambda one: one.item() if type(one) is NumberArgument else one, value)
    return value


def put_back(numbers: dict[str, NumberArgument]) -> None:
    """Replace number arguments that a function has kept in dicts and lists, such as options.

    Then it has read them: a program would not keep the next one.
    """
    kept = [one for one in numbers.values() if sys.getrefcount(one) > _UNKEPT]
    own = {id(numbers), id(kept)}
    for holder in gc.get_referrers(*kept) if kept else ():
        if id(holder) in own:
            continue
        if isinstance(holder, dict):
            for key in [key for key, one in holder.items() if type(one) is NumberArgument]:
                holder[key] = holder[key].item()
        elif isinstance(holder, list):
            for i, one in enumerate(holder):
                if type(one) is NumberArgument:
                    holder[i] = one.item()
