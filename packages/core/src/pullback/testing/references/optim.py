"""References of the steps of optimizers, as their papers have them.

Each takes the NumPy module first, then the op's arguments with arrays for tensors, and returns the
new parameters and states, list by list.
"""


def _gradient(param, grad, decay, maximize):
    return (-grad if maximize else grad) + decay * param


def _skipped(found_inf):
    return found_inf is not None and bool(found_inf)


def _scaled(grads, grad_scale):
    return grads if grad_scale is None else [grad / grad_scale for grad in grads]


def sgd(
    np, self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening, nesterov,
    maximize, is_first_step, grad_scale=None, found_inf=None,
):  # fmt: skip
    """Momentum as Sutskever et al., On the importance of initialization and momentum (2013)."""
    if _skipped(found_inf):
        return [*self, *momentum_buffer_list]
    params, buffers = [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        g = _gradient(param, grad, weight_decay, maximize)
        if momentum:
            old = momentum_buffer_list[number]
            buffer = g if is_first_step else momentum * old + (1 - dampening) * g
            buffers.append(buffer)
            g = g + momentum * buffer if nesterov else buffer
        params.append(param - lr * g)
    return [*params, *(buffers or momentum_buffer_list)]


def adam(
    np, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2,
    weight_decay, eps, amsgrad, maximize, grad_scale=None, found_inf=None, decoupled=False,
):  # fmt: skip
    """Kingma and Ba (2015), algorithm 1; decoupled: Loshchilov and Hutter (2019), algorithm 2."""
    if _skipped(found_inf):
        return [*self, *exp_avgs, *exp_avg_sqs, *max_exp_avg_sqs]
    params, averages, squares, largest = [], [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        step = float(state_steps[number])
        g = _gradient(param, grad, 0 if decoupled else weight_decay, maximize)
        param = param * (1 - lr * weight_decay) if decoupled else param
        averages.append(beta1 * exp_avgs[number] + (1 - beta1) * g)
        squares.append(beta2 * exp_avg_sqs[number] + (1 - beta2) * g**2)
        square = squares[-1]
        if amsgrad:
            square = np.maximum(max_exp_avg_sqs[number], square)
            largest.append(square)
        unbiased = averages[-1] / (1 - beta1**step)
        params.append(param - lr * unbiased / (np.sqrt(square / (1 - beta2**step)) + eps))
    return [*params, *averages, *squares, *(largest or max_exp_avg_sqs)]


def adamw(np, *args, **kwargs):
    """Adam whose weight decay is decoupled from the gradient."""
    return adam(np, *args, **kwargs, decoupled=True)


def rmsprop(
    np, self, grads, square_avgs, grad_avgs, momentum_buffer_list, *, lr, alpha, eps, weight_decay,
    momentum, centered, maximize, grad_scale=None, found_inf=None,
):  # fmt: skip
    """Graves, Generating sequences with recurrent neural networks (2013), equations 38 to 41."""
    if _skipped(found_inf):
        return [*self, *square_avgs, *grad_avgs, *momentum_buffer_list]
    params, squares, averages, buffers = [], [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        g = _gradient(param, grad, weight_decay, maximize)
        squares.append(alpha * square_avgs[number] + (1 - alpha) * g**2)
        variance = squares[-1]
        if centered:
            averages.append(alpha * grad_avgs[number] + (1 - alpha) * g)
            variance = variance - averages[-1] ** 2
        change = g / (np.sqrt(variance) + eps)
        if momentum:
            change = momentum * momentum_buffer_list[number] + change
            buffers.append(change)
        params.append(param - lr * change)
    return [*params, *squares, *(averages or grad_avgs), *(buffers or momentum_buffer_list)]


def adagrad(
    np, self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps, maximize,
    grad_scale=None, found_inf=None,
):  # fmt: skip
    """Duchi, Hazan and Singer (2011), figure 1, with a diagonal matrix and a decaying rate."""
    if _skipped(found_inf):
        return [*self, *state_sums]
    params, sums = [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        g = _gradient(param, grad, weight_decay, maximize)
        sums.append(state_sums[number] + g**2)
        rate = lr / (1 + (float(state_steps[number]) - 1) * lr_decay)
        params.append(param - rate * g / (np.sqrt(sums[-1]) + eps))
    return [*params, *sums]
