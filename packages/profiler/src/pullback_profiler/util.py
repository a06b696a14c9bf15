"""What reports are made of: intervals, and how times and amounts of memory are written."""

from __future__ import annotations


class Interval:
    """A span of time with ``start`` and ``end`` in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """Return the length of the span in microseconds."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start!r}, end={self.end!r})"


def format_time(time_us: float) -> str:
    """Return a time given in microseconds with three decimals, in s, ms or us.

    The unit is chosen before rounding, so 999.9996 stays in microseconds.

    >>> format_time(1500)
    '1.500ms'
    """
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3f}s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3f}ms"
    return f"{time_us:.3f}us"


def format_memory(nbytes: int) -> str:
    """Return an amount of memory, or a change of it, in the largest 1024-based unit that fits.

    >>> format_memory(-2048)
    '-2.00 KB'
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"
