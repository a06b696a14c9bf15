"""Naming a block of the user's program in profiles."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar, cast

from pullback.backend import begin_range, end_range

F = TypeVar("F", bound=Callable[..., Any])


class record_function:
    """Context manager or decorator: what runs inside shows under ``name`` in profiles.

    ``args`` is a text that traces show too. Costs next to nothing while no profiler records.
    Raises: TypeError if ``name`` is not a str.

    >>> from pullback_profiler import profile, record_function
    >>> with profile() as p:
    ...     with record_function("epoch", "first"):
    ...         pass
    >>> p.function_events[0].name
    'epoch'
    """

    __slots__ = ("_ends_later", "_numbers", "args", "name")

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"record_function(): argument 'name' must be str, not {type(name).__name__}"
            )
        if args is not None and not isinstance(args, str):
            raise TypeError(
                f"record_function(): argument 'args' must be str, not {type(args).__name__}"
            )
        self.name = name
        self.args = args
        self._numbers: dict[
            int, list[int | None]
        ] = {}  # of open blocks by thread; None: ends with a future
        self._ends_later = False

    def __enter__(self) -> record_function:
        number = begin_range(self.name, self.args)
        inside = self._numbers.get(get_ident())
        if inside is None:
            inside = self._numbers[get_ident()] = []
        inside.append(number)
        return self

    def __exit__(self, *error: object) -> None:
        inside = self._inside()
        number = inside.pop() if inside else None
        if number is not None:
            end_range(number)

    def _inside(self) -> list[int | None]:
        """Return the numbers of this thread; if it has none, those of another thread."""
        own = self._numbers.get(get_ident())
        return own or next(filter(None, [*self._numbers.values()]), [])

    def __call__(self, function: F) -> F:
        """Return ``function`` with each call of it inside the block."""

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            number = begin_range(self.name, self.args)
            try:
                return function(*args, **kwargs)
            finally:
                end_range(number)

        return recorded  # type: ignore[return-value]

    def _call_end_callbacks_on_future(self, future: Any) -> Any:
        """Let the block end when a future is done instead of at its end in the program.

        ``future`` has ``add_done_callback``, as those of ``concurrent.futures`` and ``asyncio``.
        Returns it. Raises: RuntimeError when called a second time, or outside the block.
        """
        if self._ends_later:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        inside = self._inside()
        if not inside:
            raise RuntimeError("_call_end_callbacks_on_future: the block has not begun")
        self._ends_later = True
        number, inside[-1] = inside[-1], None
        lock = threading.Lock()

        def end(_: Any) -> None:
            if lock.acquire(blocking=False):  # a future may call twice
                end_range(cast(int, number))

        future.add_done_callback(end)
        return future
