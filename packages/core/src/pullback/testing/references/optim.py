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


def adadelta(
    np, self, grads, square_avgs, acc_deltas, *, lr, rho, eps, weight_decay, maximize,
    grad_scale=None, found_inf=None,
):  # fmt: skip
    """Zeiler, ADADELTA: an adaptive learning rate method (2012), algorithm 1, times a rate."""
    if _skipped(found_inf):
        return [*self, *square_avgs, *acc_deltas]
    params, squares, deltas = [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        g = _gradient(param, grad, weight_decay, maximize)
        squares.append(rho * square_avgs[number] + (1 - rho) * g**2)
        change = np.sqrt(acc_deltas[number] + eps) / np.sqrt(squares[-1] + eps) * g
        deltas.append(rho * acc_deltas[number] + (1 - rho) * change**2)
        params.append(param - lr * change)
    return [*params, *squares, *deltas]


def adamax(
    np, self, grads, exp_avgs, exp_infs, state_steps, *, lr, beta1, beta2, weight_decay, eps,
    maximize, grad_scale=None, found_inf=None,
):  # fmt: skip
    """Kingma and Ba (2015), algorithm 2, with eps beside the gradient's size."""
    if _skipped(found_inf):
        return [*self, *exp_avgs, *exp_infs]
    params, averages, largest = [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        g = _gradient(param, grad, weight_decay, maximize)
        averages.append(beta1 * exp_avgs[number] + (1 - beta1) * g)
        largest.append(np.maximum(beta2 * exp_infs[number], np.abs(g) + eps))
        unbiased = averages[-1] / (1 - beta1 ** float(state_steps[number]))
        params.append(param - lr * unbiased / largest[-1])
    return [*params, *averages, *largest]


def nadam(
    np, self, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, *, lr, beta1, beta2,
    weight_decay, eps, momentum_decay, decoupled_weight_decay, maximize, grad_scale=None,
    found_inf=None,
):  # fmt: skip
    """Dozat, Incorporating Nesterov momentum into Adam (2016), algorithm 8."""
    if _skipped(found_inf):
        return [*self, *exp_avgs, *exp_avg_sqs, *mu_products]
    params, averages, squares, products = [], [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        step = float(state_steps[number])
        g = _gradient(param, grad, 0 if decoupled_weight_decay else weight_decay, maximize)
        param = param * (1 - lr * weight_decay) if decoupled_weight_decay else param
        now, then = (beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay)) for t in (step, step + 1))
        averages.append(beta1 * exp_avgs[number] + (1 - beta1) * g)
        squares.append(beta2 * exp_avg_sqs[number] + (1 - beta2) * g**2)
        products.append(mu_products[number] * now)
        product = float(products[-1])
        ahead = then * averages[-1] / (1 - product * then) + (1 - now) * g / (1 - product)
        params.append(param - lr * ahead / (np.sqrt(squares[-1] / (1 - beta2**step)) + eps))
    return [*params, *averages, *squares, *products]


def radam(
    np, self, grads, exp_avgs, exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps,
    decoupled_weight_decay, maximize, grad_scale=None, found_inf=None,
):  # fmt: skip
    """Liu et al., On the variance of the adaptive learning rate and beyond (2020), algorithm 2.

    The correction of the squares is a factor, as in torch: eps is not divided by it.
    """
    if _skipped(found_inf):
        return [*self, *exp_avgs, *exp_avg_sqs]
    params, averages, squares = [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        step = float(state_steps[number])
        g = _gradient(param, grad, 0 if decoupled_weight_decay else weight_decay, maximize)
        param = param * (1 - lr * weight_decay) if decoupled_weight_decay else param
        averages.append(beta1 * exp_avgs[number] + (1 - beta1) * g)
        squares.append(beta2 * exp_avg_sqs[number] + (1 - beta2) * g**2)
        change = averages[-1] / (1 - beta1**step)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / (1 - beta2**step)
        if length > 5:
            rectified = np.sqrt(
                (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            )
            adaptive = np.sqrt(1 - beta2**step) / (np.sqrt(squares[-1]) + eps)
            change = change * rectified * adaptive
        params.append(param - lr * change)
    return [*params, *averages, *squares]


def asgd(
    np, self, grads, axs, mus, etas, state_steps, *, lr, lambd, alpha, t0, weight_decay, maximize,
    grad_scale=None, found_inf=None,
):  # fmt: skip
    """Polyak and Juditsky (1992); rates as Bottou, Large-scale machine learning (2010)."""
    if _skipped(found_inf):
        return [*self, *axs, *mus, *etas]
    params, averages, shares, rates = [], [], [], []
    for number, (param, grad) in enumerate(zip(self, _scaled(grads, grad_scale))):
        step, eta, mu = (float(one[number]) for one in (state_steps, etas, mus))
        g = _gradient(param, grad, weight_decay, maximize)
        params.append(param - eta * (lambd * param + g))
        averages.append((1 - mu) * axs[number] + mu * params[-1])
        shares.append(np.asarray(1 / max(1, step - t0)))
        rates.append(np.asarray(lr / (1 + lambd * lr * step) ** alpha))
    return [*params, *averages, *shares, *rates]
