"""The answer of ``explain_grad``: a sentence, the evidence for it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pullback._interop import notebook
from pullback.autograd import _dot
from pullback.autograd.diagnostics.paths import Paths

Reason: TypeAlias = Literal[
    "function_returned_none",
    "function_returned_zero",
    "function_returned_nan",
    "function_returned_inf",
    "no_gradient",
    "no_elements",
    "zero_mask",
    "zero_factor",
    "zero_result",
    "zero_derivative",
    "unused_part",
    "all_ignored",
    "constant_sum",
    "underflow",
    "cancels",
    "overwritten",
    "masked_singularity",
    "singularity",
    "outside_domain",
    "degenerate_matrix",
    "nan_value",
    "infinite_value",
    "infinity_times_zero",
    "overflow",
    "sum_overflows",
    "nan_at_node",
    "growth_step",
    "growth_chain",
    "hook",
    "zero_seed",
    "freed",
    "saved_overwritten",
]

ADVICE: dict[Reason, str] = {  # {} is the name of the saved value that is to blame
    "function_returned_none": "Return a gradient for this input in the Function's backward.",
    "function_returned_zero": "Check what the Function's backward returns for this input.",
    "function_returned_nan": "Check what the Function's backward computes for these elements.",
    "function_returned_inf": "Check what the Function's backward computes for these elements.",
    "no_gradient": "The operation does not depend on this input where it was used.",
    "no_elements": "Check the mask, the index or the slice that selects nothing.",
    "zero_mask": "Choose the other side for some elements, or check how the mask is computed.",
    "zero_factor": "Check how {} is computed.",
    "zero_result": "Check what the operation works on: its inputs are where the result is "
    "constantly 0 (dead units, underflow).",
    "zero_derivative": "The operation is flat at these elements: use one that is not, or check the "
    "range of its input.",
    "unused_part": "Check which elements are used afterwards: indices, slices, padding_idx.",
    "all_ignored": "Check the targets, or leave out a batch without any that count.",
    "constant_sum": "Compute the loss from more than the sum or the mean of normalized values.",
    "underflow": "Use a wider dtype, or scale the loss up and the gradients down again.",
    "cancels": "Opposite contributions add up to 0: check the signs.",
    "overwritten": "Write out of place, or use the values from before the write.",
    "masked_singularity": "Pass nan_safe=True to where(), or mask the input as well as the result: "
    "x = where(mask, x, 1) before the operation makes the unused derivatives finite.",
    "singularity": "Keep the input away from that point: add a small number, or clamp() it.",
    "outside_domain": "Keep the input inside of the operation's domain, such as by clamp().",
    "degenerate_matrix": "Add a small multiple of the identity, or use what does not depend on the "
    "single vectors.",
    "nan_value": "The forward pass computes NaN: find where with isnan() on its values.",
    "infinite_value": "Keep the forward pass finite: clamp() the input, or use a stable form such "
    "as log_softmax() or logsumexp().",
    "infinity_times_zero": "Find the operation before it that makes the gradient infinite.",
    "overflow": "Use a wider dtype, or scale the values down.",
    "sum_overflows": "Look at the contributions of the paths one by one.",
    "nan_at_node": "Check the range of the input: clamp() it, or replace the values that have no "
    "derivative.",
    "growth_step": "Check the scale of the saved values, or clip the gradient.",
    "growth_chain": "Each node enlarges it a little: normalize, clip the gradient, or use smaller "
    "weights.",
    "hook": "Look at the hooks that were registered on the tensor or node there.",
    "zero_seed": "The root has no elements.",
    "freed": "Run the forward pass again, or pass retain_graph=True to the first backward().",
    "saved_overwritten": "See the how-to page on errors of in-place operations.",
}


@dataclass(frozen=True, repr=False)
class GradExplanation:
    """Why the gradient of a tensor is as it is; made by ``explain_grad``.

    ``str()`` is a text whose first line, ``answer``, answers the question. ``status`` is 'none',
    'zero', 'nan', 'inf', 'huge', 'fine' or 'unknown'; ``reason`` a word for why. It keeps the
    graph alive, for ``to_dot()``.

    >>> import pullback
    >>> x = pullback.tensor([-1., -2.], requires_grad=True)
    >>> found = pullback.autograd.graph.explain_grad(x, x.relu().sum())
    >>> found.status, found.reason
    ('zero', 'zero_result')
    """

    status: str
    reason: str
    answer: str
    evidence: list[tuple[str, str]] = field(default_factory=list)  # (heading, line)
    advice: list[str] = field(default_factory=list)
    tensor: dict[str, Any] = field(default_factory=dict)
    root: dict[str, Any] | None = None
    gradient: dict[str, Any] | None = None
    node: dict[str, Any] | None = None
    ends: list[dict[str, Any]] = field(default_factory=list)
    paths: dict[str, Any] | None = None
    path: list[dict[str, Any]] = field(default_factory=list)  # the steps of the main path
    _edges: tuple[Any, Any] | None = None  # of the root and the tensor

    def __str__(self) -> str:
        lines = [self.answer]
        before = None
        for heading, line in self.evidence:
            lines.append(f"  {heading if heading != before else '':9} {line}")
            before = heading
        if self.path:
            lines.append("  main path, from the root:")
            lines.extend(f"    {row}" for row in _table(self.path))
        lines.extend(
            f"  {'to do' if k == 0 else '':9} {line}" for k, line in enumerate(self.advice)
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<GradExplanation: {self.status}, {self.reason}>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that ``json`` can write; NaN and infinities as text."""
        names = ("status", "reason", "answer", "advice", "tensor", "root", "gradient", "node")
        found = {name: getattr(self, name) for name in names}
        found["evidence"] = [f"{heading}: {line}" for heading, line in self.evidence]
        found.update(ends=self.ends, paths=self.paths, path=self.path)
        return _plain(found)

    def to_dot(self) -> _dot.Dot:
        """Return the graph of the root (or else of the tensor) as Graphviz text.

        The paths to the tensor are highlighted. Raises: RuntimeError when there is no graph.
        """
        if self._edges is None:
            raise RuntimeError(
                "GradExplanation.to_dot(): there is no graph: neither tensor requires grad"
            )
        root, goal = self._edges
        paths = Paths(root[:2], goal[:2])
        kept = [paths.nodes[number] for number in paths.order]
        if paths.reached:
            kept.append(goal[0])
        return _dot.draw([(*root[:2], "root")], {}, kept)

    def _repr_html_(self) -> str:
        return notebook.text(str(self))


def shown(number: float) -> str:
    """Return a number as people read it."""
    return "NaN" if math.isnan(number) else f"{number:.4g}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _table(steps: list[dict[str, Any]]) -> Iterable[str]:
    """Lay out the steps of a path."""
    width = max(len(step["node"]) for step in steps if "node" in step)
    yield f"  {'node':{width}}  {'norm':>10}  {'max |g|':>10}  NaN  inf  zeros"
    for step in steps:
        if "left_out" in step:
            yield f"  ... {step['left_out']} nodes"
            continue
        line = f"{'*' if step['marked'] else ' '} {step['node']:{width}}"
        if step["norm"] is None:
            line += f"  {'no gradient':>10}"
        else:
            line += f"  {shown(step['norm']):>10}  {shown(step['peak']):>10}"
            line += f"  {step['nan']:3}  {step['inf']:3}  {step['zeros']}/{step['size']}"
        yield line + (f"   {step['site']}" if step["site"] else "")
