"""A barrier that raises where ranks do not come, and says which."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import timedelta

from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.running import member
from pullback_distributed.groups.lifecycle import checked_timeout
from pullback_distributed.groups.process_group import ProcessGroup

# Bytes that live for ever, and so while messages with them are under way.
HERE, LEFT, PASSED, FAILED = b"\0", b"\1", b"\2", b"\3"
PAUSE = 1e-3  # seconds between looks
TAGS = 32768
LOOKS = 4


def monitored_barrier(
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Wait until all processes of the group are here; raise if one of them does not come.

    The process of rank 0 in the group waits ``timeout`` for the others, without one as long as the
    group's. Where ``barrier`` ends the job then, this lets all ranks that came go on with an error,
    and those that come later. All absent ranks are named, also without ``wait_all_ranks``.
    Raises: RuntimeError on every rank if not all came in time; TypeError for a timeout that is no
    timedelta, ValueError if it is not positive, and before ``init_process_group``.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.monitored_barrier()
    >>> dist.destroy_process_group()
    """
    timeout = checked_timeout(timeout)
    found = member(group, "monitored_barrier")
    if found is None:
        return
    found.monitored += 1
    found.current = ("monitored_barrier", time.monotonic(), (), math.inf)
    try:
        if found.rank() == 0:
            _wait_for_all(found, timeout)
        else:
            _report(found, timeout)
    finally:
        found.current = None


def _send(group: ProcessGroup, place: int, message: bytes) -> None:
    # One byte leaves at once; who comes late finds it.
    group.background.Isend([message, MPI.BYTE], place, group.monitored % TAGS).Free()


def _receive(group: ProcessGroup, places: Sequence[int], timeout: timedelta) -> dict[int, bytes]:
    """Return the messages that came from places in time."""
    came = {place: bytearray(1) for place in places}
    awaited = {
        place: group.background.Irecv([came[place], MPI.BYTE], place, group.monitored % TAGS)
        for place in places
    }
    end = time.monotonic() + timeout.total_seconds()
    while True:
        for place in [place for place, request in awaited.items() if request.Test()]:
            del awaited[place]
        if not awaited or time.monotonic() > end:
            break
        time.sleep(PAUSE)
    for place, request in awaited.items():
        status = MPI.Status()
        request.Cancel()
        request.Wait(status)
        if status.Is_cancelled():
            del came[place]
    return {place: bytes(message) for place, message in came.items()}


def _wait_for_all(group: ProcessGroup, timeout: timedelta) -> None:
    others = range(1, group.size())
    came = _receive(group, others, timeout)
    for place in list(came):
        # Whether it has sent that it waits no more; MPI may look only after it has answered.
        if any(group.background.Iprobe(place, group.monitored % TAGS) for _ in range(LOOKS)):
            del came[place]
    absent = [str(group.ranks[place]) for place in others if place not in came]
    for place in others:
        _send(group, place, FAILED if absent else PASSED)
    if absent:
        raise RuntimeError(
            f"[Rank {group.ranks[0]}]: Ranks {', '.join(absent)} failed to pass monitoredBarrier "
            f"in {timeout.total_seconds() * 1000:g} ms"
        )


def _report(group: ProcessGroup, timeout: timedelta) -> None:
    _send(group, 0, HERE)
    # That of rank 0 may have begun later, and ends first where both have begun at once.
    answer = _receive(group, [0], 2 * timeout + timedelta(seconds=1)).get(0)
    if answer == PASSED:
        return
    what = "has missed other ranks"
    if answer is None:
        what = "did not come"
        _send(group, 0, LEFT)
    raise RuntimeError(
        f"[Rank {group.ranks[group.rank()]}]: reached monitoredBarrier, but rank "
        f"{group.ranks[0]} {what} in {timeout.total_seconds() * 1000:g} ms"
    )
