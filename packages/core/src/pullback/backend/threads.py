"""The default number of threads that one op may use on the host.

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
    """Return the positive integer in an environment variable, or None."""
    text = os.environ.get(variable, "").strip()
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST:
        return None
    return int(text)


def requested_threads() -> int | None:
    """Return the number in ``PULLBACK_NUM_THREADS``, or None.

    Warns: RuntimeWarning if it is not a positive integer; it is ignored then.
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

    It is ``PULLBACK_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of processors that
    this process may use.
    """
    number = requested_threads() or _number_in("OMP_NUM_THREADS")
    if number is not None:
        return number
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
