"""Anomaly detection: finds the forward operation of a node that fails, and the first NaN."""

from __future__ import annotations

import warnings

from pullback._c.base import state
from pullback._c.base.errors import require_bool
from pullback._c.dispatch.observer import observe_results
from pullback._c.graph import anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]


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


def _copied(operand):
    from pullback.autograd.diagnostics import nonfinite

    return nonfinite.copied(operand)


def _check_forward(name, operands, result):
    from pullback.autograd.diagnostics import nonfinite

    nonfinite.check_forward(name, operands, result)


def _check_gradients(node, grads, results):
    from pullback.autograd.diagnostics import nonfinite

    nonfinite.check_gradients(node, grads, results)


anomaly.set_listeners(_report_failure, _copied, _check_forward, _check_gradients)


def _checked(name, check_nan, check_inf, check_forward, sample):
    """Return the arguments of a mode, or raise TypeError or ValueError for a wrong one."""
    require_bool(name, "check_nan", check_nan)
    require_bool(name, "check_inf", check_inf)
    require_bool(name, "check_forward", check_forward)
    if isinstance(sample, bool) or not isinstance(sample, (int, float)):
        raise TypeError(f"{name}(): argument 'sample' must be float, not {type(sample).__name__}")
    if not 0 < sample <= 1:
        raise ValueError(f"{name}(): sample must be above 0 and at most 1, got {sample}")
    return check_nan, check_inf, check_forward, float(sample)


def _switch(mode, check_nan, check_inf, check_forward, sample):
    state.set_anomaly_enabled(mode, check_nan)
    state.set_anomaly_checks(check_inf, check_forward, sample)
    observe_results(mode and check_forward)


class detect_anomaly:
    """Record where nodes are made, and raise on NaN gradients, inside a ``with`` block.

    When a node fails in backward, a warning shows where it was made. With ``check_nan`` a node that
    returns NaN fails with a RuntimeError, which says how many elements are NaN, what the node got,
    and where ``0 * inf`` made them. Applies to all threads. It is slow, of which entering it warns.

    ``check_inf`` looks for infinity, too. ``check_forward`` also checks the result of every op:
    the first one with NaN (or infinity) where no operand has any raises a RuntimeError with
    statistics of the operands. ``sample``, a part of 1, chooses at random which nodes and ops are
    looked at, so that a long run can be watched at little cost; an op may then be blamed for
    NaN that an earlier one made, which the text says.

    Raises: TypeError and ValueError for other arguments.

    >>> import pullback, warnings
    >>> warnings.simplefilter("ignore")
    >>> with pullback.autograd.detect_anomaly(check_forward=True):
    ...     y = pullback.tensor([0.0, 2.0]).log() * 0
    Traceback (most recent call last):
    RuntimeError: mul() made nan in 1 of 2 elements of its result, the first at index (0,)...
    """

    def __init__(self, check_nan=True, *, check_inf=False, check_forward=False, sample=1.0):
        self.prev = state.anomaly_settings()
        self.checks = _checked("detect_anomaly", check_nan, check_inf, check_forward, sample)
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and "
            "should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self.prev = state.anomaly_settings()
        _switch(True, *self.checks)

    def __exit__(self, *args):
        _switch(*self.prev)


class set_detect_anomaly:
    """Switch anomaly detection on or off when called; as a context manager, restore it at the end.

    Without the warning of ``detect_anomaly``, whose other arguments it takes. Applies to all
    threads.

    >>> import pullback
    >>> with pullback.autograd.set_detect_anomaly(True, check_nan=False):
    ...     pullback.is_anomaly_enabled(), pullback.is_anomaly_check_nan_enabled()
    (True, False)
    """

    def __init__(self, mode, check_nan=True, *, check_inf=False, check_forward=False, sample=1.0):
        require_bool("set_detect_anomaly", "mode", mode)
        checks = _checked("set_detect_anomaly", check_nan, check_inf, check_forward, sample)
        self.prev = state.anomaly_settings()
        _switch(mode, *checks)

    def __enter__(self):
        pass

    def __exit__(self, *args):
        _switch(*self.prev)
