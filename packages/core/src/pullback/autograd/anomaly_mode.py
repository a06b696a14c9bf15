"""Anomaly detection: finds the forward operation of a node that fails in backward."""

from __future__ import annotations

import os
import sys
import warnings

from pullback._c.base import state
from pullback._c.base.errors import require_bool
from pullback._c.base.state import is_anomaly_check_nan_enabled, is_anomaly_enabled
from pullback._c.graph import anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]


_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def _users_frame():
    """Return the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def _source_line():
    """Return the file and line of the user's running code."""
    frame = _users_frame()
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def _note_node(node, parent):
    """Store in a new node's metadata its stack and the node whose backward made it."""
    import traceback  # only needed in this mode

    metadata = node.metadata
    if "traceback_" in metadata:
        return
    metadata["traceback_"] = traceback.format_stack(_users_frame())
    if parent is not None:
        metadata["parent_"] = parent


def _report_failure(node):
    """Warn of the node that failed, then of each node whose backward made it."""
    _warn_of(node, "Error detected in {}. ", "Traceback of forward call that caused the error:")
    seen = {id(node)}
    parent = node.metadata.get("parent_")
    while parent is not None and id(parent) not in seen:
        seen.add(id(parent))
        _warn_of(
            parent,
            "\n\nPrevious calculation was induced by {}. ",
            "Traceback of forward call that induced the previous calculation:",
        )
        parent = parent.metadata.get("parent_")


def _warn_of(node, what, introduction):
    stack = node.metadata.get("traceback_")
    if stack is None:
        text = (
            "No forward pass information available. Enable detect anomaly during forward pass "
            "for more information."
        )
    else:
        text = introduction + "\n" + "".join(stack)
    warnings.warn(what.format(node.name()) + text, stacklevel=3)


anomaly.set_listeners(_note_node, _source_line, _report_failure)


class detect_anomaly:
    """Record where nodes are made, and raise on NaN gradients, inside a ``with`` block.

    When a node fails in backward, a warning shows where it was made. With ``check_nan`` a node that
    returns NaN fails with a RuntimeError. Applies to all threads. It is slow, of which entering it
    warns.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     with pullback.autograd.detect_anomaly():
    ...         pullback.is_anomaly_enabled()
    True
    """

    def __init__(self, check_nan=True):
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        self.check_nan = require_bool("detect_anomaly", "check_nan", check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and "
            "should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        state.set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *args):
        state.set_anomaly_enabled(*self.prev)


class set_detect_anomaly:
    """Switch anomaly detection on or off when called; as a context manager, restore it at the end.

    Without the warning of ``detect_anomaly``. Applies to all threads.

    >>> import pullback
    >>> with pullback.autograd.set_detect_anomaly(True, check_nan=False):
    ...     pullback.is_anomaly_enabled(), pullback.is_anomaly_check_nan_enabled()
    (True, False)
    """

    def __init__(self, mode, check_nan=True):
        require_bool("set_detect_anomaly", "mode", mode)
        require_bool("set_detect_anomaly", "check_nan", check_nan)
        self.prev = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        state.set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *args):
        state.set_anomaly_enabled(*self.prev)
