"""Where torch has modules made of graphs, and what its subclasses outside of torch import."""

from pullback.fx._refused import LeftOut
from pullback.nn import Module

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class GraphModule(LeftOut, Module):
    """A module that runs a traced program in torch; cannot be made."""


class _CodeOnlyModule(LeftOut, Module):
    pass


def _copy_attr(source: Module, target: Module, path: str) -> None:
    """Give a module another's attribute at a dotted path, with empty modules on the way."""
    *prefix, field = path.split(".")
    for name in prefix:
        found = getattr(source, name)
        inner = getattr(target, name, None)
        if found is inner:
            return
        if inner is None:
            inner = Module()
            setattr(target, name, inner)
        source, target = found, inner
    setattr(target, field, getattr(source, field))
