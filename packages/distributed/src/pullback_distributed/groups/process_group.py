"""Process groups: communicators of MPI under torch's names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pullback_distributed import mpi as MPI

DEFAULT_TIMEOUT = timedelta(minutes=30)  # as torch's for gloo
ANY_RANK = -1

# A call under way: its name, when it began, which global ranks it needs (None: all members, as a
# collective does; ANY_RANK: one of them; a tuple: each, before they end), and its timeout in
# seconds if that is not the group's.
Call = tuple[str, float, "int | tuple[int, ...] | None", "float | None"]


class ProcessGroup:
    """Some of the processes that ``mpiexec`` started, in an order of their own.

    Made by ``init_process_group`` and ``new_group``. A rank without "global" before it counts
    within the group. Synchronous collectives use one communicator and asynchronous ones others,
    so that those under way on the progress thread cannot meet those of the main thread.
    """

    def __init__(
        self, communicator: MPI.Intracomm, ranks: Sequence[int], name: str, timeout: timedelta
    ) -> None:
        self.communicator = communicator
        self.background = communicator.Dup()  # of asynchronous collectives
        self.beginnings = communicator.Dup()  # of the barriers by which those begin
        self.ranks = tuple(ranks)  # global ones
        self.group_name = name
        self.timeout = timeout
        self.progress: Any = None  # made by the first asynchronous collective
        self.current: Call | None = None  # what waits in this process, for the watch
        self.underway: Call | None = None  # what waits on the progress thread
        self.calls = 0  # synchronous collectives that were begun
        self.monitored = 0  # calls of monitored_barrier
        self.debug = False  # whether all ranks compare their calls
        self.checked = [0, 0]  # calls that were compared, synchronous and asynchronous ones
        self._rank = communicator.rank
        self._size = communicator.size
        self._places = {rank: place for place, rank in enumerate(self.ranks)}

    def rank(self) -> int:
        """Return this process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Return how many processes are in the group."""
        return self._size

    def name(self) -> str:
        """Return the name of the backend, ``"mpi"``."""
        return "mpi"

    def rank_of(self, global_rank: int) -> int:
        """Return the rank in the group of a global rank.

        Raises: ValueError if that process is not in the group.
        """
        try:
            return self._places[global_rank]
        except KeyError:
            raise ValueError(
                f"Global rank {global_rank} is not part of group {self.group_name}"
            ) from None

    def free(self) -> None:
        """End the progress thread and free the communicators."""
        if self.progress is not None:
            self.progress.end()
        self._take_the_rest()
        self.beginnings.Free()
        self.background.Free()
        self.communicator.Free()

    def _take_the_rest(self) -> None:
        """Take what monitored barriers of ranks that came too late have left.

        MPI may refuse to free a communicator with messages that nobody has taken.
        """
        status = MPI.Status()
        while self.background.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            self.background.Recv([bytearray(1), MPI.BYTE], status.source, status.tag)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self._rank} of {self._size}>"
