"""Intervals, text of times, shares and amounts of memory, and files for text."""

from __future__ import annotations

import os
from typing import Any, TextIO, cast

# How many microseconds a unit of time has; the largest comes first.
US_PER_UNIT = {"s": 1e6, "ms": 1e3, "us": 1.0}


class Interval:
    """A span of time with ``start`` and ``end`` in microseconds.

    >>> from pullback_profiler import Interval
    >>> Interval(2.0, 6.5).elapsed_us()
    4.5
    """

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """Return the length of the span in microseconds."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start!r}, end={self.end!r})"


def format_time(time_us: float, unit: str | None = None) -> str:
    """Return a time given in microseconds with three decimals, in s, ms or us.

    Without ``unit`` it is chosen before rounding, so 999.9996 stays in microseconds.

    >>> format_time(1500), format_time(1500, unit="us")
    ('1.500ms', '1500.000us')
    """
    if unit is None:
        unit = next((name for name, size in US_PER_UNIT.items() if time_us >= size), "us")
    return f"{time_us / US_PER_UNIT[unit]:.3f}{unit}"


def format_share(part: float, whole: float) -> str:
    """Return a part of a whole in percent with two decimals; ``NaN`` of nothing.

    >>> format_share(1, 8), format_share(0, 0)
    ('12.50%', 'NaN')
    """
    return f"{part * 100 / whole:.2f}%" if whole else "NaN"


def format_memory(nbytes: int) -> str:
    """Return an amount of memory, or a change of it, in the largest 1024-based unit that fits.

    >>> format_memory(-2048)
    '-2.00 KB'
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


def without_halves(text: str) -> str:
    """Return a text with U+FFFD for each half of a character, which no UTF-8 file can hold.

    >>> without_halves("a\\udc80.py") == "a\\ufffd.py"
    True
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def open_text(path: str | bytes | os.PathLike[Any]) -> TextIO:
    """Open a file to write UTF-8 text; one whose name ends in ``.gz`` is compressed.

    Raises: OSError when it cannot be made.

    >>> import os
    >>> with open_text(os.devnull) as file:
    ...     file.write("frame 1")
    7
    """
    if os.fsdecode(path).endswith(".gz"):
        import gzip

        return cast(TextIO, gzip.open(path, "wt", encoding="utf-8"))
    return open(path, "w", encoding="utf-8")
