"""``multiprocessing`` of the standard library, with tensors that are sent as shared memory.

Every name of ``multiprocessing`` is here. After the import, queues and pipes send a tensor on the
host as the name of a block of shared memory.
"""

from __future__ import annotations

import multiprocessing as _standard
import os
from multiprocessing import *  # noqa: F403

from pullback.multiprocessing.blocks import start_tracker
from pullback.multiprocessing.reductions import init_reductions
from pullback.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

_STRATEGIES = {"file_system"}

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]
__all__ += _standard.__all__


def get_all_sharing_strategies():
    """Return the ways in which memory can be shared: by names, ``file_system``.

    >>> import pullback
    >>> pullback.multiprocessing.get_all_sharing_strategies()
    {'file_system'}
    """
    return set(_STRATEGIES)


def get_sharing_strategy():
    """Return the way in which memory is shared.

    >>> import pullback
    >>> pullback.multiprocessing.get_sharing_strategy()
    'file_system'
    """
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Choose the way in which memory is shared, of ``get_all_sharing_strategies()``.

    Raises: AssertionError for another one.

    >>> import pullback
    >>> pullback.multiprocessing.set_sharing_strategy("file_system")
    """
    if new_strategy not in _STRATEGIES:
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {_STRATEGIES}"
        )


init_reductions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=start_tracker)
