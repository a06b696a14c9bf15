"""Settings of Intel's oneDNN, which no kernel uses: they are kept and change nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pullback.backends._settings import restored

__all__ = ["flags", "is_available"]

enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Return False: no kernel uses oneDNN.

    >>> import pullback
    >>> pullback.backends.mkldnn.is_available()
    False
    """
    return False


def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True
) -> AbstractContextManager[None]:
    """Set all settings in a region.

    >>> import pullback
    >>> with pullback.backends.mkldnn.flags(enabled=False):
    ...     print(pullback.backends.mkldnn.enabled)
    False
    """
    return restored(__name__, enabled=enabled, deterministic=deterministic, allow_tf32=allow_tf32)
