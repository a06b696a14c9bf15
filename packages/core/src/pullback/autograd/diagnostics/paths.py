"""The part of a graph that leads from a root to one tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

MANY = 10**6  # paths are counted up to this number


class Arrow(NamedTuple):
    """An edge on a path: from the input ``position`` of node ``source`` to node ``target``."""

    source: int
    position: int
    target: int


class Paths:
    """The nodes that are reachable from a root, and which of them lead to a goal.

    A root and a goal are pairs of a node and the number of one of its outputs. Nodes are numbered;
    0 is the root's, and ``goal`` the goal's, or -1 where it is not reachable. ``order`` lists the
    nodes that lead to the goal, each before those that it leads to; ``arrows`` has the edges out
    of them, by node.
    """

    def __init__(self, root: tuple[Any, int], goal: tuple[Any, int]) -> None:
        self.nodes: list[Any] = []
        self.index: dict[int, int] = {}
        self.edges: dict[int, list[tuple[int, int, int]]] = {}  # position, node, output number
        self._walk(root[0])
        self.goal = self.index.get(id(goal[0]), -1)
        self.is_root = self.goal == 0 and root[1] == goal[1]
        self.arrows: dict[int, list[Arrow]] = {}
        self.order: list[int] = []
        if self.goal > 0:
            self._keep(goal[1])

    @property
    def reached(self) -> bool:
        """True when the root is the goal, or a path leads from it to the goal."""
        return self.is_root or bool(self.order)

    def _walk(self, root: Any) -> None:
        """Number all nodes, and list their edges."""
        self.index[id(root)] = 0
        self.nodes.append(root)
        for number, node in enumerate(self.nodes):  # which grows
            found = self.edges[number] = []
            for position, (below, output) in enumerate(node.next_functions):
                if below is not None:
                    if id(below) not in self.index:
                        self.index[id(below)] = len(self.nodes)
                        self.nodes.append(below)
                    found.append((position, self.index[id(below)], output))

    def _keep(self, output: int) -> None:
        """Find the nodes that lead to an output of the goal, and sort them."""
        above: dict[int, list[int]] = {}
        last = []
        for number, edges in self.edges.items():
            for _, below, k in edges:
                if below != self.goal:
                    above.setdefault(below, []).append(number)
                elif k == output:
                    last.append(number)
        kept = set(last)
        waiting = list(kept)
        while waiting:
            for number in above.get(waiting.pop(), ()):
                if number not in kept:
                    kept.add(number)
                    waiting.append(number)
        missing: dict[int, int] = {}  # edges into each node from nodes that are not sorted yet
        for number in kept:
            self.arrows[number] = [
                Arrow(number, position, below)
                for position, below, k in self.edges[number]
                if (k == output if below == self.goal else below in kept)
            ]
            for arrow in self.arrows[number]:
                missing[arrow.target] = missing.get(arrow.target, 0) + 1
        ready = [number for number in kept if number not in missing]  # the root alone
        while ready:
            number = ready.pop()
            self.order.append(number)
            for arrow in self.arrows[number]:
                missing[arrow.target] -= 1
                if missing[arrow.target] == 0 and arrow.target != self.goal:
                    ready.append(arrow.target)

    def into(self) -> dict[int, list[Arrow]]:
        """Return the edges on paths by the node that they lead to."""
        found: dict[int, list[Arrow]] = {}
        for number in self.order:
            for arrow in self.arrows[number]:
                found.setdefault(arrow.target, []).append(arrow)
        return found

    def counts(self) -> dict[int, int]:
        """Return the number of paths from the root to each node, at most MANY."""
        found = {0: 1}
        for number in self.order:
            for arrow in self.arrows[number]:
                found[arrow.target] = min(MANY, found.get(arrow.target, 0) + found[number])
        return found

    def lengths(self) -> dict[int, tuple[int, int]]:
        """Return the lengths of the shortest and the longest path from the root to each node."""
        found = {0: (0, 0)}
        for number in self.order:
            short, long = found[number]
            for arrow in self.arrows[number]:
                before = found.get(arrow.target, (short + 1, long + 1))
                found[arrow.target] = (min(before[0], short + 1), max(before[1], long + 1))
        return found
