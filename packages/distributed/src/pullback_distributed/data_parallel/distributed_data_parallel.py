"""The module that averages the gradients of another one over the processes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pullback
from pullback import Tensor
from pullback.distributed import ReduceOp
from pullback.nn import Module
from pullback_distributed.algorithms.join import Join, Joinable, JoinHook
from pullback_distributed.collectives.movements import broadcast
from pullback_distributed.collectives.objects import all_gather_object
from pullback_distributed.collectives.reductions import all_reduce
from pullback_distributed.data_parallel.reducer import Hook, Reducer
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup

BUCKET_MB = 25


class DistributedDataParallel(Module, Joinable):
    """A module on each process, with different inputs and the same parameters.

    The parameters and buffers of the group's first process are copied to the others. Each backward
    pass averages the gradients over the processes: those of about ``bucket_cap_mb`` MiB travel
    together, while the backward pass goes on. With equal numbers of processes the result is the
    same, bit by bit, from run to run.

    ``broadcast_buffers`` copies the first process's buffers before each forward pass.
    ``find_unused_parameters`` looks for parameters that the output does not depend on, so that
    buckets need not wait for them until the end of the backward pass; without it they are found
    there. A parameter without a gradient on some processes counts as zeros there; without one on
    all, ``grad`` stays as it is. ``gradient_as_bucket_view`` makes ``grad`` a view of the bucket,
    which saves a copy and its memory. ``device_ids`` may name one device. ``output_device``,
    ``dim``, ``check_reduction`` and ``static_graph`` have no effect.
    Raises: RuntimeError if no parameter requires a gradient, or if the processes have parameters of
    other names, shapes or dtypes; ValueError before ``init_process_group``, for a bucket size that
    is not positive, or for several devices.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> model = pullback.nn.parallel.DistributedDataParallel(pullback.nn.Linear(2, 1))
    >>> model(pullback.ones(3, 2)).sum().backward()
    >>> model.module.bias.grad
    tensor([3.])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        Module.__init__(self)
        Joinable.__init__(self)
        if not isinstance(module, Module):
            raise TypeError(
                f"DistributedDataParallel: argument 'module' must be Module, not "
                f"{type(module).__name__}"
            )
        self.process_group = world() if process_group is None else process_group
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                "device_ids can only be None or contain a single element: one process has one "
                "device"
            )
        bucket_cap_mb = BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
        if bucket_cap_mb <= 0:
            raise ValueError(
                f"DistributedDataParallel: expected bucket_cap_mb above 0, but got {bucket_cap_mb}"
            )
        self.module = module
        self.device_ids = device_ids
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self._bucket_bytes = max(int(bucket_cap_mb * 2**20), 1)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [
            (name, parameter)
            for name, parameter in module.named_parameters()
            if name not in ignored
        ]
        learned = [parameter for _, parameter in named if parameter.requires_grad]
        if not learned:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        self._buffers_sent = [
            buffer for name, buffer in module.named_buffers() if name not in ignored
        ]
        if init_sync:
            _check_same(named, self.process_group)
            _copy([parameter for _, parameter in named], self.process_group, 0)
            _copy(self._buffers_sent, self.process_group, 0)
        self.reducer = Reducer(
            learned, self.process_group, self._bucket_bytes, gradient_as_bucket_view
        )

    # -- forward -----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        syncs = pullback.is_grad_enabled() and self.require_backward_grad_sync
        joins = pullback.is_grad_enabled() and self._join_config.enable
        if joins:
            self._notify(syncs)
        if self.will_sync_module_buffers() and (joins or not self._join_config.enable):
            _copy(self._buffers_sent, self.process_group, self._first_active(True) if joins else 0)
        result = self.module(*inputs, **kwargs)
        if not syncs:
            self.reducer.rest()
            return result
        unused: list[int] = []
        if self.find_unused_parameters:
            used = _leaves_of(result)
            unused = [
                place
                for place, parameter in enumerate(self.reducer.parameters)
                if id(parameter) not in used
            ]
        self.reducer.prepare(unused)
        return result

    def will_sync_module_buffers(self) -> bool:
        """Return whether the next forward pass copies the first process's buffers."""
        return (
            self.broadcast_buffers and self.require_backward_grad_sync and bool(self._buffers_sent)
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let forward and backward passes in the block accumulate gradients on this process alone.

        The first pass after it averages all that was accumulated.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Callable[..., Any]) -> None:
        """Let ``hook(state, bucket)`` average each bucket's gradients, and return their future.

        See ``algorithms.ddp_comm_hooks``; the gradients are those of this process, not divided.
        Raises: TypeError if it cannot be called; RuntimeError if there is a hook.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self.reducer.hook, self.reducer.hook_state = _as_hook(hook), state

    # -- uneven inputs -----------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Return a context in which processes may have different numbers of inputs.

        A process that leaves it takes part in the others' collectives, with gradients that are
        zero, until all have left; then all have the parameters of one that left last. Gradients
        are divided by the number of processes, or of those that still have inputs where
        ``divide_by_initial_world_size`` is False.
        Raises: RuntimeError on all processes when one leaves, with
        ``throw_on_early_termination``.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, divide_by_initial_world_size: bool = True, **kwargs: Any) -> JoinHook:
        return _JoinHook(self, divide_by_initial_world_size)

    @property
    def join_device(self) -> Any:
        return self.reducer.parameters[0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        return self.process_group

    def _combined(self, number: int, op: ReduceOp) -> int:
        """Return a number of each process combined."""
        found = pullback.tensor([number], dtype=pullback.int64, device=self.join_device)
        all_reduce(found, op, self.process_group)
        return int(found.item())

    def _first_active(self, is_active: bool) -> int:
        """Return the rank, in the group, of the last process for which something holds."""
        return self._combined(self.process_group.rank() if is_active else -1, ReduceOp.MAX)

    def _notify(self, syncs: bool) -> None:
        work = Join.notify_join_context(self)
        if work is not None:
            active = int(work.result()[0].item())  # type: ignore[attr-defined]
            if not self._divides_by_initial:
                self.reducer.divisor = active
        self._combined(int(syncs), ReduceOp.MAX)

    _divides_by_initial = True

    # -- copies ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("process_group", "reducer"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.process_group = world()
        self._buffers_sent = list(self.module.buffers())
        learned = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        self.reducer = Reducer(
            learned, self.process_group, self._bucket_bytes, self.gradient_as_bucket_view
        )


class _JoinHook(JoinHook):
    def __init__(self, model: DistributedDataParallel, divides_by_initial: bool) -> None:
        self._model = model
        model._divides_by_initial = divides_by_initial
        self._size = model.process_group.size()

    def main_hook(self) -> None:
        model = self._model
        syncs = model._combined(0, ReduceOp.MAX)
        if model.broadcast_buffers and model._buffers_sent and syncs:
            _copy(model._buffers_sent, model.process_group, model._first_active(False))
        if syncs:
            model.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self._model
        source = model._first_active(is_last_joiner)
        _copy(list(model.module.parameters()), model.process_group, source)
        _copy(model._buffers_sent, model.process_group, source)
        model.reducer.divisor = self._size
        model._divides_by_initial = True


def _as_hook(hook: Callable[..., Any]) -> Hook:
    return hook


def _check_same(named: list[tuple[str, Tensor]], group: ProcessGroup) -> None:
    """Compare the parameters of all processes.

    Raises: RuntimeError, on all of them, for other names, shapes or dtypes.
    """
    own = [(name, tuple(one.shape), str(one.dtype), one.requires_grad) for name, one in named]
    found: list[Any] = [None] * group.size()
    all_gather_object(found, own, group)
    for rank, theirs in enumerate(found):
        if theirs == found[0]:
            continue
        for here, there in itertools.zip_longest(found[0], theirs):
            if here != there:
                raise RuntimeError(
                    f"DistributedDataParallel: the processes have different parameters: "
                    f"{_shown(here)} on rank 0, but {_shown(there)} on rank {rank}"
                )


def _shown(parameter: tuple[Any, ...] | None) -> str:
    if parameter is None:
        return "none"
    name, shape, dtype, requires_grad = parameter
    return f"{name!r} of shape {shape}, {dtype}{'' if requires_grad else ', without gradient'}"


def _copy(tensors: Sequence[Tensor], group: ProcessGroup, source: int) -> None:
    """Copy tensors of one process, given by its rank in the group, to the others."""
    if group.size() == 1:
        return
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
    with pullback.no_grad():
        for alike in kinds.values():
            flat = pullback.cat([tensor.reshape(-1) for tensor in alike])
            broadcast(flat, group=group, group_src=source)
            start = 0
            for tensor in alike:
                tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
                start += tensor.numel()


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_in(one)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from _tensors_in(list(vars(value).values()))


def _leaves_of(result: Any) -> set[int]:
    """Return the ids of the leaves that tensors in nested results depend on."""
    tensors = list(_tensors_in(result))
    waiting: list[Any] = [one.grad_fn for one in tensors if one.grad_fn is not None]
    found = {id(one) for one in tensors if one.grad_fn is None}
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                waiting.append(other)
    return found
