"""What a worker does, in a process or a thread of its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pullback
from pullback.utils.data._utils.errors import ExceptionWrapper
from pullback.utils.data._utils.fetch import create_fetcher

__all__ = ["WorkerInfo", "get_worker_info"]

MP_STATUS_CHECK_INTERVAL = 5.0
"""Seconds after which a worker looks whether its parent lives, and the parent gives up on it."""


@dataclass(frozen=True)
class WorkerInfo:
    """What ``get_worker_info`` returns in a worker.

    ``id``: from 0; ``num_workers``; ``seed``: the loader's base seed plus ``id``; ``dataset``: this
    worker's copy of the dataset, or in a thread the dataset itself.

    >>> from pullback.utils.data import WorkerInfo
    >>> WorkerInfo(id=0, num_workers=2, seed=7, dataset=[1, 2]).num_workers
    2
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_state = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """Return what is known of this worker: its id, seed and dataset; None outside of workers.

    An ``IterableDataset`` uses it to read only a part of its stream in each worker.

    >>> from pullback.utils.data import DataLoader, IterableDataset, get_worker_info
    >>> class Numbers(IterableDataset):
    ...     def __iter__(self):
    ...         info = get_worker_info()
    ...         return iter(range(info.id, 6, info.num_workers))
    >>> list(DataLoader(Numbers(), 3, num_workers=2, multiprocessing_context="thread"))
    [tensor([0, 2, 4]), tensor([1, 3, 5])]
    """
    return getattr(_state, "info", None)


class EndOfStream(NamedTuple):
    """Sent by a worker in place of a batch when its stream has ended."""

    worker: int


@dataclass
class Task:
    """What the workers of a loader share."""

    iterable: bool
    dataset: Any
    auto_collation: bool
    collate_fn: Callable
    drop_last: bool
    base_seed: int
    num_workers: int
    init_fn: Callable | None


class Worker:
    """Reads batches, epoch after epoch; an exception is returned in place of a batch."""

    def __init__(self, task: Task, number: int, where: str):
        self.task = task
        self.number = number
        self.where = f"in DataLoader worker {where} {number}"
        self.epoch = -1
        self.ended = False
        self.fetcher: Any = None
        self.failure: ExceptionWrapper | None = None  # to begin, in place of each batch
        seed = task.base_seed + number
        _state.info = WorkerInfo(number, task.num_workers, seed, task.dataset)
        self.unusable: ExceptionWrapper | None = None
        try:
            if task.init_fn is not None:
                task.init_fn(number)
        except Exception:
            self.unusable = ExceptionWrapper(where=self.where)

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.ended = False
        self.failure = self.unusable
        if self.failure is not None:
            return
        task = self.task
        try:
            self.fetcher = create_fetcher(
                task.iterable, task.dataset, task.auto_collation, task.collate_fn, task.drop_last
            )
        except Exception:
            self.failure = ExceptionWrapper(where=self.where)

    def run(self, epoch: int, index) -> Any:
        """Return the batch of an index, an ``ExceptionWrapper`` or an ``EndOfStream``."""
        if epoch != self.epoch:
            self._begin(epoch)
        if self.failure is not None:
            return self.failure
        if self.ended:
            return EndOfStream(self.number)
        try:
            return self.fetcher.fetch(index)
        except Exception as error:
            if self.task.iterable and isinstance(error, StopIteration):
                self.ended = True
                return EndOfStream(self.number)
            return ExceptionWrapper(where=self.where)


def seed_everything(seed: int) -> None:
    """Seed the generators of a worker process: of Python, NumPy and the package."""
    import numpy

    random.seed(seed)
    pullback.manual_seed(seed)
    numpy.random.seed(numpy.random.SeedSequence(seed).generate_state(4))
