"""Base class of dispatch modes: context managers that receive the ops that run inside."""

from abc import ABC, abstractmethod

from pullback._c.graph import levels


class DispatchMode(ABC):
    """Calls ``on_op`` for each op inside; see ``levels.enter_dispatch_mode``."""

    def __init__(self):
        self.levels = []  # one for each entry of the context manager

    @abstractmethod
    def begin(self):
        """Reset the state, when the context is entered."""

    @abstractmethod
    def on_op(self, op, args, run):
        """Handle an op, which ``run()`` runs, and return its result."""

    def __enter__(self):
        self.begin()
        self.levels.append(levels.enter_dispatch_mode(self.on_op))
        return self

    def __exit__(self, kind, value, traceback):
        levels.exit_level(self.levels.pop())
