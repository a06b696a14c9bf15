"""Parts of ``autograd.functional``: arguments, backward passes, errors of strict mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback._c.engine.engine import run_backward
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.batching import are_batched
from pullback.autograd._entry import grad

Tensors = tuple[Any, ...]
Function = Callable[..., Any]
OUTPUTS = "outputs of the user-provided function"
STRATEGIES = ("forward-mode", "reverse-mode")


def as_tensors(value: Any, what: str, name: str) -> tuple[Tensors, bool]:
    """Return a tensor or a tuple of tensors as a tuple, and whether it was a tuple.

    Raises: TypeError for anything else, also for lists.
    """
    is_tuple = isinstance(value, tuple)
    found = value if is_tuple else (value,)
    for i, item in enumerate(found):
        if not isinstance(item, Tensor):
            where = f"at index {i} of them there is" if is_tuple else "got"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of "
                f"Tensors, but {where} {type(item)}."
            )
    return found, is_tuple


def inputs_of(value: Any, name: str) -> tuple[Tensors, bool]:
    """Return the inputs as a tuple, and whether they were a tuple.

    Raises: TypeError when they are not tensors; RuntimeError when there is none.
    """
    inputs, is_tuple = as_tensors(value, "inputs", name)
    if not inputs:
        raise RuntimeError(f"{name}(): expected at least one input, got an empty tuple")
    return inputs, is_tuple


def aliases(tensors: Tensors, create_graph: bool, requires_grad: bool = True) -> Tensors:
    """Return tensors with the same memory, so that nothing else depends on them.

    With ``create_graph`` they stay connected to those that require grad; others are leaves.
    """
    return tuple(
        x.view_as(x)
        if create_graph and x.requires_grad
        else x.detach().requires_grad_(requires_grad)
        for x in tensors
    )


def unwrap(tensors: Sequence[Any], is_tuple: bool, create_graph: bool) -> Any:
    """Return results in the form of the arguments: a tuple or a tensor."""
    made = tuple(tensors) if create_graph else tuple(x.detach() for x in tensors)
    return made if is_tuple else made[0]


def call(func: Function, inputs: Tensors, name: str, strict: bool) -> tuple[Tensors, bool]:
    """Return the outputs as a tuple, and whether they were a tuple."""
    outputs, is_tuple = as_tensors(func(*inputs), OUTPUTS, name)
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require "
                f"gradients. In strict mode every output must be computed from the "
                f"inputs, by differentiable operations."
            )
    return outputs, is_tuple


def call_single(func: Function, inputs: Tensors, name: str, strict: bool) -> Tensor:
    """Return the output of a function, which must have one element.

    Raises: RuntimeError when it has more, or none.
    """
    outputs, is_tuple = call(func, inputs, name, strict)
    if is_tuple:
        raise RuntimeError(
            f"The function given to {name} should return a single Tensor, but it returned a tuple"
        )
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a "
            f"single element, but its shape is {list(outputs[0].shape)}"
        )
    return outputs[0]


def vector_for(v: Any, others: Tensors, is_tuple: bool, name: str, create_graph: bool) -> Tensors:
    """Return ``v``, checked against the tensors that it multiplies; None means 1.

    Raises: RuntimeError when it does not fit; TypeError when it is not made of tensors.
    """
    if v is None:
        if len(others) != 1 or others[0].numel() != 1:
            whose = (
                "user-provided function returns"
                if name == "vjp"
                else "input to the user-provided function is"
            )
            raise RuntimeError(
                f"The vector v can only be None if the {whose} a single Tensor with "
                f"a single element."
            )
        return (others[0].detach().new_ones(others[0].shape),)
    given, _ = as_tensors(v, "v", name)
    if len(given) != len(others):
        if is_tuple:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(others)} but got {len(given)}."
            )
        raise RuntimeError(f"The given v should contain a single Tensor, but it has {len(given)}.")
    for i, (part, other) in enumerate(zip(given, others)):
        if part.shape != other.shape:
            which = f"Entry {i} in v" if is_tuple else "v"
            raise RuntimeError(
                f"{which} has invalid size: should be {other.shape} but got {part.shape}."
            )
    return aliases(given, create_graph, False)


def check_strategy(strategy: Any, argument: str) -> None:
    if strategy not in STRATEGIES:
        raise AssertionError(
            f'Expected {argument} to be either "forward-mode" or '
            f'"reverse-mode", got {strategy!r}. Forward mode is faster where '
            f"there are more outputs than inputs, reverse mode otherwise."
        )


# -- derivatives that are missing ------------------------------------------------------------------


def run_pass(
    outputs: Tensors,
    seeds: Sequence[Any],
    inputs: Tensors,
    create_graph: bool,
    retain_graph: bool | None = None,
    batched: bool = False,
) -> Tensors:
    """Return the gradient of each input, None where none of the outputs depends on it.

    Outputs may be None, too, and need not require grad, nor need inputs.
    """
    pairs = [(o, s) for o, s in zip(outputs, seeds) if o is not None and o.requires_grad]
    targets = [x for x in inputs if x.requires_grad]
    if not pairs or not targets:
        return (None,) * len(inputs)
    roots, given = zip(*pairs)
    retain = bool(create_graph if retain_graph is None else retain_graph)
    found: Any
    if (
        batched
        or are_batched((*roots, *targets))
        or not all(s is None or (s.dtype == o.dtype and s.shape == o.shape) for o, s in pairs)
    ):
        found = grad(
            roots,
            targets,
            given,
            retain_graph=retain,
            create_graph=create_graph,
            allow_unused=True,
            is_grads_batched=batched,
        )
    else:
        found = run_backward(list(roots), list(given), retain, create_graph, targets, False)
    if len(targets) == len(inputs):
        return tuple(found)
    rest = iter(found)
    return tuple(next(rest) if x.requires_grad else None for x in inputs)


def require_graph(grads: Tensors, text: str) -> None:
    """Raise, in strict mode, for gradients without dependencies; the text has a field for i."""
    for i, found in enumerate(grads):
        if found is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input "
                f"{i}. This is not allowed in strict mode."
            )
        if not found.requires_grad:
            raise RuntimeError(f"{text.format(i=i)} This is not allowed in strict mode.")


def fill(
    grads: Tensors,
    like: Tensors,
    strict: bool = False,
    create_graph: bool = False,
    missing: str = "",
    constant: str = "jacobian",
) -> Tensors:
    """Return gradients with zeros for those that are missing.

    Raises: RuntimeError in strict mode when one is missing (the text has a field for i), or when
    it is constant and should be differentiable; ``constant`` says what it is then.
    """
    made = []
    for i, (found, x) in enumerate(zip(grads, like)):
        if found is None:
            if strict:
                raise RuntimeError(f"{missing.format(i=i)} This is not allowed in strict mode.")
            found = x.detach().new_zeros(x.shape)
        elif strict and create_graph and not found.requires_grad:
            raise RuntimeError(
                f"The {constant} of the user-provided function is independent of "
                f"input {i}. This is not allowed in strict mode with "
                f"create_graph=True."
            )
        made.append(found)
    return tuple(made)
