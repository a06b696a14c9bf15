"""Optimizers, schedules of their learning rates, and averages of models."""

import importlib

from pullback.optim.adagrad import Adagrad
from pullback.optim.adam import Adam
from pullback.optim.adamw import AdamW
from pullback.optim.optimizer import Optimizer
from pullback.optim.rmsprop import RMSprop
from pullback.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop"]
