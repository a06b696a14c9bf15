"""Exceptions that nothing catches, sys.exit, and forks, in a process with a group."""

from __future__ import annotations

import builtins
import functools
import os
import sys
import threading
import traceback
from typing import Any

from pullback_distributed.faults.ending import end_job

INTERRUPTED = 130  # the status of a process that Ctrl-C ended
THREADS = "pullback-distributed-"  # how the names of threads that run collectives begin


class Hooks:
    """What is changed in Python's modules while there is a group.

    ``status`` is what ``sys.exit`` was last called with, as an exit status: Python does not tell
    handlers of its exit, and a rank that leaves tells it to those that wait for it.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.status = 0
        self.active = False
        self._before: dict[tuple[Any, str], tuple[Any, Any]] = {}

    def install(self) -> None:
        """Begin; what was installed before is called by what is now."""
        self.active = True
        self._replace(sys, "excepthook", self._on_exception)
        self._replace(threading, "excepthook", self._on_exception_of_thread)
        self._replace(sys, "exit", self._on_exit)
        for name in ("exit", "quit"):  # those of the module site
            if hasattr(builtins, name):
                self._replace(builtins, name, self._on_exit)
        # Not with an audit hook, which would make each id() of the program take 0.4 us more, and
        # for ever.
        for name in ("fork", "forkpty"):
            if hasattr(os, name):
                self._replace(os, name, functools.partial(self._refuse, name))

    def remove(self) -> None:
        """End; what others have installed since then stays, and passes through what is here."""
        self.active = False
        for (owner, name), (ours, before) in list(self._before.items()):
            if getattr(owner, name) is ours:
                setattr(owner, name, before)
                del self._before[owner, name]

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        if (owner, name) in self._before:  # it is called by what others have installed
            return
        before = getattr(owner, name)

        def ours(*arguments: Any, **keywords: Any) -> Any:
            return function(before, *arguments, **keywords)

        functools.update_wrapper(ours, before, updated=())
        self._before[owner, name] = ours, before
        setattr(owner, name, ours)

    def _on_exit(self, before: Any, status: Any = None) -> Any:
        if isinstance(status, int):
            self.status = status
        else:
            self.status = 0 if status is None else 1
        return before(status)

    def _on_exception(self, before: Any, kind: Any, error: Any, trace: Any) -> None:
        if not self.active or hasattr(sys, "ps1"):  # a prompt goes on after an exception
            before(kind, error, trace)
            return
        if issubclass(kind, KeyboardInterrupt):
            self.status = INTERRUPTED
            before(kind, error, trace)
            return
        self._end(
            before is not sys.__excepthook__, before, (kind, error, trace), kind, error, trace
        )

    def _on_exception_of_thread(self, before: Any, args: Any) -> None:
        ours = args.thread is not None and args.thread.name.startswith(THREADS)
        if not self.active or not ours:
            before(args)
            return
        custom = before is not threading.__excepthook__
        self._end(custom, before, (args,), args.exc_type, args.exc_value, args.exc_traceback)

    def _end(
        self,
        custom: bool,
        before: Any,
        arguments: tuple[Any, ...],
        kind: Any,
        error: Any,
        trace: Any,
    ) -> None:
        if custom:
            try:
                before(*arguments)
            except BaseException:  # the job ends in any case
                traceback.print_exc()
        text = "".join(traceback.format_exception(kind, error, trace))
        end_job(self.rank, text + "all ranks are ended", 1)

    def _refuse(self, name: str, before: Any) -> Any:
        if not self.active:
            return before()
        raise RuntimeError(
            f"os.{name}: MPI does not survive a fork, so a process with a process group cannot be "
            "forked. Start processes with multiprocessing.get_context('spawn'), and workers of a "
            "DataLoader with multiprocessing_context='spawn' or 'thread'; the module subprocess "
            "can be used; or fork before init_process_group."
        )
