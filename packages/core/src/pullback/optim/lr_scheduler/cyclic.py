"""Schedules that repeat: cosines with warm restarts, and cycles between two rates."""

from __future__ import annotations

import math

from pullback.optim.lr_scheduler.base import (
    LRScheduler,
    check_optimizer,
    for_each_group,
    set_momentum,
    set_value,
    state_of_function,
    uses_beta,
)

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR"]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Learning rates on a cosine that begins anew, first after ``T_0`` epochs.

    Each period is ``T_mult`` times as long as the one before; in it rates go from the initial ones
    to ``eta_min`` (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts",
    2017). ``step`` takes fractions of epochs too.

    Raises: ValueError if ``T_0`` or ``T_mult`` is no positive integer, or ``eta_min`` no number.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> for epoch in (1.0, 1.5, 2.0):
    ...     optimizer.step()
    ...     scheduler.step(epoch)
    ...     print([round(rate, 3) for rate in scheduler.get_last_lr()])
    [0.5]
    [0.146]
    [1.0]
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch=None):
        """Set the learning rates of the next epoch, or of any epoch, which may be a fraction.

        Raises: ValueError if ``epoch`` is negative.
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.T_cur, self.T_i = self._position(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr)

    def _position(self, epoch):
        """Return how far an epoch is in its period, and the length of that."""
        if epoch < self.T_0:
            return epoch, self.T_0
        if self.T_mult == 1:
            return epoch % self.T_0, self.T_0
        number = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        start = self.T_0 * (self.T_mult**number - 1) / (self.T_mult - 1)
        return epoch - start, self.T_0 * self.T_mult**number


class CyclicLR(LRScheduler):
    """Learning rates that go up and down between ``base_lr`` and ``max_lr``, by steps of batches.

    A cycle has ``step_size_up`` steps up and ``step_size_down`` steps down, by default as many.
    The height of a cycle stays with ``mode="triangular"``, is halved each cycle with
    ``"triangular2"``, and is ``gamma`` to the power of the step with ``"exp_range"``; or it is
    multiplied by ``scale_fn``, of the cycle or with ``scale_mode="iterations"`` of the step.
    ``cycle_momentum`` moves the momentum, or the first of ``betas``, the other way round between
    ``max_momentum`` and ``base_momentum`` (Smith, "Cyclical Learning Rates for Training Neural
    Networks", 2017). Rates and momenta are numbers, or lists with one for each group.

    Raises: ValueError for an unknown ``mode``, lists of another length, or an optimizer without
    momentum.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], momentum=0.9)
    >>> scheduler = pullback.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr(), round(optimizer.param_groups[0]["momentum"], 3))
    [0.5] 0.85
    [1.0] 0.8
    [0.5] 0.85
    """

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups):
                set_value(group, "lr", rate)
        self.max_lrs = for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None and mode == "exp_range":
            self.scale_mode = "iterations"
        elif scale_fn is None:
            self.scale_mode = "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = uses_beta(optimizer)
            self.base_momentums = for_each_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = for_each_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for largest, smallest, group in zip(
                    self.max_momentums, self.base_momentums, optimizer.param_groups
                ):
                    set_momentum(group, largest, self.use_beta1)
                    group["max_momentum"] = largest
                    group["base_momentum"] = smallest
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """Return the factor of a cycle's height, for the number of the cycle or of the step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self):
        """Return the learning rates of the groups at the step, and set their momenta."""
        self._warn_outside_step()
        cycles = 1 + self.last_epoch / self.total_size
        cycle = math.floor(cycles)
        x = cycles - cycle
        if x <= self.step_ratio:
            height = x / self.step_ratio
        else:
            height = (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for smallest, largest, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups
            ):
                momentum = largest - (largest - smallest) * height
                set_momentum(group, momentum, self.use_beta1)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self):
        """Return a dict of the schedule, where a function of the height is None."""
        found = super().state_dict()
        found["_scale_fn_custom"] = state_of_function(self._scale_fn_custom)
        return found

    def load_state_dict(self, state_dict):
        """Take over a dict that ``state_dict`` returned; a function of the height stays."""
        state_dict = dict(state_dict)
        state = state_dict.pop("_scale_fn_custom")
        super().load_state_dict(state_dict)
        if state is not None:
            self._scale_fn_custom.__dict__.update(state)
