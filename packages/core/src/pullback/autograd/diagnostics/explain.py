"""``explain_grad``: why the gradient of a tensor is None, zero, NaN, infinite or huge."""

from __future__ import annotations

from typing import Any

import pullback
from pullback._c.graph.tensor import Tensor
from pullback._c.python import tensor_methods
from pullback.autograd.diagnostics import causes, describe, unreached
from pullback.autograd.diagnostics.explanation import ADVICE, GradExplanation, Reason, shown
from pullback.autograd.diagnostics.paths import Paths
from pullback.autograd.diagnostics.probe import Event, Probe, Stats, measure
from pullback.autograd.diagnostics.walk import unobserved

ROOT = (
    "Find the operation that makes it so: compute it under "
    "autograd.detect_anomaly(check_inf=True, check_forward=True)."
)
TINY = (
    "The gradient vanishes on the way: fewer saturated operations, normalization, a skip "
    "connection or another initialization keep it larger."
)
WORDS = {"none": "None", "zero": "zero", "nan": "NaN", "inf": "infinite", "huge": "huge"}


@unobserved
def explain_grad(tensor: Tensor, root: Tensor | None = None, *, factor: float = 1e6):
    """Say why the gradient of a tensor is None, zero, NaN, infinite, huge, or fine.

    With ``root``, the tensor that a backward pass starts from (usually the loss), it runs such a
    pass, with a gradient of ones, restricted to the paths from the root to the tensor, and measures
    the gradient at each node. It names the node where the gradient first becomes None, zero, NaN,
    infinite or huge, with the values that the node saved; with its line where ``record_sites`` or
    anomaly detection was on. Where no path leads to the tensor, it says where history ends, as far
    as ``record_sites`` has recorded. Without ``root`` it says what is known of the tensor alone. A
    gradient is huge when its 2-norm is more than ``factor`` times that of the root's.

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
    return _Diagnosis(answer, probe, tensor, root).give()


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

    def __init__(
        self, answer: unreached.Answer, probe: Probe, tensor: Tensor, root: Tensor
    ) -> None:
        self.root = root
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
        root = measure(self.root)
        if root.kind in ("nan", "inf"):
            self.answer.note("note", f"the root itself is {WORDS[root.kind]}")
        event = self._event(status)
        if status == "fine":
            self._note_paths(status, event)
            return self._fine(root)
        reason, text, node = self._reason(status, event)
        if node is not None and "node" not in self.answer.known:
            self.answer.known["node"] = describe.node_facts(node)
        self._note_paths(status, event)
        value = "" if event is None or event.cause is None else event.cause.value
        advice = ADVICE[reason].format(f"'{value}'" if value else "the factor")
        return self.answer.give(status, reason, f"The gradient is {WORDS[status]}: {text}.", advice)

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

    def _reason(self, status: str, event: Event | None) -> tuple[Reason, str, Any]:
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
        if cause.reason == "no_elements":
            node, text = self._selects_nothing(node)
            return "no_elements", text, node
        return cause.reason, f"{label} {cause.text}", node

    def _selects_nothing(self, node: Any) -> tuple[Any, str]:
        """Find the node whose result has no elements, though its input has some."""
        for number in self.paths.order:
            arrived = self.probe.arriving.get(number)
            if arrived is None or arrived.size:
                continue
            for arrow in self.paths.arrows[number]:
                stats = self.probe.leaving.get(arrow)
                if stats is not None and stats.size:
                    found = self.paths.nodes[number]
                    label = describe.node_label(found)
                    return (
                        found,
                        f"{label} selects no elements, so that nothing of the input is used",
                    )
        return node, f"{describe.node_label(node)} works on no elements"

    def _between_nodes(self, status: str) -> tuple[Reason, str, Any]:
        """Explain a gradient by what comes between nodes: a hook, or the sum of contributions."""
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
            limit = pullback.finfo(self.tensor.dtype).max
            is_sum = status in ("zero", "huge") or not sum(part.peak for part in found) < limit
            if len(found) < 2 or not is_sum:
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

    def _chain(self) -> tuple[Reason, str, Any]:
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

    def _fine(self, root: Stats) -> GradExplanation:
        stats = self.probe.result
        assert stats is not None
        text = f"The gradient is fine: norm {shown(stats.norm)}, no NaN, no infinities"
        tiny = self._tiny(stats)
        if root.kind in ("nan", "inf"):
            text += f"; but the root itself is {WORDS[root.kind]}"
            self.answer.advice.append(ROOT)
        elif tiny:
            text += f"; but it is tiny: {tiny}"
            self.answer.note("note", f"the gradient is {tiny}")
            self.answer.advice.append(TINY)
        text += "."
        if self.tensor.is_leaf or self.tensor.retains_grad:
            if self.tensor.grad is None:
                self.answer.note(
                    ".grad", "None: no backward() has run since it was made or cleared"
                )
            return self.answer.give("fine", "fine", text)
        exists = f"its gradient exists, of norm {shown(stats.norm)}"
        return self.answer.give("fine", "non_leaf", *unreached.by_design(exists))

    def _tiny(self, stats: Stats) -> str:
        """Say how small a gradient is, if it is far smaller than at the root."""
        seed = self.probe.arriving.get(0)
        if seed is None or not stats.norm * self.probe.factor < seed.norm:
            return ""
        text = f"{shown(seed.norm / stats.norm)} times smaller than at the root"
        if stats.peak < pullback.finfo(self.tensor.dtype).tiny:
            text += f", below the normal numbers of {str(self.tensor.dtype).rpartition('.')[2]}"
        return text


def _differs(arrived: Stats, parts: list[Stats], status: str, factor: float) -> bool:
    """True if gradients are of a kind where they arrive, and not where they come from."""
    if status == "huge":
        return bool(parts) and arrived.norm > factor * sum(part.norm for part in parts)
    return arrived.kind == status and all(part.kind != status for part in parts)


def _overwrites(node: Any) -> bool:
    """True for a node of an op that replaces what its first argument was."""
    return node.name().startswith(("Fill", "Zero", "Copy"))
