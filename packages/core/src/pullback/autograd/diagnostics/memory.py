"""The ledger of a graph: the bytes that its saved values hold, by node, op and source line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pullback._c.graph.tensor import Tensor
from pullback._c.interop import arrays
from pullback._c.python.node_methods import memory_owners
from pullback._context import _bytes
from pullback._interop import notebook
from pullback.autograd.diagnostics.walk import (
    edges_of,
    is_edge,
    node_title,
    nodes_from,
    op_name,
    recomputed_values,
    saved_tensors,
    source_line,
    unobserved,
)

__all__ = ["MemoryLedger", "Saving", "memory"]

_MADE_HERE = "snapshot"  # the kind of saved values for which a tensor is made to show them


class Saving(NamedTuple):
    """Bytes that a measure would free, and why it is that many."""

    nbytes: int
    why: str


class _Memory:
    """One allocation that saved values refer to."""

    __slots__ = ("direct", "holders", "host", "nbytes", "node", "objects", "over", "owners", "uses")

    def __init__(self, tensor, nbytes, node):
        self.nbytes = nbytes
        self.host = arrays.is_host(tensor)
        self.node = node  # the title, op and line of the first node that saved it
        self.uses = 0  # saved values
        self.owners = 0  # of the storage that was allocated
        self.direct = 0  # snapshots that refer to it, not by way of another storage
        self.over: dict = {}  # storages over it: address -> [owners, snapshots]
        self.objects: dict = {}  # id of a saved object -> [tensor, saved values, its storage]
        self.holders = "graph"

    def add(self, kind, tensor, numbers, made):
        """Count one saved value."""
        storage, owners, memory, memory_owned, _ = numbers
        self.uses += 1
        self.owners = memory_owned - made.get(memory, 0)
        if storage != memory:
            self.over.setdefault(storage, [0, 0])[0] = owners - made.get(storage, 0)
        if kind != _MADE_HERE:
            self.objects.setdefault(id(tensor), [tensor, 0, storage])[1] += 1
        elif storage != memory:
            self.over[storage][1] += 1
        else:
            self.direct += 1

    def is_only_in_graph(self):
        """True if saved values have every reference to the memory; forgets the objects."""
        direct, over = self.direct, {key: list(counts) for key, counts in self.over.items()}
        objects, self.objects = self.objects, {}
        for entry in objects.values():
            if sys.getrefcount(entry[0]) - 2 > entry[1]:  # 2: the entry's and the argument's
                return False
            if entry[2] in over:
                over[entry[2]][1] += 1
            else:
                direct += 1
        alone = all(owners <= snapshots for owners, snapshots in over.values())
        return alone and self.owners <= direct + len(over)


class MemoryLedger:
    """The bytes that a graph's saved values hold; ``memory`` makes it, ``print`` shows it.

    It is a record of numbers and text: it keeps neither the graph nor a tensor alive. Memory that
    several saved values share is counted once, for the node nearest to the root.

    ``total``: bytes that only the graph holds, which dropping it frees. ``leaves``: further bytes
    that saved values refer to and leaves of the graph hold anyway. ``elsewhere``: further bytes
    that other tensors, or variables of the program, hold too. ``by_node``, ``by_op`` and
    ``by_line`` divide ``total``: dicts of a name to bytes, the most first. ``packed``: number of
    values that hooks packed into something whose bytes are unknown.

    >>> import pullback
    >>> x = pullback.ones(256, requires_grad=True)
    >>> ledger = pullback.autograd.graph.memory((x.exp() * 2).sum())
    >>> ledger.total, ledger.by_op
    (1024, {'exp': 1024})
    """

    def __init__(self, nodes, memories, packed):
        self.nodes = nodes
        self.packed = packed
        self.memories = memories
        sums: Counter = Counter()
        for memory in memories.values():
            sums[memory.holders] += memory.nbytes
        self.total = sums["graph"]
        self.leaves = sums["leaf"]
        self.elsewhere = sums["other"]

    def _divided(self, position):
        sums: Counter = Counter()
        for memory in self.memories.values():
            if memory.holders == "graph":
                sums[memory.node[position]] += memory.nbytes
        return dict(sums.most_common())

    @property
    def by_node(self):
        """Bytes that only the graph holds, by node and sequence number: ``MulBackward0 #12``."""
        return self._divided(0)

    @property
    def by_op(self):
        """Bytes that only the graph holds, by name of the op."""
        return self._divided(1)

    @property
    def by_line(self):
        """Bytes that only the graph holds, by source line; under 'unknown' without one.

        Lines are known of nodes that were made in anomaly mode.
        """
        return self._divided(2)

    def to_dict(self):
        """Return all numbers as a dict that ``json`` can write."""
        return {
            "total": self.total,
            "leaves": self.leaves,
            "elsewhere": self.elsewhere,
            "packed": self.packed,
            "nodes": self.nodes,
            "by_op": self.by_op,
            "by_line": self.by_line,
            "by_node": self.by_node,
        }

    def checkpoint(self, inputs, output):
        """Return the bytes that a checkpoint of a block would free until backward.

        The block is the nodes between ``inputs`` (a tensor or a sequence) and ``output``. What they
        save counts if only they hold it: not the inputs, which a checkpoint keeps, nor what
        variables of the program hold, such as ``output`` itself.

        Inputs that do not require grad, such as data, are left out.

        Raises: RuntimeError when ``output`` does not depend on the inputs, and when no node between
        them belongs to the ledger's graph, as after backward; TypeError for anything but tensors
        and edges.

        >>> import pullback
        >>> x = pullback.ones(256, requires_grad=True)
        >>> y = x.exp().sin()
        >>> pullback.autograd.graph.memory(y.sum()).checkpoint(x, y)
        1024
        """
        inputs = [one for one in _several(inputs) if getattr(one, "requires_grad", True)]
        stop = [node for node, _ in edges_of("MemoryLedger.checkpoint", inputs)]
        roots = [node for node, _ in edges_of("MemoryLedger.checkpoint", output)]
        uses: Counter = Counter()
        nodes = 0
        kept = {memory_owners(item)[2] for item in inputs if isinstance(item, Tensor)}
        reached = not stop or not set(stop).isdisjoint(roots)
        for node in nodes_from(roots, stop):
            reached = reached or any(below in stop for below, _ in node.next_functions)
            nodes += not node.name().endswith("AccumulateGrad")
            for _, _, tensor in saved_tensors(node):
                if tensor is not None:
                    uses[memory_owners(tensor)[2]] += 1
        if not reached:
            raise RuntimeError(
                "MemoryLedger.checkpoint(): the output does not depend on the inputs"
            )
        found = [self.memories[key] for key in uses if key in self.memories]
        if nodes and uses and not found:
            raise RuntimeError(
                "MemoryLedger.checkpoint(): the nodes between inputs and output are not of the "
                "graph that the ledger was made of"
            )
        return sum(
            self.memories[key].nbytes
            for key, count in uses.items()
            if key in self.memories
            and key not in kept
            and self.memories[key].holders == "graph"
            and count >= self.memories[key].uses
        )

    def save_on_cpu(self):
        """Return what ``save_on_cpu`` would free on devices: bytes, and why it is that many.

        >>> import pullback
        >>> x = pullback.ones(256, requires_grad=True)
        >>> pullback.autograd.graph.memory(x.exp()).save_on_cpu().nbytes
        0
        """
        away = [m for m in self.memories.values() if m.holders == "graph" and not m.host]
        if not away:
            return Saving(0, "all that only the graph holds is in host memory already")
        return Saving(sum(m.nbytes for m in away), f"{len(away)} allocations are on a device")

    def __str__(self):
        lines = self._summary()
        for title, rows in self._tables():
            lines += ["", f"| {'Bytes':>12} | {title}", "|" + "-" * 14 + "|" + "-" * 40]
            lines += [f"| {size:>12} | {name}" for size, name in rows]
        return "\n".join(lines)

    def _repr_html_(self):
        tables = (notebook.table(["Bytes", title], rows) for title, rows in self._tables())
        return notebook.text("\n".join(self._summary())) + "".join(tables)

    def _summary(self):
        lines = [
            f"Saved for backward by {self.nodes} nodes: {_bytes(self.total).strip()} that only the "
            f"graph holds,",
            f"further {_bytes(self.leaves).strip()} of leaves, {_bytes(self.elsewhere).strip()} "
            f"of other tensors",
        ]
        if self.packed:
            lines.append(f"packed by a hook: {self.packed} values, bytes unknown")
        return lines

    def _tables(self):
        """Yield the tables of the report: a title, and rows of bytes and a name."""
        for title, rows in (("op", self.by_op), ("source line", self.by_line)):
            if rows and list(rows) != ["unknown"]:
                shown = [(_bytes(size), name) for name, size in list(rows.items())[:20]]
                if len(rows) > len(shown):
                    shown.append(("", f"and {len(rows) - len(shown)} more"))
                yield title, shown

    def __repr__(self):
        return f"<MemoryLedger: {self.total} bytes in {self.nodes} nodes>"


def _several(items):
    several = isinstance(items, Sequence) and not is_edge(items)
    return list(items) if several else [items]


@unobserved
def memory(root):
    """Return a ``MemoryLedger`` of the graph behind a tensor, an edge, or a sequence of them.

    It counts tensors that nodes saved, what pack hooks returned in their place, the arguments of
    checkpoints, and tensors that are attributes of a custom Function's ctx. Reading them runs no
    hook and checks no version.

    Raises: TypeError for anything but tensors and edges; RuntimeError for a tensor that does not
    require grad.

    >>> import pullback
    >>> w = pullback.ones(32, 32, requires_grad=True)
    >>> loss = (w.exp() @ w).sum()
    >>> print(pullback.autograd.graph.memory(loss))
    Saved for backward by 4 nodes: 4096 B that only the graph holds,
    further 4096 B of leaves, 0 B of other tensors
    <BLANKLINE>
    |        Bytes | op
    |--------------|----------------------------------------
    |     4096 B   | mm
    """
    memories: dict = {}
    leaves = set()
    packed = count = 0
    checkpoints: dict = {}
    for node in nodes_from([node for node, _ in edges_of("memory", root)]):
        count += 1
        leaf = getattr(node, "variable", None)
        if leaf is None:
            packed += _count_saved(node, memories, checkpoints)
        else:
            leaves.add(memory_owners(leaf)[2])
    for address, item in memories.items():
        alone = item.is_only_in_graph()
        item.holders = "leaf" if address in leaves else "graph" if alone else "other"
    return MemoryLedger(count, memories, packed)


def _count_saved(node, memories, checkpoints):
    """Add the saved values of a node to a dict of memories; return how many have no tensor.

    Of what checkpoints recompute their arguments are added, once.
    """
    for region, *_ in recomputed_values(node):
        if region not in checkpoints:
            checkpoints[region] = _count_saved(region.saved_args, memories, checkpoints)
    entries = list(saved_tensors(node))
    if not entries:
        return 0
    held = [
        (kind, tensor, memory_owners(tensor)) for _, kind, tensor in entries if tensor is not None
    ]
    made: dict = {}  # storage -> tensors that were made over it here
    for kind, _, numbers in held:
        if kind == _MADE_HERE:
            made[numbers[0]] = made.get(numbers[0], 0) + 1
    for kind, tensor, numbers in held:
        key = numbers[2]
        if key not in memories:
            label = node_title(node), op_name(node), source_line(node) or "unknown"
            memories[key] = _Memory(tensor, numbers[4], label)
        memories[key].add(kind, tensor, numbers, made)
    return len(entries) - len(held)
