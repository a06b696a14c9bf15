"""Averages of a model's parameters over training, and what belongs to them."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy

import pullback
from pullback.nn.modules.batchnorm import _BatchNorm
from pullback.nn.modules.module import Module
from pullback.ops.rules.operands import all_hold
from pullback.optim.lr_scheduler.base import LRScheduler, for_each_group

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def get_ema_multi_avg_fn(decay=0.999):
    """Return a function for ``AveragedModel`` that keeps exponential averages, in place.

    An average becomes decay times itself plus 1 - decay times the new value.

    Raises: ValueError if ``decay`` is not between 0 and 1.

    >>> import pullback
    >>> average = pullback.zeros(2)
    >>> pullback.optim.swa_utils.get_ema_multi_avg_fn(0.75)([average], [pullback.ones(2)], 1)
    >>> average
    tensor([0.2500, 0.2500])
    """
    _check_decay(decay)

    @pullback.no_grad()
    def ema_update(ema_param_list, current_param_list, _):
        for average, current in zip(ema_param_list, current_param_list):
            _move(average, current, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn():
    """Return a function for ``AveragedModel`` that keeps equal averages, in place.

    >>> import pullback
    >>> average = pullback.zeros(2)
    >>> pullback.optim.swa_utils.get_swa_multi_avg_fn()([average], [pullback.ones(2)], 3)
    >>> average
    tensor([0.2500, 0.2500])
    """

    @pullback.no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        share = 1 / (float(num_averaged) + 1)
        for average, current in zip(averaged_param_list, current_param_list):
            _move(average, current, share)

    return swa_update


def get_ema_avg_fn(decay=0.999):
    """Return a function for ``AveragedModel`` that returns the next exponential average.

    Raises: ValueError if ``decay`` is not between 0 and 1.

    >>> import pullback
    >>> function = pullback.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> function(pullback.zeros(2), pullback.ones(2), 1)
    tensor([0.2500, 0.2500])
    """
    _check_decay(decay)

    @pullback.no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """Return a function for ``AveragedModel`` that returns the next equal average.

    >>> import pullback
    >>> function = pullback.optim.swa_utils.get_swa_avg_fn()
    >>> function(pullback.zeros(2), pullback.ones(2), 3)
    tensor([0.2500, 0.2500])
    """

    @pullback.no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def _move(average, current, share):
    """Move an average by a share of the way to a value; integers are rounded towards zero."""
    if average.is_floating_point() or average.is_complex():
        average.lerp_(current, share)
    else:
        average.copy_(average + (current - average) * share)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that training went through.

    Each ``update_parameters`` takes the model's parameters into the averages; the first copies
    them. They are equal averages (Izmailov et al., "Averaging Weights Leads to Wider Optima and
    Better Generalization", 2018), or those of ``avg_fn(average, value, count)``, which returns the
    next average, or of ``multi_avg_fn(averages, values, count)``, which writes into a list.
    Buffers are averaged with ``use_buffers``, and copied otherwise. ``device`` is that of the copy.

    Raises: AssertionError if both functions are given.

    >>> import pullback
    >>> model = pullback.nn.Linear(1, 1, bias=False)
    >>> averaged = pullback.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = pullback.nn.init.constant_(model.weight, value)
    ...     averaged.update_parameters(model)
    >>> averaged(pullback.ones(1)).item()
    3.0
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        count = pullback.tensor(0, dtype=pullback.long, device=device)
        self.register_buffer("n_averaged", count)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        """Return what the averaged model makes of its arguments."""
        return self.module(*args, **kwargs)

    def _averaged(self, model):
        parameters = model.parameters()
        return list(
            itertools.chain(parameters, model.buffers()) if self.use_buffers else parameters
        )

    @pullback.no_grad()
    def update_parameters(self, model):
        """Take the parameters of a model into the averages."""
        averages = [average.detach() for average in self._averaged(self.module)]
        values = [
            value.detach().to(average.device)
            for average, value in zip(averages, self._averaged(model))
        ]
        if all_hold(self.n_averaged == 0):
            for average, value in zip(averages, values):
                average.copy_(value)
        elif self.avg_fn is not None:
            for average, value in zip(averages, values):
                count = self.n_averaged.to(average.device)
                average.copy_(self.avg_fn(average, value, count))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            update(averages, values, self.n_averaged)
        if not self.use_buffers:
            for own, other in zip(self.module.buffers(), model.buffers()):
                own.copy_(other.to(own.device))
        self.n_averaged += 1


@pullback.no_grad()
def update_bn(loader, model, device=None):
    """Compute the statistics of a model's batch normalizations anew, over the data of a loader.

    Each element of the loader is a batch, or a list or tuple that begins with one; it moves to
    ``device``.

    >>> import pullback
    >>> model = pullback.nn.BatchNorm1d(1)
    >>> batches = [pullback.tensor([[1.0], [3.0]]), pullback.tensor([[5.0], [7.0]])]
    >>> pullback.optim.swa_utils.update_bn(batches, model)
    >>> model.running_mean
    tensor([4.])
    """
    layers = {
        module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)
    }
    if not layers:
        return
    was_training = model.training
    model.train()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for layer, momentum in layers.items():
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Learning rates that go to ``swa_lr`` within ``anneal_epochs``, and stay there.

    They go along a cosine, or with ``anneal_strategy="linear"`` on a line, from what they are,
    also if another schedule changes them meanwhile. ``swa_lr`` is a number, or a list with one
    for each group.

    Raises: ValueError for an unknown strategy, a negative ``anneal_epochs``, or a list of another
    length.

    >>> import pullback
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = pullback.optim.swa_utils.SWALR(optimizer, 0.5, 2, "linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.75]
    [0.5]
    [0.5]
    """

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for rate, group in zip(for_each_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch):
        """Return the share of the way to ``swa_lr`` that an epoch has gone."""
        passed = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return passed if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * passed)) / 2

    def get_lr(self):
        """Return the learning rates of the groups at ``last_epoch``."""
        self._warn_outside_step()
        epoch = self._step_count - 1
        if self.anneal_epochs == 0:
            epoch = max(1, epoch)
        before, now = self._share(epoch - 1), self._share(epoch)
        rates = []
        for rate, group in zip(self._rates(), self.optimizer.param_groups):
            target = group["swa_lr"]
            start = target if before == 1 else (rate - before * target) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates
