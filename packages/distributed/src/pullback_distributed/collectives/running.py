"""What every collective does: find the group, run now or on the progress thread."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

from pullback import Tensor
from pullback.backend import begin_range, end_range, thread_number
from pullback.distributed import ReduceOp
from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.progress import CollectiveWork, Work
from pullback_distributed.faults.fingerprints import compared
from pullback_distributed.groups.lifecycle import NON_GROUP_MEMBER, world
from pullback_distributed.groups.process_group import ProcessGroup


def member(group: ProcessGroup | int | None, name: str) -> ProcessGroup | None:
    """Return the group of a call; None, with a warning, if this process is not in it.

    Raises: ValueError before ``init_process_group``; TypeError if it is no group.
    """
    if group is None:
        return world()
    if isinstance(group, ProcessGroup):
        return group
    if group == NON_GROUP_MEMBER:
        warnings.warn(
            f"Running {name} on global rank {world().rank()} which does not belong to the given "
            f"group.",
            stacklevel=3,
        )
        return None
    raise TypeError(f"{name}: expected a ProcessGroup, but got {type(group).__name__}")


def root_of(group: ProcessGroup, global_rank: int | None, group_rank: int | None) -> int:
    """Return the rank in the group that is given in one of two ways.

    Raises: ValueError if none or both are given, or if that process is not in the group.
    """
    if (global_rank is None) == (group_rank is None):
        raise ValueError(
            "Must specify global_rank or group_rank"
            if global_rank is None
            else "Can't specify both group_rank and global_rank"
        )
    if global_rank is not None:
        return group.rank_of(global_rank)
    assert group_rank is not None
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group.group_name}")
    return group_rank


def nbytes_of(results: list[Any]) -> int:
    """Return the bytes of tensors that a collective writes."""
    return sum(one.nbytes for one in results if isinstance(one, Tensor))


def observed(
    name: str,
    operate: Callable[[MPI.Intracomm], None],
    communicator: MPI.Intracomm,
    results: list[Any],
    asked_by: int = 0,
) -> None:
    """Run a collective; profilers, also of the thread that asked, see its name and bytes."""
    if "pullback_profiler" not in sys.modules:
        operate(communicator)
        return
    number = begin_range(f"dist::{name}", f"bytes={nbytes_of(results)}", asked_by)
    try:
        operate(communicator)
    finally:
        end_range(number)


def run(
    group: ProcessGroup,
    name: str,
    operate: Callable[[MPI.Intracomm], None],
    async_op: bool,
    results: list[Any],
    like: Any = None,
    op: ReduceOp | None = None,
    root: int | None = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Run a collective that writes ``results``, or let the progress thread run it.

    ``like``, ``op`` and ``root`` are what must be the same on all ranks, as ``fingerprint`` takes
    them. ``timeout`` is the call's own instead of the group's.
    """
    limit = None if timeout is None else timeout.total_seconds()
    if group.debug:
        operate = compared(group, name, operate, async_op, like, op, root)
    if async_op:
        run_observed = partial(observed, name, operate, results=results, asked_by=thread_number())
        return CollectiveWork(group, name, run_observed, results, limit)
    group.calls += 1
    group.current = (name, monotonic(), None, limit)
    try:
        if "pullback_profiler" in sys.modules:
            observed(name, operate, group.communicator, results)
        else:
            operate(group.communicator)
    finally:
        group.current = None
    return None
