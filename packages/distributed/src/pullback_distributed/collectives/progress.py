"""Work under way, and the thread that runs asynchronous collectives."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pullback_distributed import mpi as MPI
from pullback_distributed.abilities import missing_threads
from pullback_distributed.collectives.memory import on_streams, streams_of
from pullback_distributed.futures import Future
from pullback_distributed.groups.process_group import ProcessGroup

SPINS = 50  # questions whether all ranks are ready without a pause
PAUSE, LONGEST_PAUSE = 50e-6, 1e-3  # seconds between questions
SHARE = 0.1  # of the time waited so far that a pause takes between these two


def _seconds(timeout: timedelta | None) -> float | None:
    return None if timeout is None else timeout.total_seconds()


class Work:
    """A collective or message under way: what functions with ``async_op=True`` return."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the result is there, and return True.

        Raises: what the operation raised; RuntimeError if it takes longer than ``timeout``.
        """
        raise NotImplementedError

    def is_completed(self) -> bool:
        """Return whether the result is there, without waiting."""
        raise NotImplementedError


class CollectiveWork(Work):
    """An asynchronous collective, which the progress thread runs.

    Where only one thread may use MPI, it is run before the call that starts it returns.
    """

    def __init__(
        self,
        group: ProcessGroup,
        name: str,
        run: Callable[[MPI.Intracomm], None],
        results: list[Any],
        limit: float | None = None,
    ) -> None:
        self.name = name
        self.limit = limit  # seconds, if they are not the group's timeout
        self.all_ready: MPI.Request | None = None  # a barrier, where there are others
        self._run = on_streams(run, streams_of(results))
        self._results = results
        self._future: Future[list[Any]] = Future()
        if group.progress is None:
            group.progress = (AtStart if missing_threads() else ProgressThread)(group)
        group.progress.add(self)

    def run(self, communicator: MPI.Intracomm) -> None:
        """Run the collective; called by what makes the group's progress."""
        try:
            self._run(communicator)
        except BaseException as error:  # `wait` raises it
            self._run = _nothing  # which refers to tensors
            self._future.set_exception(error)
        else:
            self._run = _nothing
            self._future.set_result(self._results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._future.wait_for(_seconds(timeout)):
            raise RuntimeError(f"{self.name}: not done after {timeout}")
        self._future.value()
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def is_success(self) -> bool:
        """Return whether the result is there and nothing was raised."""
        return self._future.done() and self._future.exception() is None

    def exception(self) -> BaseException | None:
        """Return what the operation raised, or None."""
        return self._future.exception()

    def result(self) -> list[Any]:
        """Return the tensors that the collective has written, when it is done."""
        return self._future.value()

    def get_future(self) -> Future[list[Any]]:
        """Return the future of the tensors that the collective writes.

        What waits for it is called on the progress thread and must not start collectives.
        """
        return self._future


def _nothing(communicator: MPI.Intracomm) -> None:
    """Stand for the operation of work that is done."""


class ProgressThread:
    """Runs the asynchronous collectives of one group in the order in which they were started.

    A rank that has to wait for others must not take a core from the computation, and MPI spins
    where it waits. So each collective begins with a barrier that does not block, in the thread that
    starts it, and the progress thread asks for its end with pauses; when all ranks are there, the
    collective itself runs at full speed. A thread for each group: groups may be used in another
    order on other ranks.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.started = self.finished = 0  # collectives, for the watch
        self._queue: deque[CollectiveWork | None] = deque()
        self._filled = threading.Semaphore(0)
        self._thread = threading.Thread(
            target=self._loop, name=f"pullback-distributed-{group.group_name}", daemon=True
        )
        self._thread.start()

    def add(self, work: CollectiveWork | None) -> None:
        """Append work, and tell other ranks that it has begun here; None ends the thread."""
        if work is not None:
            self.started += 1
            if self._group.size() > 1:
                work.all_ready = self._group.beginnings.Ibarrier()
        self._queue.append(work)
        self._filled.release()

    def end(self) -> None:
        """Run what is there, and end."""
        self.add(None)
        self._thread.join()

    def _loop(self) -> None:
        while True:
            self._filled.acquire()
            work = self._queue.popleft()
            if work is None:
                return
            self._group.underway = (work.name, time.monotonic(), None, work.limit)
            _wait_for_all(work)
            work.run(self._group.background)
            self._group.underway = None
            self.finished += 1
            del work  # it refers to tensors


def _wait_for_all(work: CollectiveWork) -> None:
    """Wait until all ranks have begun the collective."""
    request = work.all_ready
    if request is None:
        return
    for _ in range(SPINS):
        if request.Test():
            return
    start = time.monotonic()
    while not request.Test():
        waited = time.monotonic() - start
        time.sleep(min(max(SHARE * waited, PAUSE), LONGEST_PAUSE))


class AtStart:
    """Runs the asynchronous collectives of one group when they are started, in the same thread.

    So they are in the order of all calls, synchronous ones too, which is the same on all ranks.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.started = self.finished = 0  # collectives, for the watch

    def add(self, work: CollectiveWork) -> None:
        """Run work."""
        self.started += 1
        self._group.underway = (work.name, time.monotonic(), None, work.limit)
        try:
            work.run(self._group.background)
        finally:
            self._group.underway = None
            self.finished += 1

    def end(self) -> None:
        """Do nothing: all is done."""


class MessageWork(Work):
    """A message under way, which whoever waits for it moves on."""

    def __init__(
        self,
        request: MPI.Request,
        finish: Callable[[], None],
        name: str,
        group: ProcessGroup,
        peer: int,
    ) -> None:
        self._request = request
        self._group = group
        self._peer = peer  # a global rank, or ANY_RANK
        self._finish: Callable[[], None] | None = finish
        self._name = name
        self._status = MPI.Status()

    def _done(self) -> None:
        if self._finish is not None:
            self._finish()
            self._finish = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        if timeout is None:
            self._group.current = (self._name, time.monotonic(), self._peer, None)
            try:
                self._request.Wait(self._status)
            finally:
                self._group.current = None
        else:
            end = time.monotonic() + timeout.total_seconds()
            while not self._request.Test(self._status):
                if time.monotonic() > end:
                    raise RuntimeError(f"{self._name}: not done after {timeout}")
                time.sleep(PAUSE)
        self._done()
        return True

    def is_completed(self) -> bool:
        if self._finish is None:
            return True
        if not self._request.Test(self._status):
            return False
        self._done()
        return True
