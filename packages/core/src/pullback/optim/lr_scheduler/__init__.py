"""Schedules of learning rates, which change the options of an optimizer's groups."""

from pullback.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING, LRScheduler, _LRScheduler
from pullback.optim.lr_scheduler.combine import ChainedScheduler, SequentialLR
from pullback.optim.lr_scheduler.cyclic import CosineAnnealingWarmRestarts, CyclicLR
from pullback.optim.lr_scheduler.one_cycle import OneCycleLR
from pullback.optim.lr_scheduler.plateau import ReduceLROnPlateau
from pullback.optim.lr_scheduler.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
