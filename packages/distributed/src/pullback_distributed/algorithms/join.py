"""Uneven inputs: processes that are done take part in the collectives of those that are not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NamedTuple

import pullback
from pullback_distributed.collectives.progress import Work
from pullback_distributed.collectives.reductions import all_reduce
from pullback_distributed.groups.process_group import ProcessGroup


class JoinHook:
    """What a process does for one object when it has no further inputs."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the others, until all are done."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """End, when all processes are done; some of them were so last."""


class _Config(NamedTuple):
    enable: bool
    throws: bool
    is_first: bool  # of the objects of a context, which alone says that this process goes on


_OFF = _Config(False, False, False)


class Joinable(ABC):
    """An object with collectives in each iteration, which ``Join`` can lead through."""

    def __init__(self) -> None:
        self._join_config = _OFF

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook for a context; ``kwargs`` are those of ``Join``."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Return the device of the collectives that ``Join`` itself needs."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """Return the group of the processes."""


class Join:
    """A context in which processes may have different numbers of inputs.

    ``joinables`` are objects such as a ``DistributedDataParallel`` module. A process that leaves
    the block takes part in the collectives of the others until all have left it. With
    ``throw_on_early_termination`` all processes raise RuntimeError instead, as soon as one leaves.
    Raises: ValueError without objects, or if they have several groups.
    """

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        groups = {id(joinable.join_process_group) for joinable in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._joinables = list(joinables)
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable = enable
        self._throws = throw_on_early_termination
        self._group = joinables[0].join_process_group
        self._device = joinables[0].join_device

    def __enter__(self) -> Join:
        for number, joinable in enumerate(self._joinables):
            joinable._join_config = _Config(self._enable, self._throws, number == 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for joinable in self._joinables:
            joinable._join_config = _OFF
        if not self._enable or kind is not None:
            return
        is_last = True
        while self._count(0):
            if self._throws:
                self._count(1)  # the others see it and raise
                raise RuntimeError(
                    "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
            is_last = False
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last)

    def _count(self, own: int) -> int:
        number = pullback.tensor([own], dtype=pullback.int64, device=self._device)
        all_reduce(number, group=self._group)
        return int(number.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say that this process begins an iteration; called before its first collective.

        Returns the work of counting such processes, whose ``result()`` has the number, or None
        outside of a context. Raises: RuntimeError where the context shall and a process is done.
        """
        config = joinable._join_config
        if not config.enable or not config.is_first:
            return None
        device, group = joinable.join_device, joinable.join_process_group
        active = pullback.ones(1, dtype=pullback.int64, device=device)
        all_reduce(active, group=group)
        if config.throws and int(active.item()) < group.size():
            all_reduce(pullback.zeros(1, dtype=pullback.int64, device=device), group=group)
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
        return _Counted(active)


class _Counted(Work):
    """Work that is done."""

    def __init__(self, count: Any) -> None:
        self._count = count

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return [self._count]
