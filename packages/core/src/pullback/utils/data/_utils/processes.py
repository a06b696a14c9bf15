"""Workers in processes of their own, each with a socket to the parent.

No queue or lock is shared by workers, so one that is killed leaves nothing locked: the end of its
socket is all that the parent sees. A worker ends when the parent closes the socket or dies.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from multiprocessing import connection, reduction
from typing import Any

import pullback
from pullback.utils.data._utils import shared
from pullback.utils.data._utils import worker as workers
from pullback.utils.data._utils.errors import ExceptionWrapper

WINDOWS_PIPE = 8192  # bytes that a pipe holds there
KILL_INTERVAL = 1.0  # seconds from a request to end to an order
DESCRIPTORS = 100  # that one message may have; systems allow somewhat more
MESSAGE_OVERHEAD = 1024  # bytes of the kernel's for each message in a socket

_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


# ---- the worker's side ---------------------------------------------------------------------------


def run_worker(channel, task: workers.Task, number: int) -> None:
    """Read the batches that the parent asks for, until it closes the channel or dies."""
    _own_channels.append(channel)
    with contextlib.suppress(ValueError):  # not the main thread
        # The parent ends its workers. Programs that a dataset starts keep the default.
        signal.signal(signal.SIGINT, lambda *_: None)
    pullback.set_num_threads(1)
    workers.seed_everything(task.base_seed + number)
    if shared.is_available():
        shared.writer = shared.Writer()
    worker = workers.Worker(task, number, "process")
    parent = multiprocessing.parent_process()
    try:
        while True:
            while not channel.poll(workers.MP_STATUS_CHECK_INTERVAL):
                if parent is not None and not parent.is_alive():
                    return
            epoch, key, index, returned, lost = pickle.loads(channel.recv_bytes())
            if shared.writer is not None:
                shared.writer.take_back(returned, lost)
            _send(channel, (epoch, key), worker.run(epoch, index), worker.where)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass
    finally:
        channel.close()


def _send(channel, head, data, where) -> None:
    """Send a batch, or the exception that says why it cannot be pickled."""
    try:
        message, new = shared.pack(head, data, shared.writer)
    except Exception:
        error = data if isinstance(data, ExceptionWrapper) else ExceptionWrapper(where=where)
        try:
            message, new = shared.pack(head, error, shared.writer)
        except Exception:  # its class cannot be pickled
            message, new = shared.pack(head, error.as_text(), shared.writer)
    channel.send_bytes(message)
    if new:
        with _socket_of(channel) as stream:
            for first in range(0, len(new), DESCRIPTORS):
                part = new[first : first + DESCRIPTORS]
                reduction.sendfds(stream, [block.descriptor for block in part])
        for block in new:
            block.close_descriptor()


def _socket_of(channel):
    return socket.fromfd(channel.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


# ---- the parent's side ---------------------------------------------------------------------------


class WorkersDied(Exception):
    """Workers have ended that were not asked to; it has their processes."""

    def __init__(self, processes):
        super().__init__(processes)
        self.processes = processes


class ProcessPool:
    """Worker processes: ``put`` asks one for a batch, ``get`` returns one that has arrived."""

    def __init__(self, task: workers.Task, context):
        self.channels: list[Any] = []
        self.processes: list[Any] = []
        self.readers = [shared.Reader() for _ in range(task.num_workers)]
        self.waiting: list[deque] = [deque() for _ in range(task.num_workers)]
        self.costs: list[deque] = [deque() for _ in range(task.num_workers)]
        self.owner = os.getpid()
        self.finalizer = weakref.finalize(self, _close, self.channels, self.processes, self.owner)
        _pools.add(self)
        try:
            for number in range(task.num_workers):
                self._start(context or multiprocessing, task, number)
        except BaseException:
            self.close()
            raise
        self.room = WINDOWS_PIPE
        if os.name == "posix":
            with _socket_of(self.channels[0]) as stream:
                self.room = stream.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
        self.by_descriptor = {ours.fileno(): i for i, ours in enumerate(self.channels)}
        self.poller = None
        if hasattr(select, "poll"):
            self.poller = select.poll()
            for descriptor in self.by_descriptor:
                self.poller.register(descriptor, select.POLLIN)

    def _start(self, context, task, number) -> None:
        ours, theirs = context.Pipe()
        self.channels.append(ours)
        process = context.Process(target=run_worker, args=(theirs, task, number), daemon=True)
        try:
            with warnings.catch_warnings():
                if threading.active_count() == 1:
                    # Only kernels have more threads, and theirs are prepared for forks.
                    warnings.filterwarnings(
                        "ignore", ".*multi-threaded, use of fork", DeprecationWarning
                    )
                process.start()
        finally:
            theirs.close()
        self.processes.append(process)

    def put(self, number: int, epoch: int, key: int, index) -> None:
        """Ask a worker for the batch of an index."""
        self._check_owner()
        self.waiting[number].append((epoch, key, index))
        self._flush(number)

    def _flush(self, number: int) -> None:
        """Send a worker what its socket has room for: sending must not wait for a busy worker."""
        waiting, costs = self.waiting[number], self.costs[number]
        while waiting:
            returned, lost = self.readers[number].take_returned()
            message = pickle.dumps((*waiting[0], returned, lost), 5)
            cost = 2 * len(message) + MESSAGE_OVERHEAD
            if costs and sum(costs) + cost > self.room:
                self.readers[number].returned += returned
                self.readers[number].lost += lost
                return
            waiting.popleft()
            costs.append(cost)
            try:
                self.channels[number].send_bytes(message)
            except ConnectionError:  # `get` reads what it has sent, and finds its end
                return

    def forget_waiting(self) -> None:
        """Drop requests that are not sent yet."""
        for waiting in self.waiting:
            waiting.clear()

    def get(self, timeout: float | None) -> tuple[int, int, Any] | None:
        """Return (epoch, key, batch) of one that has arrived; None after ``timeout`` seconds.

        Raises: WorkersDied.
        """
        self._check_owner()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = workers.MP_STATUS_CHECK_INTERVAL
            if deadline is not None:
                left = min(left, max(deadline - time.monotonic(), 0))
            for number in self._ready(left):
                return self._receive(number)
            if deadline is not None and time.monotonic() >= deadline:
                return None
            dead = [process for process in self.processes if not process.is_alive()]
            if dead:
                raise WorkersDied(dead)

    def _ready(self, timeout: float) -> list[int]:
        if self.poller is not None:
            found = self.poller.poll(timeout * 1000)
            return [self.by_descriptor[descriptor] for descriptor, _ in found]
        return [self.channels.index(found) for found in connection.wait(self.channels, timeout)]

    def _receive(self, number: int):
        channel, process = self.channels[number], self.processes[number]
        try:
            message = channel.recv_bytes()
            (epoch, key), data = shared.unpack(
                message, self.readers[number], lambda count: _receive_descriptors(channel, count)
            )
        except (EOFError, ConnectionError):
            process.join(workers.MP_STATUS_CHECK_INTERVAL)
            raise WorkersDied([process]) from None
        self.costs[number].popleft()
        self._flush(number)
        return epoch, key, data

    def _check_owner(self) -> None:
        if self.owner != os.getpid():
            raise RuntimeError("a DataLoader's workers belong to the process that started them")

    def close(self, at_once: bool = False) -> None:
        """End the workers; by force, at once or where they do not end by themselves."""
        if self.finalizer.detach() is not None:
            _close(self.channels, self.processes, self.owner, at_once)


def _receive_descriptors(channel, count: int) -> list[int]:
    received: list[int] = []
    with _socket_of(channel) as stream:
        try:
            while len(received) < count:
                part = min(DESCRIPTORS, count - len(received))
                received += reduction.recvfds(stream, part)
        except (RuntimeError, EOFError) as error:  # the end of the stream
            for descriptor in received:
                os.close(descriptor)
            raise EOFError from error
    return received


def _close(channels, processes, owner, at_once=False) -> None:
    """Close the channels and wait for the workers; in the process that started them."""
    if owner != os.getpid():
        return
    for channel in channels:
        channel.close()
    try:
        if not at_once:
            _join(processes, workers.MP_STATUS_CHECK_INTERVAL)
        for process in processes:
            if process.exitcode is None:
                process.terminate()
        _join(processes, KILL_INTERVAL)
    finally:
        for process in processes:
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()


def _join(processes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))


_own_channels: list = []  # of this process, if it is a worker


def _close_inherited() -> None:
    """In the child of a fork: close the sockets of others, whose end shall be their owner's."""
    for pool in list(_pools):
        for channel in pool.channels:
            channel.close()
    for channel in _own_channels:
        channel.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
