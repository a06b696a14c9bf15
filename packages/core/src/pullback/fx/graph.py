"""Where torch has graphs of traced programs."""

from pullback.fx._refused import LeftOut

__all__ = ["CodeGen", "Graph"]


class Graph(LeftOut):
    """A traced program in torch; cannot be made."""


class CodeGen(LeftOut):
    """What writes a graph as Python code in torch; cannot be made."""
