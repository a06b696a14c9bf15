"""``DataLoader``: batches of a dataset, read here or by worker processes or threads."""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.context
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from pullback.utils.data._utils.collate import default_collate, default_convert
from pullback.utils.data._utils.errors import ExceptionWrapper
from pullback.utils.data._utils.fetch import create_fetcher
from pullback.utils.data._utils.pin_memory import can_pin, pin_memory
from pullback.utils.data._utils.processes import ProcessPool, WorkersDied
from pullback.utils.data._utils.threads import ThreadPool
from pullback.utils.data._utils.worker import EndOfStream, Task, get_worker_info
from pullback.utils.data.dataset import Dataset, IterableDataset
from pullback.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    random_seed,
)

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
_collate_fn_t = Callable[[list], Any]  # torch's names, which other packages annotate with
_worker_init_fn_t = Callable[[int], None]
THREAD = "thread"
PREFETCH_FACTOR = 2
ALL_WAYS = "batch_size, shuffle, sampler, and drop_last"
# Attributes that cannot be set any more.
FIXED = (
    *("batch_size", "batch_sampler", "sampler", "drop_last", "dataset"),
    "persistent_workers",
)


class _InfiniteConstantSampler(Sampler):
    """Gives None without end: a stream has no indices."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """An iterable over batches of a dataset.

    ``batch_size``: samples in a batch; None gives the samples themselves. ``shuffle``: in another
    order in each epoch. ``sampler``: an iterable of indices, ``batch_sampler`` of lists of them, in
    place of the order and, for the latter, of ``batch_size``, ``shuffle`` and ``drop_last``.
    ``drop_last``: without a last batch that is smaller. ``collate_fn``: makes a batch of a list of
    samples, by default ``default_collate``. ``generator``: gives the order and the workers' seeds.
    ``pin_memory``: batches in pinned memory, where there is an accelerator.

    ``num_workers``: how many processes read batches ahead, ``prefetch_factor`` (by default 2) each;
    with 0 they are read when they are asked for. ``multiprocessing_context``: how they are
    started, "fork", "spawn" or "forkserver", or a context. "thread" makes them threads of this
    process, which is an addition to torch's interface: datasets and batches need not be pickled,
    and worker threads share the random generators. ``worker_init_fn`` is called in each worker with
    its id. ``persistent_workers``: they stay for the next epoch. ``timeout``: seconds that a batch
    may take, 0 for any time. ``in_order``: in the order of the sampler; False gives each batch when
    it is ready.

    Raises: ValueError and TypeError for arguments that exclude each other or have wrong values.
    While it is iterated, a worker's exception is raised with its traceback in its text, and
    RuntimeError for a worker that died or took longer than ``timeout``.

    >>> import pullback
    >>> from pullback.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(pullback.arange(5), pullback.arange(5) ** 2)
    >>> for x, y in DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0, 1] [0, 1]
    [2, 3] [4, 9]
    [4] [16]
    >>> len(DataLoader(data, batch_size=2, drop_last=True))
    2
    """

    dataset: Dataset[T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Sampler | Iterable
    batch_sampler: Sampler | Iterable | None
    prefetch_factor: int | None
    _iterator: _BaseDataLoaderIter | None = None
    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler | Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = PREFETCH_FACTOR
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _check_stream(shuffle, sampler, batch_sampler)
        shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(f"batch_sampler option is mutually exclusive with {ALL_WAYS}")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None:
            if self._iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._length: int | None = None  # of a stream, if it was asked for
        self._initialized = True
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self):
        """The context that starts workers, "thread" for threads, or None for the default."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if not self.num_workers > 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading "
                    f"(num_workers > 0), but got num_workers={self.num_workers}"
                )
            if isinstance(context, str) and context != THREAD:
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        "multiprocessing_context option should specify a valid start method in "
                        f"{[*methods, THREAD]!r}, but got multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            elif not isinstance(context, (str, multiprocessing.context.BaseContext)):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string "
                    f"specifying the start method, but got multiprocessing_context={context}"
                )
        self._multiprocessing_context = context

    def __setattr__(self, name, value):
        if self._initialized and name in FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers or not self.num_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator.is_closed():
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        sized: Any = self.dataset if self._iterable else self._index_sampler
        length = len(sized)
        if not self._iterable:
            return length
        self._length = length
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warn of more worker processes than CPUs."""
        if not self.num_workers or self.multiprocessing_context == THREAD:
            return
        most = _cpu_count()
        if most is None or self.num_workers > most:
            suggested = (
                f"Our suggested max number of worker in current system is {most}, which is smaller "
                "than what this DataLoader is going to create."
                if most is not None
                else "DataLoader is not able to compute a suggested max number of worker in "
                "current system."
            )
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. "
                f"{suggested} Please be aware that excessive worker creation might get DataLoader "
                "running slow or even freeze, lower the worker number to avoid potential "
                "slowness/freeze if necessary.",
                stacklevel=3,
            )


def _cpu_count() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > "
            "0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle, sampler, batch_sampler) -> None:
    for name, value, is_set in (
        ("shuffle", shuffle, shuffle not in (None, False)),
        ("sampler", sampler, sampler is not None),
        ("batch_sampler", batch_sampler, batch_sampler is not None),
    ):
        if is_set:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


class _BaseDataLoaderIter:
    """One epoch of a loader; with persistent workers ``_reset`` begins the next."""

    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._iterable = loader._iterable
        self._index_sampler = loader._index_sampler
        self._base_seed = random_seed(loader.generator)
        self._persistent_workers = loader.persistent_workers
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._pin = can_pin(loader.pin_memory, loader.pin_memory_device)
        self._task = Task(
            iterable=loader._iterable,
            dataset=loader.dataset,
            auto_collation=loader._auto_collation,
            collate_fn=loader.collate_fn,
            drop_last=loader.drop_last,
            base_seed=self._base_seed,
            num_workers=loader.num_workers,
            init_fn=loader.worker_init_fn,
        )

    def _reset(self, loader: DataLoader) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._length = loader._length

    def __iter__(self):
        return self

    def __next__(self):
        data = self._next_data()
        self._num_yielded += 1
        if self._iterable:
            self._check_length()
        return data

    def _next_data(self):
        raise NotImplementedError

    def is_closed(self) -> bool:
        """Return whether the iterator cannot begin another epoch."""
        return True

    def _check_length(self) -> None:
        """Warn of a stream that is longer than it said, if it was asked."""
        length = self._length
        if length is None or self._num_yielded <= length:
            return
        hint = (
            "For multiprocessing data-loading, this could be caused by not properly configuring "
            "the IterableDataset replica at each worker: see the documentation of "
            "pullback.utils.data.IterableDataset for examples."
            if self._num_workers
            else ""
        )
        warnings.warn(
            f"Length of IterableDataset {self._dataset} was reported to be {length}(when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. {hint}",
            stacklevel=3,
        )

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Reads each batch when it is asked for."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        task = self._task
        self._fetcher = create_fetcher(
            task.iterable, task.dataset, task.auto_collation, task.collate_fn, task.drop_last
        )
        self._reset(loader)

    def _next_data(self):
        data = self._fetcher.fetch(next(self._sampler_iter))
        return pin_memory(data) if self._pin else data


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Has workers read batches ahead.

    A batch has a key: its number in the epoch. Keys are in ``_pending`` until the batch arrives,
    then in ``_arrived``.
    """

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._pool: Any = None
        self._in_order = loader.in_order
        self._prefetch = loader.prefetch_factor or 0
        self._epoch = -1
        if not self._prefetch:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        self._pinning = ThreadPoolExecutor(1, "pin memory") if self._pin else None
        if loader.multiprocessing_context == THREAD:
            self._pool = ThreadPool(self._task)
        else:
            self._pool = ProcessPool(self._task, loader.multiprocessing_context)
        try:
            self._reset(loader)
        except BaseException:
            self._close(at_once=True)
            raise

    def _reset(self, loader: DataLoader) -> None:
        super()._reset(loader)
        self._epoch += 1
        self._next_key = 0
        self._next_worker = 0
        self._pending: dict[int, int] = {}  # key: its worker
        self._loads = [0] * self._num_workers  # how many batches are asked of each
        self._active = [True] * self._num_workers  # those whose stream has not ended
        self._arrived: dict[int, Any] = {}
        self._pool.forget_waiting()
        for _ in range(self._prefetch * self._num_workers):
            self._ask()

    def is_closed(self) -> bool:
        return self._pool is None

    def _choose_worker(self) -> int | None:
        """Return the next active worker in turn; without an order, one with the fewest batches."""
        turn = [(self._next_worker + step) % self._num_workers for step in range(self._num_workers)]
        active = [number for number in turn if self._active[number]]
        if not active:
            return None
        return active[0] if self._in_order else min(active, key=self._loads.__getitem__)

    def _ask(self) -> None:
        """Ask a worker for the batch of the sampler's next indices, if there are any."""
        number = self._choose_worker()
        if number is None:
            return
        try:
            index = next(self._sampler_iter)
        except StopIteration:
            return
        key = self._next_key
        self._next_key += 1
        self._next_worker = (number + 1) % self._num_workers
        self._pending[key] = number
        self._loads[number] += 1
        self._pool.put(number, self._epoch, key, index)

    def _next_data(self):
        try:
            while True:
                key = self._ready_key()
                if key is not None:
                    break
                if not self._pending:
                    if not self._persistent_workers:
                        self._close()
                    raise StopIteration
                self._wait(self._timeout or None)
            if self._pinning is not None:
                self._collect()
            data = self._arrived.pop(key)
            self._ask()
        except Exception:
            raise
        except BaseException:  # such as KeyboardInterrupt: what has arrived may be lost
            self._close(at_once=True)
            raise
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data if self._pinning is None else data.result()

    def _ready_key(self) -> int | None:
        """Return the key of the batch to give next, if it has arrived."""
        if not self._arrived:
            return None
        if not self._in_order:
            return next(iter(self._arrived))
        key = min(self._arrived)
        return key if not self._pending or key < next(iter(self._pending)) else None

    def _wait(self, timeout) -> None:
        """Receive one batch.

        Raises: RuntimeError after ``timeout`` seconds, and when a worker has died.
        """
        if self._pool is None:
            raise RuntimeError("the workers of this DataLoader iterator have ended")
        try:
            found = self._pool.get(timeout)
        except WorkersDied as death:
            self._report(death.processes)
        if found is None:
            self._close(at_once=True)
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._keep(*found)

    def _collect(self) -> None:
        """Receive what has arrived, so that it is pinned while the last batch is used."""
        while self._pending and (found := self._pool.get(0)) is not None:
            self._keep(*found)

    def _keep(self, epoch: int, key: int, data) -> None:
        if epoch != self._epoch:
            return
        number = self._pending.pop(key)
        self._loads[number] -= 1
        if isinstance(data, EndOfStream):
            if self._active[number]:
                self._active[number] = False
                self._ask()
        elif self._pinning is not None and not isinstance(data, ExceptionWrapper):
            self._arrived[key] = self._pinning.submit(pin_memory, data)
        else:
            self._arrived[key] = data

    def _report(self, processes) -> None:
        """Raise RuntimeError for workers that have died."""
        pids = ", ".join(str(process.pid) for process in processes)
        pid, code = processes[0].pid, processes[0].exitcode
        self._close()
        if code is not None and code < 0:
            cause = f"DataLoader worker (pid {pid}) is killed by signal: {_signal_text(-code)}. "
        else:
            cause = (
                f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details "
                "are lost due to multiprocessing. Rerunning with num_workers=0 may give better "
                "error trace."
            )
        raise RuntimeError(
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly"
        ) from RuntimeError(cause)

    def _close(self, at_once: bool = False) -> None:
        """End the workers; ``at_once``: without waiting for what they do."""
        pool, self._pool = self._pool, None
        if self._pinning is not None:
            self._pinning.shutdown(wait=False)
        if pool is not None:
            pool.close(at_once)


def _signal_text(number: int) -> str:
    return signal.strsignal(number) or f"Unknown signal {number}"
