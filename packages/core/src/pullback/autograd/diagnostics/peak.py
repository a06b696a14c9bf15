"""Prediction of the memory that a backward pass will need: a pass without values.

It follows docs/concepts/engine.md: the same order of nodes, and the same rules of when a gradient
is added in place. Gradients are tensors of the device ``meta``; ``meta_formulas`` runs each formula
on them and counts what it would have allocated.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter

import pullback
from pullback._c.graph.node import Node
from pullback._c.python import node_methods
from pullback._c.python.node_methods import memory_owners
from pullback.autograd.diagnostics.memory import memory
from pullback.autograd.diagnostics.meta_formulas import Formulas, edges_by_name, is_sole, meta
from pullback.autograd.diagnostics.walk import (
    edges_of,
    nodes_from,
    recomputed_values,
    saved_tensors,
    unobserved,
)

__all__ = ["predict_peak"]


@unobserved
def predict_peak(root, inputs=None):
    """Predict the bytes by which memory in use grows at most during ``root.backward()``.

    ``root`` is a tensor, an edge, or a sequence of them; ``inputs`` is the argument of
    ``backward``: leaves or other tensors of the graph. The number is above the bytes in use now, so
    it is small where freeing saved values makes room for gradients. It includes the ``.grad`` of
    leaves that have none yet. Nothing of the graph changes, and nothing of its size is allocated.

    What counts are gradients, results of formulas and saved values; also the implicit gradient of a
    root with one element, but not gradients that the caller gives. Not counted: the workspace of
    kernels and what decompositions allocate, such as those of ``interpolate`` and ``lu``; what
    ``backward`` of a custom Function and hooks allocate beyond results and unpacked tensors. The
    function of a checkpoint counts with what it saves, once it runs again, but not with results
    that it drops. A formula that reads values, such as that of a boolean mask, counts with the
    sizes of its results alone.

    Raises: TypeError for anything but tensors and edges; RuntimeError for a tensor that does not
    require grad, and for a graph whose saved values were freed.

    >>> import pullback
    >>> x = pullback.ones(1024, requires_grad=True)
    >>> y = x.exp().exp().sum()
    >>> pullback.autograd.graph.predict_peak(y)             # one gradient, and the 1 that begins
    4100
    """
    edges = edges_of("predict_peak", root)
    wanted = None if inputs is None else edges_of("predict_peak", inputs)
    return _Pass(memory(root).memories, edges, wanted).run()


class _Pass:
    """A backward pass over meta tensors."""

    def __init__(self, memories, edges, wanted):
        self.memories = memories
        self.left = {key: item.uses for key, item in memories.items()}
        self.formulas = Formulas()
        self.counter = self.formulas.counter
        self.edges = edges
        self.captured = {node for node, _ in wanted or ()}
        self.buffers: dict = {}  # node -> output number -> gradient
        self.outlives: list = []  # gradients that live when the pass is over
        self.regions: dict = {}  # checkpointed call -> what it recomputes
        self.count_edges(wanted)

    def count_edges(self, wanted):
        """Count the edges that lead to each node, and find the nodes that run."""
        self.dependencies: Counter = Counter()
        above: dict = {}
        for node in nodes_from([node for node, _ in self.edges]):
            for region, name, shape, dtype in recomputed_values(node):
                found = self.regions.setdefault(region, _Recomputed(region))
                found.add(node, name, math.prod(shape) * dtype.itemsize)
            for below, _ in node.next_functions:
                if below is not None:
                    self.dependencies[below] += 1
                    if wanted is not None:
                        above.setdefault(below, []).append(node)
        self.needed: set | None = None
        if wanted is not None:
            self.needed, waiting = set(), [node for node, _ in wanted]
            while waiting:
                node = waiting.pop()
                if node not in self.needed:
                    self.needed.add(node)
                    waiting.extend(above.get(node, ()))

    def runs(self, node):
        """Return True if the gradients of a node's outputs are computed."""
        return node is not None and (self.needed is None or node in self.needed)

    def run(self):
        """Run all nodes in the engine's order; return the peak."""
        ready: list = []
        for node, nr in self.edges:
            shape, dtype = node._input_metadata[nr][:2]
            seed = meta(shape, dtype)
            if math.prod(shape) == 1:
                self.counter.count(seed)
            else:
                self.counter.given.add(memory_owners(seed)[2])
            self.outlives.append(seed)  # the caller of the engine has it, too
            self.accumulate(node, nr, seed)
            seed = None
        for node in dict.fromkeys(node for node, _ in self.edges):
            if not self.dependencies[node] and self.runs(node):
                heapq.heappush(ready, (-node._sequence_nr(), len(ready), node))
        number = len(ready)
        while ready:
            node = heapq.heappop(ready)[2]
            results = self.run_node(node)
            for target, nr in node.next_functions:
                value = results.pop(0)
                if not self.runs(target):
                    continue
                if value is not None:
                    shape, dtype = target._input_metadata[nr][:2]
                    if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
                        value = self.counter.new(shape, dtype)
                    self.accumulate(target, nr, value)
                value = None
                self.dependencies[target] -= 1
                if not self.dependencies[target]:
                    heapq.heappush(ready, (-target._sequence_nr(), number, target))
                    number += 1
        return self.counter.peak

    def accumulate(self, node, nr, value):
        """Add a gradient to an input buffer: in place if the buffer alone holds its memory."""
        buffer = self.buffers.setdefault(node, {})
        if nr not in buffer:
            buffer[nr] = value
        elif value.is_sparse and buffer[nr].is_sparse:
            buffer[nr] = self.counter.count(pullback.sparse.coo.Rules.total(buffer[nr], value))
        elif buffer[nr].is_sparse or not is_sole(buffer, nr):
            buffer[nr] = self.counter.new(value.shape, value.dtype)

    def run_node(self, node):
        """Return the gradients that a node computes; its saved values are freed."""
        outputs = node._input_metadata
        buffer = self.buffers.pop(node, {})
        grads = [buffer.pop(nr, None) for nr in range(len(outputs))]
        results: list = [None] * len(node.next_functions)
        if node in self.captured:
            self.outlives.extend(grads)
        for region, *_ in recomputed_values(node):
            self.counter.live += self.regions[region].run()
            self.counter.pass_by(0)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            self.accumulate_leaf(leaf, grads)
        elif any(grad is not None for grad in grads):
            inner = node_methods.node_inside(node)
            if isinstance(inner, Node):
                results = self.apply_write(node, inner, grads)
            else:
                results = self.formulas.apply(node, grads, self.targets(node))
        self.free_saved(node)
        return results

    def targets(self, node):
        """Return for each edge None if its gradient is unneeded, else what can be added to.

        That is a function that tells whether the last product of a formula may be added in place.
        """
        found: list = []
        for target, nr in node.next_functions:
            if not self.runs(target):
                found.append(None)
                continue
            waiting = self.buffers.get(target, {})
            leaf = getattr(target, "variable", None)
            if waiting.get(nr) is not None:
                found.append(is_sole(waiting, nr))
            else:
                found.append(
                    leaf is not None
                    and leaf.grad is not None
                    and self.dependencies[target] == 1
                    and target not in self.captured
                    and leaf.grad.dtype == leaf.dtype
                )
        return found

    def apply_write(self, node, inner, grads):
        """Return the gradients of an in-place write to a view: of the base, then of the rest."""
        part = inner._input_metadata[0]
        whole = grads[0]
        if not is_sole(grads, 0):
            whole = self.counter.new(whole.shape, whole.dtype)
        seed = self.counter.new(part.shape, part.dtype)
        results = self.formulas.apply(inner, [seed], [None, *self.targets(node)[1:]])
        return [whole, *results[1:]] if len(results) == len(node.next_functions) else [whole]

    def accumulate_leaf(self, leaf, grads):
        """Add a gradient to a leaf's .grad; one that nothing else holds becomes it."""
        if grads[0] is None or leaf.grad is not None:
            return
        if grads[0].is_sparse:
            owned = grads[0]._values()._base is None
            kept = grads[0] if owned else pullback.sparse.coo.Rules.clone(grads[0])
            self.outlives.append(self.counter.count(kept))
        elif is_sole(grads, 0) and grads[0].stride() == leaf.stride():
            self.outlives.append(grads[0])
        else:
            self.outlives.append(self.counter.new(leaf.shape, leaf.dtype))

    def free_saved(self, node):
        """Subtract the memory that no other node has saved and nothing else holds."""
        for _, _, tensor in saved_tensors(node):
            key = None if tensor is None else memory_owners(tensor)[2]
            if key in self.left:
                self.left[key] -= 1
                if not self.left[key] and self.memories[key].holders == "graph":
                    self.counter.live -= self.memories[key].nbytes
        for region, name, *_ in recomputed_values(node):
            known = self.regions[region]
            self.counter.live -= known.take(node, name)
            if not known.left:
                self.free_saved(region.saved_args)


class _Recomputed:
    """The memory that a checkpointed call allocates when it runs again.

    Which saved values share memory follows from the graph: an input of a node is what the node
    below its edge returned, or what that is a view of.
    """

    def __init__(self, region):
        self.first = region.saved_args._sequence_nr()  # all nodes of the call have higher numbers
        edges = [below for below, _ in region.saved_args.next_functions[1:]]
        saved = [tensor for _, _, tensor in saved_tensors(region.saved_args)]
        self.constants = {
            tensor.nbytes
            for tensor, below in zip(saved, edges)
            if below is None and tensor is not None
        }
        self.keys: dict = {}  # node and name of a saved value -> its memory
        self.nbytes: dict = {}  # memory -> bytes
        self.uses: Counter = Counter()
        self.left = 0  # values that no node has used
        self.has_run = False

    def add(self, node, name, nbytes):
        """Count one saved value."""
        self.left += 1
        key = self.keys[node, name] = self.memory_of(node, name, nbytes)
        if key is not None:
            self.nbytes[key] = max(nbytes, self.nbytes.get(key, 0))
            self.uses[key] += 1

    def run(self):
        """Return the bytes that are allocated now: all of them for the first value."""
        was_run, self.has_run = self.has_run, True
        return 0 if was_run else sum(self.nbytes.values())

    def take(self, node, name):
        """Return the bytes that are freed after a node has used a value."""
        self.left -= 1
        key = self.keys[node, name]
        self.uses[key] -= 1
        return 0 if self.uses[key] else self.nbytes.get(key, 0)

    def memory_of(self, node, name, nbytes):
        """Return what identifies the memory of a saved value; None if it exists anyway."""
        if name in ("out", "result"):
            return node, 0
        if name.startswith("out") and name[3:].isdecimal():
            return node, int(name[3:])
        edge = edges_by_name(node).get(name)
        if edge is None:
            return node, name
        below, nr = edge
        if below is None:
            return None if nbytes in self.constants else (node, name)
        while getattr(below, "variable", None) is None and below._sequence_nr() > self.first:
            op = node_methods.node_inside(below)
            if isinstance(op, Node) or op is None or not op.entry.view:
                return below, nr
            below, nr = below.next_functions[0]
        return None
