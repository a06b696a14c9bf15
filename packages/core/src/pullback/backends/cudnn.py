"""Settings of NVIDIA's cuDNN, which no kernel uses: they are kept and change nothing.

>>> import pullback
>>> pullback.backends.cudnn.benchmark = True
>>> pullback.backends.cudnn.is_available()
False
>>> pullback.backends.cudnn.benchmark = False
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from pullback.backends._settings import restored

__all__ = ["flags", "is_acceptable", "is_available", "version"]

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Return False: no kernel uses cuDNN.

    >>> import pullback
    >>> pullback.backends.cudnn.is_available()
    False
    """
    return False


def version() -> None:
    """Return None, as torch does without cuDNN.

    >>> import pullback
    >>> pullback.backends.cudnn.version()
    """


def is_acceptable(tensor) -> bool:
    """Return False: no kernel uses cuDNN.

    >>> import pullback
    >>> pullback.backends.cudnn.is_acceptable(pullback.ones(2))
    False
    """
    return False


def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> AbstractContextManager[None]:
    """Set all settings in a region.

    >>> import pullback
    >>> with pullback.backends.cudnn.flags(benchmark=True):
    ...     print(pullback.backends.cudnn.benchmark)
    True
    """
    return restored(
        __name__,
        enabled=enabled,
        benchmark=benchmark,
        benchmark_limit=benchmark_limit,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )
