"""``compare_backends``: run a function on two sides and find where they part."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pullback as pb
from pullback.testing.comparison.measure import Tolerances, Value, difference, value_of
from pullback.testing.comparison.program import NodeProgram, OpProgram, compiled_op
from pullback.testing.comparison.result import BackendComparison, Finding
from pullback.testing.comparison.sides import Given, Seeds, Side
from pullback.testing.comparison.watch import (
    Compared,
    Divergence,
    Forced,
    Found,
    NodeStep,
    OpWatch,
    Reference,
    Step,
    compare_node,
    force_backward,
    record_backward,
    starting_gradients,
    tensors_in,
    tensors_of,
)

__all__ = ["compare_backends"]


def compare_backends(
    fn: Callable[..., Any],
    *inputs: Any,
    devices: Sequence[Any] = ("cpu", "cuda"),
    dtypes: Sequence[Any] | None = None,
    compiled: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    backward: bool = True,
) -> BackendComparison:
    """Run a function on two devices and find the first op and node whose results differ.

    ``fn(*inputs)`` runs on the first device, the reference, and on the second one; with ``dtypes``
    on the first device, in the first dtype and in the second; with ``compiled=True`` eagerly and
    compiled. Results are compared op by op, and gradients node by node, with the tolerances of
    ``assert_close`` for their dtypes unless ``rtol`` or ``atol`` is given. Where one differs, the
    second side runs again with the reference's inputs given to every op and node: what still
    differs makes the error itself, anything else got it from before.

    Inputs are tensors, modules, and tuples, lists and dicts of them; ``fn`` may be a module. Each
    side gets copies, and the same random numbers; the caller's tensors, gradients, generators and
    modes stay as they are. Modules and tensors that ``fn`` refers to otherwise are not copied.
    Backward begins with fixed random gradients of all outputs, unless ``fn`` runs it itself; a
    compiled backward is compared in the gradients of leaves. All results of the reference are
    kept on the host meanwhile.

    Raises: TypeError if ``fn`` cannot be called; ValueError unless there are two devices or
    dtypes, and for ``compiled=True`` with ``dtypes``; RuntimeError for devices that cannot be used;
    whatever ``fn`` raises.

    >>> import pullback
    >>> from pullback.testing import compare_backends
    >>> x = pullback.ones(3, requires_grad=True)
    >>> result = compare_backends(lambda x: x.exp().sum(), x, devices=("ref", "ref"))
    >>> print(result)
    equal: ref and ref agree on 2 ops and 2 nodes
    """
    first, second = sides_of(fn, devices, dtypes, compiled)
    run = _Comparison(fn, inputs, (first, second), Tolerances(rtol, atol), backward)
    try:
        return run.result()
    finally:
        run.seeds.restore()


def sides_of(fn: Any, devices: Any, dtypes: Any, compiled: bool) -> tuple[Side, Side]:
    """Return the two sides of the arguments of ``compare_backends``."""
    if not callable(fn):
        raise TypeError(f"compare_backends(): argument 'fn' must be callable, not {type(fn)}")
    names = [devices] if isinstance(devices, str) else list(devices)
    if compiled or dtypes is not None:
        device = pb.device(names[0])
        if compiled and dtypes is not None:
            raise ValueError(
                "compare_backends(): expected either dtypes or compiled=True, got both"
            )
        if compiled:
            return Side(f"{device}", device), Side(f"{device} compiled", device, compiled=True)
        if len(dtypes) != 2 or not all(
            isinstance(d, pb.dtype) and d.is_floating_point for d in dtypes
        ):
            raise ValueError(
                f"compare_backends(): argument 'dtypes' must be two floating-point dtypes, "
                f"got {dtypes!r}"
            )
        coarser = max(dtypes, key=lambda dtype: pb.finfo(dtype).eps)
        one, other = (Side(f"{device} in {d.name}", device, d, coarser) for d in dtypes)
        return one, other
    if len(names) != 2:
        raise ValueError(
            f"compare_backends(): argument 'devices' must be two devices, got {devices!r}"
        )
    one, other = (Side(str(pb.device(name)), pb.device(name)) for name in names)
    return one, other


class _Comparison:
    """One comparison while it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        sides: tuple[Side, Side],
        tolerances: Tolerances,
        backward: bool,
    ):
        self.function = function
        self.inputs = inputs
        self.first, self.second = sides
        self.tolerances = tolerances
        self.backward = backward
        self.seeds = Seeds()
        self.notes: list[str] = []
        self.steps: list[Step] = []
        self.node_steps: list[NodeStep] = []
        self.node_names: list[str] = []
        self.op_of_node: dict[int, int] = {}

    def given(self, side: Side) -> Given:
        """Return fresh copies for a side."""
        return Given(side, self.function, self.inputs)

    def forward(self, given: Given, watch: OpWatch) -> list[pb.Tensor]:
        """Run the function under a watch; returns the tensors of its result."""
        with given.entered(self.seeds), watch:
            result = given.call()
        return tensors_in(result)

    def result(self) -> BackendComparison:
        """Run everything that it takes."""
        given = self.given(self.first)
        watch = Reference([*given.state])
        outputs = self.forward(given, watch)
        self.steps = watch.steps
        expected = [value_of(tensor) for tensor in outputs]
        self.run_reference_backward(given, watch, outputs)
        gradients = gradients_of(given)

        compare = self.compare_compiled if self.second.compiled else self.compare_free
        forward, backward = compare(expected, gradients)
        program = None
        if forward is not None or backward is not None:
            forward, backward, program = self.look_for_cause(forward, backward)
        return BackendComparison(
            (self.first.label, self.second.label),
            len(self.steps),
            len(self.node_names),
            forward,
            backward,
            tuple(self.notes),
            program,
        )

    def run_reference_backward(
        self, given: Given, watch: OpWatch, outputs: list[pb.Tensor]
    ) -> None:
        """Record what the nodes of the reference do."""
        roots = self.roots(given, outputs)
        if not roots:
            return
        try:
            with given.entered(self.seeds):
                nodes, self.node_steps = record_backward(roots)
        except NotImplementedError as error:
            self.notes.append(f"backward is not compared: {error}")
            return
        self.node_names = [node.name() for node in nodes]
        self.op_of_node = {
            number: watch.nodes[node] for number, node in enumerate(nodes) if node in watch.nodes
        }

    def roots(self, given: Given, outputs: list[pb.Tensor]) -> list[pb.Tensor]:
        """Return the outputs that backward begins at; none if the function ran it itself."""
        if not self.backward or any(leaf.grad is not None for leaf in given.leaves.values()):
            return []
        return [tensor for tensor in outputs if tensor.grad_fn is not None]

    # ---- the other side as it runs -----------------------------------------------------------

    def compare_free(
        self, expected: list[Value], gradients: dict[str, Value]
    ) -> tuple[Finding | None, Finding | None]:
        """Compare the other device or dtype as it runs, with the errors it carries along."""
        given = self.given(self.second)
        watch = Compared(self.steps, self.tolerances, self.second.dtype is not None)
        try:
            outputs = self.forward(given, watch)
        except Exception as error:
            if watch.found is None:
                raise
            self.note_raised(error)
            return self.op_finding(watch.found, False), None
        forward = self.op_finding(watch.found, False) if watch.found else None
        forward = forward or self.output_finding(outputs, expected, watch)
        backward = None
        roots = self.roots(given, outputs)
        if roots and self.node_steps:
            with given.entered(self.seeds):
                nodes, steps = record_backward(roots)
            if [node.name() for node in nodes] == self.node_names:
                backward = self.node_finding_of(steps)
        return forward, backward or self.gradient_finding(given, gradients)

    def node_finding_of(self, steps: list[NodeStep]) -> Finding | None:
        """Return the first node, in the order of the reference, that computed something else."""
        produced = {step.number: step.produced for step in steps}
        for step in self.node_steps:
            for found in compare_node(step, produced.get(step.number, []), self.tolerances):
                return self.node_finding(found, False)
        return None

    def compare_compiled(
        self, expected: list[Value], gradients: dict[str, Value]
    ) -> tuple[Finding | None, Finding | None]:
        """Compare the compiled function: its results, then each op's as further results."""
        given, outputs, _ = self.replay(with_steps=False)
        forward = self.output_finding(outputs, expected, None)
        if roots := self.roots(given, outputs):
            with given.entered(self.seeds):
                pb.autograd.backward(roots, starting_gradients(roots))
        backward = self.gradient_finding(given, gradients)
        if forward is not None:
            _, _, results = self.replay(with_steps=True)
            for number, (step, tensors) in enumerate(zip(self.steps, results)):
                for i, (tensor, value) in enumerate(zip(tensors, step.results)):
                    found = difference(value_of(tensor), value, self.tolerances)
                    if found is not None:
                        return self.op_finding(Found(number, f"result {i}", found), False), backward
            self.notes.append("with every op's result kept, no op of the program differs")
        return forward, backward

    def replay(self, with_steps: bool) -> tuple[Given, list[pb.Tensor], list[list[pb.Tensor]]]:
        """Capture the function, then replay it on the same inputs; returns what it returned."""
        given = self.given(self.second)
        before = [tensor.detach().clone() for tensor in given.state]

        def traced(*inputs: Any) -> Any:
            if not with_steps:
                return given.function(*inputs), []
            keep = _Keep()
            with keep:
                result = given.function(*inputs)
            return result, keep.results

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program = pb.compile(traced)
            with given.entered(self.seeds):
                program(*given.inputs)
            for tensor, value in zip(given.state, before):
                tensor.detach().data.copy_(value)
            for leaf in given.leaves.values():
                leaf.grad = None
            with given.entered(self.seeds):
                result, steps = program(*given.inputs)
        for warning in caught:
            if str(warning.message).startswith("compile()"):
                self.notes.append(str(warning.message))
        return given, tensors_in(result), steps

    # ---- the other side with equal inputs -----------------------------------------------------

    def look_for_cause(
        self, forward: Finding | None, backward: Finding | None
    ) -> tuple[Finding | None, Finding | None, Callable[[], str] | None]:
        """Replace findings by the op or node that differs with equal inputs, if there is one."""
        node: Found | None = None
        if self.second.compiled:
            watch: Compared = _CompiledAlone(self.steps, self.tolerances)
            self.forward(self.given(self.first), watch)
        else:
            watch = Forced(self.steps, self.tolerances, self.second.dtype is not None)
            try:
                node = self.force(watch, backward is not None)
            except Exception as error:
                self.note_raised(error)
        program: Callable[[], str] | None = None
        if node is not None:
            backward = self.node_finding(node, True)
            number = self.op_of_node.get(node.number)
            if number is not None:
                program = self.program(NodeProgram, number, node)
        if watch.found is not None:
            forward = self.op_finding(watch.found, True)
            if forward.with_equal_inputs:
                program = self.program(OpProgram, watch.found.number, None)
        return forward, backward, program

    def force(self, watch: Forced, with_backward: bool) -> Found | None:
        """Run the other side with the reference's inputs; returns the first node that differs."""
        given = self.given(self.second)
        outputs = self.forward(given, watch)
        if watch.other_op is not None or not self.node_steps or not with_backward:
            return None
        roots = self.roots(given, outputs)
        with given.entered(self.seeds), contextlib.suppress(Divergence):
            return force_backward(roots, self.node_names, self.node_steps, self.tolerances)
        return None

    def note_raised(self, error: Exception) -> None:
        """Note an exception that the reference does not raise, behind a difference."""
        note = f"later {self.second.label} raised {type(error).__name__}: {error}"
        if note not in self.notes:
            self.notes.append(note)

    def program(self, kind: Any, number: int, node: Found | None) -> Callable[[], str]:
        """Return what writes the program of an op or node, whose inputs are taken now."""
        sides = self.first, self.second
        written = kind(sides, self.tolerances, number)
        given = self.given(self.first)
        self.forward(given, written.snapshot)
        if node is not None:
            written.gradients = next(
                step.given for step in self.node_steps if step.number == node.number
            )
        return written.text

    # ---- findings ----------------------------------------------------------------------------

    def op_finding(self, found: Found, equal_inputs: bool) -> Finding:
        """Return the finding of an op."""
        step = self.steps[found.number]
        made = "argument" if found.what.startswith("tensor") else "op"
        return Finding(
            made,
            step.name,
            found.number,
            found.what if made == "argument" or len(step.results) > 1 else "",
            step.arguments,
            step.line,
            equal_inputs if made == "op" and not found.other_call else None,
            found.difference,
            found.other_call and f"{self.second.label} calls {found.other_call}",
        )

    def node_finding(self, found: Found, equal_inputs: bool) -> Finding:
        """Return the finding of a node, with the op that recorded it."""
        number = self.op_of_node.get(found.number)
        step = None if number is None else self.steps[number]
        return Finding(
            "node",
            self.node_names[found.number],
            found.number,
            found.what,
            step.arguments if step else "",
            step.line if step else "",
            equal_inputs,
            found.difference,
        )

    def output_finding(
        self, outputs: list[pb.Tensor], expected: list[Value], watch: Compared | None
    ) -> Finding | None:
        """Return the first output that differs; names the op where the sides ran other ones."""
        detail = ""
        if watch is not None and watch.other_op is not None:
            at = min(watch.count, len(self.steps)) - 1
            detail = f"the sides do not run the same ops, as from {watch.other_op!r} (number {at})"
        if len(outputs) != len(expected):
            counts = f"{len(outputs)} tensors instead of {len(expected)}"
            return Finding("output", "count", detail=f"{self.second.label} returns {counts}")
        for number, (tensor, value) in enumerate(zip(outputs, expected)):
            found = difference(value_of(tensor), value, self.tolerances)
            if found is not None:
                return Finding("output", str(number), difference=found, detail=detail)
        return None

    def gradient_finding(self, given: Given, expected: dict[str, Value]) -> Finding | None:
        """Return the first leaf whose gradient differs."""
        actual = gradients_of(given)
        for name, value in expected.items():
            if name not in actual:
                return Finding("gradient", name, detail=f"{self.second.label} has none")
            found = difference(actual[name], value, self.tolerances)
            if found is not None:
                return Finding("gradient", name, difference=found)
        return None


def gradients_of(given: Given) -> dict[str, Value]:
    """Return the gradients of leaves by their names."""
    return {n: value_of(leaf.grad) for n, leaf in given.leaves.items() if leaf.grad is not None}


class _Keep(OpWatch):
    """Keeps a copy of every result, as further results of a compiled function."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[list[pb.Tensor]] = []

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        result = run()
        self.results.append([t.detach().clone() for t in tensors_of(result, args)])
        return result


class _CompiledAlone(Compared):
    """Runs each op a second time, compiled by itself."""

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        step = self.step_of(op)
        if step is None or self.found is not None or op.is_inplace or op.is_view:
            return run()
        result = run()
        given = [tensor.detach() for tensor in tensors_in(args)]
        if given:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="compile")
                program = compiled_op(op, args)
                program(*given)
                replayed = tensors_in(program(*given))
            self.compare(step._replace(results=[value_of(t) for t in tensors_in(result)]), replayed)
        return result
