"""Finding the forward operation behind a failing backward step."""

from __future__ import annotations

import traceback
import warnings

from pullback._c import call, engine, state
from pullback._c.state import is_anomaly_check_nan_enabled, is_anomaly_enabled

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def _note_node(result):
    """Keep the Python stack of a node's creation in its metadata."""
    tensor = result if not isinstance(result, tuple) else next(
        (item for item in result if item.grad_fn is not None), None)
    if tensor is None or tensor.grad_fn is None:
        return
    metadata = tensor.grad_fn.metadata
    if "traceback_" not in metadata:
        metadata["traceback_"] = traceback.format_stack()[:-1]


def _report_failure(node):
    metadata = node.metadata
    if "traceback_" not in metadata:
        warnings.warn(f"Error detected in {node.name()}. No forward pass information available. "
                      f"Enable detect anomaly during forward pass for more information.",
                      stacklevel=2)
        return
    stack = "".join(metadata["traceback_"])
    warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the "
                  f"error:\n{stack}", stacklevel=2)


call.set_anomaly_note(_note_node)
engine.set_report_failure(_report_failure)


class detect_anomaly:
    """Record where nodes are made, and raise on NaN gradients, inside a ``with`` block.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     with pullback.autograd.detect_anomaly():
    ...         pullback.is_anomaly_enabled()
    True
    """

    def __init__(self, check_nan=True):
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and "
                      "should only be enabled for debugging.", stacklevel=2)

    def __enter__(self):
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        state.set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *args):
        state.set_anomaly_enabled(*self.prev)


class set_detect_anomaly:
    """Switch anomaly detection at once; as a context manager it is undone at the end."""

    def __init__(self, mode, check_nan=True):
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        state.set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *args):
        state.set_anomaly_enabled(*self.prev)
