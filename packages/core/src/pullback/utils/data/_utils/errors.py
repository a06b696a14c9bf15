"""Exceptions of workers, on their way to the thread that reads the batches."""

from __future__ import annotations

import sys
import traceback
from typing import Any

__all__ = ["ExceptionWrapper"]


class KeyErrorMessage(str):
    """A text that KeyError prints as it is, with its line breaks."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


class ExceptionWrapper:
    """An exception's class and traceback; by default of the exception that is being handled.

    ``where`` says in which worker it was raised, such as "in DataLoader worker process 0".
    """

    def __init__(self, exc_info=None, where="in background"):
        kind: Any
        kind, value, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = kind
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where
        self.kind = kind.__name__

    def reraise(self):
        """Raise an exception of the class, with the worker's traceback in its text.

        A class that cannot be made of one text becomes a RuntimeError.
        """
        text = f"Caught {self.kind} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(text))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error

    def as_text(self):
        """Return a wrapper with the same text that needs no class of the worker's process."""
        found = ExceptionWrapper((RuntimeError, RuntimeError(), None), self.where)
        found.exc_msg = self.exc_msg
        found.kind = self.kind
        return found
