"""Nested containers, flattened to their leaves and rebuilt; through optree.

Tuples, lists, dicts in the order of their insertion, deques, named tuples and registered classes
are containers; everything else is a leaf, None too. The names are those of
``torch.utils._pytree``, whose private name this module has as well: ``pullback.utils._pytree``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def _load_optree() -> Any:
    try:
        import optree
    except ImportError as error:
        raise ImportError(
            "pullback.utils.pytree needs optree: install it with 'pip install optree'"
        ) from error
    return optree


optree = _load_optree()

__all__ = [
    "MappingKey",
    "PyTree",
    "PyTreeSpec",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
]

PyTree = Any
PyTreeSpec: Any = optree.PyTreeSpec
TreeSpec: Any = PyTreeSpec
IsLeaf = Callable[[Any], bool] | None

_NAMESPACE = "pullback"
_ordered = optree.dict_insertion_ordered(True, namespace=_NAMESPACE)
_ordered.__enter__()


def _options(is_leaf: IsLeaf) -> dict[str, Any]:
    return {"is_leaf": is_leaf, "none_is_leaf": True, "namespace": _NAMESPACE}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[list[Any], Any], Any],
    **names: Any,
) -> None:
    """Let objects of a class be containers.

    ``flatten_fn`` returns (children, context), and ``unflatten_fn(children, context)`` an object.
    Names for serialization, which torch takes too, are ignored.

    Raises: ValueError for a class that is registered already.

    >>> from pullback.utils import pytree
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> pytree.register_pytree_node(
    ...     Pair, lambda pair: ([pair.a, pair.b], None), lambda children, _: Pair(*children)
    ... )
    >>> pytree.tree_leaves({"pair": Pair(1, 2)})
    [1, 2]
    """
    optree.register_pytree_node(
        cls,
        flatten_fn,
        lambda context, children: unflatten_fn(list(children), context),
        namespace=_NAMESPACE,
    )


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """The key of a dict in a path, for ``flatten_with_keys_fn``."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """Return a dict's value for the key."""
        return mapping[self.key]


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    return dict(zip(context, values))


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
    """Return the leaves of a tree in order, and its structure.

    >>> from pullback.utils import pytree
    >>> leaves, structure = pytree.tree_flatten({"b": [1, 2], "a": None})
    >>> leaves, pytree.tree_unflatten("xyz", structure)
    ([1, 2, None], {'b': ['x', 'y'], 'a': 'z'})
    """
    leaves, spec = optree.tree_flatten(tree, **_options(is_leaf))
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: Any) -> PyTree:
    """Return a tree of a structure with given leaves.

    Raises: ValueError for another number of leaves; TypeError for anything but a structure.

    >>> from pullback.utils import pytree
    >>> pytree.tree_unflatten([1, 2], pytree.tree_structure((0, [0])))
    (1, [2])
    """
    if not isinstance(treespec, optree.PyTreeSpec):
        raise TypeError(
            f"tree_unflatten(): Expected `treespec` to be instance of TreeSpec but got item of "
            f"type {type(treespec)}."
        )
    return optree.tree_unflatten(treespec, leaves)


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> Any:
    """Return the structure of a tree.

    >>> from pullback.utils import pytree
    >>> pytree.tree_structure((1, [2])) == pytree.tree_structure(("a", ["b"]))
    True
    """
    return optree.tree_structure(tree, **_options(is_leaf))


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves of a tree in order.

    >>> from pullback.utils import pytree
    >>> pytree.tree_leaves([1, {"a": (2, 3)}])
    [1, 2, 3]
    """
    return optree.tree_leaves(tree, **_options(is_leaf))


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """Iterate over the leaves of a tree.

    >>> from pullback.utils import pytree
    >>> list(pytree.tree_iter([1, (2,)]))
    [1, 2]
    """
    return iter(optree.tree_iter(tree, **_options(is_leaf)))


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Return whether an object is a leaf.

    >>> from pullback.utils import pytree
    >>> pytree.tree_is_leaf(None), pytree.tree_is_leaf([])
    (True, False)
    """
    return optree.tree_is_leaf(tree, **_options(is_leaf))


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Return a tree with a function applied to the leaves, and to those of further trees.

    Raises: ValueError for trees of other structures.

    >>> from pullback.utils import pytree
    >>> pytree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    return optree.tree_map(func, tree, *rests, **_options(is_leaf))


def tree_map_(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Call a function with each leaf, and those of further trees; returns the tree.

    >>> from pullback.utils import pytree
    >>> pytree.tree_map_(print, [1, (2,)])
    1
    2
    [1, (2,)]
    """
    return optree.tree_map_(func, tree, *rests, **_options(is_leaf))


def _is_kind(kinds: Any) -> Callable[[Any], bool]:
    if isinstance(kinds, (type, tuple)):
        return lambda leaf: isinstance(leaf, kinds)
    if callable(kinds):
        return kinds
    raise TypeError("Argument must be a type, a tuple of types, or a callable predicate.")


def tree_map_only(
    kinds: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Return a tree with a function applied to the leaves of some types, or of a predicate.

    >>> from pullback.utils import pytree
    >>> pytree.tree_map_only(int, lambda number: -number, [1, "a"])
    [-1, 'a']
    """
    fits = _is_kind(kinds)
    return tree_map(lambda leaf: func(leaf) if fits(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_map_only_(
    kinds: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Call a function with the leaves of some types, or of a predicate; returns the tree.

    >>> from pullback.utils import pytree
    >>> pytree.tree_map_only_(int, print, [1, "a"])
    1
    [1, 'a']
    """
    fits = _is_kind(kinds)
    return tree_map_(lambda leaf: func(leaf) if fits(leaf) else None, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Return whether a predicate holds for all leaves.

    >>> from pullback.utils import pytree
    >>> pytree.tree_all(lambda number: number > 0, [1, (2,)])
    True
    """
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Return whether a predicate holds for some leaf.

    >>> from pullback.utils import pytree
    >>> pytree.tree_any(lambda number: number > 1, [1, (2,)])
    True
    """
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    kinds: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Return whether a predicate holds for all leaves of some types.

    >>> from pullback.utils import pytree
    >>> pytree.tree_all_only(int, lambda number: number > 0, [1, "a"])
    True
    """
    fits = _is_kind(kinds)
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if fits(leaf))


def tree_any_only(
    kinds: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Return whether a predicate holds for some leaf of some types.

    >>> from pullback.utils import pytree
    >>> pytree.tree_any_only(int, lambda number: number > 1, [1, "a"])
    False
    """
    fits = _is_kind(kinds)
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if fits(leaf))


def tree_flatten_with_path(
    tree: PyTree, is_leaf: IsLeaf = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """Return (path, leaf) of each leaf, and the structure; a path has the keys and indices.

    >>> from pullback.utils import pytree
    >>> pytree.tree_flatten_with_path({"a": [5]})[0]
    [(('a', 0), 5)]
    """
    paths, leaves, spec = optree.tree_flatten_with_path(tree, **_options(is_leaf))
    return list(zip(paths, leaves)), spec


def tree_leaves_with_path(
    tree: PyTree, is_leaf: IsLeaf = None
) -> list[tuple[tuple[Any, ...], Any]]:
    """Return (path, leaf) of each leaf.

    >>> from pullback.utils import pytree
    >>> pytree.tree_leaves_with_path([(), (7,)])
    [((1, 0), 7)]
    """
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Return a tree with a function applied to the path of each leaf, and the leaf.

    >>> from pullback.utils import pytree
    >>> pytree.tree_map_with_path(lambda path, leaf: (path, leaf), {"a": 1})
    {'a': (('a',), 1)}
    """
    return optree.tree_map_with_path(func, tree, *rests, **_options(is_leaf))
