"""A module that runs a program: statement by statement, with what can be observed after each.

A program is a list of Python statements. They use ``m``, the module, the helpers of `World` and
variables of their own; an exception of one is an observation like any other.
"""

from __future__ import annotations

import copy
import functools
import re
import types
import warnings

from .functions import custom_functions
from .transforms import bodies, pushed, transformed

NAME = re.compile(r"\b[a-z]\d+\b")
GRAPH_LIMIT = 40
# Statements whose nodes come from formulas: which ones is no promise.
DERIVATIVES = re.compile(r"create_graph|transform\(|checkpoint\(|dual\(")


@functools.lru_cache(maxsize=4096)
def compiled(statement):
    """Compile a statement once for both modules."""
    return compile(statement, "<program>", "exec")


def plain(dtype):
    """Return a dtype's name without its module."""
    return str(dtype).rpartition(".")[2]


def strides_that_matter(tensor):
    """Return the strides, None for dims whose stride reaches no other element."""
    shape = tuple(tensor.shape)
    if 0 in shape:
        return None
    return [step if size > 1 else None for size, step in zip(shape, tensor.stride())]


class World:
    """One module running one program."""

    def __init__(self, m, observed="all"):
        self.m = m
        self.observed = observed
        self.log = []
        self.stack = []
        self.derivatives = []  # sequence numbers of nodes that backward passes recorded
        self.names = {
            "m": m,
            "copy": copy,
            "F": types.SimpleNamespace(**custom_functions(m, self.note)),
            **{name: getattr(self, name) for name in HELPERS},
        }

    # ---- what statements call ----

    def note(self, tag, *things):
        """Add to the log of calls."""
        self.log.append([tag, [self.brief(thing) for thing in things]])

    def own(self, grads):
        """Return gradients as tensors of their own: whether they are views is no promise."""
        return tuple(
            g if g is None else self.m.clone(g, memory_format=self.m.contiguous_format)
            for g in grads
        )

    def enter(self, context):
        """Enter a context that stays open until `leave`."""
        context.__enter__()
        self.stack.append(context)

    def leave(self):
        """Leave the innermost open context."""
        if self.stack:
            self.stack.pop().__exit__(None, None, None)

    def hook(self, tag, kind, extra=None):
        """Return a hook of a tensor."""

        def call(grad):
            self.note(tag, grad)
            if kind == "scale":
                return grad * 2
            if kind == "replace":
                return extra if extra is not None else self.m.ones_like(grad)
            if kind == "expand":
                return grad.sum().expand_as(grad)
            if kind == "transpose":
                return grad.mT.contiguous().mT if grad.dim() > 1 else grad.clone()
            if kind == "conj":
                return (grad * 2).conj()
            if kind == "view":
                return grad.view(-1).view_as(grad) if grad.is_contiguous() else grad[...]
            if kind == "raise":
                raise ValueError(tag)
            if kind == "shape":
                return grad.unsqueeze(0)
            if kind == "dtype":
                return grad.to(self.m.float32)
            if kind == "number":
                return 3
            if kind == "remove":
                self.names[extra].remove()
            if kind == "add":
                self.names[extra].register_hook(self.hook(tag + "+", "see"))
            if kind == "backward":
                inner = grad.detach().clone().requires_grad_()
                (inner * inner).sum().backward()
                return inner.grad
            if kind == "nograd":
                with self.m.no_grad():
                    return grad + 1
            return None

        return call

    def node_hook(self, tag, kind):
        """Return a hook that runs after a node."""

        def call(grad_inputs, grad_outputs):
            given = [grad for grad in grad_inputs if grad is not None]
            self.note(tag, given, grad_outputs)  # whether indices and masks have an edge differs
            if kind == "scale":
                return tuple(None if g is None else g * 3 for g in grad_inputs)
            if kind == "short":
                return (*grad_inputs, None)
            if kind == "single":
                return grad_inputs[0] * 2
            if kind == "nothing":
                return tuple(None for g in grad_inputs)
            if kind == "raise":
                raise KeyError(tag)
            return None

        return call

    def prehook(self, tag, kind):
        """Return a hook that runs before a node."""

        def call(grad_outputs):
            self.note(tag, grad_outputs)
            if kind == "scale":
                return tuple(None if g is None else g * 0.5 for g in grad_outputs)
            if kind == "short":
                return (*grad_outputs, None)
            if kind == "single":
                return grad_outputs[0] * 2
            if kind == "nothing":
                return tuple(None for g in grad_outputs)
            if kind == "raise":
                raise KeyError(tag)
            return None

        return call

    def after(self, tag, kind):
        """Return a hook that runs when a gradient was accumulated."""

        def call(leaf):
            self.note(tag, leaf, leaf.grad)
            if kind == "drop":
                leaf.grad = None
            if kind == "step":
                with self.m.no_grad():
                    leaf.sub_(leaf.grad, alpha=0.1)
            if kind == "value":
                return leaf
            if kind == "raise":
                raise ValueError(tag)
            return None

        return call

    def multi(self, tag):
        """Return a hook over several tensors."""
        return lambda grads: self.note(tag, grads)

    def pack(self, tag, kind):
        """Return what stores a saved tensor."""

        def call(tensor):
            if not tensor.is_floating_point():
                return tensor  # whether indices and masks are saved as tensors differs
            if kind == "inplace":
                return tensor.add_(1)
            if kind == "raise":
                raise ValueError(tag)
            if kind == "copy":
                return tensor.detach().clone()
            if kind == "tuple":
                return (tag, tensor)
            return tensor

        return call

    def unpack(self, tag, kind):
        """Return what restores a saved tensor."""

        def call(packed):
            tensor = packed[1] if isinstance(packed, tuple) else packed
            if not tensor.is_floating_point():
                return tensor
            if kind == "number":
                return 1.0
            if kind == "raise":
                raise ValueError(tag)
            return tensor

        return call

    def body(self, name):
        """Return a function that a transform or a checkpoint is given."""
        return bodies(self.m)[name]

    def transform(self, how, name, x):
        """Return a transform of such a function, as a tensor of its own."""
        return self.m.clone(transformed(self.m, how, self.body(name), x))

    def dual(self, name, x, tangent):
        """Return the tangent that forward mode carries through such a function."""
        return pushed(self.m, self.body(name), x, tangent)

    # ---- running ----

    def run(self, statement):
        """Run one statement; return its outcome, the calls it led to and what the names are."""
        self.log = []
        outcome = ["ok"]
        before = self.versions()
        node = self.next_node() if DERIVATIVES.search(statement) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(compiled(statement), self.names)
            except Exception as error:
                kinds = [kind.__name__ for kind in type(error).__mro__]
                outcome = ["error", kinds, str(error)[:600]]
                del error
            bumps = self.bumps(before)
            if node is not None:
                self.derivatives.append(range(node, self.next_node()))
            seen = {} if self.observed == "end" else self.look(NAME.findall(statement))
        return {"outcome": outcome, "calls": self.log, "bumps": bumps, "seen": seen}

    def finish(self):
        """Leave what is open and look at everything."""
        self.log = []
        while self.stack:
            self.leave()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"outcome": ["ok"], "calls": self.log, "bumps": {}, "seen": self.look(None)}

    def next_node(self):
        """Return the sequence number of a node made now."""
        with self.m.enable_grad():
            return self.m.ones(1, requires_grad=True).neg().grad_fn._sequence_nr()

    def versions(self):
        """Return all tensors with their versions."""
        return {
            name: (value, value._version)
            for name, value in self.names.items()
            if isinstance(value, self.m.Tensor) and not value.is_inference()
        }

    def bumps(self, before):
        """Return how far versions went up; what a fresh result begins with does not matter."""
        found = {}
        for name, (value, version) in before.items():
            if value._version != version:
                found[name] = value._version - version
        return found

    def look(self, mentioned):
        """Observe the named variables, or all."""
        names = self.names
        if mentioned is None or self.observed == "all":
            mentioned = list(names)
        return {
            name: self.observe(names[name])
            for name in dict.fromkeys(mentioned)
            if isinstance(names.get(name), self.m.Tensor)
        }

    def observe(self, tensor):
        """Return all that can be asked of a tensor."""
        seen = {"tensor": self.brief(tensor)}
        for name, read in READS.items():
            try:
                seen[name] = read(self, tensor)
            except RuntimeError as error:
                seen[name] = f"{type(error).__name__}: {error}"[:40]
        return seen

    def brief(self, thing):
        """Return a comparable form of a value that a hook or a statement got."""
        if isinstance(thing, (tuple, list)):
            return [self.brief(item) for item in thing]
        if not isinstance(thing, self.m.Tensor):
            return thing if thing is None or isinstance(thing, (bool, int, float, str)) else "?"
        value = self.value(thing)
        if value == "unreadable":
            return value
        return {
            "dtype": plain(thing.dtype),
            "shape": list(thing.shape),
            "requires_grad": self.requires_grad(thing),
            "value": value,
        }

    def requires_grad(self, tensor):
        """Return the flag; to read it may renew a view's history, which can fail."""
        try:
            return tensor.requires_grad
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"[:40]

    def value(self, tensor):
        """Return a tensor's elements."""
        try:
            return tensor.tolist()
        except RuntimeError:
            return "unreadable"

    def name_of(self, tensor):
        """Return the variable a tensor is in."""
        if tensor is None:
            return None
        for name, value in self.names.items():
            if value is tensor:
                return name
        return "unnamed"

    def graph(self, node):
        """Return a node's history: names and edges, numbered in the order of the walk.

        Edges that lead nowhere are left out: whether masks and numbers have one differs.
        """
        if node is None:
            return None
        node, _ = without_metadata_op(node, 0)
        numbers = {node: 0}
        found = []
        todo = [node]
        while todo and len(found) < GRAPH_LIMIT:
            node = todo.pop()
            if hasattr(node, "variable"):
                found.append(f"{numbers[node]} accumulate {self.name_of(node.variable)}")
                continue
            if any(node._sequence_nr() in made for made in self.derivatives):
                found.append(f"{numbers[node]} derivative")
                continue
            edges = []
            writes = short_name(node) in ("CopySlices", "CopyBackwards", "IndexPutBackward0")
            for below, number in node.next_functions:
                if writes:
                    below, number = below_fitting(below, number)
                below, number = without_metadata_op(below, number, node)
                if below is None:
                    continue
                if below not in numbers:
                    numbers[below] = len(numbers)
                    todo.append(below)
                edges.append(f"{numbers[below]}:{number}")
            found.append(f"{numbers[node]} {short_name(node)} {' '.join(edges)}")
        return found


# torch distinguishes overloads; a number that is a tensor is a copy for us.
OVERLOADS = {
    **{f"{name}Backward1": f"{name}Backward0" for name in ("Eq", "Ne", "Lt", "Le", "Gt", "Ge")},
    "FillBackward0": "CopyBackwards",
    "FillBackward2": "CopyBackwards",
    "FillBackward3": "CopyBackwards",
    "ReshapeAliasBackward0": "ViewBackward0",
    "SqueezeBackward4": "SqueezeBackward1",
    "SortBackward1": "SortBackward0",
}


def short_name(node):
    """Return a node's name without a namespace."""
    name = node.name().rpartition("::")[2]
    return OVERLOADS.get(name, name)


def without_metadata_op(node, number, above=None):
    """Skip what only redoes a view of complex numbers: its as_strided(), a conj() of a conj()."""
    if node is None:
        return node, number
    below = node.next_functions[0] if node.next_functions else (None, 0)
    if short_name(node) == "AsStridedBackward0":
        if any(
            other is not None and short_name(other).startswith(("ViewAs", "Conj", "NegView"))
            for other in (above, below[0])
        ):
            return without_metadata_op(*below, above)
    elif below[0] is not None and (short_name(node), short_name(below[0])) in INVERSE:
        return without_metadata_op(*below[0].next_functions[0], above)
    return node, number


INVERSE = {
    ("ConjBackward0", "ConjBackward0"),
    ("ViewAsRealBackward0", "ViewAsComplexBackward0"),
    ("ViewAsComplexBackward0", "ViewAsRealBackward0"),
}


def below_fitting(node, number):
    """Skip nodes that fit a value to the elements it is written to: a detail of assignments."""
    while node is not None and short_name(node) in ("ViewBackward0", "ExpandBackward0"):
        node, number = node.next_functions[0]
    return node, number


READS = {
    "leaf": lambda world, t: t.is_leaf,
    "conj": lambda world, t: t.is_conj(),
    "neg": lambda world, t: t.is_neg(),
    "view": lambda world, t: t._is_view(),
    "base": lambda world, t: world.name_of(t._base),
    "retains": lambda world, t: t.retains_grad,
    "graph": lambda world, t: world.graph(t.grad_fn),
    "output_nr": lambda world, t: t.output_nr,
    "grad": lambda world, t: world.brief(t.grad),
    "grad's stride": lambda world, t: (
        strides_that_matter(t.grad) if t.is_leaf and t.grad is not None else None
    ),
    "grad's graph": lambda world, t: None if t.grad is None else world.graph(t.grad.grad_fn),
}
HELPERS = (
    "enter leave own hook node_hook prehook after multi pack unpack body transform dual".split()
)


def is_tame(tensor):
    """Return True if all numbers are finite and small enough to compute with.

    The zeros without storage that torch makes for absent tangents cannot be read.
    """
    if getattr(tensor, "_is_zerotensor", bool)():
        return False
    numbers = tensor.tolist()
    while isinstance(numbers, list) and numbers and isinstance(numbers[0], list):
        numbers = [number for row in numbers for number in row]
    numbers = numbers if isinstance(numbers, list) else [numbers]
    return all(not isinstance(x, (float, complex)) or abs(x) < 50 for x in numbers)  # NaN is not
