"""Modes under which everything must hold as it does without: each runs a function inside it."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pullback as pb

Run = Callable[[], None]

_checkpointed = ContextVar(
    "whether functions are checkpointed where they are differentiated", default=False
)
_compiled = ContextVar(
    "whether functions are compiled where they are differentiated", default=False
)


def differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as checks shall call it for its derivatives."""
    if _compiled.get():
        return _replayed(function)

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        if _checkpointed.get():
            return pb.utils.checkpoint.checkpoint(function, *values, use_reentrant=False)
        return function(*values)

    return call


def _replayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that has recorded a call before the first one."""
    compiled = pb.compile(function)
    calls: list[Any] = []

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="compile")
            if not calls:
                calls.append(compiled(*(copied(value) for value in values)))
            return compiled(*values)

    return call


def copied(value: Any) -> Any:
    """Return a copy of a tensor, as a leaf; other values as they are."""
    if not isinstance(value, pb.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def run_plainly(function: Run) -> None:
    """Run it as it is."""
    function()


def run_with_anomaly_detection(function: Run) -> None:
    """Record a traceback with every node; NaN may arise."""
    with pb.autograd.set_detect_anomaly(True, check_nan=False):
        function()


def run_with_saved_tensor_hooks(function: Run) -> None:
    """Keep a copy of everything that is saved for backward instead of the thing itself."""
    hooks = pb.autograd.graph.saved_tensors_hooks
    with hooks(lambda tensor: tensor.detach().clone(), lambda kept: kept):
        function()


def run_in_a_thread(function: Run) -> None:
    """Run it in a thread of its own, whose modes are fresh."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def run_without_fallback(function: Run) -> None:
    """Forbid the host to stand in for missing kernels."""
    before = os.environ.get("PULLBACK_FALLBACK")
    os.environ["PULLBACK_FALLBACK"] = "error"
    try:
        function()
    finally:
        if before is None:
            del os.environ["PULLBACK_FALLBACK"]
        else:
            os.environ["PULLBACK_FALLBACK"] = before


def run_under_vmap(function: Run) -> None:
    """Run it while a level of vmap is open, of which no operand is part."""

    def run(x: pb.Tensor) -> pb.Tensor:
        function()
        return x

    pb.func.vmap(run, randomness="same")(pb.ones(1))


def run_with_checkpoints(function: Run) -> None:
    """Compute every gradient with values that the checked op computes a second time."""
    token = _checkpointed.set(True)
    try:
        function()
    finally:
        _checkpointed.reset(token)


def run_compiled(function: Run) -> None:
    """Compute every gradient with values that a replay of the checked op computes."""
    token = _compiled.set(True)
    try:
        function()
    finally:
        _compiled.reset(token)


MODES = {
    "plain": run_plainly,
    "anomaly": run_with_anomaly_detection,
    "hooks": run_with_saved_tensor_hooks,
    "thread": run_in_a_thread,
    "no-fallback": run_without_fallback,
    "vmap": run_under_vmap,
    "checkpoint": run_with_checkpoints,
    "compile": run_compiled,
}
