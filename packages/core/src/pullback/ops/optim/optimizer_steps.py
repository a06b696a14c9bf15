"""Steps of optimizers over lists of tensors, in place; ``pullback.optim`` runs them."""

from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, op

references = references_of("optim")

_TAIL = "grad_scale: Tensor? = None, found_inf: Tensor? = None) -> None"
_RULES = (
    "Lists have a tensor for each parameter; those that belong together have one shape and dtype. "
    "Version counters of what is written move. With grad_scale the gradients are divided by it "
    "first, in place; if found_inf is not 0, nothing is written.\n\n"
    "Raises: RuntimeError for a list of another length, a tensor of another shape, dtype or "
    "device, and for a tensor that requires grad where operations are recorded."
)
_LISTS = {
    **dict.fromkeys(
        ("batch", "batch_of_numbers"), "vmap does not support writes to lists of tensors"
    ),
    "expanded": "elements of a tensor that is written may not share memory",
}
# Shapes of the parameters of the sample calls.
_SHAPES = ((2, 3), (4,), (0,), ())


def _drawn(low=-2, high=2):
    return [T(*shape, low=low, high=high) for shape in _SHAPES]


def _steps(first=1):
    return _numbers(*[float(first + number) for number in range(len(_SHAPES))])


def _numbers(*values):
    """Return a number for each parameter: the values in turn."""
    return [
        fixed((values[number % len(values)],), shape=(), kind="float32")
        for number in range(len(_SHAPES))
    ]


def _optimizer(signature, settings, choices, lists, **fields):
    """Declare a step; sample calls for each of the choices, which change some settings.

    ``lists`` makes the lists after params and grads of the settings.
    """

    def sample(choice):
        given = {**settings, **choice}
        return case(_drawn(), _drawn(), *lists(given), skip=_LISTS, **given)

    op(
        f"{signature}, {_TAIL}",
        forward="optimizer",
        inplace="only",
        inplace_function=True,
        method=False,
        dtypes=FLOATING,
        constant=True,
        samples=lambda: [sample(choice) for choice in choices],
        **fields,
    )


_optimizer(
    "_fused_sgd_(self: Tensor[]!, grads: Tensor[], momentum_buffer_list: Tensor[]!, *, "
    "weight_decay: float, momentum: float, lr: float, dampening: float, nesterov: bool, "
    "maximize: bool, is_first_step: bool",
    {
        "weight_decay": 0.0,
        "momentum": 0.0,
        "lr": 0.1,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    },
    (
        {},
        {"weight_decay": 0.5, "maximize": True},
        {"momentum": 0.75, "dampening": 0.25},
        {"momentum": 0.75, "nesterov": True, "weight_decay": 0.5},
        {"momentum": 0.75, "dampening": 0.25, "is_first_step": True},
    ),
    lambda given: [_drawn() if given["momentum"] else []],
    kernel="sgd_step",
    ref=references.sgd,
    doc="Update parameters by stochastic gradient descent, with momentum, in place.\n\nBuffers are "
    f"not read in the first step, and not needed without momentum. {_RULES}",
)

_MOMENTS = (
    "self: Tensor[]!, grads: Tensor[], exp_avgs: Tensor[]!, exp_avg_sqs: Tensor[]!, "
    "max_exp_avg_sqs: Tensor[]!, state_steps: Tensor[], *, lr: float, beta1: float, beta2: float, "
    "weight_decay: float, eps: float, amsgrad: bool, maximize: bool"
)
for _name, _reference, _what in (
    ("adam", references.adam, "Adam"),
    ("adamw", references.adamw, "AdamW, whose weight decay is no part of the gradient"),
):
    _optimizer(
        f"_fused_{_name}_({_MOMENTS}",
        {
            "lr": 0.1,
            "beta1": 0.75,
            "beta2": 0.875,
            "weight_decay": 0.0,
            "eps": 1e-3,
            "amsgrad": False,
            "maximize": False,
        },
        ({}, {"weight_decay": 0.5, "maximize": True}, {"amsgrad": True}, {"beta1": 0.25}),
        lambda given: [
            _drawn(),
            _drawn(0, 4),
            _drawn(0, 4) if given["amsgrad"] else [],
            _steps(),
        ],
        kernel=f"{_name}_step",
        ref=_reference,
        doc=f"Update parameters by {_what}, in place.\n\nSteps are float32 or float64 tensors of "
        "one number, counted from 1, which are only read; a parameter's step may be on the host. "
        f"The largest squares are not needed without amsgrad. {_RULES}",
    )

_optimizer(
    "_fused_rmsprop_(self: Tensor[]!, grads: Tensor[], square_avgs: Tensor[]!, "
    "grad_avgs: Tensor[]!, momentum_buffer_list: Tensor[]!, *, lr: float, alpha: float, "
    "eps: float, weight_decay: float, momentum: float, centered: bool, maximize: bool",
    {
        "lr": 0.1,
        "alpha": 0.875,
        "eps": 1e-2,
        "weight_decay": 0.0,
        "momentum": 0.0,
        "centered": False,
        "maximize": False,
    },
    (
        {},
        {"weight_decay": 0.5, "maximize": True},
        {"momentum": 0.75},
        {"centered": True},
        {"centered": True, "momentum": 0.75},
    ),
    lambda given: [
        _drawn(4, 8),
        _drawn(-1, 1) if given["centered"] else [],
        _drawn() if given["momentum"] else [],
    ],
    kernel="rmsprop_step",
    ref=references.rmsprop,
    doc="Update parameters by RMSprop, in place.\n\nAverages of gradients are not needed unless "
    f"centered, buffers not without momentum. {_RULES}",
)

_optimizer(
    "_fused_adagrad_(self: Tensor[]!, grads: Tensor[], state_sums: Tensor[]!, "
    "state_steps: Tensor[], *, lr: float, lr_decay: float, weight_decay: float, eps: float, "
    "maximize: bool",
    {"lr": 0.1, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-3, "maximize": False},
    ({}, {"weight_decay": 0.5, "maximize": True}, {"lr_decay": 0.25}),
    lambda given: [_drawn(0, 4), _steps(2)],
    kernel="adagrad_step",
    ref=references.adagrad,
    doc="Update parameters by Adagrad, in place.\n\nSteps are float32 or float64 tensors of one "
    f"number, counted from 1, which are only read. {_RULES}",
)

_optimizer(
    "_fused_adadelta_(self: Tensor[]!, grads: Tensor[], square_avgs: Tensor[]!, "
    "acc_deltas: Tensor[]!, *, lr: float, rho: float, eps: float, weight_decay: float, "
    "maximize: bool",
    {"lr": 0.5, "rho": 0.75, "eps": 1e-2, "weight_decay": 0.0, "maximize": False},
    ({}, {"weight_decay": 0.5, "maximize": True}),
    lambda given: [_drawn(0, 4), _drawn(0, 4)],
    kernel="adadelta_step",
    ref=references.adadelta,
    doc=f"Update parameters by Adadelta, in place.\n\n{_RULES}",
)

_BETAS = {"lr": 0.1, "beta1": 0.75, "beta2": 0.875, "weight_decay": 0.0, "eps": 1e-3}
_COUNTED = "Steps are float32 or float64 tensors of one number, counted from 1, which are only read"

_optimizer(
    "_fused_adamax_(self: Tensor[]!, grads: Tensor[], exp_avgs: Tensor[]!, exp_infs: Tensor[]!, "
    "state_steps: Tensor[], *, lr: float, beta1: float, beta2: float, weight_decay: float, "
    "eps: float, maximize: bool",
    {**_BETAS, "maximize": False},
    ({}, {"weight_decay": 0.5, "maximize": True}),
    lambda given: [_drawn(), _drawn(0, 4), _steps()],
    kernel="adamax_step",
    ref=references.adamax,
    doc=f"Update parameters by Adamax, in place.\n\n{_COUNTED}. {_RULES}",
)

_optimizer(
    "_fused_nadam_(self: Tensor[]!, grads: Tensor[], exp_avgs: Tensor[]!, exp_avg_sqs: Tensor[]!, "
    "mu_products: Tensor[]!, state_steps: Tensor[], *, lr: float, beta1: float, beta2: float, "
    "weight_decay: float, eps: float, momentum_decay: float, decoupled_weight_decay: bool, "
    "maximize: bool",
    {**_BETAS, "momentum_decay": 0.25, "decoupled_weight_decay": False, "maximize": False},
    (
        {},
        {"weight_decay": 0.5, "maximize": True},
        {"weight_decay": 0.5, "decoupled_weight_decay": True},
    ),
    lambda given: [_drawn(), _drawn(0, 4), _numbers(0.5), _steps()],
    kernel="nadam_step",
    ref=references.nadam,
    doc=f"Update parameters by NAdam, in place.\n\n{_COUNTED}; so are products of momenta, which "
    f"are written. {_RULES}",
)

_optimizer(
    "_fused_radam_(self: Tensor[]!, grads: Tensor[], exp_avgs: Tensor[]!, exp_avg_sqs: Tensor[]!, "
    "state_steps: Tensor[], *, lr: float, beta1: float, beta2: float, weight_decay: float, "
    "eps: float, decoupled_weight_decay: bool, maximize: bool",
    {**_BETAS, "decoupled_weight_decay": False, "maximize": False},
    (
        {},
        {"weight_decay": 0.5, "maximize": True},
        {"weight_decay": 0.5, "decoupled_weight_decay": True},
        {"beta2": 0.96875},
    ),
    lambda given: [_drawn(), _drawn(0, 4), _steps(4)],
    kernel="radam_step",
    ref=references.radam,
    doc=f"Update parameters by RAdam, in place.\n\n{_COUNTED}. {_RULES}",
)

_optimizer(
    "_fused_asgd_(self: Tensor[]!, grads: Tensor[], axs: Tensor[]!, mus: Tensor[]!, "
    "etas: Tensor[]!, state_steps: Tensor[], *, lr: float, lambd: float, alpha: float, t0: float, "
    "weight_decay: float, maximize: bool",
    {"lr": 0.1, "lambd": 0.25, "alpha": 0.75, "t0": 2.0, "weight_decay": 0.0, "maximize": False},
    ({}, {"weight_decay": 0.5, "maximize": True}),
    lambda given: [_drawn(), _numbers(0.5, 1.0), _numbers(0.125), _steps()],
    kernel="asgd_step",
    ref=references.asgd,
    doc="Update parameters by averaged stochastic gradient descent, in place.\n\n"
    f"{_COUNTED}; so are mus and etas, which are written. {_RULES}",
)
