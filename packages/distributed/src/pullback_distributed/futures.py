"""A value that will be there, as communication hooks return it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A value that will be there, with torch.futures.Future's methods.

    >>> from pullback_distributed.futures import Future
    >>> later = Future()
    >>> doubled = later.then(lambda done: 2 * done.value())
    >>> later.set_result(3)
    >>> doubled.wait()
    6
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Return whether the value, or an error, is there."""
        return self._ended.is_set()

    def wait(self) -> T:
        """Wait for the value, and return it.

        Raises: what ``set_exception`` was given.
        """
        self._ended.wait()
        return self.value()

    def wait_for(self, seconds: float | None) -> bool:
        """Wait at most so many seconds; return whether the value, or an error, is there."""
        return self._ended.wait(seconds)

    def exception(self) -> BaseException | None:
        """Return the error that is in place of the value, if it is there."""
        return self._error

    def value(self) -> T:
        """Return the value.

        Raises: RuntimeError if it is not there; what ``set_exception`` was given.
        """
        if not self._ended.is_set():
            raise RuntimeError("Future.value: the value is not there, wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: T) -> None:
        """Give the value, and call what waits for it.

        Raises: RuntimeError if there is one.
        """
        self._end(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Give an error in place of the value.

        Raises: RuntimeError if there is a value or an error.
        """
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._ended.is_set():
                raise RuntimeError("Future can only be marked completed once")
            self._value, self._error = value, error
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call a function with this future when it is done, at once if it is.

        It runs where the value is given, which is the progress thread for a collective, so it must
        not start collectives.
        """
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """Return the future of what a function makes of this one; see ``add_done_callback``."""
        following: Future[Any] = Future()

        def run(done: Future[T]) -> None:
            try:
                result = callback(done)
            except BaseException as error:  # `wait` raises it
                following.set_exception(error)
            else:
                following.set_result(result)

        self.add_done_callback(run)
        return following
