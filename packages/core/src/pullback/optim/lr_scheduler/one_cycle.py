"""The schedule of one cycle."""

from __future__ import annotations

import math

from pullback.optim.lr_scheduler.base import (
    LRScheduler,
    check_optimizer,
    for_each_group,
    set_momentum,
    uses_beta,
)

__all__ = ["OneCycleLR"]


class OneCycleLR(LRScheduler):
    """Learning rates of one cycle: up to ``max_lr``, then down far below the first, by batches.

    The cycle has ``total_steps``, or ``epochs`` times ``steps_per_epoch``, of which the share
    ``pct_start`` goes up, from max_lr / div_factor; the last rate is the first divided by
    ``final_div_factor``. With ``three_phase`` rates go down as long as up, and then to the last
    one. ``anneal_strategy`` is ``"cos"`` or ``"linear"``. ``cycle_momentum`` moves the momentum,
    or the first of ``betas``, the other way round between ``max_momentum`` and ``base_momentum``
    (Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large
    Learning Rates", 2019). Rates and momenta are numbers, or lists with one for each group.

    Raises: ValueError for arguments outside their range, lists of another length, an optimizer
    without momentum, or a step after the last.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], momentum=0.9)
    >>> scheduler = pullback.optim.lr_scheduler.OneCycleLR(
    ...     optimizer, max_lr=1.0, total_steps=5, pct_start=0.6, anneal_strategy="linear")
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print([round(rate, 6) for rate in scheduler.get_last_lr()])
    [0.52]
    [1.0]
    [0.500002]
    [4e-06]
    """

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _count_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        max_lrs = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for rate, group in zip(max_lrs, optimizer.param_groups):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = uses_beta(optimizer)
            smallest = for_each_group("base_momentum", optimizer, base_momentum)
            largest = for_each_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for low, high, group in zip(smallest, largest, optimizer.param_groups):
                    set_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at the step, and set their momenta.

        Raises: ValueError after the last step.
        """
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            start = end
        share = (step - start) / (end - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group, phase["start_lr"], phase["end_lr"], share))
            if self.cycle_momentum:
                momentum = self._between(
                    group, phase["start_momentum"], phase["end_momentum"], share
                )
                set_momentum(group, momentum, self.use_beta1)
        return rates

    def _between(self, group, first, last, share):
        """Return a value between two options of a group."""
        first, last = group[first], group[last]
        if self._anneal_func_type == "linear":
            return (last - first) * share + first
        return last + (first - last) / 2.0 * (math.cos(math.pi * share) + 1)


def _count_steps(total_steps, epochs, steps_per_epoch):
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if total_steps is not None:
        counts = {"total_steps": total_steps}
    else:
        counts = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, count in counts.items():
        if count <= 0 or not isinstance(count, int):
            raise ValueError(f"Expected positive integer {name}, but got {count}")
    return total_steps if total_steps is not None else epochs * steps_per_epoch


def _phases(total_steps, pct_start, three_phase):
    """Return for each phase its last step, and which options it leads from and to."""
    rates = ["initial_lr", "max_lr", "min_lr"]
    momenta = ["max_momentum", "base_momentum", "max_momentum"]
    ends = [float(pct_start * total_steps) - 1, total_steps - 1]
    if three_phase:
        rates.insert(2, "initial_lr")
        momenta.append("max_momentum")
        ends.insert(1, float(2 * pct_start * total_steps) - 2)
    return [
        {
            "end_step": end,
            "start_lr": rates[i],
            "end_lr": rates[i + 1],
            "start_momentum": momenta[i],
            "end_momentum": momenta[i + 1],
        }
        for i, end in enumerate(ends)
    ]
