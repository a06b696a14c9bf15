"""The primitives of optimizers' steps: name, family, inputs, what each computes, parameters.

Outputs and inputs are lists of ``count`` tensors each, one list after the other. The outputs, which
hold the values to update, are the parameters, then each state; the inputs are the gradients, then
step numbers (float32 or float64, one each; those of all are host scalars, or none is). States that
are numbers (``mu_product``, ``mu``, ``eta``) are like step numbers, but written. Other tensors that
belong together have one dtype and one order in memory, and are passed as one dim. One further input
is a flag, a float32: if it is not 0, nothing is written. 16-bit numbers are computed with in
float32. With ``maximize`` the gradients are negated first.
"""

_DECAY = (
    "g = grad + weight_decay * param, or with decoupled_weight_decay g = grad and param *= 1 - lr "
    "* weight_decay"
)
_MOMENTS = "average += (1 - beta1) * (g - average); square = beta2 * square + (1 - beta2) * g^2"
_ADAM = (
    f"{_MOMENTS}; largest = maximum(largest, square); param -= lr / (1 - beta1^step) * average / "
    "(sqrt(square or largest) / sqrt(1 - beta2^step) + eps). Outputs average, square and, "
    "with amsgrad, largest."
)
_ADAM_PARAMS = (
    *("count:int", "lr:float", "beta1:float", "beta2:float", "weight_decay:float", "eps:float"),
    *("amsgrad:int", "maximize:int"),
)

OF_OPTIMIZERS = [
    (
        "sgd_step",
        "optim",
        "*grads",
        "g = grad + weight_decay * param; buffer = g if is_first_step else momentum * buffer + "
        "(1 - dampening) * g; param -= lr * (buffer, or with nesterov g + momentum * buffer). "
        "Without momentum there are no buffers, and param -= lr * g.",
        (
            "count:int",
            "weight_decay:float",
            "momentum:float",
            "lr:float",
            "dampening:float",
            "nesterov:int",
            "maximize:int",
            "is_first_step:int",
        ),
    ),
    (
        "adam_step",
        "optim",
        "*grads_and_steps",
        f"g = grad + weight_decay * param; {_ADAM}",
        _ADAM_PARAMS,
    ),
    (
        "adamw_step",
        "optim",
        "*grads_and_steps",
        f"g = grad; param *= 1 - lr * weight_decay; {_ADAM}",
        _ADAM_PARAMS,
    ),
    (
        "rmsprop_step",
        "optim",
        "*grads",
        "g = grad + weight_decay * param; square = alpha * square + (1 - alpha) * g^2; average += "
        "(1 - alpha) * (g - average); root = sqrt(square - average^2) + eps; buffer = momentum * "
        "buffer + g / root; param -= lr * buffer. Unless centered there are no averages, and root "
        "= sqrt(square) + eps; without momentum there are no buffers, and param -= lr * g / root.",
        (
            "count:int",
            "lr:float",
            "alpha:float",
            "eps:float",
            "weight_decay:float",
            "momentum:float",
            "centered:int",
            "maximize:int",
        ),
    ),
    (
        "adagrad_step",
        "optim",
        "*grads_and_steps",
        "g = grad + weight_decay * param; sum += g^2; param -= lr / (1 + (step - 1) * lr_decay) * "
        "g / (sqrt(sum) + eps).",
        (
            "count:int",
            "lr:float",
            "lr_decay:float",
            "weight_decay:float",
            "eps:float",
            "maximize:int",
        ),
    ),
    (
        "adadelta_step",
        "optim",
        "*grads",
        "g = grad + weight_decay * param; square = rho * square + (1 - rho) * g^2; d = "
        "sqrt((delta + eps) / (square + eps)) * g; delta = rho * delta + (1 - rho) * d^2; param -= "
        "lr * d. Outputs square and delta.",
        (
            "count:int",
            "lr:float",
            "rho:float",
            "eps:float",
            "weight_decay:float",
            "maximize:int",
        ),
    ),
    (
        "adamax_step",
        "optim",
        "*grads_and_steps",
        "g = grad + weight_decay * param; average += (1 - beta1) * (g - average); largest = "
        "maximum(beta2 * largest, |g| + eps); param -= lr / (1 - beta1^step) * average / largest. "
        "Outputs average and largest.",
        (
            *("count:int", "lr:float", "beta1:float", "beta2:float"),
            *("weight_decay:float", "eps:float", "maximize:int"),
        ),
    ),
    (
        "nadam_step",
        "optim",
        "*grads_and_steps",
        f"{_DECAY}; {_MOMENTS}; mu(t) = beta1 * (1 - 0.96^(t * momentum_decay) / 2); mu_product *= "
        "mu(step); root = sqrt(square / (1 - beta2^step)) + eps; param -= lr * ((1 - mu(step)) / "
        "(1 - mu_product) * g + mu(step + 1) / (1 - mu_product * mu(step + 1)) * average) / root. "
        "Outputs average, square, then mu_product.",
        (
            *("count:int", "lr:float", "beta1:float", "beta2:float", "weight_decay:float"),
            *("eps:float", "momentum_decay:float", "decoupled_weight_decay:int", "maximize:int"),
        ),
    ),
    (
        "radam_step",
        "optim",
        "*grads_and_steps",
        f"{_DECAY}; {_MOMENTS}; R = 2 / (1 - beta2) - 1; r = R - 2 * step * beta2^step / "
        "(1 - beta2^step); rate = lr / (1 - beta1^step); param -= rate * average if r <= 5, else "
        "param -= rate * sqrt((1 - beta2^step) * (r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r)) "
        "* average / (sqrt(square) + eps). Outputs average and square.",
        (
            *("count:int", "lr:float", "beta1:float", "beta2:float", "weight_decay:float"),
            *("eps:float", "decoupled_weight_decay:int", "maximize:int"),
        ),
    ),
    (
        "asgd_step",
        "optim",
        "*grads_and_steps",
        "g = grad + weight_decay * param; param = (1 - lambd * eta) * param - eta * g; average = "
        "param if mu is 1, else average + mu * (param - average); then eta = lr / (1 + lambd * lr "
        "* step)^alpha and mu = 1 / max(1, step - t0). Outputs average, then mu and eta.",
        (
            *("count:int", "lr:float", "lambd:float", "alpha:float", "t0:float"),
            *("weight_decay:float", "maximize:int"),
        ),
    ),
]
