"""Lets a watch see what the forward of a custom Function does.

A custom Function runs its forward with all levels disabled, so the level of a watch receives none
of its ops. While a watch is open on a thread, forward runs inside a further level of that watch,
and the watch is called at its beginning and end. Operators of ``pullback.library`` and
``define_primitive``, and reentrant checkpoints, are custom Functions as well.
"""

from __future__ import annotations

import threading
import types
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pullback.autograd import function

GENERATED = "GeneratedBackwardFor_"


class FunctionCall:
    """The forward of a custom Function, as a watch records it beside ops."""

    is_view = is_inplace = False

    def __init__(self, cls: Any):
        name = cls.__name__
        self.is_operator = name.startswith(GENERATED)
        self.name = name.removeprefix(GENERATED) if self.is_operator else f"{name}.forward"


class Watch(Protocol):
    """What is called for custom Functions, and receives the ops of their forward."""

    def is_listening(self) -> bool:
        """Return whether ops are received now."""

    def inside(self) -> AbstractContextManager[None]:
        """Receive ops within a custom Function, which has disabled the levels outside."""

    def begin_function(self) -> int:
        """Note that forward begins; return a number for ``leave_function``."""

    def end_function(self, call: FunctionCall, ctx: Any, args: tuple[Any, ...], out: Any) -> None:
        """Note what forward saved and returned."""

    def leave_function(self, depth: int) -> None:
        """Note that forward has ended, by an exception too."""


_open: dict[int, list[Watch]] = {}  # the open watches of each thread, the innermost one last


def open_watch(watch: Watch) -> None:
    """Begin to call a watch for this thread's custom Functions."""
    _open.setdefault(threading.get_ident(), []).append(watch)
    function.forward_runner.run = _run_forward


def close_watch(watch: Watch) -> None:
    """End what ``open_watch`` began."""
    watches = _open[threading.get_ident()]
    watches.remove(watch)
    if not watches:
        del _open[threading.get_ident()]
        del function.forward_runner.run


def _run_forward(cls: Any, ctx: Any, args: tuple[Any, ...]) -> Any:
    """Run forward, seen by the innermost watch of this thread if that receives ops now."""
    watch = _open[threading.get_ident()][-1]
    if not watch.is_listening():
        return function.run_unwatched(cls, ctx, args)
    call = FunctionCall(cls)
    apart = cls.setup_context is not function.Function.setup_context

    def forward(*given: Any) -> Any:
        with watch.inside():
            outputs = cls.forward(*given)
        if not apart:
            watch.end_function(call, ctx, args, outputs)
        return outputs

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        with watch.inside():
            cls.setup_context(ctx, inputs, output)
        watch.end_function(call, ctx, args, output)

    steps = types.SimpleNamespace(
        forward=forward,
        setup_context=setup_context if apart else function.Function.setup_context,
    )
    depth = watch.begin_function()
    try:
        return function.run_unwatched(steps, ctx, args)
    finally:
        watch.leave_function(depth)
