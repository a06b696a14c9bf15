"""Calls of modules as ranges, while a profile records."""

from __future__ import annotations

import threading
from typing import Any

from pullback.backend import begin_range, end_range, observe_module_calls

PREFIX = "nn.Module: "


class ModuleCalls:
    """Begins a range for every call of a module until ``stop``.

    Modules of a class are numbered by their first call. What is recorded of each is the name
    ``nn.Module: <class>_<number>``.
    """

    def __init__(self) -> None:
        # With the module, so that no other one gets its id meanwhile.
        self._names: dict[int, tuple[str, Any]] = {}
        self._counts: dict[str, int] = {}
        self._open = threading.local()
        self._stop = observe_module_calls(self._begin, self._end)

    def _begin(self, module: Any) -> None:
        named = self._names.get(id(module))
        if named is None:
            kind = type(module).__name__
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            named = self._names[id(module)] = (f"{PREFIX}{kind}_{number}", module)
        numbers = self._open.__dict__.setdefault("numbers", [])
        numbers.append(begin_range(named[0], None))

    def _end(self) -> None:
        end_range(self._open.numbers.pop())

    def stop(self) -> None:
        """Begin no more ranges, and forget the modules."""
        self._stop()
        self._names.clear()


def module_number(name: str) -> int:
    """Return the number of a module in the name of its range; -1 for other ranges.

    >>> module_number("nn.Module: Linear_3"), module_number("epoch_3")
    (3, -1)
    """
    if not name.startswith(PREFIX):
        return -1
    number = name.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1
