"""Shares of long suites: every n-th op, so that n runs look at all of them."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["chosen", "parsed", "rotating"]


def parsed(share: str) -> tuple[int, int]:
    """Return the numbers of a share "i/n"; "auto/n" is the one that is due.

    Raises: ValueError for any other text.

    >>> parsed("3/10")
    (3, 10)
    """
    first, _, count = share.partition("/")
    if count.isdecimal() and int(count):
        if first == "auto":
            return rotating(int(count)), int(count)
        if first.isdecimal() and int(first) < int(count):
            return int(first), int(count)
    raise ValueError(f"expected a share such as 3/10, from 0/10 to 9/10, or auto/10; got {share!r}")


def chosen(names: Sequence[str], share: str | None) -> list[str]:
    """Return the names in a share "i/n" of them: every n-th, from number i on; None: all.

    Raises: ValueError for any other text.

    >>> chosen("abcdefg", "1/3")
    ['b', 'e']
    """
    if share is None:
        return list(names)
    first, count = parsed(share)
    return list(names[first::count])


@functools.cache
def rotating(count: int) -> int:
    """Return which share is due: another one after each change of the package's sources.

    So all of the table is looked at in the course of time, and a failure fails again.
    """
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return zlib.crc32(b"".join(path.read_bytes() for path in sources)) % count
