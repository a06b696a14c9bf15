"""Types of pullback.optim.lr_scheduler; made by tools/classstubs.py."""

from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable, Sequence
from typing import Any

from pullback.optim import Optimizer

class LRScheduler:
    """The base of schedules: each step sets the learning rate of every group."""

    optimizer: Optimizer
    base_lrs: list[_float]
    last_epoch: _int
    def __init__(self, optimizer: Optimizer, last_epoch: _int = -1) -> None: ...
    def state_dict(self) -> dict[_str, Any]: ...
    def load_state_dict(self, state_dict: dict[_str, Any]) -> None: ...
    def get_last_lr(self) -> list[_float]: ...
    def get_lr(self) -> list[_float]: ...
    def step(self, epoch: _int | None = None) -> None: ...

class ReduceLROnPlateau(LRScheduler):
    """Make the learning rate smaller when a quantity stops getting better."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: _str = "min",
        factor: _float = 0.1,
        patience: _int = 10,
        threshold: _float = 0.0001,
        threshold_mode: _str = "rel",
        cooldown: _int = 0,
        min_lr: _float | Sequence[_float] = 0,
        eps: _float = 1e-08,
    ) -> None: ...
    def step(self, metrics: Any, epoch: _int | None = None) -> None: ...  # type: ignore[override]

class ChainedScheduler(LRScheduler):
    """Schedules together: each changes the learning rates that the one before has set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None: ...

class ConstantLR(LRScheduler):
    """Learning rates that are ``factor`` times the initial ones for ``total_iters`` epochs."""

    def __init__(self, optimizer: Optimizer, factor: _float = 0.3333333333333333, total_iters: _int = 5, last_epoch: _int = -1) -> None: ...

class CosineAnnealingLR(LRScheduler):
    """Learning rates on a cosine, from the initial ones to ``eta_min`` at epoch ``T_max``."""

    def __init__(self, optimizer: Optimizer, T_max: _int, eta_min: _float = 0.0, last_epoch: _int = -1) -> None: ...

class CosineAnnealingWarmRestarts(LRScheduler):
    """Learning rates on a cosine that begins anew, first after ``T_0`` epochs."""

    def __init__(self, optimizer: Optimizer, T_0: _int, T_mult: _int = 1, eta_min: _float = 0.0, last_epoch: _int = -1) -> None: ...

class CyclicLR(LRScheduler):
    """Learning rates that go up and down between ``base_lr`` and ``max_lr``, by steps of batches."""

    def __init__(self, optimizer: Optimizer, base_lr: _float | Sequence[_float], max_lr: _float | Sequence[_float], step_size_up: _int = 2000, step_size_down: _int | None = None, mode: _str = 'triangular', gamma: _float = 1.0, scale_fn: Callable[[_float], _float] | None = None, scale_mode: _str = 'cycle', cycle_momentum: _bool = True, base_momentum: _float = 0.8, max_momentum: _float = 0.9, last_epoch: _int = -1) -> None: ...

class ExponentialLR(LRScheduler):
    """Learning rates that each epoch multiplies by ``gamma``."""

    def __init__(self, optimizer: Optimizer, gamma: _float, last_epoch: _int = -1) -> None: ...

class LambdaLR(LRScheduler):
    """Learning rates of a function: the initial ones times ``lr_lambda(epoch)``."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[_int], _float] | Sequence[Callable[[_int], _float]], last_epoch: _int = -1) -> None: ...

class LinearLR(LRScheduler):
    """Learning rates on a line from ``start_factor`` to ``end_factor`` times the initial ones."""

    def __init__(self, optimizer: Optimizer, start_factor: _float = 0.3333333333333333, end_factor: _float = 1.0, total_iters: _int = 5, last_epoch: _int = -1) -> None: ...

class MultiStepLR(LRScheduler):
    """Learning rates that are multiplied by ``gamma`` at each of some epochs, the ``milestones``."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[_int], gamma: _float = 0.1, last_epoch: _int = -1) -> None: ...

class MultiplicativeLR(LRScheduler):
    """Learning rates that each epoch multiplies by ``lr_lambda(epoch)``."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[_int], _float] | Sequence[Callable[[_int], _float]], last_epoch: _int = -1) -> None: ...

class OneCycleLR(LRScheduler):
    """Learning rates of one cycle: up to ``max_lr``, then down far below the first, by batches."""

    def __init__(self, optimizer: Optimizer, max_lr: _float | Sequence[_float], total_steps: _int | None = None, epochs: _int | None = None, steps_per_epoch: _int | None = None, pct_start: _float = 0.3, anneal_strategy: _str = 'cos', cycle_momentum: _bool = True, base_momentum: _float = 0.85, max_momentum: _float = 0.95, div_factor: _float = 25.0, final_div_factor: _float = 10000.0, three_phase: _bool = False, last_epoch: _int = -1) -> None: ...

class PolynomialLR(LRScheduler):
    """Learning rates that fall to zero as (1 - epoch / total_iters) ** power."""

    def __init__(self, optimizer: Optimizer, total_iters: _int = 5, power: _float = 1.0, last_epoch: _int = -1) -> None: ...

class SequentialLR(LRScheduler):
    """Schedules one after the other: the next begins at each of the ``milestones``."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[_int], last_epoch: _int = -1) -> None: ...

class StepLR(LRScheduler):
    """Learning rates that are multiplied by ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: _int, gamma: _float = 0.1, last_epoch: _int = -1) -> None: ...

