"""What an explanation says of tensors, nodes and paths."""

from __future__ import annotations

from typing import Any

from pullback._c.graph.tensor import Tensor
from pullback.autograd.diagnostics import causes
from pullback.autograd.diagnostics.explanation import shown
from pullback.autograd.diagnostics.paths import MANY, Arrow, Paths
from pullback.autograd.diagnostics.probe import Probe, Stats, measure
from pullback.autograd.diagnostics.walk import source_line

CONTRIBUTIONS = 6  # that are listed
STEPS = 12  # of a long path, half of them at each end


def tensor_facts(tensor: Tensor) -> dict[str, Any]:
    """Return what is known of a tensor, as plain values."""
    keeps = tensor.is_leaf or tensor.retains_grad
    grad = tensor.grad if keeps else None
    return {
        "dtype": str(tensor.dtype).rpartition(".")[2],
        "shape": list(tensor.shape),
        "is_leaf": tensor.is_leaf,
        "requires_grad": tensor.requires_grad,
        "retains_grad": tensor.retains_grad,
        "grad": None if grad is None else stats_facts(measure(grad)),
    }


def tensor_line(facts: dict[str, Any]) -> str:
    """Return those facts as a line."""
    kind = "leaf" if facts["is_leaf"] else "not a leaf"
    tracked = "requires grad" if facts["requires_grad"] else "does not require grad"
    grad = ".grad is None" if facts["grad"] is None else f".grad has {stats_line(facts['grad'])}"
    return f"{facts['dtype']} {facts['shape']}, {kind}, {tracked}, {grad}"


def stats_facts(stats: Stats) -> dict[str, Any]:
    """Return the figures of a gradient as a dict."""
    return stats._asdict()


def stats_line(facts: dict[str, Any]) -> str:
    """Return the figures of a gradient as a phrase."""
    text = f"norm {shown(facts['norm'])}, largest magnitude {shown(facts['peak'])}"
    counts = [f"{facts[name]} {word}" for name, word in (("nan", "NaN"), ("inf", "inf"))]
    return f"{text}, {', '.join(counts)}, 0 at {facts['zeros']} of {facts['size']}"


def node_label(node: Any) -> str:
    """Return a node's name, with its source line where that is known."""
    site = source_line(node)
    return node.name() if site is None else f"{node.name()} ({site})"


def leaf_kind(leaf: Tensor) -> str:
    """Return the kind of a leaf, as in ``a leaf float32 [3]``."""
    return f"a leaf {str(leaf.dtype).rpartition('.')[2]} {list(leaf.shape)}"


def node_facts(node: Any, saved: tuple[causes.Saved, ...] = ()) -> dict[str, Any]:
    """Return what is known of a node, as plain values."""
    return {
        "name": node.name(),
        "site": source_line(node),
        "saved": [value.text for value in saved],
    }


# ---- paths ---------------------------------------------------------------------------------------


def paths_facts(paths: Paths, probe: Probe) -> dict[str, Any]:
    """Return how many paths there are, how long, and what each last node contributes."""
    counts, lengths = paths.counts(), paths.lengths()
    short, long = lengths[paths.goal]
    last = sorted(paths.into().get(paths.goal, ()), key=lambda a: _weight(probe, a), reverse=True)
    return {
        "count": counts[paths.goal],
        "count_is_exact": counts[paths.goal] < MANY,
        "nodes": len(paths.order),
        "edges": sum(map(len, paths.arrows.values())),
        "shortest": short,
        "longest": long,
        "contributions": [
            {
                "node": paths.nodes[arrow.source].name(),
                "site": source_line(paths.nodes[arrow.source]),
                "paths": counts[arrow.source],
                "norm": None if (stats := probe.leaving.get(arrow)) is None else stats.norm,
            }
            for arrow in last[:CONTRIBUTIONS]
        ],
        "more_contributions": max(0, len(last) - CONTRIBUTIONS),
    }


def paths_lines(facts: dict[str, Any]) -> list[str]:
    """Return those facts as lines."""
    few = facts["count"] == 1
    count = f"{'' if facts['count_is_exact'] else 'at least '}{facts['count']}"
    lengths = f"{facts['shortest']}"
    if facts["longest"] != facts["shortest"]:
        lengths += f" to {facts['longest']}"
    lines = [
        f"{count} path{'' if few else 's'} of {lengths} node{'' if lengths == '1' else 's'}, "
        f"over {facts['nodes']} node{'' if facts['nodes'] == 1 else 's'} and {facts['edges']} "
        f"edge{'' if facts['edges'] == 1 else 's'}"
    ]
    if len(facts["contributions"]) > 1:
        for item in facts["contributions"]:
            norm = "no gradient" if item["norm"] is None else f"norm {shown(item['norm'])}"
            site = "" if item["site"] is None else f" ({item['site']})"
            lines.append(f"through {item['node']}{site}: {norm}")
        if facts["more_contributions"]:
            lines.append(f"and {facts['more_contributions']} more")
    return lines


def main_path(paths: Paths, probe: Probe, through: Arrow | None) -> list[dict[str, Any]]:
    """Return the steps of the path with the greatest gradients, or of one through an edge.

    Of a long path the middle is left out, where a step says how many are.
    """
    into = paths.into()
    number = paths.goal if through is None else through.source
    arrows = [] if through is None else [through]
    while into.get(number):
        arrows.append(max(into[number], key=lambda arrow: _weight(probe, arrow)))
        number = arrows[-1].source
    arrows.reverse()
    number = paths.goal if through is None else through.target
    while number != paths.goal:
        arrows.append(max(paths.arrows[number], key=lambda arrow: _weight(probe, arrow)))
        number = arrows[-1].target
    steps = [_step("(root)", None, probe.arriving.get(0), False)]
    left_out = 0
    for k, arrow in enumerate(arrows):
        if STEPS // 2 <= k < len(arrows) - STEPS // 2 and arrow != through:
            left_out += 1
            continue
        if left_out:
            steps.append({"left_out": left_out})
            left_out = 0
        node = paths.nodes[arrow.source]
        stats = probe.leaving.get(arrow)
        steps.append(_step(node.name(), source_line(node), stats, arrow == through))
    return steps


def _step(name: str, site: str | None, stats: Stats | None, marked: bool) -> dict[str, Any]:
    figures: dict[str, Any] = dict.fromkeys(Stats._fields) if stats is None else stats_facts(stats)
    return {"node": name, "site": site, "marked": marked, **figures}


def _weight(probe: Probe, arrow: Arrow) -> tuple[int, float]:
    """Order edges by their gradients: NaN first, then infinities, then by norm."""
    stats = probe.leaving.get(arrow)
    if stats is None:
        return (0, 0.0)
    order = {"nan": 3, "inf": 2}.get(stats.kind, 1)
    return (order, 0.0 if order > 1 else stats.norm)
