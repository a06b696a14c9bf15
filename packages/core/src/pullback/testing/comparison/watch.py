"""Records the ops and nodes of one side, compares those of the other, and gives it equal inputs."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback._c.base.errors import user_frame
from pullback._c.graph import levels
from pullback.func._tree import leaves
from pullback.testing.comparison.measure import Difference, Tolerances, Value, difference, value_of

LONGEST = 400  # characters of the arguments that are shown


class Step(NamedTuple):
    """An op of the reference: its name, arguments, line of the program, and values."""

    name: str
    arguments: str
    line: str
    fresh: dict[int, Value]  # tensors among the arguments, by number, that no op before it made
    results: list[Value]
    numbers: list[str]  # among the arguments


class Divergence(Exception):
    """The sides run other ops or nodes, so nothing after this can be compared one by one."""


class Found(NamedTuple):
    """What differs: the number of the op or node, and how."""

    number: int
    what: str  # "result 0", "argument 'other'", "gradient 1"
    difference: Difference
    other_call: str = ""  # where the op got other numbers as arguments


class OpWatch:
    """Receives the ops of a function while it is open, and remembers which node each records."""

    def __init__(self) -> None:
        self.count = 0
        self.nodes: dict[Any, int] = {}  # node -> number of its op
        self.pending: list[pb.Tensor] = []
        self.level = 0

    def __enter__(self) -> OpWatch:
        self.level = levels.enter_dispatch_mode(self.on_op)
        return self

    def __exit__(self, *error: object) -> None:
        levels.exit_level(self.level)
        self.note_nodes()

    def on_op(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Handle an op, whose results get their node after this has returned."""
        self.note_nodes()
        result = self.handle(op, args, run)
        self.count += 1
        self.pending = tensors_of(result, args)
        return result

    def note_nodes(self) -> None:
        """Remember the nodes of the results of the op before."""
        for tensor in self.pending:
            if tensor.grad_fn is not None:
                self.nodes.setdefault(tensor.grad_fn, self.count - 1)
        self.pending = []

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op and return its result."""
        raise NotImplementedError


class Reference(OpWatch):
    """Records every op of the reference."""

    def __init__(self, given: Iterable[pb.Tensor]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.known: dict[int, weakref.ref] = {id(t): weakref.ref(t) for t in given}

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op and keep its values."""
        fresh = {}
        for number, tensor in enumerate(tensors_in(args)):
            found = self.known.get(id(tensor))
            if found is None or found() is not tensor:
                self.known[id(tensor)] = weakref.ref(tensor)
                fresh[number] = value_of(tensor)
        call = call_of(op, args)
        result = run()
        results = tensors_of(result, args)
        self.known.update((id(tensor), weakref.ref(tensor)) for tensor in results)
        values = list(map(value_of, results))
        self.steps.append(Step(op.name, call, user_line(), fresh, values, numbers_in(args)))
        return result


class Compared(OpWatch):
    """Compares the ops of the other side with those of the reference, in the same order."""

    def __init__(
        self, steps: list[Step], tolerances: Tolerances, share_random_numbers: bool = False
    ) -> None:
        super().__init__()
        self.steps = steps
        self.tolerances = tolerances
        self.share_random_numbers = share_random_numbers  # a dtype draws others than another one
        self.found: Found | None = None
        self.other_op: str | None = None  # what ran where the reference ran another op

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op and compare its results."""
        step = self.step_of(op)
        if step is None:
            return run()
        if self.share_random_numbers:
            give_fresh(step, args)
        result = run()
        if self.found is None:
            self.compare(step, tensors_of(result, args), other_call(step, op, args))
        return result

    def step_of(self, op: Any) -> Step | None:
        """Return the op of the reference that this one stands for, or None after a divergence."""
        if self.other_op is not None:
            return None
        if self.count >= len(self.steps) or self.steps[self.count].name != op.name:
            self.other_op = op.name
            return None
        return self.steps[self.count]

    def compare(self, step: Step, results: list[pb.Tensor], other: str = "") -> None:
        """Note the first result that differs."""
        for i, (tensor, expected) in enumerate(zip(results, step.results)):
            found = difference(value_of(tensor), expected, self.tolerances)
            if found is not None:
                self.found = Found(self.count, f"result {i}", found, other)
                return


class Forced(Compared):
    """Also gives each op the inputs of the reference: no op gets an error from one before it."""

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op on equal inputs, compare its results, and replace them by the reference's."""
        step = self.step_of(op)
        if step is None:
            return run()
        if self.share_random_numbers:
            give_fresh(step, args)
        elif self.found is None:
            self.compare_fresh(step, args)
        result = run()
        results = tensors_of(result, args)
        if self.found is None:
            self.compare(step, results, other_call(step, op, args))
        if not op.is_view:
            for tensor, expected in zip(results, step.results):
                overwrite(tensor, expected)
        return result

    def compare_fresh(self, step: Step, args: tuple[Any, ...]) -> None:
        """Note the first argument that differs and no op before made, such as random numbers."""
        given = tensors_in(args)
        for number, expected in step.fresh.items():
            found = difference(value_of(given[number]), expected, self.tolerances)
            if found is not None:
                self.found = Found(self.count, f"tensor {number} of the arguments", found)
                return


class Snapshot(OpWatch):
    """Keeps the arguments of one op, for the program that shows it."""

    def __init__(self, number: int, keep: Callable[[Any], Any]) -> None:
        super().__init__()
        self.number = number
        self.keep = keep
        self.op: Any = None
        self.args: tuple[Any, ...] = ()
        self.draws = False  # random numbers of the default generator
        self.returns_none = False

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op; keep it and its arguments as they are before, if it is the one."""
        if self.count != self.number:
            return run()
        self.op, self.args = op, tuple(map(self.keep, args))
        before = pb.get_rng_state().tolist()
        result = run()
        self.draws = pb.get_rng_state().tolist() != before
        self.returns_none = result is None
        return result


# ---- nodes ---------------------------------------------------------------------------------------


class NodeStep(NamedTuple):
    """A node of the reference: the gradients that it got and those that it computed."""

    number: int
    given: list[Value | None]
    produced: list[Value | None]


def nodes_of(outputs: list[pb.Tensor]) -> list[Any]:
    """Return the nodes behind tensors in the order they were recorded, without leaves' ends."""
    found: dict[Any, None] = {}
    waiting = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += [before for before, _ in node.next_functions if before is not None]
    kept = [node for node in found if not node.name().endswith("AccumulateGrad")]
    return sorted(kept, key=lambda node: node._sequence_nr())


def starting_gradients(outputs: list[pb.Tensor]) -> list[pb.Tensor]:
    """Return what backward begins with: 1 for numbers, else the same normal numbers each time."""
    rng = np.random.default_rng(0)
    made = []
    for tensor in outputs:
        drawn = rng.standard_normal(tuple(tensor.shape)) if tensor.ndim else np.ones(())
        made.append(pb.tensor(drawn, dtype=tensor.dtype, device=tensor.device))
    return made


def record_backward(outputs: list[pb.Tensor]) -> tuple[list[Any], list[NodeStep]]:
    """Run backward; returns the nodes, and what each of them did in the order they ran."""
    nodes = nodes_of(outputs)
    steps: list[NodeStep] = []

    def watch(number: int, node: Any) -> None:
        def ran(produced: Any, given: Any) -> None:
            steps.append(NodeStep(number, values_of(given), values_of(produced)))

        node.register_hook(ran)

    for number, node in enumerate(nodes):
        watch(number, node)
    pb.autograd.backward(outputs, starting_gradients(outputs))
    return nodes, steps


def force_backward(
    outputs: list[pb.Tensor], names: list[str], steps: list[NodeStep], tolerances: Tolerances
) -> Found | None:
    """Run backward with the reference's gradients given to each node; returns what differs first.

    Raises: Divergence when the graph has other nodes than ``names``.
    """
    nodes = nodes_of(outputs)
    if [node.name() for node in nodes] != names:
        raise Divergence
    differing: list[Found] = []

    def watch(node: Any, step: NodeStep) -> None:
        def give(gradients: Any) -> Any:
            return tuple(
                gradient
                if gradient is None or value is None
                else pb.tensor(value.array, dtype=gradient.dtype, device=gradient.device)
                for gradient, value in zip(gradients, step.given)
            )

        def ran(produced: Any, given: Any) -> None:
            if not differing:
                differing.extend(compare_node(step, values_of(produced), tolerances))

        node.register_prehook(give)
        node.register_hook(ran)

    for step in steps:
        watch(nodes[step.number], step)
    pb.autograd.backward(outputs, starting_gradients(outputs))
    return differing[0] if differing else None


def compare_node(
    step: NodeStep, produced: list[Value | None], tolerances: Tolerances
) -> list[Found]:
    """Return how the first gradient that differs does."""
    for i, (actual, expected) in enumerate(zip(produced, step.produced)):
        if actual is not None and expected is not None:
            found = difference(actual, expected, tolerances)
            if found is not None:
                return [Found(step.number, f"gradient {i}", found)]
    return []


# ---- tensors in arguments and results ------------------------------------------------------------


def tensors_in(value: Any) -> list[pb.Tensor]:
    """Return the tensors in a tree."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, pb.Tensor)]


def tensors_of(result: Any, args: tuple[Any, ...]) -> list[pb.Tensor]:
    """Return the tensors that an op computed: its results, or the lists that it wrote."""
    return tensors_in(list(args) if result is None else result)


def values_of(gradients: Any) -> list[Value | None]:
    """Return copies of gradients on the host; None for those that are missing."""
    return [value_of(g) if isinstance(g, pb.Tensor) else None for g in gradients]


def overwrite(tensor: pb.Tensor, value: Value) -> None:
    """Set a tensor's elements, behind the back of its version and its history."""
    if tuple(tensor.shape) != value.array.shape or not tensor.numel():
        return
    once = tuple(slice(0, None if step else 1) for step in tensor.stride())  # of expanded dims
    given = pb.tensor(value.array[once], dtype=tensor.dtype, device=tensor.device)
    tensor.detach().data[once].copy_(given)


def give_fresh(step: Step, args: tuple[Any, ...]) -> None:
    """Replace the arguments that no op before made by those of the reference."""
    given = tensors_in(args)
    for number, value in step.fresh.items():
        overwrite(given[number], value)


def numbers_in(args: tuple[Any, ...]) -> list[str]:
    """Return the plain numbers in arguments, as text: NaN is not equal to NaN."""
    return [repr(leaf) for leaf in leaves(args) if isinstance(leaf, int | float | complex)]


def call_of(op: Any, args: tuple[Any, ...]) -> str:
    """Return a text of a call, cut where it becomes long."""
    text = ", ".join(f"{name}={described(value)}" for name, value in zip(op.arg_names, args))
    return f"{op.name}({text if len(text) < LONGEST else text[:LONGEST] + '...'})"


def other_call(step: Step, op: Any, args: tuple[Any, ...]) -> str:
    """Return the text of a call whose numbers are not those of the reference's, or nothing."""
    return call_of(op, args) if numbers_in(args) != step.numbers else ""


def described(value: Any) -> str:
    """Return a short text of an argument: of a tensor dtype and shape, and strides if unusual.

    >>> import pullback
    >>> described((pullback.ones(2, 3).t(), 0.5))
    '(float32[3, 2] with strides (1, 3), 0.5)'
    """
    if isinstance(value, pb.Tensor):
        strides = "" if value.is_contiguous() else f" with strides {tuple(value.stride())}"
        return f"{value.dtype.name}{list(value.shape)}{strides}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(described, value))})"
    return repr(value)


def user_line() -> str:
    """Return the innermost line outside of the package that runs: ``file:number: text``."""
    frame = user_frame()
    if frame is None:
        return ""
    file, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, number, frame.f_globals).strip()
    return f"{file}:{number}" + (f": {text}" if text else "")
