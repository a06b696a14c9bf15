"""Several schedules of one optimizer: one after the other, or together."""

from __future__ import annotations

from bisect import bisect_right

from pullback.optim.lr_scheduler.base import LRScheduler, set_value, values_of
from pullback.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Several(LRScheduler):
    """A schedule made of others, whose state dicts are part of its own."""

    def state_dict(self):
        """Return a dict of the schedule, with those of its parts as ``"_schedulers"``."""
        found = super().state_dict()
        found["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return found

    def load_state_dict(self, state_dict):
        """Take over a dict that ``state_dict`` returned."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)


class SequentialLR(_Several):
    """Schedules one after the other: the next begins at each of the ``milestones``.

    All have the same optimizer; there is one milestone fewer than schedules.

    Raises: ValueError for no schedules, another number of milestones, several optimizers, or a
    ``ReduceLROnPlateau``; TypeError for what is no schedule.

    >>> import pullback
    >>> from pullback.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> parts = [ConstantLR(optimizer, factor=0.25), ExponentialLR(optimizer, gamma=0.5)]
    >>> scheduler = SequentialLR(optimizer, parts, milestones=[2])
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.25]
    [1.0]
    [0.5]
    """

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check_parts(self, schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each part has made its first step: all are undone, and that of the first is repeated.
        for group in optimizer.param_groups:
            set_value(group, "lr", group["initial_lr"])
        self.recursive_undo()
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched=None):
        """Set all schedules in another, by default in this one, back by an epoch."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for part in sched._schedulers:
                self.recursive_undo(part)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self):
        """Set the learning rates of the next epoch, by the schedule that it belongs to."""
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Schedules together: each changes the learning rates that the one before has set.

    All have the same optimizer.

    Raises: ValueError for no schedules, several optimizers, or a ``ReduceLROnPlateau``; TypeError
    for what is no schedule.

    >>> import pullback
    >>> from pullback.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ChainedScheduler(
    ...     [ConstantLR(optimizer, factor=0.5, total_iters=2), ExponentialLR(optimizer, gamma=0.5)])
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.25]
    [0.25]
    """

    def __init__(self, schedulers, optimizer=None):
        if len(schedulers) < 1:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no "
                "scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        _check_parts(self, schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = values_of(optimizer, "lr")

    def step(self):
        """Set the learning rates of the next epoch, by all schedules in turn."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values_of(self.optimizer, "lr")


def _check_parts(whole, schedulers, optimizer):
    name = type(whole).__name__
    for number, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {number} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                f"kwargs to be specified when calling `step`, but got one at index {number} in "
                "the given schedulers sequence."
            )
        if optimizer != scheduler.optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {number} has {scheduler.optimizer}, which is "
                f"different from {type(optimizer).__name__}."
            )
