"""``explain_grad``: why the gradient of a tensor is None, zero, NaN, infinite or huge."""

from __future__ import annotations

from typing import Any

from pullback._c.graph.tensor import Tensor
from pullback._c.python import tensor_methods
from pullback.autograd.diagnostics import causes, describe, unreached
from pullback.autograd.diagnostics.explanation import GradExplanation, shown
from pullback.autograd.diagnostics.paths import Paths
from pullback.autograd.diagnostics.probe import Event, Probe, Stats
from pullback.autograd.diagnostics.walk import unobserved

ADVICE = {
    "function_returned_none": "Return a gradient for this input in the Function's backward.",
    "no_gradient": "The operation does not depend on this input where it was used.",
    "zero_mask": "Choose the other side for some elements, or check how the mask is computed.",
    "zero_factor": "Check how the factor is computed.",
    "zero_result": "Check what the operation works on: it is in the range where its result is 0 "
    "and flat (inactive units, an underflow).",
    "zero_derivative": "The operation is flat at these elements: use one that is not, or check the "
    "range of its input.",
    "overwritten": "Write out of place, or use the values from before the write.",
    "cancels": "The paths contribute opposite gradients: check the signs.",
    "masked_singularity": "Pass nan_safe=True to where(), or mask the input as well as the result: "
    "x = where(mask, x, 1) before the operation makes the unused derivatives finite.",
    "singularity": "Keep the input away from that point: add a small number, or clamp() it.",
    "nan_value": "The forward pass computes NaN: find where with isnan() on its values.",
    "infinite_value": "Keep the forward pass finite: clamp() the input, or use a stable form such "
    "as log_softmax() or logsumexp().",
    "infinity_times_zero": "Find the operation before it that makes the gradient infinite.",
    "overflow": "Use a wider dtype, or scale the values down.",
    "sum_overflows": "Look at the contributions of the paths one by one.",
    "growth_step": "Check the scale of the saved values, or clip the gradient.",
    "growth_chain": "Each node enlarges it a little: normalize, clip the gradient, or use smaller "
    "weights.",
    "hook": "Look at the hooks that were registered on the tensor or node there.",
    "freed": "Run the forward pass again, or pass retain_graph=True to the first backward().",
    "saved_overwritten": "See the how-to page on errors of in-place operations.",
    "zero_seed": "The root has no elements.",
}
WORDS = {"none": "None", "zero": "zero", "nan": "NaN", "inf": "infinite", "huge": "huge"}


@unobserved
def explain_grad(tensor: Tensor, root: Tensor | None = None, *, factor: float = 1e6):
    """Say why the gradient of a tensor is None, zero, NaN, infinite, huge, or fine.

    With ``root``, the tensor that a backward pass starts from (usually the loss), it runs such a
    pass, with a gradient of ones, restricted to the paths from the root to the tensor, and measures
    the gradient at each node. The first node that spoils it is named, with the values that it
    saved; with its line where ``record_sites`` or anomaly detection was on. Where no path leads to
    the tensor, it says where history ends, as far as ``record_sites`` has recorded. Without
    ``root`` it says what is known of the tensor alone. A gradient is huge when its 2-norm is more
    than ``factor`` times that of the root's.

    ``.grad``, hooks, graph and saved values stay as they are; hooks on the paths are called.
    Returns a ``GradExplanation``: ``str()`` is a text whose first line is the answer; ``to_dict()``
    and ``to_dot()`` are for programs and drawings.

    Raises: TypeError for anything but tensors; ValueError when ``factor`` is not above 1.

    >>> import pullback
    >>> x = pullback.tensor([0., 4.], requires_grad=True)
    >>> y = x.sqrt()
    >>> loss = pullback.where(x > 0, y, 0.).sum()
    >>> found = pullback.autograd.graph.explain_grad(x, loss)
    >>> print(found.answer)
    The gradient is NaN: SqrtBackward0 multiplies a gradient of 0 by a derivative that is infinite \
or NaN ('result' is 0) at 1 element.
    >>> found.to_dict()["reason"]
    'masked_singularity'
    """
    for name, value in (("tensor", tensor), ("root", root)):
        if not isinstance(value, Tensor) and not (value is None and name == "root"):
            raise TypeError(
                f"explain_grad(): argument '{name}' must be Tensor, not {type(value).__name__}"
            )
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise TypeError(
            f"explain_grad(): argument 'factor' must be float, not {type(factor).__name__}"
        )
    if not factor > 1:
        raise ValueError(f"explain_grad(): argument 'factor' must be above 1, got {factor}")
    if root is None:
        return unreached.without_root(tensor)
    if not tensor.requires_grad:
        return unreached.untracked(tensor, root)
    if not root.requires_grad:
        return unreached.root_untracked(tensor, root)
    edges = tensor_methods.gradient_edge(root), tensor_methods.gradient_edge(tensor)
    paths = Paths(edges[0][:2], edges[1][:2])
    if not paths.reached:
        return unreached.no_path(tensor, root, paths, edges)
    answer = unreached.Answer(tensor, root, edges)
    probe = Probe(paths, factor)
    try:
        probe.run(root, tensor)
    except Exception as error:
        return _failed(answer, probe, error)
    return _Diagnosis(answer, probe, tensor).give()


def _failed(answer: unreached.Answer, probe: Probe, error: Exception) -> GradExplanation:
    """Explain a backward pass that raises."""
    first = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    answer.note("error", first)
    for number in probe.paths.order:
        node = probe.paths.nodes[number]
        try:
            causes.saved_values(node)
        except RuntimeError as unreadable:
            answer.known["node"] = describe.node_facts(node)
            label = describe.node_label(node)
            if "modified by an inplace operation" in str(unreadable):
                text = f"The backward pass fails: a value that {label} saved was overwritten."
                return answer.give(
                    "unknown", "saved_overwritten", text, ADVICE["saved_overwritten"]
                )
            freed = node.metadata.get("freed_at")
            text = f"The backward pass fails: the graph was freed; {label} has no saved values left"
            text += "." if freed is None else f", since the pass at {freed}."
            return answer.give("unknown", "freed", text, ADVICE["freed"])
    return answer.give("unknown", "backward_raises", f"The backward pass fails: {first}")


class _Diagnosis:
    """Chooses the answer from what a pass has measured."""

    def __init__(self, answer: unreached.Answer, probe: Probe, tensor: Tensor) -> None:
        self.answer = answer
        self.probe = probe
        self.paths = probe.paths
        self.tensor = tensor

    def give(self) -> GradExplanation:
        """Return the explanation."""
        stats = self.probe.result
        status = "none" if stats is None else stats.kind
        if stats is not None:
            facts = describe.stats_facts(stats)
            self.answer.known["gradient"] = facts
            self.answer.note("gradient", describe.stats_line(facts))
        seed = self.probe.arriving.get(0)
        if stats is not None and status == "fine" and seed is not None:
            status = "huge" if stats.norm > self.probe.factor * seed.norm else "fine"
        event = self._event(status)
        reason, text, node = self._reason(status, event)
        if node is not None and "node" not in self.answer.known:
            self.answer.known["node"] = describe.node_facts(node)
        self._note_paths(status, event)
        if status == "fine":
            return self._fine()
        return self.answer.give(
            status, reason, f"The gradient is {WORDS[status]}: {text}.", ADVICE[reason]
        )

    def _event(self, status: str) -> Event | None:
        """Return the first node that made the gradient what it is; of growth the largest step."""
        kinds = {"nan": ("nan", "inf"), "fine": ()}.get(status, (status,))
        events = [event for event in self.probe.events if event.kind in kinds]
        if status != "huge" or not events:
            return events[0] if events else None
        return max(events, key=self._growth)

    def _growth(self, event: Event) -> float:
        stats = self.probe.leaving[event.arrow]
        before = self.probe.arriving[event.arrow.source].norm
        return 0.0 if stats is None or not before else stats.norm / before

    def _reason(self, status: str, event: Event | None) -> tuple[str, str, Any]:
        if status == "fine":
            return "fine", "", None
        if event is None:
            return self._between_nodes(status)
        node = self.paths.nodes[event.arrow.source]
        label = describe.node_label(node)
        cause = event.cause
        assert cause is not None  # of the first event of its kind, and of the greatest growth
        self.answer.known["node"] = describe.node_facts(node, cause.saved)
        self.answer.note("node", label, *(f"saved {value.text}" for value in cause.saved))
        others = [e for e in self.probe.events if e.kind == event.kind and e is not event]
        if others and status == "zero":
            names = dict.fromkeys(
                describe.node_label(self.paths.nodes[e.arrow.source]) for e in others[:4]
            )
            self.answer.note("also", *(f"{name} stops another path" for name in names))
        if cause.reason == "growth_step":
            return "growth_step", f"{label} enlarges it {shown(self._growth(event))} times", node
        if cause.reason == "zero_derivative" and not cause.saved and _overwrites(node):
            return "overwritten", f"{label} overwrites the value in place, at all elements", node
        return cause.reason, f"{label} {cause.text}", node

    def _between_nodes(self, status: str) -> tuple[str, str, Any]:
        """Explain a gradient that no node spoils: a hook does, or the sum of contributions."""
        into = self.paths.into()
        for number in (*self.paths.order, self.paths.goal):
            at_goal = number == self.paths.goal
            arrived = self.probe.result if at_goal else self.probe.arriving.get(number)
            parts = [self.probe.leaving.get(arrow) for arrow in into.get(number, ())]
            found = [part for part in parts if part is not None]
            if arrived is None or not _differs(arrived, found, status, self.probe.factor):
                continue
            node = self.paths.nodes[number]
            label = "the tensor" if at_goal else f"the result of {describe.node_label(node)}"
            if arrived.size == 0:
                return "zero_seed", "it has no elements", node
            if len(found) < 2:
                return "hook", f"a hook on {label} replaces it", node
            norms = ", ".join(shown(part.norm) for part in found[:4])
            parts_text = f"{len(found)} contributions to {label} (norms {norms})"
            if status == "zero":
                return "cancels", f"{parts_text} cancel, or a hook there replaces them", node
            return "sum_overflows", f"the sum of {parts_text} is not finite", node
        if status == "huge":
            return self._chain()
        if status == "none":
            return "no_gradient", "a node on each path returns no gradient", None
        return "zero_seed", "the root has no elements", None

    def _chain(self) -> tuple[str, str, Any]:
        stats = self.probe.result
        assert stats is not None
        times = shown(stats.norm / self.probe.arriving[0].norm)
        count = len(self.paths.order)
        text = f"it grows {times} times over {count} nodes, none of which does so alone"
        return "growth_chain", text, None

    def _note_paths(self, status: str, event: Event | None) -> None:
        if self.paths.is_root:
            return
        facts = describe.paths_facts(self.paths, self.probe)
        self.answer.known["paths"] = facts
        self.answer.note("paths", *describe.paths_lines(facts))
        through = None if event is None else event.arrow
        self.answer.known["path"] = describe.main_path(self.paths, self.probe, through)

    def _fine(self) -> GradExplanation:
        stats = self.probe.result
        assert stats is not None
        text = f"The gradient is fine: norm {shown(stats.norm)}, no NaN, no infinities."
        if self.tensor.is_leaf or self.tensor.retains_grad:
            if self.tensor.grad is None:
                self.answer.note(
                    ".grad", "None: no backward() has run since it was made or cleared"
                )
            return self.answer.give("fine", "fine", text)
        exists = f"its gradient exists, of norm {shown(stats.norm)}"
        return self.answer.give("fine", "non_leaf", *unreached.by_design(exists))


def _differs(arrived: Stats, parts: list[Stats], status: str, factor: float) -> bool:
    """True if gradients are of a kind where they arrive, and not where they come from."""
    if status == "huge":
        return bool(parts) and arrived.norm > factor * sum(part.norm for part in parts)
    return arrived.kind == status and all(part.kind != status for part in parts)


def _overwrites(node: Any) -> bool:
    """True for a node of an op that replaces what its first argument was."""
    return node.name().startswith(("Fill", "Zero", "Copy"))
