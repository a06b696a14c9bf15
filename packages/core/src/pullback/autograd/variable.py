"""The legacy name of tensors."""

from __future__ import annotations

import warnings

from pullback._c.graph.tensor import Tensor
from pullback._help import explain_names as _explain_names

__all__ = ["Variable", "VariableMeta"]


class VariableMeta(type):
    """Metaclass of Variable: every tensor is an instance of it.

    >>> import pullback
    >>> isinstance(pullback.ones(1), pullback.autograd.Variable)
    True
    """

    def __instancecheck__(cls, other):
        return isinstance(other, Tensor)


def _engine():
    class Engine:
        """torch's engine object: queues callbacks for the end of a backward pass."""

        @staticmethod
        def queue_callback(callback):
            from pullback._c.engine.engine import queue_callback

            queue_callback(callback)

    return Engine()


class Variable(metaclass=VariableMeta):
    """``Variable(tensor)`` returns a detached alias of the tensor; kept for old code.

    Raises: TypeError for anything but a tensor.

    >>> import pullback
    >>> pullback.autograd.Variable(pullback.ones(1), requires_grad=True)
    tensor([1.], requires_grad=True)
    """

    _execution_engine = _engine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile is not None:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with "
                "pullback.no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        made = data.detach()
        return made.requires_grad_() if requires_grad else made


_explain_names(globals())
