"""pullback.utils.pytree, through optree."""

from collections import OrderedDict, deque, namedtuple

import pytest

import pullback as pb

optree = pytest.importorskip("optree")
pytree = pb.utils.pytree
Point = namedtuple("Point", "x y")


def test_trees_are_flattened_in_the_order_of_their_items():
    tree = {"b": [1, (2,)], "a": Point(None, deque([4])), "c": OrderedDict(z=5)}
    leaves, structure = pytree.tree_flatten(tree)
    assert leaves == [1, 2, None, 4, 5] and structure.num_leaves == 5
    assert pytree.tree_unflatten(leaves, structure) == tree
    assert list(pytree.tree_unflatten(leaves, structure)) == ["b", "a", "c"]
    with pytest.raises(ValueError, match="leaves"):
        pytree.tree_unflatten([1], structure)
    with pytest.raises(TypeError, match="Expected `treespec` to be instance of TreeSpec"):
        pytree.tree_unflatten([1], 3)


def test_tensors_are_leaves_and_the_private_name_is_the_same_module():
    assert pb.utils._pytree is pytree
    found = pytree.tree_map_only(pb.Tensor, lambda x: x * 2, [pb.ones(1), 3])
    assert (found[0].tolist(), found[1]) == ([2.0], 3)
    with pytest.raises(TypeError, match="must be a type, a tuple of types, or a callable"):
        pytree.tree_map_only(3, abs, [1])
    with pytest.raises(ValueError, match=r"(?i)expected"):
        pytree.tree_map(lambda a, b: a, [1, 2], [1])
