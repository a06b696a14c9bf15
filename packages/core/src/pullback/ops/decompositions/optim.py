"""Decompositions of the steps of optimizers: a loop over the parameters."""

from __future__ import annotations

import math

from pullback.ops.rules.dtypes import widest
from pullback.ops.rules.operands import all_hold
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops


def _updates(grads, *lists, decay, maximize, found_inf):
    """Yield what belongs together: gradient with decay, then the tensors of each list, wide.

    Writes back what the caller sends: the new values of these tensors. A list may be empty.
    """
    if found_inf is not None and not all_hold(found_inf == 0):
        return
    for number, grad in enumerate(grads):
        targets = [tensors[number] for tensors in lists if len(tensors)]
        values = [_wide(target) for target in targets]
        grad = -_wide(grad) if maximize else _wide(grad)
        if decay:
            grad = grad + decay * values[0]
        update = _Update(number, grad, values)
        yield update
        for target, value in zip(targets, update.values):
            ops.copy_(target, value)


class _Update:
    """One parameter's gradient and values, which the formulas replace."""

    def __init__(self, number, grad, values):
        self.number, self.grad, self.values = number, grad, values


def _wide(tensor):
    """Return 16-bit floats as float32."""
    return tensor.float() if tensor.dtype.itemsize == 2 else tensor


@decomposition("sgd_step")
def sgd_step(
    self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
    is_first_step, grad_scale, found_inf,
):  # fmt: skip
    buffers = momentum_buffer_list if momentum else []
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, buffers, **options):
        param, grad = one.values[0], one.grad
        if momentum:
            buffer = grad if is_first_step else one.values[1] * momentum + (1 - dampening) * grad
            grad = grad + momentum * buffer if nesterov else buffer
            one.values[1] = buffer
        one.values[0] = param - lr * grad


def _adam(
    decoupled, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
    weight_decay, eps, amsgrad, maximize, grad_scale, found_inf,
):  # fmt: skip
    largest = max_exp_avg_sqs if amsgrad else []
    decay = 0 if decoupled else weight_decay
    options = {"decay": decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, exp_avgs, exp_avg_sqs, largest, **options):
        param, average, square = one.values[:3]
        step = state_steps[one.number].to(param.dtype)
        if decoupled:
            param = param * (1 - lr * weight_decay)
        average = average + (1 - beta1) * (one.grad - average)
        square = square * beta2 + (1 - beta2) * one.grad * one.grad
        one.values[1:3] = average, square
        if amsgrad:
            square = one.values[3] = ops.maximum(one.values[3], square)
        root = square.sqrt() / _correction(beta2, step).sqrt() + eps
        one.values[0] = param - _correction(beta1, step).reciprocal() * lr * average / root


def _moments(one, beta1, beta2, kept):
    """Update the averages of gradients and squares; return both. A factor shrinks the parameter."""
    param, average, square = one.values
    average = average + (1 - beta1) * (one.grad - average)
    square = square * beta2 + (1 - beta2) * one.grad * one.grad
    one.values = [param if kept is None else param * kept, average, square]
    return average, square


def _number(tensor):
    """Return a tensor of one number in the widest dtype of its device."""
    return tensor.to(widest(tensor.device))


def _correction(beta, step):
    """Return 1 - beta^step, the weight of an average that began with 0, or NaN for no number."""
    logarithm = math.log(beta) if beta > 0 else -math.inf if beta == 0 else math.nan
    found = -(step * logarithm).expm1()
    return found.masked_fill(found == 0, math.nan)


@decomposition("adam_step")
def adam_step(*args):
    _adam(False, *args)


@decomposition("adamw_step")
def adamw_step(*args):
    _adam(True, *args)


@decomposition("rmsprop_step")
def rmsprop_step(
    self, grads, square_avgs, grad_avgs, momentum_buffer_list, lr, alpha, eps, weight_decay,
    momentum, centered, maximize, grad_scale, found_inf,
):  # fmt: skip
    averages, buffers = grad_avgs if centered else [], momentum_buffer_list if momentum else []
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, square_avgs, averages, buffers, **options):
        param, square, *_ = one.values
        square = one.values[1] = square * alpha + (1 - alpha) * one.grad * one.grad
        if centered:
            average = one.values[2]
            one.values[2] = average = average + (1 - alpha) * (one.grad - average)
            square = square - average * average
        change = one.grad / (square.sqrt() + eps)
        if momentum:
            one.values[-1] = change = one.values[-1] * momentum + change
        one.values[0] = param - lr * change


@decomposition("adagrad_step")
def adagrad_step(
    self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale,
    found_inf,
):  # fmt: skip
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, state_sums, **options):
        param, total = one.values
        step = state_steps[one.number].to(param.dtype)
        one.values[1] = total = total + one.grad * one.grad
        growth = 1 + (step - 1) * lr_decay
        rate = growth.masked_fill(growth == 0, math.nan).reciprocal() * lr
        one.values[0] = param - rate * one.grad / (total.sqrt() + eps)


@decomposition("adadelta_step")
def adadelta_step(
    self, grads, square_avgs, acc_deltas, lr, rho, eps, weight_decay, maximize, grad_scale,
    found_inf,
):  # fmt: skip
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, square_avgs, acc_deltas, **options):
        param, square, delta = one.values
        square = square * rho + (1 - rho) * one.grad * one.grad
        change = ((delta + eps) / (square + eps)).sqrt() * one.grad
        one.values = [param - lr * change, square, delta * rho + (1 - rho) * change * change]


@decomposition("adamax_step")
def adamax_step(
    self, grads, exp_avgs, exp_infs, state_steps, lr, beta1, beta2, weight_decay, eps, maximize,
    grad_scale, found_inf,
):  # fmt: skip
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, exp_avgs, exp_infs, **options):
        param, average, largest = one.values
        average = average + (1 - beta1) * (one.grad - average)
        largest = ops.maximum(largest * beta2, one.grad.abs() + eps)
        rate = _correction(beta1, _number(state_steps[one.number])).reciprocal() * lr
        rate = rate.to(param.dtype)
        one.values = [param - rate * average / largest, average, largest]


@decomposition("nadam_step")
def nadam_step(
    self, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, lr, beta1, beta2, weight_decay,
    eps, momentum_decay, decoupled_weight_decay, maximize, grad_scale, found_inf,
):  # fmt: skip
    decay = 0 if decoupled_weight_decay else weight_decay
    options = {"decay": decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, exp_avgs, exp_avg_sqs, **options):
        step, mu_product = _number(state_steps[one.number]), mu_products[one.number]
        average, square = _moments(
            one, beta1, beta2, None if decay == weight_decay else 1 - lr * weight_decay
        )
        factor, next_factor = (
            beta1 * (1 - 0.5 * (t * (momentum_decay * math.log(0.96))).exp())
            for t in (step, step + 1)
        )
        product = _number(mu_product.mul_(factor.to(mu_product.dtype)))
        rate = (lr * (1 - factor) / (1 - product)).to(square.dtype)
        next_rate = (lr * next_factor / (1 - product * next_factor)).to(square.dtype)
        root = (square / _correction(beta2, step).to(square.dtype)).sqrt() + eps
        one.values[0] = one.values[0] - rate * one.grad / root - next_rate * average / root


@decomposition("radam_step")
def radam_step(
    self, grads, exp_avgs, exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps,
    decoupled_weight_decay, maximize, grad_scale, found_inf,
):  # fmt: skip
    decay = 0 if decoupled_weight_decay else weight_decay
    options = {"decay": decay, "maximize": maximize, "found_inf": found_inf}
    longest = 2 / (1 - beta2) - 1
    for one in _updates(grads, self, exp_avgs, exp_avg_sqs, **options):
        step = _number(state_steps[one.number])
        average, square = _moments(
            one, beta1, beta2, None if decay == weight_decay else 1 - lr * weight_decay
        )
        left = _correction(beta2, step)
        length = longest - 2 * step * (1 - left) / left
        rectified = left * (length - 4) * (length - 2) * longest
        rectified = (rectified / ((longest - 4) * (longest - 2) * length)).sqrt()
        rate = _correction(beta1, step).reciprocal() * lr
        momentum = (rate * (length <= 5)).to(average.dtype)
        adaptive = ops.where(length > 5, rate * rectified, 0).to(average.dtype)
        one.values[0] -= momentum * average + adaptive * average / (square.sqrt() + eps)


@decomposition("asgd_step")
def asgd_step(
    self, grads, axs, mus, etas, state_steps, lr, lambd, alpha, t0, weight_decay, maximize,
    grad_scale, found_inf,
):  # fmt: skip
    options = {"decay": weight_decay, "maximize": maximize, "found_inf": found_inf}
    for one in _updates(grads, self, axs, **options):
        param, average = one.values
        mu, eta = mus[one.number], etas[one.number]
        step, share, rate = map(_number, (state_steps[one.number], mu, eta))
        keep, rate, share = (n.to(param.dtype) for n in (1 - lambd * rate, rate, share))
        param = param * keep - rate * one.grad
        moved = average + share * (param - average)
        one.values = [param, ops.where(share == 1, param, moved)]
        ops.copy_(eta, lr / (1 + lambd * lr * step) ** alpha)
        ops.copy_(mu, 1 / (step - t0).clamp_min(1))
