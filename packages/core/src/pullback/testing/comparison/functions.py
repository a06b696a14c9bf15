"""Lets a watch see what the forward of a custom Function does.

A custom Function runs its forward with all levels disabled, so the level of a watch receives none
of its ops. While a watch is open on a thread, forward runs inside a further level of that watch,
and the watch is called at its beginning and end. Operators of ``pullback.library`` and
``define_primitive``, and reentrant checkpoints, are custom Functions as well.
"""

from __future__ import annotations

import threading
import types
from typing import TYPE_CHECKING, Any

from pullback.autograd import function

if TYPE_CHECKING:
    from pullback.testing.comparison.watch import OpWatch

GENERATED = "GeneratedBackwardFor_"


class FunctionCall:
    """The forward of a custom Function, as a watch records it beside ops."""

    is_view = is_inplace = False

    def __init__(self, cls: Any):
        name = cls.__name__
        self.is_operator = name.startswith(GENERATED)
        self.name = name.removeprefix(GENERATED) if self.is_operator else f"{name}.forward"


_open: dict[int, list[OpWatch]] = {}  # the open watches of each thread, the innermost one last


def open_watch(watch: OpWatch) -> None:
    """Begin to call a watch for this thread's custom Functions."""
    _open.setdefault(threading.get_ident(), []).append(watch)
    function.forward_runner.run = _run_forward


def close_watch(watch: OpWatch) -> None:
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
