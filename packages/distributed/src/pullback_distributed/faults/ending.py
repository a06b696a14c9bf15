"""End the job, with a text that says on which rank and why."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from typing import NoReturn

from pullback_distributed import mpi as MPI

DRAIN = 0.5  # seconds that mpiexec gets to read what was printed: it stops at once when told to
LAST = 5.0  # seconds after which the process ends itself if MPI does not

_ending = threading.Lock()  # taken by the first thread that ends the job, and never given back


def prefixed(rank: int, text: str) -> str:
    """Return a text with the rank before each line: mpiexec mixes the lines of all ranks."""
    return "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())


def say(rank: int, text: str) -> None:
    """Write a text to stderr in one piece."""
    stream = sys.stderr or sys.__stderr__
    if stream is None:
        return
    try:
        stream.write(prefixed(rank, text))
        stream.flush()
    except (OSError, ValueError):  # closed: nobody reads it
        pass


def main_stack() -> str:
    """Return where the main thread is."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "the main thread has ended"
    return "the main thread is at:\n" + "".join(traceback.format_stack(frame)).rstrip()


def end_job(rank: int, text: str, status: int) -> NoReturn:
    """Write a text, and end all ranks with a status, 1 if that is not one of a failure."""
    _ending.acquire()  # other threads that come here wait for the end
    say(rank, text)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        pass
    try:
        # A thread that needs neither the interpreter nor MPI, should a lock of theirs be taken.
        faulthandler.dump_traceback_later(DRAIN + LAST, exit=True, file=2)
    except (OSError, RuntimeError):
        pass
    time.sleep(DRAIN)
    # From whatever thread: mpiexec may miss that a process has left without a word to MPI.
    MPI.COMM_WORLD.Abort(status & 255 or 1)
    raise SystemExit(status & 255 or 1)
