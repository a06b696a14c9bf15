"""Records of memory during an interval."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any


class MemRecordsAcc:
    """Records of memory, sorted once so that those of an interval are found fast.

    A record is a sequence whose first item has ``start_ns()``, its time in nanoseconds.

    >>> from pullback_profiler import MemRecordsAcc
    >>> class Allocation:
    ...     def __init__(self, ns):
    ...         self.ns = ns
    ...     def start_ns(self):
    ...         return self.ns
    >>> records = [(Allocation(30), "b"), (Allocation(10), "a"), (Allocation(50), "c")]
    >>> [name for _, name in MemRecordsAcc(records).in_interval(10, 30)]
    ['a', 'b']
    """

    def __init__(self, mem_records: Sequence[Sequence[Any]]) -> None:
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())
        self._starts = [record[0].start_ns() for record in self._records]

    def in_interval(self, start_ns: int, end_ns: int) -> Iterator[Sequence[Any]]:
        """Yield the records from ``start_ns`` to ``end_ns``, both included, by time.

        >>> from pullback_profiler import MemRecordsAcc
        >>> list(MemRecordsAcc([]).in_interval(0, 100))
        []
        """
        first = bisect.bisect_left(self._starts, start_ns)
        last = bisect.bisect_right(self._starts, end_ns)
        yield from self._records[first:last]
