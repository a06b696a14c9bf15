"""Nested arguments and results of compiled functions: trees whose nodes may be dataclasses, too."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from pullback._c.capture.spec import fields_of, has_fields
from pullback.func import _tree

_CONTAINERS = {tuple, list, dict, OrderedDict, defaultdict}

__all__ = ["contains_itself", "is_node", "items", "leaves", "structure", "tree_map", "with_items"]


def is_node(value: Any) -> bool:
    """Return True for a container that is flattened, or an instance of a dataclass.

    Classes of the program that make containers in their own way are not taken apart.
    """
    if not _tree.is_node(value):
        return has_fields(value)
    kind = type(value)
    return (
        kind in _CONTAINERS
        or kind.__module__.startswith("pullback")
        or (hasattr(kind, "_fields") and _is_generated(kind.__new__))
    )


def _is_generated(function: Any) -> bool:
    """Return True for what ``namedtuple`` makes."""
    return getattr(getattr(function, "__code__", None), "co_filename", "") == "<string>" or (
        getattr(function, "__module__", "").startswith("namedtuple_")
    )


def items(tree: Any) -> Iterable[Any]:
    """Return what a node holds."""
    return _tree.items(tree) if _tree.is_node(tree) else fields_of(tree).values()


def with_items(tree: Any, parts: list[Any]) -> Any:
    """Return a node like another one that holds parts."""
    if _tree.is_node(tree):
        return _tree.with_items(tree, parts)
    made = object.__new__(type(tree))
    for name, part in zip(fields_of(tree), parts):
        object.__setattr__(made, name, part)
    return made


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree in order."""
    if not is_node(tree):
        return [tree]
    found: list[Any] = []
    for one in items(tree):
        if is_node(one):
            found += leaves(one)
        else:
            found.append(one)
    return found


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same structure with a function applied to the leaves."""
    if not is_node(tree):
        return function(tree)
    return with_items(tree, [tree_map(function, one) for one in items(tree)])


def structure(tree: Any) -> Any:
    """Return the structure of a tree, for comparisons."""
    if not is_node(tree):
        return "*"
    named = fields_of(tree) if has_fields(tree) else tree
    keys = tuple(named) if isinstance(named, dict) else ()
    return type(tree), keys, tuple(structure(one) for one in items(tree))


def contains_itself(tree: Any, above: tuple[int, ...] = ()) -> bool:
    """Return True if a node holds itself, directly or further down."""
    if not is_node(tree):
        return False
    if id(tree) in above:
        return True
    above = (*above, id(tree))
    return any(contains_itself(one, above) for one in items(tree))
