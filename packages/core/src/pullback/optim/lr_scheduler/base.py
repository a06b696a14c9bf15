"""The base class of schedules: steps, their order with those of the optimizer, state dicts."""

from __future__ import annotations

import functools
import types
import warnings
import weakref

from pullback import Tensor
from pullback._c.python.optimizer_steps import note_options_read
from pullback.optim.optimizer import Optimizer

__all__ = ["LRScheduler"]

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)


class LRScheduler:
    """The base class of schedules of learning rates.

    A subclass defines ``get_lr``, the learning rates of the groups at epoch ``last_epoch``; it may
    define ``_get_closed_form_lr``, which needs no rates of the epoch before. Rates begin with the
    groups' ``"lr"``, kept as ``"initial_lr"`` and in ``base_lrs``. ``last_epoch`` is -1, or the
    epoch before the first when training goes on.

    Raises: TypeError if the optimizer is none; KeyError if training goes on without
    ``"initial_lr"`` in the groups.

    >>> import pullback
    >>> class Halved(pullback.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = Halved(optimizer)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer, last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{number}] when resuming "
                    "scheduler with last_epoch >= 0.\nThis typically happens when:\n1. You're "
                    "trying to resume training from a checkpoint but haven't properly loaded the "
                    "optimizer state\n2. You're using last_epoch >= 0 for a fresh training run "
                    "(not recommended)"
                )
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _track_steps(optimizer)
        self._initial_step()

    def _initial_step(self):
        """Set the learning rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def step(self, epoch=None):
        """Set the learning rates of the next epoch, after the steps of the optimizer.

        ``epoch`` is deprecated: it goes to another one, by the closed form where there is one.
        """
        if self._step_count == 1:
            _warn_of_order(self.optimizer)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        """Set the learning rates of an epoch, by default the next."""
        rates = self.get_lr
        if epoch is None:
            self.last_epoch += 1
        else:
            self.last_epoch = epoch
            rates = getattr(self, "_get_closed_form_lr", rates)
        self._set_rates(rates)

    def _set_rates(self, rates):
        """Write the values of a function into the groups."""
        self._get_lr_called_within_step = True
        try:
            values = rates()
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values):
            set_value(group, "lr", value)
        self._last_lr = self._rates()

    def _rates(self):
        """Return the learning rates of the groups."""
        return values_of(self.optimizer, "lr")

    def get_last_lr(self):
        """Return the learning rates of the groups that were set last."""
        note_options_read()
        return self._last_lr

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        raise NotImplementedError

    def _warn_outside_step(self):
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def state_dict(self):
        """Return a dict of what a schedule consists of, but for the optimizer."""
        note_options_read()
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict):
        """Take over a dict that ``state_dict`` returned."""
        self.__dict__.update(state_dict)


class _LRScheduler(LRScheduler):
    """The name of the base class in older programs."""


# ---- the order of steps --------------------------------------------------------------------------


def _track_steps(optimizer):
    """Let an optimizer remember that it made a step."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    function, reference = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args, **kwargs):
        own = reference()
        own._opt_called = True
        return function(own, *args, **kwargs)

    step._wrapped_by_lr_sched = True
    optimizer.step = step


def _warn_of_order(optimizer):
    if not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        warnings.warn(
            "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
            "initialization. Please, make sure to call `optimizer.step()` before "
            "`lr_scheduler.step()`.",
            UserWarning,
            stacklevel=3,
        )
    elif not getattr(optimizer, "_opt_called", False):
        warnings.warn(
            "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call "
            "them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`. Failure "
            "to do this will result in skipping the first value of the learning rate schedule.",
            UserWarning,
            stacklevel=3,
        )


# ---- options of groups ---------------------------------------------------------------------------


def check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def copied(value):
    """Return a number, or a copy of a tensor."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def values_of(optimizer, name):
    """Return an option of all groups."""
    return [copied(group[name]) for group in optimizer.param_groups]


def set_value(group, name, value):
    """Set an option of a group; one that is a tensor stays that tensor."""
    if isinstance(group[name], Tensor):
        group[name].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[name] = value


def for_each_group(name, optimizer, value):
    """Return a list with a value for each group, of one value or a list of as many."""
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
            f"values, param_groups has {len(optimizer.param_groups)}."
        )
    return list(value)


def uses_beta(optimizer):
    """True if the momentum of an optimizer is the first of its betas."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )
    return "betas" in optimizer.defaults


def set_momentum(group, value, use_beta1):
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def state_of_function(function):
    """Return what a state dict keeps of a function: attributes of a callable object, or None."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return function.__dict__.copy()
