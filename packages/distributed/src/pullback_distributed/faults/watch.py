"""The watch of a process: a thread that sees collectives that take too long or cannot end.

A rank that destroys a group or ends tells all others how many collectives of the group it took
part in. A rank that is in a later one waits in vain, and its watch ends the job. A rank whose
collective takes longer than the group's timeout asks all others where they are, and ends the job.

Where only one thread may use MPI, the watch's thread sends and takes no messages: it sees what
takes too long, and asks nobody. A rank that ends with a failure ends the job itself then.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pullback_distributed import mpi as MPI
from pullback_distributed.abilities import missing_threads
from pullback_distributed.faults.ending import end_job, main_stack, say
from pullback_distributed.faults.hooks import Hooks
from pullback_distributed.faults.mail import Mail
from pullback_distributed.groups.process_group import ANY_RANK, Call, ProcessGroup

INTERVAL = 1.0  # seconds between two looks
PATIENCE = 2.0  # seconds that a collective waits for a rank that has left
TIME_TO_ANSWER = 3.0  # seconds in which a rank that is asked must say where it is
PATIENCE_OF_MESSAGES = 5.0  # what a rank has sent may arrive after the word that it has left
SHORTEST_PAUSE, LONGEST_PAUSE = 2e-4, 2e-2  # seconds between looks of a rank that has left

SYNCHRONOUS, ASYNCHRONOUS = 0, 1
Key = tuple[int, tuple[int, ...], int]  # what names a group on all of its ranks


class Watch:
    """What a process knows of its own calls and of other ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.others = [place for place in range(size) if place != rank]
        self.hooks = Hooks(rank)
        self.mail: Mail | None = None
        self.groups: dict[Key, ProcessGroup] = {}
        self.gone: dict[int, dict[Key, tuple[int, int]]] = {place: {} for place in self.others}
        self.left: dict[int, int] = {}  # the statuses of ranks that have ended
        self.opening: Call | None = None  # the call of init_process_group under way
        self.process = os.getpid()
        self.level = missing_threads()
        self._epoch = 0  # how often init_process_group was called
        self._made: Counter[tuple[int, ...]] = Counter()
        self._asked = False  # whether this rank has said where it is
        self._silent: set[int] = set()  # ranks that were asked and have not answered
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # --- what the main thread calls -------------------------------------------------------------

    def begin(self, everyone: MPI.Intracomm, timeout: timedelta, debug: bool) -> bool:
        """Start; return whether any rank wants the calls of all ranks to be compared."""
        self._epoch += 1
        self._made.clear()
        self.hooks.install()
        ranks = tuple(self.others)
        self.opening = ("init_process_group", time.monotonic(), ranks, timeout.total_seconds())
        self._start()
        if self.mail is None:
            self.mail = Mail(everyone.Dup())
        if not self.mail.communicator.allreduce(debug, MPI.LOR):
            return False
        # mpiexec names the process that was killed, not its rank, and ends the others at once.
        own = f"rank {self.rank} is process {os.getpid()} on {MPI.Get_processor_name()}"
        found = self.mail.communicator.gather(own)
        if found is not None:
            say(self.rank, "; ".join(found))
        return True

    def add(self, group: ProcessGroup) -> None:
        """Watch a group."""
        self.groups[self._epoch, group.ranks, self._made[group.ranks]] = group
        self._made[group.ranks] += 1
        self.opening = None

    @contextmanager
    def ending(self, groups: Sequence[ProcessGroup]) -> Iterator[None]:
        """Tell the others that groups are destroyed here, and watch them until they are."""
        keys = [key for key, group in self.groups.items() if group in groups]
        if keys and self.mail is not None:
            self.mail.tell_all(("gone", self._counts(keys)))
        try:
            yield
        finally:
            for key in keys:
                del self.groups[key]

    def end(self) -> None:
        """Stop the thread, and restore what was changed in Python's modules."""
        self._halt()
        self.hooks.remove()
        for counts in self.gone.values():
            for key in [key for key in counts if key[0] <= self._epoch]:
                del counts[key]

    def leave(self) -> None:
        """Tell the others that this process ends, and wait until all do, as MPI would.

        Asynchronous collectives that all ranks have started are done then.
        """
        if self.process != os.getpid() or MPI.Is_finalized() or self.mail is None:
            return
        self._halt()
        status = self.hooks.status
        if self.level and status:
            end_job(self.rank, f"exit status {status}: all ranks are ended", status)
        self.mail.tell_all(("left", self._counts(list(self.groups)), status))
        pause = SHORTEST_PAUSE
        while len(self.left) < len(self.others) or not self._idle():
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.look()
        self.mail.close()
        self.mail = None
        self.groups.clear()
        self.hooks.remove()

    # --- the thread -----------------------------------------------------------------------------

    def _start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._loop, name="pullback-distributed-watch", daemon=True
        )
        self._thread.start()

    def _halt(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _interval(self) -> float:
        limits = [group.timeout.total_seconds() for group in list(self.groups.values())]
        opening = self.opening
        if opening is not None and opening[3] is not None:
            limits.append(opening[3])
        return max(min([INTERVAL, *(limit / 4 for limit in limits)]), 1e-3)

    def _loop(self) -> None:
        while not self._stop.wait(self._interval()):
            if not self.level and MPI.Is_finalized():
                return
            self.look()

    def look(self) -> None:
        """Take the messages that are here, and end the job if a call cannot end."""
        self._receive()
        now = time.monotonic()
        opening = self.opening
        if opening is not None:
            self._judge(None, SYNCHRONOUS, opening, now)
        for key, group in list(self.groups.items()):
            for kind, call in enumerate((group.current, group.underway)):
                if call is not None:
                    self._judge(key, kind, call, now)

    def _may_use_mail(self) -> bool:
        return self.mail is not None and (
            not self.level or threading.current_thread() is threading.main_thread()
        )

    def _receive(self) -> None:
        if self.mail is not None and self._may_use_mail():
            for sender, message in self.mail.take():
                self._read(sender, message)

    def _read(self, sender: int, message: tuple[Any, ...]) -> None:
        if message[0] == "where":
            self._answer(sender)
            return
        if message[0] == "here":
            self._silent.discard(sender)
            return
        self.gone[sender].update(message[1])
        if message[0] == "left":
            self.left[sender] = message[2]

    # --- what it finds --------------------------------------------------------------------------

    def _counts(self, keys: Sequence[Key]) -> dict[Key, tuple[int, int]]:
        """Return for each group how many collectives of both kinds this rank takes part in."""
        counts = {}
        for key in keys:
            group = self.groups[key]
            counts[key] = (group.calls, 0 if group.progress is None else group.progress.started)
        return counts

    def _idle(self) -> bool:
        running = [group.progress for group in self.groups.values() if group.progress is not None]
        return all(progress.finished == progress.started for progress in running)

    def _judge(self, key: Key | None, kind: int, call: Call, now: float) -> None:
        group = None if key is None else self.groups.get(key)
        _, start, peers, limit = call
        waited = now - start
        if limit is None:
            limit = float("inf") if group is None else group.timeout.total_seconds()
        of_messages = isinstance(peers, int)
        if waited > (PATIENCE_OF_MESSAGES if of_messages else PATIENCE):
            missing = self._missing(key, kind, peers)
            if missing and self._lasts(group, kind, call):
                self._end_without(missing, self._described(group, kind, call), waited)
        if waited > limit and self._lasts(group, kind, call):
            self._end_late(self._described(group, kind, call), waited, limit)

    def _lasts(self, group: ProcessGroup | None, kind: int, call: Call) -> bool:
        """Return whether a call is still under way, so that what was read belongs to it."""
        if group is None:
            return self.opening is call
        return call is (group.underway if kind == ASYNCHRONOUS else group.current)

    def _missing(self, key: Key | None, kind: int, peers: Any) -> list[int]:
        """Return the ranks without which a call cannot end, and that will not come."""
        if isinstance(peers, tuple):
            return [place for place in peers if place in self.left]
        if key is None or key not in self.groups:
            return []
        group = self.groups[key]
        members = [place for place in group.ranks if place != self.rank]
        away = [place for place in members if key in self.gone[place]]
        if peers == ANY_RANK:
            return away if len(away) == len(members) else []
        if peers is not None:
            return [peers] if peers in away else []
        number = group.calls
        if kind == ASYNCHRONOUS and group.progress is not None:
            number = group.progress.finished + 1
        return [place for place in away if self.gone[place][key][kind] < number]

    def _described(self, group: ProcessGroup | None, kind: int, call: Call) -> str:
        name = f"the asynchronous {call[0]}" if kind == ASYNCHRONOUS else call[0]
        if group is None:
            return name
        place = f"rank {group.rank()} of {group.size()}"
        return f"{name} of group {group.group_name!r} (there it is {place})"

    def _end_without(self, missing: list[int], what: str, waited: float) -> None:
        statuses = [self.left.get(place, 0) for place in missing]
        told = []
        for place in missing:
            if place not in self.left:
                told.append(f"rank {place} has destroyed the group")
            elif self.left[place]:
                told.append(f"rank {place} has left with exit status {self.left[place]}")
            else:
                told.append(f"rank {place} has left")
        text = (
            f"{', '.join(told)} while rank {self.rank} waits in {what}, for {waited:.1f} s: all "
            f"ranks are ended; {main_stack()}"
        )
        end_job(self.rank, text, next((status for status in statuses if status), 1))

    def _end_late(self, what: str, waited: float, limit: float) -> None:
        self._asked = True
        say(
            self.rank,
            f"rank {self.rank} waits in {what}, for {waited:.1f} s, longer than the timeout of "
            f"{limit:g} s; {main_stack()}",
        )
        text = "all ranks are ended after a timeout"
        if self.mail is not None and self._may_use_mail():
            self._silent.update(self.others)
            self.mail.tell_all(("where",))
            last = time.monotonic() + TIME_TO_ANSWER
            while self._silent and time.monotonic() < last:
                time.sleep(LONGEST_PAUSE)
                self._receive()
            if self._silent:
                ranks = ", ".join(str(place) for place in sorted(self._silent))
                text += f"; no answer, which Python code would give, came from rank {ranks}"
        end_job(self.rank, text, 1)

    def _answer(self, sender: int) -> None:
        """Say where this rank is, once, and that this was said."""
        if not self._asked:
            self._asked = True
            self._say_where(sender)
        if self.mail is not None:
            self.mail.tell(sender, ("here",))

    def _say_where(self, sender: int) -> None:
        now = time.monotonic()
        calls = [
            f"waits in {self._described(group, kind, call)}, for {now - call[1]:.1f} s"
            for group in list(self.groups.values())
            for kind, call in enumerate((group.current, group.underway))
            if call is not None
        ]
        what = " and ".join(calls) or "is in no collective"
        say(self.rank, f"rank {sender} asks: rank {self.rank} {what}; {main_stack()}")


_watch: Watch | None = None  # made by the first init_process_group, kept until the process ends


@contextmanager
def starting(timeout: timedelta) -> Iterator[None]:
    """Limit how long MPI may take to start, which waits for all ranks and lets no thread run.

    Beyond it the process ends, and the stacks of its threads are printed.
    """
    if "mpi4py.MPI" in sys.modules:
        yield
        return
    try:
        faulthandler.dump_traceback_later(timeout.total_seconds(), exit=True, file=2)
    except (OSError, OverflowError, RuntimeError):  # no stderr, or a time that is too long
        yield
        return
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def begin(everyone: MPI.Intracomm, timeout: timedelta, debug: bool) -> bool:
    """Watch this process from ``init_process_group`` on, if there are several.

    Returns whether any rank has asked for calls to be compared.
    """
    global _watch
    if everyone.size == 1:
        return False
    if _watch is None:
        _watch = Watch(everyone.rank, everyone.size)
        if _watch.level:
            warnings.warn(
                f"init_process_group: MPI gives {_watch.level}, not MPI_THREAD_MULTIPLE, so that "
                f"asynchronous collectives are run when they are started, and a process that "
                f"leaves while others wait for it is noticed after their timeout, {timeout}",
                stacklevel=3,
            )
        atexit.register(_watch.leave)
    return _watch.begin(everyone, timeout, debug)


def add(group: ProcessGroup) -> None:
    """Watch a group that was made."""
    if _watch is not None:
        _watch.add(group)


@contextmanager
def ending(groups: Sequence[ProcessGroup], last: bool) -> Iterator[None]:
    """Watch groups while they are destroyed; ``last`` ends the watch."""
    if _watch is None:
        yield
        return
    with _watch.ending(groups):
        yield
    if last:
        _watch.end()
