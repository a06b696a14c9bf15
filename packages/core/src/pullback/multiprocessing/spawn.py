"""Several processes that run one function, and the error of the first that fails."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process of ``spawn`` failed: ``error_index`` is its number and ``error_pid`` its id.

    >>> import pullback
    >>> pullback.multiprocessing.ProcessException("failed", 1, 1234).error_index
    1
    """

    __module__ = "pullback.multiprocessing"

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    @property
    def error_pid(self):
        """The process's id."""
        return self.pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised in a process of ``spawn``; the message has the traceback.

    >>> import pullback
    >>> issubclass(pullback.multiprocessing.ProcessRaisedException, Exception)
    True
    """

    __module__ = "pullback.multiprocessing"

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process of ``spawn`` ended with an exit code or by a signal.

    >>> import pullback
    >>> pullback.multiprocessing.ProcessExitedException("exited", 0, 1234, 3).exit_code
    3
    """

    __module__ = "pullback.multiprocessing"

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (
            *(self.msg, self.error_index, self.pid),
            *(self.exit_code, self.signal_name),
        )


def _run(function, number, args, error_file):
    """Run the function in a process; its error goes to the file."""
    try:
        function(number, *args)
    except KeyboardInterrupt:
        pass  # the parent has it too
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """The processes of ``start_processes``, which ``join`` waits for.

    >>> import pullback
    >>> pullback.multiprocessing.ProcessContext([], []).join()
    True
    """

    __module__ = "pullback.multiprocessing"

    def __init__(self, processes, error_files):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self):
        """Return the ids of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for processes to end; True if all have.

        Returns False after ``timeout`` seconds, or when some of them ended well. When one fails the
        others are terminated, after ``grace_period`` seconds, and killed after as many again.
        Raises: ProcessRaisedException, ProcessExitedException.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout)
        failed = None
        for sentinel in ready:
            number = self.sentinels.pop(sentinel)
            self.processes[number].join()
            if self.processes[number].exitcode and failed is None:
                failed = number
        if failed is None:
            return not self.sentinels
        self._stop(grace_period)
        raise self._error(failed)

    def _stop(self, grace_period):
        for act in ("terminate", "kill"):
            end = time.monotonic() + (grace_period or (0 if act == "terminate" else 30))
            for process in self.processes:
                process.join(max(0, end - time.monotonic()))
            for process in self.processes:
                if process.is_alive():
                    getattr(process, act)()
        for process in self.processes:
            process.join()

    def _error(self, number):
        process = self.processes[number]
        if os.path.getsize(self.error_files[number]):
            with open(self.error_files[number], "rb") as file:
                trace = pickle.load(file)
            return ProcessRaisedException(
                f"\n\n-- Process {number} terminated with the following error:\n{trace}",
                number,
                process.pid,
            )
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            return ProcessExitedException(
                *(f"process {number} terminated with signal {name}", number),
                *(process.pid, code, name),
            )
        return ProcessExitedException(
            *(f"process {number} terminated with exit code {code}", number, process.pid, code)
        )

    def __del__(self):
        for path in self.error_files:
            if os.path.exists(path):
                os.unlink(path)


class SpawnContext(ProcessContext):
    """The processes of ``spawn(join=False)``.

    >>> import pullback
    >>> pullback.multiprocessing.SpawnContext([], []).pids()
    []
    """

    __module__ = "pullback.multiprocessing"


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run ``fn(i, *args)`` in ``nprocs`` processes with numbers i from 0, and wait for them.

    With ``join=False`` returns a ``ProcessContext`` at once.
    Raises: ProcessRaisedException if the function raised, ProcessExitedException if a process ended
    otherwise than well.

    >>> import pullback
    >>> pullback.multiprocessing.start_processes(print, nprocs=0)
    """
    context = multiprocessing.get_context(start_method)
    processes, error_files = [], []
    for number in range(nprocs):
        handle, path = tempfile.mkstemp(prefix="pullback-process-", suffix=".error")
        os.close(handle)
        process = context.Process(target=_run, args=(fn, number, args, path), daemon=daemon)
        process.start()
        error_files.append(path)
        processes.append(process)
    made = (SpawnContext if start_method == "spawn" else ProcessContext)(processes, error_files)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run ``fn(i, *args)`` in ``nprocs`` new interpreters: see ``start_processes``.

    >>> import pullback
    >>> pullback.multiprocessing.spawn(print, nprocs=0)
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a "
            "different start_method use:\n\t\t pullback.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
