"""Settings of saving and loading."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from typing import Any, TypeAlias

from pullback._c.device.device import device

__all__ = [
    "LoadEndianness",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]

MAP_SHARED, MAP_PRIVATE = 1, 2
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | device | str | dict[str, str] | None


class LoadEndianness(enum.Enum):
    """The byte order of files that do not say theirs.

    >>> import pullback
    >>> [order.name for order in pullback.serialization.LoadEndianness]
    ['NATIVE', 'LITTLE', 'BIG']
    """

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Settings:
    endianness: LoadEndianness | None = None
    checksums = True
    mapping = MAP_PRIVATE
    skip = False


settings = _Settings()


def get_default_load_endianness():
    """Return the byte order for files that do not say theirs; None stands for little-endian.

    >>> import pullback
    >>> pullback.serialization.get_default_load_endianness() is None
    True
    """
    return settings.endianness


def set_default_load_endianness(endianness):
    """Choose the byte order for files that do not say theirs; None for little-endian.

    Raises: TypeError for anything but None and a LoadEndianness.

    >>> import pullback
    >>> pullback.serialization.set_default_load_endianness(None)
    """
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    settings.endianness = endianness


def get_crc32_options():
    """Return True if ``save`` writes checksums.

    >>> import pullback
    >>> pullback.serialization.get_crc32_options()
    True
    """
    return settings.checksums


def set_crc32_options(compute_crc32):
    """Choose whether ``save`` writes checksums; without them ``load`` cannot tell damage.

    >>> import pullback
    >>> pullback.serialization.set_crc32_options(True)
    """
    settings.checksums = bool(compute_crc32)


def get_default_mmap_options():
    """Return how ``load(mmap=True)`` maps files: ``mmap.MAP_PRIVATE`` or ``mmap.MAP_SHARED``.

    >>> import mmap, pullback
    >>> pullback.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    True
    """
    return settings.mapping


class set_default_mmap_options:
    """Choose how ``load(mmap=True)`` maps files; a context manager takes it back.

    ``mmap.MAP_PRIVATE``: writes change copies of this process. ``mmap.MAP_SHARED``: writes change
    the file.
    Raises: ValueError for other flags.

    >>> import mmap, pullback
    >>> with pullback.serialization.set_default_mmap_options(mmap.MAP_SHARED):
    ...     pullback.serialization.get_default_mmap_options() == mmap.MAP_SHARED
    True
    """

    def __init__(self, flags):
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE "
                f"or mmap.MAP_SHARED, but got {flags}"
            )
        self.before = settings.mapping
        settings.mapping = flags

    def __enter__(self):
        return None

    def __exit__(self, *error):
        settings.mapping = self.before


@contextlib.contextmanager
def skip_data(materialize_fake_tensors=False):
    """Leave out the bytes of storages: ``save`` writes zeros, ``load`` leaves uninitialised bytes.

    >>> import io, pullback
    >>> file = io.BytesIO()
    >>> with pullback.serialization.skip_data():
    ...     pullback.save(pullback.ones(2), file)
    >>> _ = file.seek(0)
    >>> pullback.load(file)
    tensor([0., 0.])
    """
    before = settings.skip
    settings.skip = True
    try:
        yield
    finally:
        settings.skip = before
