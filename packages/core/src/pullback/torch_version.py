"""``TorchVersion``: a version string that is compared as a version."""

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["TorchVersion"]

_FORM = (
    r"\s*v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d*))?"
    r"(?:(?:-|[-_.]?(?:post|rev|r)[-_.]?)(\d*))?(?:[-_.]?dev[-_.]?(\d*))?"
    r"(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*"
)


def _order(version: str) -> tuple[Any, ...] | None:
    """Return what sorts as a version of PEP 440 does, or None for another string."""
    found = re.fullmatch(_FORM, version, re.IGNORECASE)
    if found is None:
        return None
    epoch, release, kind, pre, post, dev, local = found.groups()
    numbers = [int(part) for part in release.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    if kind is not None:
        letter = {"al": "a", "be": "b", "pr": "rc", "c": "rc"}.get(kind.lower()[:2], kind.lower())
        before = (1, letter, int(pre or 0))
    else:  # a final release comes after its candidates, one that is only dev before them
        before = (0, "", 0) if dev is not None and post is None else (2, "", 0)
    parts = re.split("[-_.]", local.lower()) if local else []
    return (
        int(epoch or 0),
        tuple(numbers),
        before,
        -1 if post is None else int(post or 0),
        float("inf") if dev is None else int(dev or 0),
        tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts),
    )


class TorchVersion(str):
    """A version string that is compared as a version: with strings, tuples and versions.

    A string that is no version is compared as a string, and with nothing else.

    >>> from pullback.torch_version import TorchVersion
    >>> TorchVersion("1.10.0") > "1.9", TorchVersion("1.10.0") >= (1, 10)
    (True, True)
    >>> TorchVersion("2.0.0a1") < "2.0"
    True
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _compare(self, other: Any, name: str) -> Any:
        given = other
        if isinstance(other, Iterable) and not isinstance(other, str):
            other = ".".join(map(str, other))
        text = str(other) if isinstance(other, str) or hasattr(other, "release") else None
        if text is None:
            return NotImplemented
        mine, its = _order(str(self)), _order(text)
        if mine is None or its is None:  # strings are compared with strings alone, as in torch
            return getattr(super(), name)(given)
        return getattr(mine, name)(its)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "__eq__")

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "__ne__")

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "__lt__")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "__le__")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, "__gt__")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, "__ge__")
