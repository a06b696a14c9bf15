"""Workers in threads of this process."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from typing import Any

from pullback.utils.data._utils import worker as workers
from pullback.utils.data._utils.errors import ExceptionWrapper


def run_worker(tasks, results, task: workers.Task, number: int) -> None:
    """Read the batches that are asked for, until there comes None."""
    worker = None
    while True:
        asked = tasks.get()
        if asked is None:
            return
        if worker is None:
            worker = workers.Worker(task, number, "thread")
        epoch, key, index = asked
        try:
            data = worker.run(epoch, index)
        except BaseException:  # such as SystemExit, which would end only this thread
            data = ExceptionWrapper(where=worker.where).as_text()
        results.put((epoch, key, data))
        del asked, index, data


class ThreadPool:
    """Worker threads, with the interface of ``ProcessPool``."""

    def __init__(self, task: workers.Task):
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.tasks: list[Any] = [queue.SimpleQueue() for _ in range(task.num_workers)]
        self.threads = [
            threading.Thread(
                target=run_worker,
                args=(tasks, self.results, task, number),
                name=f"DataLoader worker {number}",
                daemon=True,
            )
            for number, tasks in enumerate(self.tasks)
        ]
        self.finalizer = weakref.finalize(self, _close, self.tasks, self.threads)
        for thread in self.threads:
            thread.start()

    def put(self, number: int, epoch: int, key: int, index) -> None:
        """Ask a worker for the batch of an index."""
        self.tasks[number].put((epoch, key, index))

    def forget_waiting(self) -> None:
        """Drop requests that no worker has begun."""
        for tasks in self.tasks:
            try:
                while True:
                    tasks.get_nowait()
            except queue.Empty:
                pass

    def get(self, timeout: float | None) -> tuple[int, int, Any] | None:
        """Return (epoch, key, batch) of one that is ready; None after ``timeout`` seconds."""
        try:
            return self.results.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, at_once: bool = False) -> None:
        """End the threads, each after the batch that it has begun; ``at_once``: without waiting."""
        if self.finalizer.detach() is not None:
            _close(self.tasks, [] if at_once else self.threads)


def _close(tasks, threads) -> None:
    for requests in tasks:
        try:
            while True:
                requests.get_nowait()
        except queue.Empty:
            requests.put(None)
    deadline = time.monotonic() + workers.MP_STATUS_CHECK_INTERVAL
    for thread in threads:
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(deadline - time.monotonic(), 0))
