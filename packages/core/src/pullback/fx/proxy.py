"""Where torch has the values that a tracer passes through a program."""

from pullback.fx._refused import LeftOut

__all__ = ["Proxy", "TraceError"]


class TraceError(ValueError):
    """What torch raises for a program that cannot be traced."""


class Proxy(LeftOut):
    """A value of a program under trace in torch; cannot be made."""
