"""Records the nodes of one side's backward pass, and gives those of the other equal gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.testing.comparison.measure import Tolerances, Value, difference, value_of
from pullback.testing.comparison.watch import Divergence, Found, Names


class NodeStep(NamedTuple):
    """A node of the reference: the gradients that it got and those that it computed."""

    number: int
    given: list[Value | None]
    produced: list[Value | None]


def graph_of(outputs: list[pb.Tensor]) -> list[Any]:
    """Return the nodes behind tensors."""
    found: dict[Any, None] = {}
    waiting = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += [before for before, _ in node.next_functions if before is not None]
    return list(found)


def nodes_of(outputs: list[pb.Tensor]) -> list[Any]:
    """Return the nodes behind tensors in the order they were recorded, without leaves' ends."""
    kept = [node for node in graph_of(outputs) if not node.name().endswith("AccumulateGrad")]
    return sorted(kept, key=lambda node: node._sequence_nr())


def leaves_of(outputs: list[pb.Tensor]) -> list[pb.Tensor]:
    """Return the leaves that backward from tensors gives gradients."""
    ends = [node for node in graph_of(outputs) if node.name().endswith("AccumulateGrad")]
    return [node.variable for node in ends]


def starting_gradients(outputs: list[pb.Tensor]) -> list[pb.Tensor]:
    """Return what backward begins with: 1 for numbers, else the same normal numbers each time."""
    rng = np.random.default_rng(0)
    made = []
    for tensor in outputs:
        if tensor.device.type == "meta":
            made.append(pb.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta"))
            continue
        drawn = rng.standard_normal(tuple(tensor.shape)) if tensor.ndim else np.ones(())
        made.append(pb.tensor(drawn, dtype=tensor.dtype, device=tensor.device))
    return made


def record_backward(outputs: list[pb.Tensor]) -> tuple[list[Any], list[NodeStep]]:
    """Run backward; returns the nodes, and what each of them did in the order they ran."""
    nodes = nodes_of(outputs)
    steps: list[NodeStep] = []

    def watch(number: int, node: Any) -> None:
        def ran(produced: Any, given: Any) -> None:
            steps.append(NodeStep(number, values_of(given), values_of(produced)))

        node.register_hook(ran)

    for number, node in enumerate(nodes):
        watch(number, node)
    pb.autograd.backward(outputs, starting_gradients(outputs))
    return nodes, steps


def force_backward(
    outputs: list[pb.Tensor],
    names: list[str],
    steps: list[NodeStep],
    tolerances: Tolerances,
    wrong: str,
) -> Found | None:
    """Run backward with the reference's gradients given to each node; returns what differs first.

    Where the op ``wrong``, which is known to differ, runs again in backward, as in a checkpoint or
    in a custom Function, that is what a node may get its difference from: such nodes come last.
    Raises: Divergence when the graph has other nodes than ``names``.
    """
    nodes = nodes_of(outputs)
    if [node.name() for node in nodes] != names:
        raise Divergence
    differing: list[Found] = []
    ops = Names()

    def watch(node: Any, step: NodeStep) -> None:
        def give(gradients: Any) -> Any:
            ops.seen.clear()
            return tuple(map(given_instead, gradients, step.given))

        def ran(produced: Any, given: Any) -> None:
            ran_again = wrong in ops.recomputed or (
                wrong in ops.seen and isinstance(node, pb.autograd.function.FunctionCtx)
            )
            for found in compare_node(step, values_of(produced), tolerances):
                differing.append(found._replace(ran=wrong if ran_again else ""))

        node.register_prehook(give)
        node.register_hook(ran)

    for step in steps:
        watch(nodes[step.number], step)
    with ops:
        pb.autograd.backward(outputs, starting_gradients(outputs))
    return (
        next((found for found in differing if not found.ran), differing[0]) if differing else None
    )


def given_instead(gradient: pb.Tensor | None, value: Value | None) -> pb.Tensor | None:
    """Return the gradient of the reference in place of another one; those of no memory stay."""
    if gradient is None or value is None or value.kind != "tensor":
        return gradient
    if gradient.is_sparse or gradient.device.type == "meta":
        return gradient
    return pb.tensor(value.array, dtype=gradient.dtype, device=gradient.device)


def compare_node(
    step: NodeStep, produced: list[Value | None], tolerances: Tolerances
) -> list[Found]:
    """Return how the first gradient that differs does.

    Sparse ones count as dense: formulas make dense ones while a watch is open.
    """
    for i, (actual, expected) in enumerate(zip(produced, step.produced)):
        if actual is not None and expected is not None:
            found = difference(_as_dense(actual), _as_dense(expected), tolerances)
            if found is not None:
                return [Found(step.number, f"gradient {i}", found)]
    return []


def _as_dense(value: Value) -> Value:
    return value._replace(kind="tensor") if value.kind == "sparse tensor" else value


def values_of(gradients: Any) -> list[Value | None]:
    """Return copies of gradients on the host; None for those that are missing."""
    return [value_of(g) if isinstance(g, pb.Tensor) else None for g in gradients]
