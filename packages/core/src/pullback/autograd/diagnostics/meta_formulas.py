"""Derivative formulas of nodes, run on tensors without memory to count what they allocate."""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter

import pullback
from pullback._c.base import state
from pullback._c.engine.formula import formula_steps
from pullback._c.graph import levels
from pullback._c.graph.node import Node
from pullback._c.graph.tensor import Tensor
from pullback._c.ops import create
from pullback._c.python import node_methods
from pullback._c.python.node_methods import memory_owners
from pullback.autograd.diagnostics.walk import is_recomputed, tensors_in

_FUSED_FROM = 1 << 12  # elements from which on the engine adds products in place
_FUSED_EDGES = 8  # and the most edges of such a node
_FUSED_DTYPES = ("pullback.float32", "pullback.float64")


def meta(shape, dtype):
    """Return a tensor without memory."""
    return create.empty_tensor(tuple(shape), dtype, "meta")


def _references(holder, key):
    return sys.getrefcount(holder[key])


_ONE = _references([create.empty_tensor((0,), device="meta")], 0)


def is_sole(holder, key):
    """Return True if a list or dict has the only reference to a tensor, and that to its memory."""
    tensor_is_shared = _references(holder, key) > _ONE
    return not tensor_is_shared and not (
        memory_owners(holder[key])[1] > 1 or holder[key]._is_view()
    )


class Allocations:
    """The bytes that live meta tensors would have on a real device, and their peak."""

    def __init__(self):
        self.live = self.peak = 0
        self.tensors: dict = {}  # id of a counted tensor -> weak reference
        self.uses: Counter = Counter()  # counted memory -> its tensors
        self.foreign: set = set()  # memory that stands for saved values of the node that runs
        self.given: set = set()  # memory that stands for gradients that the caller gives

    def new(self, shape, dtype):
        """Return a counted tensor."""
        return self.count(meta(shape, dtype))

    def pass_by(self, nbytes):
        """Count bytes that are in use for a moment."""
        self.peak = max(self.peak, self.live + nbytes)

    def count(self, tensor):
        """Count a tensor's memory, once, until the last tensor over it dies; return the tensor."""
        if tensor.is_sparse:
            self.count(tensor._indices())
            self.count(tensor._values())
            return tensor
        _, _, key, _, nbytes = memory_owners(tensor)
        number = id(tensor)
        if number in self.tensors or key in self.foreign or key in self.given:
            return tensor
        if not self.uses[key]:
            self.live += nbytes
            self.pass_by(0)
        self.uses[key] += 1

        def forget(_):
            del self.tensors[number]
            self.uses[key] -= 1
            if not self.uses[key]:
                del self.uses[key]
                self.live -= nbytes

        self.tensors[number] = weakref.ref(tensor, forget)
        return tensor


def _copies(op, args, result):
    """Return the bytes of copies of its operands that an op makes while it runs.

    Convolutions need row-major operands; elementwise ops cast operands to the result's dtype.
    """
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if op.name.startswith("convolution"):
        return sum(t.numel() * t.element_size() for t in tensors if not t.is_contiguous())
    if op.entry.forward == "elementwise" and isinstance(result, Tensor) and result.is_complex():
        casts = [t for t in tensors if not t.is_complex()]
        return sum(
            math.prod(size for size, step in zip(t.shape, t.stride()) if step)
            * result.element_size()
            for t in casts
        )
    return 0


class _Like:
    """The shape, dtype and device of a tensor, for formulas that need nothing else of it."""

    device = "meta"

    def __init__(self, like):
        self.shape, self.dtype, self.ndim = like.shape, like.dtype, len(like.shape)

    def dim(self):
        """Return the number of dims."""
        return self.ndim

    def numel(self):
        """Return the number of elements."""
        return math.prod(self.shape)


class Formulas:
    """Runs the formulas of nodes on meta tensors."""

    def __init__(self):
        self.counter = Allocations()
        self.kept: list = []  # results that live until the formula ends
        self.steps: Counter = Counter()  # ops of the formula that are still to run
        self.last = None  # the op of its last step, where that may be added in place
        self.fused = False  # whether it was

    def apply(self, node, grads, targets):
        """Return the gradients of a node's edges.

        ``targets`` has for each edge None if its gradient is unneeded; else whether there is a
        tensor that it can be added to in place.
        """
        metadata = node.next_functions
        op = node_methods.node_inside(node)
        results: list = [None] * len(targets)
        if op is None:
            for k, (target, nr) in enumerate(metadata):
                if target is not None and targets[k] is not None:
                    results[k] = self.counter.new(*target._input_metadata[nr][:2])
            return results
        if op.name == "_embedding" and node._saved_sparse:
            return [self.rows_taken(node, grads[0])]
        positions = _positions(op, len(targets))
        saved = self.stand_ins(node)
        for names, function in op.formulas.items():
            needed = [k for name in names for k in positions[name] if targets[k] is not None]
            if not needed:
                continue
            fuse = (
                len(needed) == len(names) == 1
                and targets[needed[0]]
                and len(targets) <= _FUSED_EDGES
                and len(grads) == 1
                and str(grads[0].dtype) in _FUSED_DTYPES
                and grads[0].numel() >= _FUSED_FROM
            )
            values = self.values(node, function, grads, saved)
            found = self.run(op, names, function, values, fuse)
            del values
            if found is None:  # it reads values
                for k in needed:
                    target, nr = metadata[k]
                    results[k] = self.counter.new(*target._input_metadata[nr][:2])
                continue
            for name, value in zip(names, found):
                listed = len(positions[name]) > 1 or isinstance(value, (tuple, list))
                for k, item in zip(positions[name], value if listed and value else [value]):
                    if targets[k] is not None:
                        results[k] = item
            found = value = item = None
        self.counter.foreign.clear()
        return results

    def run(self, op, names, function, values, fuse):
        """Return what a formula computes for its arguments; None where it needs values."""
        traced = formula_steps(op, names)
        steps, ends_in_product = ([], False) if traced is None else traced
        self.steps = Counter(step.name for step in steps)
        self.last = steps[-1].name if fuse and ends_in_product else None
        self.fused = False
        level = levels.enter_dispatch_mode(on_call=self.count_call)
        before = state.swap_grad_enabled(False)
        try:
            found = function(*values)
        except Exception:  # of any op that cannot run on tensors without values
            return None
        finally:
            state.swap_grad_enabled(before)
            levels.exit_level(level)
            self.kept.clear()
        if self.fused:
            return (None,)
        for tensor in tensors_in(found):
            self.counter.count(tensor)
        return (found,) if len(names) == 1 else tuple(found)

    def count_call(self, op, args, run):
        """Run an op of a formula, and count its results and what it is the first to use."""
        for tensor in tensors_in(args):
            self.counter.count(tensor)
        result = run()
        copies = _copies(op, args, result)
        is_step = self.steps[op.name] > 0
        if is_step:
            self.steps[op.name] -= 1
            if op.name == self.last and not self.steps[op.name]:
                sizes = [arg.shape for arg in args[:2] if isinstance(arg, Tensor)]
                self.fused = all(size == result.shape for size in sizes)
                if self.fused:
                    return result
        for tensor in tensors_in(result):
            self.counter.count(tensor)
            if is_step:
                self.kept.append(tensor)
        self.counter.pass_by(copies)
        return result

    def stand_ins(self, node):
        """Return meta tensors for the saved tensors of a node, by name."""
        found: dict = {}
        for name, kind, value in node_methods.saved_entries(node):
            if kind != "packed":
                tensor = create.empty_strided_tensor(
                    tuple(value.shape), value.stride(), value.dtype, "meta"
                )
                self.counter.foreign.add(memory_owners(tensor)[2])
            else:
                packed, shape, dtype = value
                if shape is None:
                    continue
                there = is_recomputed(packed) or any(
                    t.dtype == dtype and t.shape == shape for t in tensors_in(packed)
                )
                tensor = meta(shape, dtype) if there else self.counter.new(shape, dtype)
                if there:
                    self.counter.foreign.add(memory_owners(tensor)[2])
            found[name] = tensor
        return found

    def values(self, node, function, grads, saved):
        """Return the arguments of a formula."""
        found: list = []
        code = function.__code__
        for name in code.co_varnames[: code.co_argcount]:
            if name == "g":
                found.append(grads[0] if grads[0] is not None else self.zeros(node))
            elif name == "gs":
                found.append(tuple(grads))
            elif name in saved:
                found.append(saved[name])
            else:
                value = getattr(node, "_saved_" + ("result" if name == "out" else name))
                found.append(self.without_values(name, value, saved))
        return found

    def without_values(self, name, value, saved):
        """Return a saved parameter with meta tensors for tensors."""
        if isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value):
            return tuple(
                saved.get(f"{name}[{k}]", item) if isinstance(item, Tensor) else item
                for k, item in enumerate(value)
            )
        if type(value).__name__ == "Like":
            return tuple(value.shape) if name.endswith("_shape") else _Like(value)
        return value

    def rows_taken(self, node, grad):
        """Return the sparse gradient of a table, without values."""
        target, nr = node.next_functions[0]
        shape = target._input_metadata[nr][0]
        rows = grad.reshape(-1, shape[1])
        numbers = meta(rows.shape[:1], pullback.int64)
        self.counter.given.add(memory_owners(numbers)[2])  # they are saved
        return self.counter.count(pullback.sparse.gradient_of_rows(rows, shape, numbers))

    def zeros(self, node):
        """Return what stands for the missing gradient of the first output."""
        return self.counter.new(*node._input_metadata[0][:2])


def edges_by_name(node):
    """Return the edges of a node by the names of the tensor arguments that they belong to."""
    op, edges = node_methods.node_inside(node), node.next_functions
    if op is None or isinstance(op, Node):
        return {}
    return {name: edges[where[0]] for name, where in _positions(op, len(edges)).items() if where}


def _positions(op, count):
    """Return the numbers of the edges of each tensor argument."""
    arguments = [a for a in op.entry.arguments if "Tensor" in a.type or "Operand" in a.type]
    listed = any(a.type.endswith("[]") for a in arguments)
    known = {name for names in op.formulas for name in names}
    found: dict = {}
    edge = 0
    for argument in arguments:
        if argument.name not in known and not listed:
            continue
        length = count - (len(arguments) - 1) if argument.type.endswith("[]") else 1
        found[argument.name] = list(range(edge, edge + length))
        edge += length
    return found
