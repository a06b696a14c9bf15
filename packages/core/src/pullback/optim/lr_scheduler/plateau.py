"""The schedule that reacts to a metric."""

from __future__ import annotations

import math
import warnings

from pullback.optim.lr_scheduler.base import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    check_optimizer,
    set_value,
)

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """Learning rates that are multiplied by ``factor`` when a metric does not get better.

    That is after more than ``patience`` epochs in a row in which the metric is not less than the
    best, or with ``mode="max"`` not greater. Better means by the share ``threshold`` of the best,
    or with ``threshold_mode="abs"`` by that amount. After a reduction ``cooldown`` epochs do not
    count. Rates stay above ``min_lr``, a number or a list with one for each group, and change by
    more than ``eps``.

    Raises: ValueError for ``factor`` of 1 and more, an unknown mode, or a list of another length.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.5):
    ...     scheduler.step(loss)
    ...     print(scheduler.get_last_lr())
    [1.0]
    [1.0]
    [1.0]
    [0.1]
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        self.factor = factor
        check_optimizer(optimizer)
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != count:
                raise ValueError(f"expected {count} min_lrs, got {len(min_lr)}")
            self.default_min_lr = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * count
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        for given, known, name in (
            (mode, ("min", "max"), "mode"),
            (threshold_mode, ("rel", "abs"), "threshold mode"),
        ):
            if given not in known:
                raise ValueError(f"{name} {given} is unknown!")
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics, epoch=None):
        """Compare a metric with the best, and reduce the learning rates if it is time.

        ``epoch`` is deprecated: it is the number of the epoch.
        """
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _reduce_lr(self):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, smallest in zip(groups, self.min_lrs):
            before = float(group["lr"])
            after = max(before * self.factor, smallest)
            if before - after > self.eps:
                set_value(group, "lr", after)

    @property
    def in_cooldown(self):
        """True while epochs after a reduction do not count."""
        return self.cooldown_counter > 0

    def _is_better(self, value, best):
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            best *= 1 + sign * self.threshold
        else:
            best += sign * self.threshold
        return value > best if self.mode == "max" else value < best
