"""Logs of the ops of both runs of a checkpointed function, for error messages."""

from __future__ import annotations

import contextlib
import os
import traceback

from pullback._c.graph.tensor import Tensor
from pullback.utils.checkpoint._dispatch_mode import DispatchMode

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class _Settings:
    enabled: bool | None = None


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Override ``debug`` of all checkpoints that are made inside; None: no override."""
    before = _Settings.enabled
    _Settings.enabled = enabled
    try:
        yield
    finally:
        _Settings.enabled = before


def wanted(debug):
    """Return whether a checkpoint keeps logs."""
    return debug if _Settings.enabled is None else _Settings.enabled


def shown(value):
    """Return a short text of a value: of a tensor, dtype and shape."""
    if isinstance(value, Tensor):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(shown, value))})"
    return repr(value)


def stack():
    """Return the stack outside of the package, a line for each frame, innermost first."""
    frames = traceback.extract_stack()
    return [
        f"{frame.filename}:{frame.lineno}:{frame.name}"
        for frame in reversed(frames)
        if not frame.filename.startswith(PACKAGE + os.sep)
    ]


class OpLog(DispatchMode):
    """A dispatch mode that logs each op with its stack."""

    def begin(self):
        """Clear the log of the run before."""
        self.ops = []

    def on_op(self, op, args, run):
        """Run an op and log it."""
        result = run()
        given = ", ".join(f"{name}={shown(value)}" for name, value in zip(op.arg_names, args))
        self.ops.append((f"{op.name}({given}) -> {shown(result)}", stack()))
        return result

    def lines(self):
        """Return the ops, one a line."""
        return "\n".join(op for op, _ in self.ops)

    def with_stacks(self, label):
        """Return the ops with their stacks."""
        return "\n".join(
            f"{op}   ({number} of {len(self.ops)} in {label})\n\n" + "\n".join(frames) + "\n\n"
            for number, (op, frames) in enumerate(self.ops, 1)
        )


class OpLogs:
    """The logs of the first and of the latest run of a checkpointed function."""

    def __init__(self):
        self.first = OpLog()
        self.latest = OpLog()

    def contexts(self):
        """Return the context managers of both runs."""
        return self.first, self.latest

    def explain(self):
        """Return the text of an error: stacks, then both lists of ops."""
        parts = (
            (
                "Stack traces of the operators that ran in the original forward",
                self.first.with_stacks("original"),
            ),
            (
                "Stack traces of the operators that ran during recomputation",
                self.latest.with_stacks("recompute"),
            ),
            ("Log of operators in the original forward", self.first.lines()),
            ("Log of operators in recomputation", self.latest.lines()),
        )
        rule = "-" * 79
        body = "\n\n".join(f"{rule}\n{title}:\n{rule}\n\n{text}" for title, text in parts)
        return (
            f"An error happened while unpacking tensors; dumping logs of latest computation "
            f"because you passed `debug=True` to `pullback.utils.checkpoint.checkpoint()`.\n\n"
            f"{body}\n\n{rule}\nYou are seeing this error because you passed `debug=True` to "
            f"checkpoint. The two logs above should name the same operators in the same "
            f"order: the first line that differs is where the runs went different ways, and "
            f"its stack trace shows the code. The error itself is the direct cause of this "
            f"exception."
        )
