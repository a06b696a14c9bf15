"""The parameters of one module that are gathered and divided together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pullback
from pullback import Tensor
from pullback.autograd import Function, Variable
from pullback.autograd.function import once_differentiable
from pullback.autograd.graph import saved_tensors_hooks
from pullback.distributed import ReduceOp
from pullback.nn import Module, Parameter
from pullback_distributed.collectives.movements import all_gather_into_tensor
from pullback_distributed.collectives.reductions import reduce_scatter_tensor
from pullback_distributed.groups.process_group import ProcessGroup

ALONE = 1 << 16  # bytes of a part from which on it travels alone, and is not copied for that


@dataclass(frozen=True)
class ShardInfo:
    """Where the part of a divided parameter is: rows ``start`` to ``stop`` of ``shape``'s dim 0."""

    shape: tuple[int, ...]
    start: int
    stop: int
    rows: int  # of each process, but for the last ones


class Slot:
    """One parameter: where modules hold it, its part here, and its place in the message."""

    def __init__(self, homes: list[tuple[Module, str]], whole: Parameter, group: ProcessGroup):
        self.homes = homes
        shape = tuple(whole.shape)
        rows = -(-shape[0] // group.size())
        start = min(rows * group.rank(), shape[0])
        self.info = ShardInfo(shape, start, min(start + rows, shape[0]), rows)
        self.row = whole[:1].numel()
        self.padded = rows * self.row
        self.offset = 0  # in the message
        part = whole.detach()[self.info.start : self.info.stop].clone()
        self.part = Parameter(part, requires_grad=whole.requires_grad)
        for home, name in homes:
            setattr(home, name, self.part)


class Unit:
    """The parameters of a module, but for those of modules in it that are units themselves."""

    def __init__(
        self, homes: dict[int, list[tuple[Module, str]]], group: ProcessGroup, frees: bool
    ) -> None:
        self.group = group
        self.frees = frees  # whole parameters after the forward pass
        wholes = [getattr(*found[0]) for found in homes.values()]
        self.slots = [
            Slot(found, whole, group) for found, whole in zip(homes.values(), wholes, strict=True)
        ]
        messages: dict[Any, list[Slot]] = {}
        for slot in self.slots:
            is_long = slot.padded * slot.part.element_size() >= ALONE
            kind = slot if is_long else (slot.part.dtype, slot.part.device)
            messages.setdefault(kind, []).append(slot)
        self._messages = list(messages.values())  # the parameters that travel together
        for slots in self._messages:
            offset = 0
            for slot in slots:
                slot.offset, offset = offset, offset + slot.padded
        self._gathered: list[Tensor] | None = None  # for the backward pass
        self._places: dict[int, int] = {}  # of whole parameters by their memory
        self._contexts: list[Any] = []

    # -- messages ----------------------------------------------------------------------------------

    def gather(self) -> list[Tensor]:
        """Return the whole parameters, without history; all processes call it."""
        found: dict[int, Tensor] = {}
        size = self.group.size()
        with pullback.no_grad():
            for slots in self._messages:
                sent = _packed(slots, [slot.part for slot in slots])
                together = sent.new_empty(size * len(sent))
                all_gather_into_tensor(together, sent, self.group)
                of_all = together.view(size, -1)
                for slot in slots:
                    rows = of_all[:, slot.offset : slot.offset + slot.padded]
                    rows = rows.reshape(size * slot.info.rows, *slot.info.shape[1:])
                    rows = rows[: slot.info.shape[0]]
                    found[id(slot)] = rows if len(slots) == 1 else rows.clone()
        return [found[id(slot)] for slot in self.slots]

    def reduce(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the parts of averaged gradients of the whole parameters."""
        found: dict[int, Tensor] = {}
        size = self.group.size()
        of_slots = {id(slot): grad for slot, grad in zip(self.slots, grads, strict=True)}
        with pullback.no_grad():
            for slots in self._messages:
                sent = _packed(slots, [of_slots[id(slot)] for slot in slots], size)
                own = sent.new_empty(len(sent) // size)
                reduce_scatter_tensor(own, sent, ReduceOp.AVG, self.group)
                for slot in slots:
                    count = slot.part.numel()
                    part = own[slot.offset : slot.offset + count].view(slot.part.shape)
                    found[id(slot)] = part if len(slots) == 1 else part.clone()
        return [found[id(slot)] for slot in self.slots]

    # -- forward -----------------------------------------------------------------------------------

    def enter(self, module: Module, inputs: Any) -> None:
        """Put whole parameters into the place of parts, before forward."""
        wholes = _Gather.apply(self, *(slot.part for slot in self.slots))
        for place, (slot, whole) in enumerate(zip(self.slots, wholes, strict=True)):
            self._places[whole.untyped_storage().data_ptr()] = place
            for home, name in slot.homes:
                home.__dict__[name] = whole
        if self.frees and pullback.is_grad_enabled():
            context = saved_tensors_hooks(self._pack, self._unpack)
            context.__enter__()
            self._contexts.append(context)
        else:
            self._contexts.append(None)

    def leave(self, module: Module, inputs: Any, result: Any) -> None:
        """Put the parts back, after forward."""
        if not self._contexts:
            return
        context = self._contexts.pop()
        if context is not None:
            context.__exit__(None, None, None)
        for slot in self.slots:
            for home, name in slot.homes:
                home.__dict__.pop(name, None)
        self._places = {}

    def _pack(self, tensor: Tensor) -> Any:
        """Return what is saved for backward: of a whole parameter, or its view, only which one."""
        place = self._places.get(tensor.untyped_storage().data_ptr())
        if place is None:
            return tensor
        return place, tensor.shape, tensor.stride(), tensor.storage_offset()

    def _unpack(self, saved: Any) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        place, shape, stride, offset = saved
        if self._gathered is None:
            self._gathered = self.gather()
            # Also where the gradients of parameters are not asked for.
            Variable._execution_engine.queue_callback(self.free)
        return self._gathered[place].as_strided(shape, stride, offset)

    def free(self) -> None:
        """Forget the whole parameters that the backward pass has gathered."""
        self._gathered = None


def _packed(slots: Sequence[Slot], values: Sequence[Tensor | None], size: int = 1) -> Tensor:
    """Return values in one dim, for each of ``size`` processes its rows of each; None is zeros.

    What already lies so is not copied.
    """
    if len(slots) == 1 and values[0] is not None:
        alone = values[0].detach()
        if alone.is_contiguous() and alone.numel() == size * slots[0].padded:
            return alone.view(-1)
    length = sum(slot.padded for slot in slots)
    sent = slots[0].part.new_zeros((size, length))
    for slot, value in zip(slots, values, strict=True):
        if value is None:
            continue
        rows = sent[:, slot.offset : slot.offset + slot.padded]
        if value.numel() != rows.numel():  # the last processes have fewer rows, or none
            padded = sent.new_zeros(rows.numel())
            padded[: value.numel()] = value.detach().reshape(-1)
            value = padded
        rows.copy_(value.detach().reshape(size, -1))
    return sent.view(-1)


class _Gather(Function):
    """The whole parameters as a function of the parts; its adjoint averages and divides."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.unit = unit
        ctx.set_materialize_grads(False)
        return tuple(unit.gather())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        found = ctx.unit.reduce(grads)
        ctx.unit.free()
        return None, *found
