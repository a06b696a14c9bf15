"""Modules whose parameters, gradients and optimizer state are divided among the processes.

Source: S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: memory optimizations toward training
trillion parameter models, SC 2020, stage 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pullback
from pullback import Tensor
from pullback.distributed import ReduceOp
from pullback.nn import Module
from pullback.optim import Optimizer
from pullback_distributed.checkpoint.shards import Shard
from pullback_distributed.collectives.movements import broadcast
from pullback_distributed.collectives.reductions import all_reduce
from pullback_distributed.fsdp.unit import ShardInfo, Slot, Unit
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup

_UNIT = "_pullback_sharded_unit"
_KINDS: dict[type[Module], type[Module]] = {}  # of divided modules, by their class before


def fully_shard(
    module: Module,
    *,
    process_group: ProcessGroup | None = None,
    reshard_after_forward: bool = True,
) -> Module:
    """Divide the parameters of a module among the processes, by rows, and return it.

    A parameter is then the part of this process, and so are its gradient and an optimizer's state,
    which is made afterwards. The whole parameters are gathered before the module's forward pass
    and freed after it, and again for its backward pass, which averages the gradients and leaves
    each process its part. With ``reshard_after_forward=False`` they stay until the backward pass
    has used them. Divide inner modules first, such as the layers of a network: each is gathered
    alone, so that memory holds the whole parameters of one at a time. The parameters of the
    group's first process are those of all.
    Raises: TypeError if it is no module; ValueError for a parameter without dims, one that is no
    leaf or a module that is divided; ValueError before ``init_process_group``.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.fsdp import fully_shard
    >>> dist.init_process_group()
    >>> model = fully_shard(pullback.nn.Linear(2, 1, bias=False))
    >>> model(pullback.ones(3, 2)).sum().backward()
    >>> model.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """
    if not isinstance(module, Module):
        raise TypeError(
            f"fully_shard: argument 'module' must be Module, not {type(module).__name__}"
        )
    if getattr(module, _UNIT, None) is not None:
        raise ValueError("fully_shard: the module is divided already")
    group = world() if process_group is None else process_group
    homes = _homes_of(module)
    if homes:
        for found in homes.values():
            broadcast(getattr(*found[0]).detach(), group=group, group_src=0)
    unit = Unit(homes, group, reshard_after_forward)
    module.__dict__[_UNIT] = unit
    module.__class__ = _divided(type(module))
    module.register_forward_pre_hook(unit.enter, prepend=True)
    module.register_forward_hook(unit.leave, always_call=True)
    return module


class FSDPModule:
    """What ``fully_shard`` adds to a module's class: ``isinstance`` finds divided modules by it."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether whole parameters are freed after forward; of divided modules in it, too.

        Raises: ValueError where ``reshard_after_forward`` is not a bool.

        >>> import pullback, pullback_distributed as dist
        >>> from pullback_distributed.fsdp import FSDPModule, fully_shard
        >>> dist.init_process_group()
        >>> model = fully_shard(pullback.nn.Linear(2, 1))
        >>> isinstance(model, FSDPModule)
        True
        >>> model.set_reshard_after_forward(False)
        >>> dist.destroy_process_group()
        """
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(
                "reshard_after_forward should be a bool, got "
                f"{type(reshard_after_forward).__name__}"
            )
        parts: Iterable[Any] = self.modules() if recurse and isinstance(self, Module) else (self,)
        for part in parts:
            if isinstance(part, FSDPModule):
                getattr(part, _UNIT).frees = reshard_after_forward


def _divided(kind: type[Module]) -> type[Module]:
    """Return a module's class with what divided modules have."""
    if kind not in _KINDS:
        names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        _KINDS[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), names)
    return _KINDS[kind]


def _homes_of(module: Module) -> dict[int, list[tuple[Module, str]]]:
    """Return where a module holds each parameter, but for those of divided modules in it.

    Raises: ValueError for one that cannot be divided.
    """
    homes: dict[int, list[tuple[Module, str]]] = {}
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        for name, parameter in part.named_parameters(recurse=False):
            where = f"{path}{name}"
            if parameter.dim() == 0:
                raise ValueError(
                    f"fully_shard doesn't support scalar parameters. Change {where!r} to a 1D "
                    f"tensor with numel equal to 1."
                )
            homes.setdefault(id(parameter), []).append((part, name))
        waiting += [
            (f"{path}{name}.", child)
            for name, child in part.named_children()
            if getattr(child, _UNIT, None) is None
        ]
    return homes


def _slots_of(module: Module) -> dict[int, tuple[Unit, Slot]]:
    """Return the unit and slot of each part, by its id."""
    units = [getattr(part, _UNIT, None) for part in module.modules()]
    return {
        id(slot.part): (unit, slot) for unit in units if unit is not None for slot in unit.slots
    }


def shard_info(module: Module) -> dict[str, ShardInfo]:
    """Return which rows of its divided parameters this process has, by name.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.fsdp import fully_shard, shard_info
    >>> dist.init_process_group()
    >>> shard_info(fully_shard(pullback.nn.Linear(2, 1, bias=False)))
    {'weight': ShardInfo(shape=(1, 2), start=0, stop=1, rows=1)}
    >>> dist.destroy_process_group()
    """
    slots = _slots_of(module)
    return {
        name: slots[id(parameter)][1].info
        for name, parameter in module.named_parameters()
        if id(parameter) in slots
    }


def full_state_dict(module: Module) -> dict[str, Any]:
    """Return the state dict with whole parameters, on every process; all call it.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.fsdp import full_state_dict, fully_shard
    >>> dist.init_process_group()
    >>> full_state_dict(fully_shard(pullback.nn.Linear(2, 1)))["weight"].shape
    pullback.Size([1, 2])
    >>> dist.destroy_process_group()
    """
    wholes: dict[int, Tensor] = {}
    for part in module.modules():
        unit = getattr(part, _UNIT, None)
        if unit is not None and unit.slots:
            for slot, whole in zip(unit.slots, unit.gather(), strict=True):
                wholes[id(slot.part)] = whole
    named = dict(module.named_parameters(remove_duplicate=False))
    return {
        key: wholes.get(id(named[key]), value) if key in named else value
        for key, value in module.state_dict().items()
    }


def sharded_state_dict(module: Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Return the state dict of a module, or of its optimizer, with parts as ``checkpoint.Shard``.

    ``checkpoint.save`` writes it and ``checkpoint.load`` fills it in place, also where another
    number of processes has written it. That of an optimizer has the names of parameters in the
    place of their numbers; it must have made a step.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.fsdp import fully_shard, sharded_state_dict
    >>> dist.init_process_group()
    >>> sharded_state_dict(fully_shard(pullback.nn.Linear(2, 1, bias=False)))
    {'weight': Shard([0:1,0:2] of (1, 2), pullback.float32)}
    >>> dist.destroy_process_group()
    """
    slots = _slots_of(module)
    named = dict(module.named_parameters(remove_duplicate=optimizer is not None))

    def cut(parameter: Tensor, value: Any) -> Any:
        found = slots.get(id(parameter))
        if found is None or not isinstance(value, Tensor) or value.shape != parameter.shape:
            return value
        info = found[1].info
        return Shard.along(value.detach(), info.shape, 0, info.start)

    if optimizer is None:
        return {
            key: cut(named[key], value) if key in named else value
            for key, value in module.state_dict().items()
        }
    return {
        name: {key: cut(parameter, value) for key, value in optimizer.state[parameter].items()}
        for name, parameter in named.items()
        if parameter in optimizer.state
    }


def load_full_state_dict(module: Module, state_dict: dict[str, Any]) -> None:
    """Take over a state dict with whole parameters, the same on every process.

    Raises: RuntimeError for missing or further names, or other shapes.
    """
    slots = _slots_of(module)
    named = dict(module.named_parameters(remove_duplicate=False))
    parts: dict[str, Any] = {}
    for key, value in state_dict.items():
        if key in named and id(named[key]) in slots:
            info = slots[id(named[key])][1].info
            if tuple(value.shape) != info.shape:
                raise RuntimeError(
                    f"load_full_state_dict: size mismatch for {key}: copying a param with shape "
                    f"{tuple(value.shape)} from checkpoint, the shape in current model is "
                    f"{info.shape}."
                )
            value = value[info.start : info.stop]
        parts[key] = value
    module.load_state_dict(parts)


def clip_grad_norm_(
    parameters: Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    """Scale the gradients of divided parameters so that their norm, over all, is at most a number.

    Returns the norm before. Raises: ValueError for a norm that is not positive, or before
    ``init_process_group``.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.fsdp import clip_grad_norm_, fully_shard
    >>> dist.init_process_group()
    >>> model = fully_shard(pullback.nn.Linear(2, 1, bias=False))
    >>> model(pullback.tensor([[3.0, 4.0]])).sum().backward()
    >>> clip_grad_norm_(model.parameters(), 1.0)
    tensor(5.)
    >>> model.weight.grad
    tensor([[0.6000, 0.8000]])
    >>> dist.destroy_process_group()
    """
    if not norm_type > 0:
        raise ValueError(f"clip_grad_norm_: expected norm_type above 0, but got {norm_type}")
    group = world() if process_group is None else process_group
    parameters = list(parameters)
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    device = parameters[0].device if parameters else None
    with pullback.no_grad():
        if norm_type == math.inf:
            sizes = [grad.abs().amax().float() for grad in grads if grad.numel()]
            total = pullback.stack(sizes).amax() if sizes else pullback.zeros((), device=device)
            all_reduce(total, ReduceOp.MAX, group)
        else:
            total = pullback.zeros((), device=device)
            for grad in grads:
                total += (grad.float().abs() ** norm_type).sum()
            all_reduce(total, ReduceOp.SUM, group)
            total = total ** (1 / norm_type)
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.to(grad.dtype))
    return total
