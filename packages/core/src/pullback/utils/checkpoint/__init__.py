"""Checkpointing: recomputes the tensors that a function saves for backward.

>>> import pullback as pb
>>> from pullback.utils.checkpoint import checkpoint
>>> x = pb.tensor([1., 2.], requires_grad=True)
>>> y = checkpoint(lambda x: (x * x).exp(), x)
>>> y.sum().backward()                          # runs the function again
>>> x.grad
tensor([  5.4366, 218.3926])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback._c.base.state import is_grad_enabled
from pullback._help import explain_names as _explain_names
from pullback.utils.checkpoint._debug import OpLogs, set_checkpoint_debug_enabled
from pullback.utils.checkpoint._debug import wanted as _debug_wanted
from pullback.utils.checkpoint._reentrant import (
    CheckpointFunction,
    check_backward_validity,
    detach_variable,
)
from pullback.utils.checkpoint._regions import (
    DETERMINISM_CHECKS,
    CheckpointError,
    GraphExecGroup,
    Region,
    set_checkpoint_early_stop,
)
from pullback.utils.checkpoint._replay import (
    DefaultDeviceType,
    Surroundings,
    get_device_states,
    noop_context_fn,
    set_device_states,
)
from pullback.utils.checkpoint._selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Any] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Return ``function(*args, **kwargs)``, saving only its arguments for backward.

    The first time that backward needs a tensor that the function saved, the function runs again,
    with the grad mode, default device and random numbers of the first time. With ``early_stop``
    that run ends as soon as the last tensor was saved again.

    ``context_fn()`` returns two context managers, for the first run and for each later one.
    ``determinism_check``: whether recomputed tensors must have the shapes, dtypes and devices of
    the first ones ("default") or not ("none"). With ``debug``, an error shows the ops of both runs.
    ``preserve_rng_state=False`` does not restore the random numbers.

    ``use_reentrant=True`` is torch's older implementation: the function runs without recording, and
    backward runs it again and calls ``backward`` on it. Then ``autograd.grad`` and ``inputs=`` do
    not work, an argument must require grad, and ``preserve_rng_state`` is the only other option.
    None is False.

    Raises: ValueError for options that exclude each other. In backward: CheckpointError when the
    function saves other tensors than it did the first time; RuntimeError when an argument was
    changed in place since.

    >>> import pullback as pb
    >>> x = pb.ones(3, requires_grad=True)
    >>> pb.utils.checkpoint.checkpoint(pb.sin, x).sum().backward()
    >>> x.grad
    tensor([0.5403, 0.5403, 0.5403])
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in DETERMINISM_CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(DETERMINISM_CHECKS)}, but got "
            f"{determinism_check}"
        )
    logs = None
    if _debug_wanted(debug):
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        logs = OpLogs()
        context_fn = logs.contexts
    first_context, later_context = context_fn()
    if not is_grad_enabled():
        return function(*args, **kwargs)
    surroundings = Surroundings(preserve)

    def run_again(*args):
        with surroundings.restored(), later_context:
            function(*args, **kwargs)

    region = Region(
        run_again,
        args,
        early_stop,
        DETERMINISM_CHECKS[determinism_check],
        None if logs is None else logs.explain,
    )
    with region.saving(), first_context:
        result = function(*args, **kwargs)
        region.is_complete = True
    if not region.is_complete:
        raise RuntimeError(
            "pullback.utils.checkpoint: the forward context provided by context_fn "
            "suppressed an exception raised during the checkpointed forward, so "
            "there is no result to return."
        )
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run functions one after the other, checkpointed in segments; the last one is not.

    ``functions`` is a list, or has one to give by ``children()``. ``preserve_rng_state`` and
    ``use_reentrant`` are passed to ``checkpoint``.

    Raises: ValueError for other options, and unless there are 1 to ``len(functions)`` segments.

    >>> import pullback as pb
    >>> x = pb.ones(2, requires_grad=True)
    >>> layers = [pb.sin, pb.exp, pb.cos, pb.exp]
    >>> pb.utils.checkpoint.checkpoint_sequential(layers, 2, x)
    tensor([0.5062, 0.5062], grad_fn=<ExpBackward0>)
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children() if hasattr(functions, "children") else functions)
    if not 1 <= segments <= max(len(functions), 1):
        raise ValueError(
            f"checkpoint_sequential(): expected 1 to {len(functions)} segments, one "
            f"or more functions in each, but got {segments}"
        )
    length = len(functions) // segments

    def run(start, end):
        def segment(value):
            for each in functions[start:end]:
                value = each(value)
            return value

        return segment

    last = length * (segments - 1)
    for start in range(0, last, length or 1):
        input = checkpoint(
            run(start, start + length),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return run(last, len(functions))(input)


_explain_names(globals())
