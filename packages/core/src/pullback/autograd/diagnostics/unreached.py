"""Answers for a tensor that no gradient of the root can reach, or whose root is not given."""

from __future__ import annotations

from typing import Any

import pullback
from pullback._c.graph.tensor import Tensor
from pullback._c.python import tensor_methods
from pullback.autograd.diagnostics import describe
from pullback.autograd.diagnostics.explanation import GradExplanation
from pullback.autograd.diagnostics.lineage import WHAT_TO_DO, End, Lineage
from pullback.autograd.diagnostics.paths import Paths
from pullback.autograd.diagnostics.probe import measure

RECORD = "Run the forward pass inside record_sites(): the answer then names the line."
COMPARED = 1000  # leaves of a root that are compared with the tensor
ENDS = 5  # that are shown


class Answer:
    """What an explanation is put together from."""

    def __init__(self, tensor: Tensor, root: Tensor | None, edges: Any = None) -> None:
        self.evidence: list[tuple[str, str]] = []
        self.advice: list[str] = []
        self.known: dict[str, Any] = {"tensor": describe.tensor_facts(tensor), "_edges": edges}
        self.evidence.append(("tensor", describe.tensor_line(self.known["tensor"])))
        if root is not None:
            self.known["root"] = describe.tensor_facts(root)
            self.evidence.append(("root", describe.tensor_line(self.known["root"])))

    def note(self, heading: str, *lines: str) -> None:
        """Add lines of evidence under a heading."""
        self.evidence.extend((heading, line) for line in lines)

    def note_ends(self, ends: list[End]) -> None:
        """Add where history ends."""
        self.known["ends"] = [end._asdict() for end in ends]
        leading = [end for end in ends if end.to_root] or ends
        self.note("ends", *map(str, leading[:ENDS]))
        if len(ends) > len(leading[:ENDS]):
            self.note("ends", f"and {len(ends) - len(leading[:ENDS])} more")
        self.advice.extend(WHAT_TO_DO[end.reason] for end in ends[:1])

    def give(self, status: str, reason: str, answer: str, *advice: str) -> GradExplanation:
        """Return the explanation."""
        self.advice.extend(advice)
        return GradExplanation(
            status, reason, answer, evidence=self.evidence, advice=self.advice, **self.known
        )


def without_root(tensor: Tensor) -> GradExplanation:
    """Explain by the tensor alone, and by what was recorded."""
    if not tensor.requires_grad:
        return untracked(tensor, None)
    edge = tensor_methods.gradient_edge(tensor)
    answer = Answer(tensor, None, (edge, edge))
    if not tensor.is_leaf and not tensor.retains_grad:
        return answer.give("none", "non_leaf", *by_design("it may still have a gradient"))
    if tensor.grad is not None:
        stats = measure(tensor.grad)
        answer.known["gradient"] = describe.stats_facts(stats)
        if stats.kind == "fine":
            text = f"The gradient is fine, judging by .grad: norm {stats.norm:.4g}."
            return answer.give("fine", "fine", text)
        word = {"nan": "NaN", "inf": "infinite", "zero": "zero"}[stats.kind]
        text = f"The gradient is {word}; where it becomes so can be found from the root."
        return answer.give(stats.kind, "no_root", text, _pass_root())
    ends = Lineage(tensor, None).ends()
    text = "The gradient is None: no backward pass has reached the tensor, or .grad was cleared."
    if ends:
        answer.note_ends(ends)
    return answer.give("none", "no_root", text, _pass_root())


def _pass_root() -> str:
    return "Pass the tensor that backward() starts from: explain_grad(tensor, loss)."


def by_design(exists: str) -> tuple[str, str]:
    return (
        "The .grad is None by design: the tensor is not a leaf, and retain_grad() was not called; "
        f"{exists}.",
        "Call retain_grad() on it before backward(), or use autograd.grad(root, tensor).",
    )


def untracked(tensor: Tensor, root: Tensor | None) -> GradExplanation:
    """Explain a tensor that does not require grad."""
    answer = Answer(tensor, root)
    start = "The gradient is None: the tensor does not require grad"
    lineage = Lineage(tensor, root)
    origin = lineage.origin()
    if origin is not None:
        answer.note_ends([origin])
        return answer.give("none", origin.reason, f"{start}: {origin}.")
    made = lineage.made_at()
    if made is not None:
        answer.note("made", f"by {made}")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        dtype = str(tensor.dtype).rpartition(".")[2]
        text = f"{start}: its dtype is {dtype}, and only floating-point and complex tensors can."
        return answer.give("none", "integer", text, WHAT_TO_DO["integer"])
    if tensor.is_inference():
        text = f"{start}: it was made in inference mode."
        return answer.give("none", "inference_mode", text, WHAT_TO_DO["inference_mode"])
    text = f"{start}."
    advice = ["Call requires_grad_() on it before the forward pass."]
    if not lineage:
        advice.append(f"If it is a result of tensors that do, history has ended. {RECORD}")
    return answer.give("none", "not_required", text, *advice)


def root_untracked(tensor: Tensor, root: Tensor) -> GradExplanation:
    """Explain a root without a history."""
    answer = Answer(tensor, root)
    found = _by_records(answer, tensor, root, "the root has no history")
    if found is not None:
        return found
    origin = Lineage(root, None).origin()
    text = "The gradient is None: the root does not require grad, so it has no history"
    if origin is not None:
        answer.note_ends([origin])
        return answer.give("none", "root_not_required", f"{text}: {origin}.")
    advice = "Compute the root from tensors that require grad, with recording on."
    return answer.give("none", "root_not_required", f"{text}.", advice, *_record(tensor, root))


def _record(tensor: Tensor, root: Tensor) -> tuple[str, ...]:
    """Return the advice to record, if nothing was recorded."""
    return () if Lineage(tensor, root) else (RECORD,)


def _by_records(answer: Answer, tensor: Tensor, root: Tensor, also: str) -> GradExplanation | None:
    """Explain by the records of where history ends, if there are any."""
    lineage = Lineage(tensor, root)
    if not lineage:
        return None
    ends = lineage.ends()
    if lineage.is_late:
        text = f"The gradient is None: the root used the tensor before it required grad ({also})."
        return answer.give(
            "none", "required_late", text, "Call requires_grad_() before the forward pass."
        )
    if not ends:
        return None
    answer.note_ends(ends)
    first = ends[0]
    if not first.to_root and first.reason not in ("number", "copy"):
        text = "The gradient is None: the root does not use the tensor"
        where = f"{first.op} ({first.site})"
        if first.reason == "unused":
            return answer.give("none", "unused", f"{text}; its last use is {where}.")
        return answer.give("none", "unused", f"{text}, nor what {where} made of it.")
    return answer.give("none", first.reason, f"The gradient is None: {first}.")


def no_path(tensor: Tensor, root: Tensor, paths: Paths, edges: Any) -> GradExplanation:
    """Explain a tensor and a root that both require grad, without a path between them."""
    answer = Answer(tensor, root, edges)
    leaves = [v for node in paths.nodes if (v := getattr(node, "variable", None)) is not None]
    listed = ", ".join(describe.leaf_kind(leaf) for leaf in leaves[:5])
    more = f" and {len(leaves) - 5} more" if len(leaves) > 5 else ""
    answer.note("graph", f"{len(paths.nodes)} nodes lead to {listed or 'no leaf'}{more}")
    found = _by_records(answer, tensor, root, "no path leads to it")
    if found is not None and found.reason != "unused":
        return found
    own = Paths(edges[1][:2], edges[0][:2])
    if own.reached:
        text = "The gradient is None: the tensor was computed from the root, not the root from it."
        return answer.give("none", "swapped", text, "Exchange the arguments of explain_grad().")
    shared = _shared(own, paths) if tensor.grad_fn is not None else None
    if shared is not None:
        text = (
            f"The gradient is None: the root was computed from {shared}, of which the tensor is "
            "made, and not from the tensor itself."
        )
        return answer.give(
            "none",
            "other_branch",
            text,
            "Compute the root from this tensor, or ask for the gradient of what it was made of.",
        )
    twin = None if tensor.grad_fn is not None else _twin(tensor, leaves[:COMPARED])
    if twin is not None:
        text = f"The gradient is None: the root used another leaf {twin}, not this tensor."
        return answer.give(
            "none",
            "copy",
            text,
            "A copy, a conversion or a detached tensor under the same name is another leaf: "
            "use one of them for both.",
        )
    if found is not None:
        return found
    lineage = Lineage(tensor, root)
    if lineage and not lineage.takes_tensor():
        answer.note("records", f"none of {len(lineage.records)} operations takes the tensor")
    text = "The gradient is None: the root does not depend on the tensor in the graph."
    advice = "Compute the root from this tensor."
    return answer.give("none", "unused", text, advice, *_record(tensor, root))


def _shared(own: Paths, paths: Paths) -> str | None:
    """Return a node of the root's graph that the tensor's graph leads to."""
    for node in own.nodes:
        if id(node) in paths.index:
            leaf = getattr(node, "variable", None)
            return describe.node_label(node) if leaf is None else describe.leaf_kind(leaf)
    return None


def _twin(tensor: Tensor, leaves: list[Tensor]) -> str | None:
    """Say which leaf of a root shares the tensor's memory, or has the same values."""
    if tensor.numel() == 0:
        return None
    is_constant = bool((tensor == tensor.flatten()[0]).all())  # as zeros are: says nothing
    for leaf in leaves:
        if leaf is tensor or leaf.device != tensor.device:
            continue
        if leaf.data_ptr() == tensor.data_ptr():
            return f"over the same memory ({describe.leaf_kind(leaf)})"
        if is_constant or leaf.shape != tensor.shape:
            continue
        if pullback.equal(leaf.detach().to(tensor.dtype), tensor):
            return f"of the same values ({describe.leaf_kind(leaf)})"
    return None
