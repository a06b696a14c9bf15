"""Where torch has the steps of traced programs, and types of what they hold."""

from typing import Any

from pullback.fx._refused import LeftOut

__all__ = ["Argument", "Node", "Target"]

Argument = Any
Target = Any


class Node(LeftOut):
    """A step of a traced program in torch; cannot be made."""
