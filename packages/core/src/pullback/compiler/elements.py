"""The numbers of a function while it is captured: floats among its arguments, and elements.

A function may return them, and what it computes of them: each run computes that again, in Python.
Operators of tensors take floats as tensors. What else reads a number, or keeps it, needs to know
it: then the program is for that argument alone, or there is none, if ``item()`` gave the number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pullback import no_grad
from pullback._c.base.errors import place_of_call
from pullback._c.capture.recorder import refuse_element
from pullback._c.graph.tensor import Tensor
from pullback.compiler.numbers import Count, Number, NumberArgument, put_back
from pullback.compiler.sizes import is_own
from pullback.compiler.trees import is_node, items, leaves

_PASSING = {"get_scale"}  # functions of this package that return what item() gives

__all__ = ["Numbers", "Returned"]


class Numbers:
    """Arguments by their places, elements, and what a function has computed of them."""

    def __init__(self, places: dict[str, Tensor]):
        self.numbers: list[Number] = []
        self.arguments: dict[str, Number] = {
            where: self.add(tensor.item(), tensor, None) for where, tensor in places.items()
        }

    def take(self, tensor: Tensor, value: Any) -> Any:
        """Return what the function gets for an element; None: its value, which it then reads."""
        passes_on = sys._getframe(1).f_code.co_name in _PASSING
        if type(value) not in (float, int, bool) or is_own(3 if passes_on else 2):
            return None
        with no_grad():
            copied = tensor.detach().clone()
        return self.add(value, copied, place_of_call())

    def add(self, value: Any, tensor: Tensor | None, line: str | None) -> Number:
        """Note a number; ``line`` is where an element comes from."""
        kind = NumberArgument if type(value) is float else Count
        made = kind(value, tensor, _Origin(self, line))
        self.numbers.append(made)
        return made

    def read(self) -> set[str]:
        """Return the places of arguments that were read."""
        return {where for where, one in self.arguments.items() if one.is_read}

    def keep(self, value: Any) -> None:
        """Let go of the tensors that a function's value does not need."""
        needed = _needed(value) | {id(one) for one in self.arguments.values()}
        for one in self.numbers:
            if id(one) not in needed:
                one.tensor = None

    def returned(self, value: Any, first: int) -> Returned:
        """Return how a run makes the numbers of a function's value; ``first`` is a result."""
        needed = _needed(value)
        return Returned([one for one in self.numbers if id(one) in needed], first)

    def settle(self, value: list[Any]) -> str | None:
        """Put back the numbers that the function has kept besides its value.

        Returns why nothing can be replayed, if there are elements among them.
        """
        counts = _references((value, self.arguments, [one.operands for one in self.numbers]))
        lines: list[str | None] = []
        for number in range(len(self.numbers)):  # with a variable, there is one more reference
            lines.append(self.numbers[number].origin.line)
            self.numbers[number].origin = None
        put_back(self.numbers, counts, self.arguments)
        read = [line for one, line in zip(self.numbers, lines) if line is not None and one.is_read]
        return f"item(){read[0]}" if read else None


class _Origin:
    """Where a number comes from; ``line`` is None for arguments."""

    def __init__(self, numbers: Numbers, line: str | None):
        self.numbers, self.line = numbers, line

    def refuse(self) -> None:
        """Note that the program needs to know the value."""
        if self.line is not None:
            refuse_element(self.line)

    def computed(self, operation: Callable[..., Any], operands: tuple[Any, ...]) -> Number:
        """Return a number that is computed of others."""
        value = operation(*[one.value if isinstance(one, Number) else one for one in operands])
        made = self.numbers.add(value, None, self.line)
        made.operation, made.operands = operation, operands
        return made


def _references(tree: Any) -> dict[int, int]:
    """Return how often the numbers in a tree are referred to from there, by address."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, Number):
            found[id(one)] = found.get(id(one), 0) + 1
        elif is_node(one) and id(one) not in seen:
            seen.add(id(one))
            pending += items(one)
    return found


def _needed(value: Any) -> set[int]:
    """Return the addresses of the numbers in a tree, and of those from which they are computed."""
    found: set[int] = set()
    pending = [one for one in leaves(value) if isinstance(one, Number)]
    while pending:
        one = pending.pop()
        if isinstance(one, Number) and id(one) not in found:
            found.add(id(one))
            pending += one.operands
    return found


class Returned:
    """The numbers in a function's value, as each run makes them from a program's results."""

    def __init__(self, numbers: list[Number], first: int):
        sources = [one for one in numbers if one.operation is None]
        self.tensors = [one.tensor for one in sources]  # further results, from `first` on
        self._first = first
        self._places = {id(one): number for number, one in enumerate(sources)}
        self._steps: list[tuple[Callable[..., Any], list[tuple[bool, Any]]]] = []
        for one in numbers:
            if one.operation is not None:
                operands = [
                    (True, self._places[id(each)]) if isinstance(each, Number) else (False, each)
                    for each in one.operands
                ]
                self._places[id(one)] = len(sources) + len(self._steps)
                self._steps.append((one.operation, operands))

    def place(self, number: Number) -> int:
        """Return where a number is in ``values``."""
        return self._places[id(number)]

    def values(self, results: list[Any]) -> list[Any]:
        """Return the numbers of a run."""
        found = [results[self._first + number].item() for number in range(len(self.tensors))]
        for operation, operands in self._steps:
            found.append(
                operation(*[found[one] if is_number else one for is_number, one in operands])
            )
        return found
