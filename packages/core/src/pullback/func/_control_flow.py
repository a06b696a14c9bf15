"""Control flow as functions of tensors, which run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.batching import are_batched
from pullback.func._tree import leaves, tree_map
from pullback.ops import ops


def _check_operands(function: str, operands: Any, argument: str) -> None:
    if not isinstance(operands, (tuple, list)) or not all(
        isinstance(leaf, Tensor) for leaf in leaves(operands)
    ):
        raise RuntimeError(
            f"Expect {argument} to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands}."
        )


def _check_predicate(name: str, value: Any) -> None:
    if not isinstance(value, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected {name} to be bool or tensor, but got {value}.")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise RuntimeError(f"Expected {name} to be bool or single-element tensor, but got {value}.")


def cond(
    pred: bool | int | float | Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """Return ``true_fn(*operands)`` if a predicate holds, else ``false_fn(*operands)``.

    Only one branch runs, except under ``vmap`` with a predicate for each element: then both run,
    and their results must have the same structure and sizes.

    Raises: RuntimeError for a predicate of several elements, branches that cannot be called, and
    operands other than tensors.

    >>> import pullback
    >>> x = pullback.tensor(2.0)
    >>> pullback.cond(x > 1, lambda x: x * x, lambda x: -x, (x,))
    tensor(4.)
    """
    _check_predicate("pred", pred)
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    _check_operands("cond", operands, "operands")
    if isinstance(pred, Tensor) and are_batched((pred,)):
        condition = pred.reshape(()) != 0
        return tree_map(
            lambda one, other: ops.where(condition, one, other),
            true_fn(*operands),
            false_fn(*operands),
        )
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: tuple[Any, ...] | list[Any],
) -> Any:
    """Return the values that ``body_fn`` carries while ``cond_fn`` of them holds.

    ``body_fn`` returns as many values as it takes. Gradients flow through all passes.

    Raises: RuntimeError for functions that cannot be called, a condition of several elements, and
    another number of values.

    >>> import pullback
    >>> pullback.while_loop(lambda x: x < 100, lambda x: (x * 3,), (pullback.tensor(2.0),))
    (tensor(162.),)
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    _check_operands("while_loop", carried_inputs, "carried_inputs")
    carried = tuple(carried_inputs)
    while True:
        going = cond_fn(*carried)
        _check_predicate("cond_fn to return a value, and it", going)
        if not going:
            return carried
        found = body_fn(*carried)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(carried):
            raise RuntimeError(
                f"Expected body_fn to return {len(carried)} values, as many as it takes, but got "
                f"{len(found)}."
            )
        carried = found
