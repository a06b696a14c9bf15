"""Optimizers, schedules of their learning rates, and averages of models."""

import importlib
from functools import partial as _partial

from pullback._help import explain_members as _explain_members
from pullback._help import explain_names as _explain_names
from pullback.optim._adafactor import Adafactor
from pullback.optim._groups import swap_in_optimizer_params_and_state
from pullback.optim._muon import Muon
from pullback.optim.adadelta import Adadelta
from pullback.optim.adagrad import Adagrad
from pullback.optim.adam import Adam
from pullback.optim.adamax import Adamax
from pullback.optim.adamw import AdamW
from pullback.optim.asgd import ASGD
from pullback.optim.lbfgs import LBFGS
from pullback.optim.nadam import NAdam
from pullback.optim.optimizer import Optimizer
from pullback.optim.radam import RAdam
from pullback.optim.rmsprop import RMSprop
from pullback.optim.rprop import Rprop
from pullback.optim.sgd import SGD
from pullback.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
    "swap_in_optimizer_params_and_state",
]


def _find(name):
    if name in ("lr_scheduler", "swa_utils"):  # imported on first use
        return importlib.import_module(f"pullback.optim.{name}")
    return None


_explain_names(globals(), _find)
_explain_members(_partial(setattr, Optimizer), "torch.optim.Optimizer")


def __dir__():
    return sorted({*globals(), "lr_scheduler", "swa_utils"})
