"""Storages: the memory that a tensor shares with its views, as bytes or as elements of a dtype."""

from __future__ import annotations

from pullback.storage import typed, untyped
from pullback.storage.common import is_storage
from pullback.storage.mapped_file import MappedFile
from pullback.storage.typed import *  # noqa: F403
from pullback.storage.untyped import StorageBase, UntypedStorage

__all__ = ["MappedFile", "is_storage"]
__all__ += typed.__all__
__all__ += untyped.__all__
