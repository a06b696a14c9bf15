"""Schedules that follow a formula of the epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter

from pullback.optim.lr_scheduler.base import LRScheduler, state_of_function

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
]


class _FunctionLR(LRScheduler):
    """A schedule of functions of the epoch, one for each group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        if not isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas = [lr_lambda] * count
        elif len(lr_lambda) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}")
        else:
            self.lr_lambdas = list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Return a dict of the schedule, where functions are None."""
        found = super().state_dict()
        found["lr_lambdas"] = [state_of_function(function) for function in self.lr_lambdas]
        return found

    def load_state_dict(self, state_dict):
        """Take over a dict that ``state_dict`` returned; functions stay."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, state in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if state is not None:
                function.__dict__.update(state)


class LambdaLR(_FunctionLR):
    """Learning rates of a function: the initial ones times ``lr_lambda(epoch)``.

    ``lr_lambda`` is a function, or a list with one for each group. Of a callable object, state
    dicts have its attributes; a function has to be given again.

    Raises: ValueError if the list is not as long as that of groups.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs)
        ]


class MultiplicativeLR(_FunctionLR):
    """Learning rates that each epoch multiplies by ``lr_lambda(epoch)``.

    ``lr_lambda`` is a function, or a list with one for each group.

    Raises: ValueError if the list is not as long as that of groups.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.125]
    """

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self._is_initial:
            return self._rates()
        return [
            rate * function(self.last_epoch)
            for function, rate in zip(self.lr_lambdas, self._rates())
        ]


class StepLR(LRScheduler):
    """Learning rates that are multiplied by ``gamma`` every ``step_size`` epochs.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [1.0]
    [0.5]
    [0.5]
    """

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._rates()
        return [rate * self.gamma for rate in self._rates()]

    def _get_closed_form_lr(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Learning rates that are multiplied by ``gamma`` at each of some epochs, the ``milestones``.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], gamma=0.5)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [1.0]
    [0.5]
    [0.25]
    """

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self.last_epoch not in self.milestones:
            return self._rates()
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in self._rates()]

    def _get_closed_form_lr(self):
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Learning rates that are ``factor`` times the initial ones for ``total_iters`` epochs.

    Raises: ValueError if ``factor`` is not between 0 and 1.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.5]
    [1.0]
    """

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._rates()]
        if self.last_epoch != self.total_iters:
            return self._rates()
        return [rate * (1.0 / self.factor) for rate in self._rates()]

    def _get_closed_form_lr(self):
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Learning rates on a line from ``start_factor`` to ``end_factor`` times the initial ones.

    The line has ``total_iters`` epochs; then rates stay.

    Raises: ValueError if ``start_factor`` is not above 0 and at most 1, or ``end_factor`` is not
    between 0 and 1.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.75]
    [1.0]
    [1.0]
    """

    def __init__(
        self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1
    ):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return [rate * (1.0 + rise / before) for rate in self._rates()]

    def _get_closed_form_lr(self):
        passed = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * passed
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Learning rates that each epoch multiplies by ``gamma``.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self._is_initial:
            return self._rates()
        return [rate * self.gamma for rate in self._rates()]

    def _get_closed_form_lr(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Learning rates that fall to zero as (1 - epoch / total_iters) ** power.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4, power=2)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        now = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return [rate * (now / before) ** self.power for rate in self._rates()]

    def _get_closed_form_lr(self):
        factor = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * factor**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Learning rates on a cosine, from the initial ones to ``eta_min`` at epoch ``T_max``.

    They are eta_min + (initial - eta_min) (1 + cos(pi epoch / T_max)) / 2 (Loshchilov and Hutter,
    "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, without restarts), and rise again
    after ``T_max``.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.0]
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        angle = math.pi / self.T_max
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return [  # the rate before was eta_min
                rate + (base - self.eta_min) * (1 - math.cos(angle)) / 2
                for base, rate in zip(self.base_lrs, self._rates())
            ]
        ratio = (1 + math.cos(angle * self.last_epoch)) / (
            1 + math.cos(angle * (self.last_epoch - 1))
        )
        return [ratio * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def _get_closed_form_lr(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
