"""A backward pass from a root to one tensor that measures every gradient on the way."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy

import pullback
from pullback._c.graph.tensor import Tensor
from pullback._c.interop import arrays
from pullback._c.python import node_methods
from pullback.autograd.anomaly_mode import set_detect_anomaly
from pullback.autograd.diagnostics import causes
from pullback.autograd.diagnostics.paths import Arrow, Paths

EXAMINED = 8  # nodes that change a gradient in one way, whose saved values are read
_SMALL = 1e-150  # numbers whose squares are still normal in float64


class Stats(NamedTuple):
    """Figures of one gradient: 2-norm, largest magnitude, numbers of elements of some kinds."""

    norm: float
    peak: float
    nan: int
    inf: int
    zeros: int
    size: int

    @property
    def kind(self) -> str:
        """'nan', 'inf', 'zero' (all elements are), or 'fine'."""
        if self.nan or self.inf:
            return "nan" if self.nan else "inf"
        return "zero" if self.zeros == self.size else "fine"


def measure(gradient: Tensor) -> Stats:
    """Return the figures of a gradient, computed in float64."""
    values = gradient.to_dense() if gradient.is_sparse else gradient.detach()
    size = values.numel()
    if size == 0:
        return Stats(0.0, 0.0, 0, 0, 0, 0)
    if values.is_complex():
        values = values.abs()
    xp: Any = pullback
    if arrays.is_host(values):  # NumPy takes less time for few elements
        xp, values = numpy, values.numpy().astype(numpy.float64)
    else:
        values = values.to(pullback.float64)
    values = xp.abs(values).ravel()
    peak = float(values.max())
    zeros = size - int(xp.count_nonzero(values))
    if math.isfinite(peak):
        scale = 1.0 if _SMALL < peak < 1 / _SMALL else peak or 1.0
        scaled = values if scale == 1.0 else values / scale
        return Stats(scale * math.sqrt(scaled.dot(scaled)), peak, 0, 0, zeros, size)
    nan, inf = int(xp.isnan(values).sum()), int(xp.isinf(values).sum())
    return Stats(math.nan if nan else math.inf, peak, nan, inf, zeros, size)


class Event(NamedTuple):
    """A node that turned good gradients into a bad one (``kind``) at one of its inputs."""

    arrow: Arrow
    kind: str  # 'zero', 'nan', 'inf', 'none' or 'huge'
    cause: causes.Cause | None


class Probe:
    """Measures one pass. ``arriving`` has the gradients of each node's outputs, ``leaving`` those
    of the edges on paths, ``events`` the nodes that change their kind, in the order of the pass.
    """

    def __init__(self, paths: Paths, factor: float) -> None:
        self.paths = paths
        self.factor = factor
        self.arriving: dict[int, Stats] = {}
        self.leaving: dict[Arrow, Stats | None] = {}
        self.events: list[Event] = []
        self.result: Stats | None = None
        self._later: list[tuple[int, tuple]] = []  # events whose saved values were not readable
        self._examined: dict[str, int] = {}
        self._greatest = 0.0  # growth at one node

    def run(self, root: Tensor, goal: Tensor) -> None:
        """Run the pass; it leaves gradients, hooks and saved values as they were.

        Raises: what the pass raises.
        """
        tables = []
        kept = [(tensor, tensor.grad) for tensor in self._retained()]
        try:
            for tensor, _ in kept:
                tensor.grad = None
            for number in self.paths.order:
                table = node_methods.node_hook_table(self.paths.nodes[number], False)
                hook, others = _Hook(self, number), list(table.items())
                table.clear()  # so that this hook runs before those that change gradients
                table.update([(hook, hook), *others])
                tables.append((table, hook))
            seed = pullback.ones_like(root, requires_grad=False)
            with set_detect_anomaly(False):
                (gradient,) = pullback.autograd.grad(
                    root, [goal], seed, retain_graph=True, allow_unused=True
                )
            self.result = None if gradient is None else measure(gradient)
            for k, given in self._later:
                self.events[k] = self.events[k]._replace(cause=causes.examine(*given))
            self._later.clear()
        finally:
            for table, hook in tables:
                del table[hook]
            for tensor, gradient in kept:
                tensor.grad = gradient

    def _retained(self) -> list[Tensor]:
        """Return the tensors on the way whose ``.grad`` a pass writes."""
        found = []
        for number in (*self.paths.order, self.paths.goal):
            found.extend(node_methods.node_retained(self.paths.nodes[number]))
        return found

    def visit(self, number: int, inputs: tuple, outputs: tuple) -> None:
        """Measure the gradients that a node took and returned."""
        node = self.paths.nodes[number]
        before = _worst([measure(g) for g in outputs if g is not None])
        self.arriving[number] = before
        inert = node_methods.node_inert_inputs(node)
        active = [k for k in range(len(inputs)) if k not in inert]
        for arrow in self.paths.arrows[number]:
            gradient = inputs[active[arrow.position]]
            after = None if gradient is None else measure(gradient)
            self.leaving[arrow] = after
            kind = _change(before, after, self.factor)
            if kind is not None:
                is_read = self._is_read(kind, before, after)
                cause = None
                if is_read:
                    given = node, kind, outputs, gradient, arrow.position
                    cause = causes.examine(*given)
                    if not cause.was_readable:  # a checkpoint's are, when the pass has ended
                        kept = tuple(_copy(g) for g in outputs)
                        given = node, kind, kept, _copy(gradient), arrow.position
                        self._later.append((len(self.events), given))
                self.events.append(Event(arrow, kind, cause))

    def _is_read(self, kind: str, before: Stats, after: Stats | None) -> bool:
        """True if the saved values of a node that changes a kind of gradient are to be read."""
        if kind == "huge" and after is not None:
            growth = after.norm / before.norm
            if growth > self._greatest:
                self._greatest = growth
                return True
            return False
        self._examined[kind] = self._examined.get(kind, 0) + 1
        return self._examined[kind] <= EXAMINED


def _copy(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.detach().clone()


class _Hook:
    """The hook of one node; an object of its own, as keys of a table of hooks are."""

    __slots__ = ("number", "probe")

    def __init__(self, probe: Probe, number: int) -> None:
        self.probe = probe
        self.number = number

    def __call__(self, inputs: Any, outputs: Any) -> None:
        self.probe.visit(self.number, inputs, outputs)


def _worst(found: list[Stats]) -> Stats:
    """Return one figure for the gradients of several outputs."""
    if len(found) == 1:
        return found[0]
    if not found:
        return Stats(0.0, 0.0, 0, 0, 0, 0)
    norm = math.hypot(*(stats.norm for stats in found))
    peak = max(stats.peak for stats in found)
    counts = [int(sum(stats[k] for stats in found)) for k in range(2, 6)]
    if counts[0]:
        norm = peak = math.nan
    return Stats(norm, peak, *counts)


def _change(before: Stats, after: Stats | None, factor: float) -> str | None:
    """Say what is wrong with a gradient that was right before a node."""
    if after is None:
        return "none"
    if after.kind == before.kind:
        grown = after.kind == "fine" and after.norm > factor * before.norm
        return "huge" if grown else None
    if after.kind == "nan":
        return "nan"
    if after.kind == "inf":
        return None if before.kind == "nan" else "inf"
    return "zero" if after.kind == "zero" else None
