"""Reverse-mode automatic differentiation with torch.autograd's interface."""

from pullback._c.base.state import is_multithreading_enabled
from pullback._c.python.node_methods import SavedTensor
from pullback._help import explain_names as _explain_names
from pullback.autograd import (
    anomaly_mode,
    forward_ad,
    function,
    grad_mode,
    graph,
)
from pullback.autograd._entry import backward, execute_backward, grad
from pullback.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from pullback.autograd.function import Function, NestedIOFunction
from pullback.autograd.grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from pullback.autograd.gradcheck import gradcheck, gradgradcheck
from pullback.autograd.variable import Variable

__all__ = [
    "Function",
    "NestedIOFunction",
    "SavedTensor",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "enforce_grad_layout_policy",
    "execute_backward",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "is_view_replay_enabled",
    "kineto_available",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]


def variable(*args, **kwargs):
    """Removed; raises RuntimeError.

    >>> import pullback
    >>> pullback.autograd.variable(1.0)
    Traceback (most recent call last):
    RuntimeError: pullback.autograd.variable(...) is deprecated, use pullback.tensor(...) instead
    """
    raise RuntimeError(
        "pullback.autograd.variable(...) is deprecated, use pullback.tensor(...) instead"
    )


def is_view_replay_enabled():
    """Return False: views of a tensor that is written in place are found by their strides.

    >>> import pullback
    >>> pullback.autograd.is_view_replay_enabled()
    False
    """
    return False


def kineto_available():
    """Return False: pullback.profiler records without Kineto.

    >>> import pullback
    >>> pullback.autograd.kineto_available()
    False
    """
    return False


def _find(name):
    if name in ("functional", "profiler", "profiler_util"):  # most programs do without
        import importlib

        return importlib.import_module(f"pullback.autograd.{name}")
    return None


_explain_names(globals(), _find)
