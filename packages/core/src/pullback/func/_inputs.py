"""Inputs and outputs of transforms: wrapping, detaching, checks, missing gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pullback as pb
from pullback._c.engine.grad_utils import close_leaf, depends_on_open_leaf
from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching
from pullback.func._tree import leaves, tree_map
from pullback.ops import ops


def chosen(argnums: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the checked numbers of the arguments to differentiate."""
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise RuntimeError(f"argnums must be non-empty, got argnums={argnums}")
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    for number in numbers:
        if not isinstance(number, int):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {argnums}")
        if not -len(args) <= number < len(args):
            raise RuntimeError(f"Got argnum={number}, but only {len(args)} positional inputs")
    return tuple(number % len(args) for number in numbers)


def replaced(args: Sequence[Any], numbers: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments with some replaced."""
    made = list(args)
    for number, value in zip(numbers, values):
        made[number] = value
    return tuple(made)


def fresh(tree: Any, recording: bool = True) -> Any:
    """Return aliases that require grad, batched at every level at which results may be.

    They have the histories of the originals where the caller was recording.
    """
    return tree_map(functools.partial(_fresh, recording=recording), tree)


def _fresh(value: Any, recording: bool) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(value)}")
    if value.is_inference():
        value = value.clone()  # a normal tensor, not an inference tensor
    for level in batching.open_batches():
        if batching.get_batch(value, level) is None:
            mark = batching.make_batched(pb.zeros(batching.batch_size(level)), level)
            value = ops.clone_beside(value, mark)
    if recording and value.requires_grad:
        return ops.alias(value)
    value = _without_history(value)
    levels.whole(value).requires_grad_()
    return value


def settled(tree: Any, inputs: Any, recording: bool, given: Any = ()) -> Any:
    """Return results detached from the history of the transform.

    ``given`` are the originals of ``inputs``, which replace inputs that are results.
    """
    for leaf in leaves(inputs):
        whole = levels.whole(leaf)
        if whole.is_leaf:
            close_leaf(whole)
    made_of = {id(leaf): source for leaf, source in zip(leaves(inputs), leaves(given))}

    def settle(value: Any) -> Any:
        if id(value) in made_of:
            return made_of[id(value)]
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        if recording and depends_on_open_leaf(levels.whole(value)):
            return value
        return _without_history(value)

    return tree_map(settle, tree)


def _without_history(value: Tensor) -> Tensor:
    """Detach a tensor, but keep its tangents."""
    with pb.no_grad():
        return ops.same_memory(value)


def gradients(
    outputs: list[Tensor],
    seeds: list[Tensor | None],
    inputs: list[Tensor],
    create_graph: bool,
    retain_graph: bool,
) -> list[Tensor]:
    """Return the gradients of tensors, zeros where there are none."""
    pairs = [(o, s) for o, s in zip(outputs, seeds) if o.requires_grad]
    targets = [x for x in inputs if x.requires_grad]
    found: list[Any] = [None] * len(targets)
    if pairs and targets:
        found = batching.gradients_of(
            [o for o, _ in pairs], [s for _, s in pairs], targets, retain_graph, create_graph
        )
    given = iter(found)
    made = [next(given) if x.requires_grad else None for x in inputs]
    return [ops.zeros_like(x.detach()) if grad is None else grad for grad, x in zip(made, inputs)]


def only_tensors(tree: Any, where: str, what: str) -> list[Tensor]:
    """Return the leaves of a function's result.

    Raises: RuntimeError when one is not a tensor, or there are none.
    """
    found = leaves(tree)
    if not found:
        raise RuntimeError(
            f"{where}: Expected f to be a function that has non-empty output (got output = {tree})"
        )
    for leaf in found:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"{where}: expected {what} to return only tensors, got unsupported "
                f"type {type(leaf)}"
            )
    return found


def only_real(tensors: Sequence[Tensor], where: str, what: str) -> None:
    """Raise RuntimeError for a complex tensor: its Jacobian would need two real ones."""
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, Tensor) and tensor.is_complex():
            raise RuntimeError(
                f"{where}: Expected all {what} to be real but received complex "
                f"tensor at flattened input idx: {i}"
            )


def split_aux(result: Any, where: str) -> tuple[Any, Any]:
    """Return (output, aux) of a function with has_aux=True."""
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    for leaf in leaves(result[1]):
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
    return result
