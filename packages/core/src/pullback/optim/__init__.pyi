"""Types of pullback.optim; made by tools/classstubs.py."""

from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, overload

from pullback import Tensor
from pullback.nn import Module
from pullback.optim import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from pullback.utils.hooks import RemovableHandle

ParamsT: TypeAlias = (
    Iterable[Tensor] | Iterable[dict[_str, Any]] | Iterable[tuple[_str, Tensor]]
)

class Optimizer:
    """The base of all optimizers: groups of parameters, their options, and a state of each."""

    defaults: dict[_str, Any]
    param_groups: list[dict[_str, Any]]
    state: dict[Tensor, Any]
    def __init__(self, params: ParamsT, defaults: dict[_str, Any]) -> None: ...
    def add_param_group(self, param_group: dict[_str, Any]) -> None: ...
    def state_dict(self) -> dict[_str, Any]: ...
    def load_state_dict(self, state_dict: dict[_str, Any]) -> None: ...
    def zero_grad(self, set_to_none: _bool = True) -> None: ...
    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], Any]) -> Any: ...
    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle: ...
    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle: ...
    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: _bool = False
    ) -> RemovableHandle: ...
    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: _bool = False
    ) -> RemovableHandle: ...
    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: _bool = False
    ) -> RemovableHandle: ...
    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: _bool = False
    ) -> RemovableHandle: ...

def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: Any, swapin_optim_state: Any
) -> Any: ...

class ASGD(Optimizer):
    """Stochastic gradient descent that also averages the parameters of its steps, as ``"ax"``."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.01, lambd: _float = 0.0001, alpha: _float = 0.75, t0: _float = 1000000.0, weight_decay: _float = 0, foreach: _bool | None = None, maximize: _bool = False, differentiable: _bool = False, capturable: _bool = False) -> None: ...

class Adadelta(Optimizer):
    """Adadelta: steps whose size follows from earlier steps and gradients."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 1.0, rho: _float = 0.9, eps: _float = 1e-06, weight_decay: _float = 0, foreach: _bool | None = None, *, capturable: _bool = False, maximize: _bool = False, differentiable: _bool = False) -> None: ...

class Adafactor(Optimizer):
    """Adafactor: Adam's scale of steps, from averages of squared gradients by row and by column."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.01, beta2_decay: _float = -0.8, eps: tuple[_float | None, _float] = (None, 0.001), d: _float = 1.0, weight_decay: _float = 0.0, *, foreach: _bool | None = None, maximize: _bool = False) -> None: ...

class Adagrad(Optimizer):
    """Adagrad: steps by gradients, divided by the root of the sum of their squares."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.01, lr_decay: _float = 0, weight_decay: _float = 0, initial_accumulator_value: _float = 0, eps: _float = 1e-10, foreach: _bool | None = None, *, maximize: _bool = False, differentiable: _bool = False, fused: _bool | None = None) -> None: ...

class Adam(Optimizer):
    """Adam: steps by running averages of gradients and of their squares."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, weight_decay: _float = 0, amsgrad: _bool = False, *, foreach: _bool | None = None, maximize: _bool = False, capturable: _bool = False, differentiable: _bool = False, fused: _bool | None = None, decoupled_weight_decay: _bool = False) -> None: ...

class AdamW(Optimizer):
    """Adam with decoupled weight decay, which shrinks parameters by lr * weight_decay."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, weight_decay: _float = 0.01, amsgrad: _bool = False, *, maximize: _bool = False, foreach: _bool | None = None, capturable: _bool = False, differentiable: _bool = False, fused: _bool | None = None) -> None: ...

class Adamax(Optimizer):
    """Adamax: Adam with the largest gradient, decayed, in place of the average of squares."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.002, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, weight_decay: _float = 0, foreach: _bool | None = None, *, maximize: _bool = False, differentiable: _bool = False, capturable: _bool = False) -> None: ...

class LBFGS(Optimizer):
    """L-BFGS: steps by an estimate of the inverse Hessian from the last changes of the gradient."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 1, max_iter: _int = 20, max_eval: _int | None = None, tolerance_grad: _float = 1e-07, tolerance_change: _float = 1e-09, history_size: _int = 100, line_search_fn: _str | None = None) -> None: ...

class Muon(Optimizer):
    """Muon: momentum whose matrices are made orthogonal, for parameters with two dimensions."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, weight_decay: _float = 0.1, momentum: _float = 0.95, nesterov: _bool = True, ns_coefficients: tuple[_float, _float, _float] = (3.4445, -4.775, 2.0315), eps: _float = 1e-07, ns_steps: _int = 5, adjust_lr_fn: _str | None = None) -> None: ...

class NAdam(Optimizer):
    """NAdam: Adam with Nesterov's momentum, whose factor grows towards the first of ``betas``."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.002, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, weight_decay: _float = 0, momentum_decay: _float = 0.004, decoupled_weight_decay: _bool = False, *, foreach: _bool | None = None, maximize: _bool = False, capturable: _bool = False, differentiable: _bool = False) -> None: ...

class RAdam(Optimizer):
    """RAdam: Adam whose first steps are rectified, as the average of squares varies much there."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, weight_decay: _float = 0, decoupled_weight_decay: _bool = False, *, foreach: _bool | None = None, maximize: _bool = False, capturable: _bool = False, differentiable: _bool = False) -> None: ...

class RMSprop(Optimizer):
    """RMSprop: steps by gradients, divided by the root of a running average of their squares."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.01, alpha: _float = 0.99, eps: _float = 1e-08, weight_decay: _float = 0, momentum: _float = 0, centered: _bool = False, capturable: _bool = False, foreach: _bool | None = None, maximize: _bool = False, differentiable: _bool = False) -> None: ...

class Rprop(Optimizer):
    """Rprop: steps of a size of its own for each element, by the signs of gradients alone."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.01, etas: tuple[_float, _float] = (0.5, 1.2), step_sizes: tuple[_float, _float] = (1e-06, 50), *, capturable: _bool = False, foreach: _bool | None = None, maximize: _bool = False, differentiable: _bool = False) -> None: ...

class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's momentum."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, momentum: _float = 0, dampening: _float = 0, weight_decay: _float = 0, nesterov: _bool = False, *, maximize: _bool = False, foreach: _bool | None = None, differentiable: _bool = False, fused: _bool | None = None) -> None: ...

class SparseAdam(Optimizer):
    """Adam for sparse gradients, of which only the elements that are there change anything."""

    def __init__(self, params: ParamsT, lr: _float | Tensor = 0.001, betas: tuple[_float, _float] = (0.9, 0.999), eps: _float = 1e-08, maximize: _bool = False) -> None: ...

