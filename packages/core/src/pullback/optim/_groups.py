"""Parts of parameter groups and state: names, loaded values, other parameters for a while."""

from __future__ import annotations

import contextlib
from collections import defaultdict

from pullback import Tensor

__all__ = ["swap_in_optimizer_params_and_state"]


_NAME = "swap_in_optimizer_params_and_state"


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Let an optimizer work on other parameters and state inside a ``with`` block.

    ``swapin_parameters`` is a dict of tensors in the order of the optimizer's parameters, and
    ``swapin_optim_state`` a dict as ``state_dict()`` returns, with the state and options to use.
    Afterwards the optimizer has its own again; what was written into the tensors stays there.

    Raises: RuntimeError if the optimizer has no state yet, or the dicts do not fit it.

    >>> import pullback
    >>> x, y = (pullback.ones(1, requires_grad=True) for _ in range(2))
    >>> optimizer = pullback.optim.SGD([x], lr=0.5, momentum=0.5)
    >>> x.grad, y.grad = pullback.ones(1), pullback.ones(1)
    >>> optimizer.step()
    >>> other = optimizer.state_dict()
    >>> with pullback.optim.swap_in_optimizer_params_and_state(optimizer, {"y": y}, other):
    ...     optimizer.step()
    >>> x.item(), y.item()
    (0.5, 0.25)
    """
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    state = swapin_optim_state.get("state")
    if not isinstance(state, dict):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter "
            f"ids to per-param state dicts, got {type(state).__name__}."
        )
    before = optimizer.param_groups, optimizer.state
    params = iter(swapin_parameters.values())
    groups, swapped = [], defaultdict(dict)
    for own, given in zip(optimizer.param_groups, swapin_optim_state["param_groups"]):
        taken = [param for _, param in zip(own["params"], params)]
        if len(taken) != len(own["params"]) or len(taken) != len(given["params"]):
            raise RuntimeError(
                f"{_NAME} requires the explicit parameter state to match optimizer.param_groups "
                "ordering."
            )
        groups.append({**given, "params": taken})
        for number, param in zip(given["params"], taken):
            if number in state:
                swapped[param] = dict(state[number])
    optimizer.param_groups, optimizer.state = groups, swapped
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = before


def split_names(params):
    """Return a list of what a group has as parameters, and of their names if they have any."""
    if isinstance(params, Tensor):
        return [params], []
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering "
            "of tensors in sets will change between runs. Please use a list instead."
        )
    params = list(params)
    names = [entry[0] for entry in params if isinstance(entry, tuple)]
    if names and len(names) != len(params):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    return ([entry[1] for entry in params] if names else params), names


def cast_state(optimizer, param, value, param_id, param_groups, key=None):
    """Return loaded state with all its tensors, also those in dicts and sequences, adapted."""
    if isinstance(value, Tensor):
        return optimizer._process_value_according_to_param_policy(
            param, value, param_id, param_groups, key
        )
    if isinstance(value, dict):
        return {
            name: cast_state(optimizer, param, part, param_id, param_groups, name)
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(
            cast_state(optimizer, param, part, param_id, param_groups) for part in value
        )
    return value


def fill_with_zeros(grad):
    if grad is not None:
        if grad.grad_fn is not None:
            grad.detach_()
        elif grad.requires_grad:
            grad.requires_grad_(False)
        grad.zero_()
