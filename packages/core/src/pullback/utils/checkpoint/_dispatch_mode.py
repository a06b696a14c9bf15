"""Context managers that look at ops."""

from abc import ABC, abstractmethod

from pullback._c.graph import levels


class DispatchMode(ABC):
    """Calls ``see`` for each op inside: see ``levels.enter_dispatch_mode``."""

    def __init__(self):
        self.levels = []  # one for each time that it is entered

    @abstractmethod
    def begin(self):
        """Do what is due when it is entered."""

    @abstractmethod
    def on_op(self, op, args, run):
        """Look at an op, which ``run()`` runs, and return its result."""

    def __enter__(self):
        self.begin()
        self.levels.append(levels.enter_dispatch_mode(self.on_op))
        return self

    def __exit__(self, kind, value, traceback):
        levels.exit_level(self.levels.pop())
