"""Nested structures of tensors: tuples, lists, dicts and named tuples, flattened and rebuilt."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

LEAF = object()


def is_node(value: Any) -> bool:
    """Return True for a container of the kinds that are flattened."""
    return isinstance(value, (tuple, list)) or type(value) in (dict, OrderedDict, defaultdict)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree in order."""
    found: list[Any] = []
    _collect(tree, found)
    return found


def _collect(tree: Any, found: list[Any]) -> None:
    if is_node(tree):
        for item in items(tree):
            _collect(item, found)
    else:
        found.append(tree)


def items(tree: Any) -> Iterable[Any]:
    """Return what a container holds."""
    return tree if isinstance(tree, (tuple, list)) else tree.values()


def with_items(tree: Any, parts: list[Any]) -> Any:
    """Return a container like another one that holds parts."""
    if isinstance(tree, (tuple, list)):
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    made = tree.copy()
    made.update(zip(tree, parts))
    return made


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of the same structure with a function applied to the leaves."""
    if isinstance(tree, (tuple, list)):
        return with_items(tree, [tree_map(function, *parts) for parts in zip(tree, *others)])
    if is_node(tree):
        made = tree.copy()
        for key, item in tree.items():
            made[key] = tree_map(function, item, *(other[key] for other in others))
        return made
    return function(tree, *others)


def rebuild(tree: Any, values: list[Any]) -> Any:
    """Return a tree of the same structure with other leaves."""
    given = iter(values)
    return tree_map(lambda leaf: next(given), tree)


def structure(tree: Any) -> Any:
    """Return the structure of a tree, for comparisons; it prints as a tree of *."""
    if isinstance(tree, (tuple, list)):
        return type(tree), tuple(structure(item) for item in tree)
    if is_node(tree):
        return type(tree), tuple((key, structure(item)) for key, item in tree.items())
    return "*"


def drawn(tree: Any, indent: int = 0) -> str:
    """Return the structure of a tree as errors show it, as in torch."""
    if not is_node(tree):
        return "*"
    context: Any = None
    kind, items = type(tree).__name__, tree
    if hasattr(tree, "_fields"):
        kind, context = "namedtuple", type(tree)
    elif not isinstance(tree, (tuple, list)):
        context, items = list(tree), tree.values()
    below = f",\n{' ' * (indent + 2)}".join(drawn(item, indent + 2) for item in items)
    return f"TreeSpec({kind}, {context}, [{below}])"


def spread(prefix: Any, tree: Any) -> list[Any] | None:
    """Return one value per leaf of a tree from a prefix of it; None if the prefix does not fit."""
    if not is_node(prefix):
        return [prefix] * len(leaves(tree))
    if not is_node(tree) or type(prefix) is not type(tree) or len(prefix) != len(tree):
        return None
    found: list[Any] = []
    if isinstance(tree, (tuple, list)):
        pairs = list(zip(prefix, tree))
    else:
        if prefix.keys() != tree.keys():
            return None
        pairs = [(prefix[key], tree[key]) for key in tree]
    for part, item in pairs:
        below = spread(part, item)
        if below is None:
            return None
        found.extend(below)
    return found
