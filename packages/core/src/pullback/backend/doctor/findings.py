"""What an examination finds: one line each."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable

__all__ = ["Finding", "attempt", "expect_error"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report. ``good``: True, False, or None for what is neither.

    >>> from pullback.backend.doctor import Finding
    >>> print(Finding("memory", "a block", True, "4096 bytes"))
    ok    a block: 4096 bytes
    """

    part: str
    what: str
    good: bool | None
    detail: str = ""

    def __str__(self) -> str:
        mark = {True: "ok", False: "FAIL", None: "-"}[self.good]
        detail = textwrap.shorten(self.detail, 200, placeholder=" ...")
        return f"{mark:<5} {self.what}{': ' if detail else ''}{detail}"


def attempt(part: str, what: str, check: Callable[[], str | None]) -> Finding:
    """Run a check, which returns a detail or raises; what it raises is the detail of a failure."""
    try:
        return Finding(part, what, True, check() or "")
    except Exception as error:  # the other checks are of interest, too
        lines = str(error).strip().splitlines() or [""]
        more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
        return Finding(part, what, False, f"{type(error).__name__}: {lines[0]}{more}")


def expect_error(kind: type[Exception], run: Callable[[], object]) -> str:
    """Return the text of the exception that a call raises.

    Raises: AssertionError where it raises none, or one of another class.
    """
    try:
        run()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise AssertionError(f"expected {kind.__name__}, got {got}") from error
    raise AssertionError(f"expected {kind.__name__}, nothing was raised")
