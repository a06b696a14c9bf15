"""What compiled functions return: the value of a call, made from a program's results."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from functools import partial, reduce
from types import CellType, FunctionType
from typing import Any

from pullback._c.capture.spec import fields_of, has_fields, is_plain
from pullback._c.graph.tensor import Tensor
from pullback.compiler.elements import Returned
from pullback.compiler.numbers import Number
from pullback.compiler.trees import is_node, items, leaves, with_items

__all__ = ["holds_tensor", "rebuilder"]


def holds_tensor(value: Any, depth: int) -> bool:
    """Return True if a tensor is found in an object's attributes, items or closure."""
    if isinstance(value, Tensor):
        return True
    if not depth or is_plain(value) or isinstance(value, type):
        return False
    parts = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        parts += value
    elif isinstance(value, dict):
        parts += value.values()
    elif isinstance(value, FunctionType):
        parts += [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    elif isinstance(value, partial):
        parts += [*value.args, *value.keywords.values()]
    return any(holds_tensor(part, depth - 1) for part in parts)


class _Given:
    """A list or dict of the arguments, or from outside, that a function returns itself."""

    def __init__(self, value: Any, path: tuple[Any, ...] | None):
        self.value, self.path = value, path

    def of(self, args: Any, kwargs: Any) -> Any:
        """Return it, as it is in a call."""
        return self.value if self.path is None else reduce(_item, self.path, (args, kwargs))


class _Number:
    """A number of the program."""

    def __init__(self, place: int):
        self.place = place


class _Copied:
    """An object that a function makes, such as a set or an array: each call has its own."""

    def __init__(self, value: Any):
        self.value = value

    def of(self, memo: dict[int, Any]) -> Any:
        """Return one for a call; ``memo`` has what is not copied, and what has been."""
        return copy.deepcopy(self.value, memo)


def _item(tree: Any, key: Any) -> Any:
    return fields_of(tree)[key] if has_fields(tree) else tree[key]


def _paths(tree: Any, path: tuple[Any, ...], found: dict[int, tuple[Any, ...]]) -> None:
    """Note by address where the lists and dicts of arguments are."""
    if not is_node(tree):
        return
    if not isinstance(tree, tuple):
        found.setdefault(id(tree), path)
    named = fields_of(tree) if has_fields(tree) else tree
    for key, item in named.items() if isinstance(named, dict) else enumerate(named):
        _paths(item, (*path, key), found)


def _made(tree: Any, function: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    """Return a tree with a function applied to the leaves; one container stays one."""
    if not is_node(tree):
        return function(tree)
    if id(tree) not in memo:
        parts = [_made(one, function, memo) for one in items(tree)]
        memo[id(tree)] = with_items(tree, parts)
    return memo[id(tree)]


def rebuilder(
    value: Any, given: Any, found: list[Any], returned: Returned
) -> Callable[..., Any] | None:
    """Return what makes a function's value from its leaves and arguments; None if it is one leaf.

    ``given`` are the arguments, ``found`` the objects that were there before, ``returned`` has the
    numbers.

    Raises: Exception of any class for objects that cannot be copied.
    """
    if isinstance(value, Tensor):
        return None
    results = leaves(value)

    def copied(leaf: Any) -> bool:
        """Return True for an object that the function makes, which may be changed later."""
        return not (isinstance(leaf, (Tensor, Number)) or is_plain(leaf) or id(leaf) in outside)

    numbers = {id(one): k for k, one in reversed([*enumerate(results)])}
    there = [*found, *(one for one in leaves(given) if not isinstance(one, Tensor))]
    outside = {id(one): one for one in there}
    flat = type(value) is tuple and not any(
        is_node(one) or isinstance(one, Number) or copied(one) for one in value
    )
    if flat and len(numbers) == len(value):
        count = len(value)
        return lambda found, args, kwargs: tuple(found[:count])
    paths: dict[int, tuple[Any, ...]] = {}
    _paths(given, (), paths)

    def template(tree: Any) -> Any:
        """Return numbers of leaves in place of them, and _Given for what is not made anew."""
        if not is_node(tree) and copied(tree):
            return _Copied(copy.deepcopy(tree, memo))
        if not is_node(tree):
            return _Number(returned.place(tree)) if isinstance(tree, Number) else numbers[id(tree)]
        if id(tree) not in made and (id(tree) in paths or id(tree) in outside):
            made[id(tree)] = _Given(tree, paths.get(id(tree)))
        elif id(tree) not in made:
            made[id(tree)] = with_items(tree, [template(one) for one in items(tree)])
        return made[id(tree)]

    made: dict[int, Any] = {}
    memo = dict(outside)
    tree = template(value)
    if len(memo) == len(outside):  # nothing is copied
        outside = {}

    def rebuilt(found: list[Any], args: Any, kwargs: Any) -> Any:
        memo = dict(outside)
        values = returned.values(found)

        def one(leaf: Any) -> Any:
            if type(leaf) is int:
                return found[leaf]
            if isinstance(leaf, _Number):
                return values[leaf.place]
            return leaf.of(memo) if isinstance(leaf, _Copied) else leaf.of(args, kwargs)

        return _made(tree, one, {})

    return rebuilt
