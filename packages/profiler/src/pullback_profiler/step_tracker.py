"""The step of a program in which a profiler and optimizers each count steps."""

from __future__ import annotations

import threading
from typing import ClassVar


class KinetoStepTracker:
    """Counts the steps of a program, in which a profiler and some optimizers each count theirs.

    Each of them, a requester, has a count of its own. The program's step is the largest
    of them, so that two optimizers which step once in each iteration do not count it twice. It
    never decreases. A process has one tracker, which threads may share.

    >>> KinetoStepTracker.init_step_count("loop")
    >>> before = KinetoStepTracker.current_step()
    >>> KinetoStepTracker.increment_step("loop") - before
    1
    >>> KinetoStepTracker.increment_step("optimizer") - before  # its first: one after the loop's
    2
    >>> KinetoStepTracker.erase_step_count("loop"), KinetoStepTracker.erase_step_count("optimizer")
    (True, True)
    """

    _lock: ClassVar = threading.RLock()
    _current: ClassVar[int] = 0
    _counts: ClassVar[dict[str, int]] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Let a requester count from the program's step."""
        cls._counts[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget a requester; return whether it was known."""
        return cls._counts.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count one step of a requester, known or not, and return the program's step."""
        try:  # not `with`: out of memory, it could leave the lock taken
            cls._lock.acquire()
            cls._counts[requester] = cls._counts.get(requester, cls._current) + 1
            cls._current = max(cls._current, cls._counts[requester])
            return cls._current
        finally:
            try:
                cls._lock.release()
            except RuntimeError:  # an interrupt came before it was taken
                pass

    @classmethod
    def current_step(cls) -> int:
        """Return the program's step: the largest count that any requester has had."""
        return cls._current
