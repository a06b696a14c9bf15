"""The answer of ``explain_grad``: a sentence, the evidence for it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pullback import _notebook
from pullback.autograd import _dot
from pullback.autograd.diagnostics.paths import Paths


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
        return _notebook.text(str(self))


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
