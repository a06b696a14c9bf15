"""Fused steps: one kernel updates all parameters of a group.

Each function makes a step and returns True, or changes nothing and returns False for tensors that a
kernel does not take: complex ones, or states of another dtype than their parameter.
"""

from __future__ import annotations

import pullback
from pullback._c.python.optimizer_steps import count_missing, count_steps, fits, number_in_step
from pullback.ops.rules.operands import all_hold
from pullback.optim.optimizer import _as_number


def _scaling(params, grad_scale, found_inf):
    """Return what a step needs to know of the scale of the loss; None to leave the step out."""
    if found_inf is not None and not all_hold(found_inf == 0):
        return None
    return {"grad_scale": None if grad_scale is None else grad_scale.to(params[0].device)}


def sgd(
    params,
    grads,
    buffers,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
    grad_scale=None,
    found_inf=None,
):
    """Make a step of ``SGD``; buffers that are None, of all parameters, are made in the list."""
    starts = False
    if momentum == 0:
        buffers = []
    elif count_missing(buffers) == len(buffers):
        starts = fits(params, grads)
        made = [pullback.empty_like(param) for param in params] if starts else buffers
    if not (starts or fits(params, grads, *([buffers] if momentum != 0 else []))):
        return False
    scaling = _scaling(params, grad_scale, found_inf)
    if scaling is None:
        return True
    if starts:
        buffers[:] = made
    pullback._fused_sgd_(
        params,
        grads,
        buffers,
        weight_decay=_as_number(weight_decay),
        momentum=momentum,
        lr=number_in_step(lr),
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=starts,
        **scaling,
    )
    return True


def adam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
    decoupled,
    grad_scale=None,
    found_inf=None,
):
    """Make a step of ``Adam``, or with ``decoupled`` of ``AdamW``."""
    largest = [max_exp_avg_sqs] if amsgrad else []
    if not fits(params, grads, exp_avgs, exp_avg_sqs, *largest):
        return False
    scaling = _scaling(params, grad_scale, found_inf)
    if scaling is None:
        return True
    if not count_steps(params, state_steps):
        return False
    step = pullback._fused_adamw_ if decoupled else pullback._fused_adam_
    step(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs if amsgrad else [],
        state_steps,
        lr=number_in_step(lr),
        beta1=_as_number(beta1),
        beta2=_as_number(beta2),
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=maximize,
        **scaling,
    )
    return True


def rmsprop(
    params,
    grads,
    square_avgs,
    grad_avgs,
    momentum_buffer_list,
    state_steps,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    centered,
    maximize,
):
    """Make a step of ``RMSprop``."""
    averages = grad_avgs if centered else []
    buffers = momentum_buffer_list if momentum > 0 else []
    used = [square_avgs, *([averages] if centered else []), *([buffers] if momentum > 0 else [])]
    if not (fits(params, grads, *used) and count_steps(params, state_steps)):
        return False
    pullback._fused_rmsprop_(
        params,
        grads,
        square_avgs,
        averages,
        buffers,
        lr=number_in_step(lr),
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
        centered=centered,
        maximize=maximize,
    )
    return True


def adagrad(
    params,
    grads,
    state_sums,
    state_steps,
    *,
    lr,
    lr_decay,
    weight_decay,
    eps,
    maximize,
    grad_scale=None,
    found_inf=None,
):
    """Make a step of ``Adagrad``."""
    if not fits(params, grads, state_sums):
        return False
    scaling = _scaling(params, grad_scale, found_inf)
    if scaling is None:
        return True
    if not count_steps(params, state_steps):
        return False
    pullback._fused_adagrad_(
        params,
        grads,
        state_sums,
        state_steps,
        lr=number_in_step(lr),
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        **scaling,
    )
    return True


def take_step(
    step,
    params,
    grads,
    states,
    state_steps,
    *,
    lr,
    numbers=(),
    takes_steps=True,
    one_by_one=False,
    **options,
):
    """Make a step by an op, unless parameters are updated one by one.

    ``numbers`` are lists of states that are numbers.
    """
    if one_by_one or not fits(params, grads, *states):
        return False
    if not count_steps(params, state_steps, *numbers):
        return False
    lists = [*states, *numbers, *([state_steps] if takes_steps else [])]
    step(params, grads, *lists, lr=number_in_step(lr), **options)
    return True
