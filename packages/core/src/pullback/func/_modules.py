"""Modules as functions of their parameters, and modules stacked for vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pullback
from pullback._c.graph.levels import whole
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching

__all__ = [
    "debug_unwrap",
    "functional_call",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
]


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with tensors in the place of its parameters and buffers, by their paths.

    Those that are not given keep their values; in-place changes of buffers are made to what was
    given. ``args`` is a tuple or one argument. A parameter with several paths is replaced at all of
    them if one is given, unless ``tie_weights`` is False. The module is as before when the call
    returns; calls from several threads at once need copies of it.

    Raises: ValueError for what is neither a dict nor a sequence of dicts, or for a path in two of
    them; TypeError for what is no tensor; RuntimeError with ``strict`` unless there is one tensor
    for every parameter and buffer.

    >>> import pullback
    >>> model = pullback.nn.Linear(2, 1)
    >>> parameters = {name: p.detach() for name, p in model.named_parameters()}
    >>> def loss(parameters, x, y):
    ...     return ((pullback.func.functional_call(model, parameters, x) - y) ** 2).sum()
    >>> gradients = pullback.func.vmap(pullback.func.grad(loss), in_dims=(None, 0, 0))(
    ...     parameters, pullback.ones(5, 2), pullback.zeros(5, 1))
    >>> gradients["weight"].shape
    pullback.Size([5, 1, 2])
    """
    from pullback.nn.utils import stateless

    dicts = parameter_and_buffer_dicts
    if isinstance(dicts, dict):
        tensors = dicts
    elif isinstance(dicts, Sequence):
        tensors = _joined(dicts)
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts)}"
        )
    return stateless.functional_call(
        module, tensors, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def _joined(dicts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    if not all(isinstance(one, dict) for one in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    joined: dict[str, Tensor] = {}
    repeated = {}
    for one in dicts:
        repeated.update(dict.fromkeys(key for key in one if key in joined))
        joined.update(one)
    if repeated:
        raise ValueError(
            f"{list(repeated)} appeared in multiple dictionaries; behavior of functional call is "
            "ambiguous"
        )
    return joined


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of models of one class, stacked in a new dim 0.

    They are for ``vmap`` over ``functional_call`` of one of the models. Stacked parameters are
    leaves that require grad as those of the first model do.

    Raises: RuntimeError for no models, for ones of several classes or modes, and where only some
    of them require grad.

    >>> import pullback
    >>> models = [pullback.nn.Linear(2, 3) for _ in range(4)]
    >>> parameters, buffers = pullback.func.stack_module_state(models)
    >>> parameters["weight"].shape
    pullback.Size([4, 3, 2])
    >>> def call(parameters, x):
    ...     return pullback.func.functional_call(models[0], parameters, x)
    >>> pullback.func.vmap(call, in_dims=(0, None))(parameters, pullback.ones(5, 2)).shape
    pullback.Size([4, 5, 3])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(model.training != models[0].training for model in models):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([dict(model.named_parameters()) for model in models]),
        _stacked([dict(model.named_buffers()) for model in models]),
    )


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    made = {}
    for name, first in states[0].items():
        if any(state[name].requires_grad != first.requires_grad for state in states):
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        stacked = pullback.stack([state[name].detach() for state in states])
        made[name] = stacked.requires_grad_(first.requires_grad)
    return made


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let all batch and instance norms of a module work without running statistics; return it.

    Under ``vmap`` they could not be written: the module normalizes by the batch instead, also in
    evaluation.

    >>> import pullback
    >>> norm = pullback.nn.BatchNorm1d(3)
    >>> pullback.func.replace_all_batch_norm_modules_(norm).running_mean is None
    True
    """
    from pullback.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Return the batch that a tensor stands for in a function that ``vmap`` runs, to look at it.

    Through all levels, or the innermost one with ``recurse=False``; other tensors are returned as
    they are. What is computed from the result has no meaning outside of a debugger.

    >>> import pullback
    >>> def show(x):
    ...     print(pullback.func.debug_unwrap(x))
    ...     return x
    >>> _ = pullback.func.vmap(show)(pullback.ones(2))
    tensor([1., 1.])
    """
    if recurse:
        return whole(tensor)
    for level in reversed(batching.open_batches()):
        value = batching.get_batch(tensor, level)
        if value is not None:
            return value
    return tensor
