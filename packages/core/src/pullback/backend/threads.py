"""How many threads one op may use on the host when nobody said so in the program.

>>> from pullback.backend.threads import default_threads
>>> default_threads() >= 1
True
"""

from __future__ import annotations

import os
import warnings

VARIABLE = "PULLBACK_NUM_THREADS"
_LARGEST = 2**31 - 1


def _number_in(variable: str) -> int | None:
    """Return the positive integer that an environment variable holds, or None."""
    text = os.environ.get(variable, "").strip()
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST:
        return None
    return int(text)


def requested_threads() -> int | None:
    """Return what ``PULLBACK_NUM_THREADS`` says, or None.

    Warns: RuntimeWarning if it is not a positive integer, and is ignored.
    """
    number = _number_in(VARIABLE)
    if number is None and os.environ.get(VARIABLE):
        warnings.warn(
            f"{VARIABLE} is {os.environ[VARIABLE]!r} and is ignored: it must be a positive integer",
            RuntimeWarning,
            stacklevel=2,
        )
    return number


def default_threads() -> int:
    """Return the number of threads that one op may use.

    It is that of ``PULLBACK_NUM_THREADS``, else of ``OMP_NUM_THREADS``, else that of the processors
    which this process may run on.
    """
    number = requested_threads() or _number_in("OMP_NUM_THREADS")
    if number is not None:
        return number
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
