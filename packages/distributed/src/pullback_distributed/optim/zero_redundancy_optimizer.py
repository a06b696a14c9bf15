"""An optimizer of which each process keeps the state of a part of the parameters.

Source: S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: memory optimizations toward training
trillion parameter models, SC 2020, stage 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import pullback
from pullback import Tensor
from pullback.optim import Optimizer
from pullback_distributed.algorithms.join import Joinable, JoinHook
from pullback_distributed.collectives.movements import broadcast
from pullback_distributed.collectives.objects import gather_object
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Divides the parameters among the processes: each makes the steps of its part.

    All processes have the same parameters with the same gradients, as ``DistributedDataParallel``
    leaves them. After a step each process sends its part to the others. ``optimizer_class`` is the
    class of the steps, and ``defaults`` are its options; a parameter goes to the process with the
    fewest elements so far, the largest first. ``parameters_as_bucket_view`` puts the parameters
    that travel together into one tensor, which saves copies.
    Raises: TypeError if a parameter is no tensor; ValueError without parameters, or before
    ``init_process_group``; NotImplementedError with ``overlap_with_ddp``.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.optim import ZeroRedundancyOptimizer
    >>> dist.init_process_group()
    >>> w = pullback.ones(2, requires_grad=True)
    >>> optimizer = ZeroRedundancyOptimizer([w], pullback.optim.SGD, lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is left out: gradients travel "
                "during the backward pass, and steps follow it"
            )
        Joinable.__init__(self)
        self.process_group = world() if process_group is None else process_group
        self._owners: dict[int, int] = {}
        self._loads = [0] * self.process_group.size()
        self._whole_state: dict[str, Any] | None = None
        self.parameters_as_bucket_view = parameters_as_bucket_view
        model = optimizer_class(params, **defaults)  # it has the options of groups, and no state
        Optimizer.__init__(self, model.param_groups, model.defaults)
        self.optim = optimizer_class(self._own_groups(), **defaults)
        self.state = self.optim.state
        self._buffers = self._make_buffers()

    # -- parts -------------------------------------------------------------------------------------

    def _assign(self, params: list[Tensor]) -> None:
        """Give parameters to the processes with the fewest elements, the largest first."""
        for param in sorted(params, key=lambda one: -one.numel()):
            rank = self._loads.index(min(self._loads))
            self._owners[id(param)] = rank
            self._loads[rank] += param.numel()

    def _is_own(self, param: Tensor) -> bool:
        return self._owners[id(param)] == self.process_group.rank()

    def _own_group(self, group: dict[str, Any]) -> dict[str, Any]:
        options = {key: value for key, value in group.items() if key not in _OF_PARAMETERS}
        return {**options, "params": [param for param in group["params"] if self._is_own(param)]}

    def _own_groups(self) -> list[dict[str, Any]]:
        return [self._own_group(group) for group in self.param_groups]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a dict of parameters and options, on all processes.

        Raises: as ``Optimizer.add_param_group``.
        """
        super().add_param_group(param_group)
        self._assign(self.param_groups[-1]["params"])
        if hasattr(self, "optim"):
            self.optim.add_param_group(self._own_group(self.param_groups[-1]))
            self._buffers = self._make_buffers()

    def _make_buffers(self) -> list[tuple[int, list[Tensor], Tensor | None]]:
        """Return what travels together: its process, the parameters, and their one tensor."""
        kinds: dict[Any, list[Tensor]] = {}
        for param in chain.from_iterable(group["params"] for group in self.param_groups):
            key = (self._owners[id(param)], param.dtype, param.device)
            kinds.setdefault(key, []).append(param)
        made: list[tuple[int, list[Tensor], Tensor | None]] = []
        for (rank, _, _), params in sorted(kinds.items(), key=lambda item: item[0][0]):
            flat = None
            if self.parameters_as_bucket_view:
                flat = _joined(params)
                start = 0
                for param in params:
                    stop = start + param.numel()
                    param.data = flat[start:stop].view(param.shape)
                    start = stop
            made.append((rank, params, flat))
        return made

    # -- steps -------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters on all processes; return the loss of the closure, if any."""
        loss = None
        if closure is not None:
            with pullback.enable_grad():
                loss = closure()
        for group, own in zip(self.param_groups, self.optim.param_groups, strict=True):
            _take_options(own, group)
        self.optim.step()
        self._whole_state = None
        self._send()
        return loss

    def _send(self) -> None:
        """Copy each part from its process to the others."""
        group = self.process_group
        if group.size() == 1:
            return
        under_way = []
        for rank, params, flat in self._buffers:
            together = _joined(params) if flat is None else flat
            work = broadcast(together, group=group, group_src=rank, async_op=True)
            under_way.append((work, rank, params, together if flat is None else None))
        for work, rank, params, together in under_way:
            assert work is not None
            work.wait()
            if together is None or rank == group.rank():
                continue
            start = 0
            with pullback.no_grad():
                for param in params:
                    stop = start + param.numel()
                    param.copy_(together[start:stop].view(param.shape))
                    start = stop

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook with which ``Join`` makes steps for processes without inputs."""
        return _JoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        return self.process_group

    # -- state dicts -------------------------------------------------------------------------------

    def _numbers(self) -> dict[int, int]:
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        return {id(param): number for number, param in enumerate(params)}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all parts to one process, a global rank; called by all of them.

        There ``state_dict()`` then returns the whole state, until the next step.
        Raises: ValueError for a rank that is not there.
        """
        numbers = self._numbers()
        own = {
            numbers[id(param)]: value
            for param, value in self.optim.state.items()
            if isinstance(param, Tensor)
        }
        group = self.process_group
        root = group.rank_of(to)
        gathered: list[Any] | None = [None] * group.size() if group.rank() == root else None
        gather_object(own, gathered, group=group, group_dst=root)
        if gathered is None:
            return
        state = {number: value for part in gathered for number, value in part.items()}
        self._whole_state = {number: state[number] for number in sorted(state)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all parameters, as the optimizer of one process has it.

        Raises: RuntimeError on a process to which it was not brought since the last step.
        """
        if self._whole_state is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save the "
                "global state."
            )
        state, self.state = self.state, {}
        try:
            found: dict[str, Any] = super().state_dict()
        finally:
            self.state = state
        return {**found, "state": dict(self._whole_state)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of all parameters; each process keeps that of its part.

        Raises: as ``Optimizer.load_state_dict``.
        """
        super().load_state_dict({**state_dict, "state": {}})
        numbers = self._numbers()
        own = list(chain.from_iterable(group["params"] for group in self.optim.param_groups))
        state = {
            place: state_dict["state"][numbers[id(param)]]
            for place, param in enumerate(own)
            if numbers[id(param)] in state_dict["state"]
        }
        for group, part in zip(self.param_groups, self.optim.param_groups, strict=True):
            _take_options(part, group)
        self.optim.load_state_dict(
            {"state": state, "param_groups": self.optim.state_dict()["param_groups"]}
        )
        self.state = self.optim.state
        self._whole_state = None


_OF_PARAMETERS = ("params", "param_names")


def _take_options(group: dict[str, Any], source: dict[str, Any]) -> None:
    group.update((key, value) for key, value in source.items() if key not in _OF_PARAMETERS)


def _joined(params: list[Tensor]) -> Tensor:
    return pullback.cat([param.detach().reshape(-1) for param in params])


class _JoinHook(JoinHook):
    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step()
