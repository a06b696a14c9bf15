"""``compare_backends``: run a function on two sides and find where they part."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Container, Sequence
from typing import Any, cast

import numpy as np

import pullback as pb
from pullback.testing.comparison.measure import (
    Plain,
    Tolerances,
    Value,
    coarsest,
    difference,
    observed,
    value_of,
)
from pullback.testing.comparison.nodes import (
    NodeStep,
    compare_node,
    force_backward,
    leaves_of,
    record_backward,
    starting_gradients,
)
from pullback.testing.comparison.parts import parts, tensors_in_parts
from pullback.testing.comparison.program import NodeProgram, OpProgram, compiled_op
from pullback.testing.comparison.result import BackendComparison, Finding
from pullback.testing.comparison.sides import (
    Given,
    Gradients,
    Seeds,
    Side,
    check_tolerance,
    sides_of,
)
from pullback.testing.comparison.watch import (
    Compared,
    Divergence,
    Forced,
    Found,
    Kept,
    OpWatch,
    Reference,
    Step,
    name_of,
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

    Inputs are tensors, modules, NumPy arrays, and tuples, lists, dicts and dataclasses of them;
    ``fn`` may be a module. Each side gets copies, and the same random numbers; the caller's
    tensors, gradients, generators and modes stay as they are. Modules and tensors that ``fn``
    refers to otherwise are not copied. Compared are dtypes (unless ``dtypes`` is given) and
    elements of tensors, and arrays, numbers, bools and strings, in the results, and after the call
    in the inputs with their buffers; a note names what else a result has. Backward begins with
    fixed random gradients of all outputs, unless ``fn`` runs it itself; a compiled backward is
    compared in the gradients of leaves. All results of the reference are kept on the host
    meanwhile.

    Raises: TypeError if ``fn`` cannot be called, or returns a generator, for ``devices`` and
    ``dtypes`` that are no sequences, and tolerances that are no numbers; ValueError unless there
    are two devices or dtypes, for the device "meta", for ``compiled=True`` with ``dtypes``, and for
    negative tolerances; RuntimeError for devices that cannot
    be used; whatever ``fn`` raises, with a note if only the second side does.

    >>> import pullback
    >>> from pullback.testing import compare_backends
    >>> x = pullback.ones(3, requires_grad=True)
    >>> result = compare_backends(lambda x: x.exp().sum(), x, devices=("ref", "ref"))
    >>> print(result)
    equal: ref and ref agree on 2 ops and 2 nodes
    """
    first, second = sides_of(fn, devices, dtypes, compiled)
    for name, value in (("rtol", rtol), ("atol", atol)):
        check_tolerance(name, value)
    tolerances = Tolerances(rtol, atol, same_dtype=dtypes is None)
    run = _Comparison(fn, inputs, (first, second), tolerances, backward)
    try:
        return run.result()
    finally:
        run.seeds.restore()
        run.gradients.restore()


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
        self.gradients = Gradients()  # of tensors that are not copied
        self.notes: list[str] = []
        self.steps: list[Step] = []
        self.node_steps: list[NodeStep] = []
        self.node_names: list[str] = []
        self.op_of_node: dict[int, int] = {}

    def given(self, side: Side) -> Given:
        """Return fresh copies for a side."""
        self.gradients.restore()
        return Given(side, self.function, self.inputs)

    def forward(self, given: Given, watch: OpWatch) -> Any:
        """Run the function under a watch; returns its result."""
        watch.on_leaf = lambda leaf: self.keep_gradient(given, leaf)
        with given.entered(self.seeds), watch:
            return given.call()

    def keep_gradient(self, given: Given, leaf: pb.Tensor) -> None:
        """Remember the gradient of a leaf that was not copied."""
        if not any(leaf is copied for copied in given.leaves.values()):
            self.gradients.keep(leaf)

    def backward_of(self, given: Given, roots: list[pb.Tensor], run: Callable[..., Any]) -> Any:
        """Run a backward pass, after which only copies have other gradients."""
        for leaf in leaves_of(roots):
            self.keep_gradient(given, leaf)
        with given.entered(self.seeds):
            return run(roots)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def result(self) -> BackendComparison:
        """Run everything that it takes."""
        given = self.given(self.first)
        watch = Reference([x for x in given.state().values() if isinstance(x, pb.Tensor)])
        result = self.forward(given, watch)
        self.steps = watch.steps
        self.notes += given.notes
        expected = _Observed(result, given)
        for i, (value, part) in enumerate(zip(expected.outputs, expected.parts)):
            if value is None:
                self.note(f"output {i} (a {type(part).__name__}) was not compared")
        values = [value for step in self.steps for value in step.results]
        self.tolerances = self.tolerances._replace(
            coarsest=self.second.rounded_to or coarsest([*values, *expected.state.values()])
        )
        self.run_reference_backward(given, watch, tensors_in_parts(result))
        expected.gradients = gradients_of(given)

        compare = self.compare_compiled if self.second.compiled else self.compare_free
        forward, backward = compare(expected)
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
            nodes, self.node_steps = self.backward_of(given, roots, record_backward)
        except NotImplementedError as error:
            self.note(f"backward is not compared: {error}")
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

    def compare_free(self, expected: _Observed) -> tuple[Finding | None, Finding | None]:
        """Compare the other device or dtype as it runs, with the errors it carries along."""
        given = self.given(self.second)
        watch = Compared(self.steps, self.tolerances, self.second.dtype is not None)
        try:
            result = self.forward(given, watch)
        except Exception as error:
            if watch.found is None:
                self.name_side(error)
                raise
            self.note_raised(error)
            return self.op_finding(watch.found, False), None
        self.note_other_ops(watch)
        forward = self.op_finding(watch.found, False) if watch.found else None
        forward = forward or self.result_finding(_Observed(result, given), expected, watch)
        backward = None
        roots = self.roots(given, tensors_in_parts(result))
        if roots and self.node_steps:
            try:
                nodes, steps = self.backward_of(given, roots, record_backward)
            except Exception as error:
                if forward is None:
                    self.name_side(error)
                    raise
                self.note_raised(error)
                return forward, None
            if [node.name() for node in nodes] == self.node_names:
                backward = self.node_finding_of(steps)
            else:
                self.note("the sides record other nodes: only gradients of leaves are compared")
        return forward, backward or self.gradient_finding(given, expected.gradients)

    def note_other_ops(self, watch: Compared) -> None:
        """Note where the sides ran other ops, though what they return may be equal."""
        for name in dict.fromkeys(watch.parted):
            self.note(f"inside {name} the sides do not run the same ops: these are not compared")
        other, number = watch.other_op, watch.other_number
        if other is None:
            number = watch.count
            while number < len(self.steps) and watch.is_copy(self.steps[number].name):
                number += 1
            other = "nothing" if number < len(self.steps) else None
        if other is not None:
            there = self.steps[number].name if number < len(self.steps) else "nothing"
            self.note(
                f"the sides do not run the same ops: as number {number} {self.first.label} runs "
                f"{there} and {self.second.label} {other}; ops from there on are not compared"
            )

    def node_finding_of(self, steps: list[NodeStep]) -> Finding | None:
        """Return the first node, in the order of the reference, that computed something else."""
        produced = {step.number: step.produced for step in steps}
        for step in self.node_steps:
            for found in compare_node(step, produced.get(step.number, []), self.tolerances):
                return self.node_finding(found, False)
        return None

    def compare_compiled(self, expected: _Observed) -> tuple[Finding | None, Finding | None]:
        """Compare the compiled function: its results, then each op's as further results."""
        try:
            given, result, _ = self.replay(with_steps=False)
            forward = self.result_finding(_Observed(result, given), expected, None)
            if roots := self.roots(given, tensors_in_parts(result)):
                start = starting_gradients(roots)
                self.backward_of(given, roots, lambda roots: pb.autograd.backward(roots, start))
        except Exception as error:
            self.name_side(error)
            raise
        backward = self.gradient_finding(given, expected.gradients)
        if forward is not None:
            _, _, results = self.replay(with_steps=True)
            for number, (step, tensors) in enumerate(zip(self.steps, results)):
                for i, (tensor, value) in enumerate(zip(tensors, step.results)):
                    found = difference(value_of(tensor), value, self.tolerances)
                    if found is not None:
                        return self.op_finding(Found(number, f"result {i}", found), False), backward
            self.note("with every op's result kept, no op of the program differs")
        return forward, backward

    def replay(self, with_steps: bool) -> tuple[Given, Any, list[list[pb.Tensor]]]:
        """Capture the function, then replay it on the same inputs; returns what it returned."""
        given = self.given(self.second)
        before = {
            path: part.detach().clone() if isinstance(part, pb.Tensor) else part.copy()
            for path, part in given.state().items()
            if isinstance(part, pb.Tensor | np.ndarray)
        }

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
            for path, part in given.state().items():
                if isinstance(part, pb.Tensor) and path in before:
                    part.detach().data.copy_(before[path])
                elif isinstance(part, np.ndarray) and path in before:
                    np.copyto(part, before[path])
            for leaf in given.leaves.values():
                leaf.grad = None
            with given.entered(self.seeds):
                result, steps = program(*given.inputs)
        for warning in caught:
            if str(warning.message).startswith("compile()"):
                self.note(str(warning.message))
        return given, result, steps

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
            backward = self.node_finding(node, True, watch.unequal)
            number = self.op_of_node.get(node.number)
            if number is not None and self.steps[number].first is None and not node.ran:
                program = self.program(NodeProgram, number, node)
        if watch.found is not None:
            forward = self.op_finding(watch.found, True)
            is_op = self.steps[watch.found.number].first is None
            program = None
            if forward.with_equal_inputs and is_op:
                program = self.program(OpProgram, watch.found.number, None, watch.found.overwrote)
        return forward, backward, program

    def force(self, watch: Forced, with_backward: bool) -> Found | None:
        """Run the other side with the reference's inputs; returns the first node that differs."""
        given = self.given(self.second)
        outputs = tensors_in_parts(self.forward(given, watch))
        if watch.other_op is not None or not self.node_steps or not with_backward:
            return None
        wrong = self.steps[watch.found.number].name if watch.found is not None else ""

        def run(roots: list[pb.Tensor]) -> Found | None:
            return force_backward(roots, self.node_names, self.node_steps, self.tolerances, wrong)

        with contextlib.suppress(Divergence):
            return cast("Found | None", self.backward_of(given, self.roots(given, outputs), run))
        return None

    def note_raised(self, error: Exception) -> None:
        """Note an exception that the reference does not raise, behind a difference."""
        self.note(f"later {self.second.label} raised {type(error).__name__}: {error}")

    def name_side(self, error: Exception) -> None:
        """Add to an exception that only the second side raised it."""
        note = (
            f"compare_backends(): {self.second.label} raised this, {self.first.label} ran without "
            f"an exception"
        )
        if hasattr(error, "add_note"):
            error.add_note(note)
        elif len(error.args) == 1 and isinstance(error.args[0], str):  # before Python 3.11
            error.args = (f"{error.args[0]} ({note})",)

    def program(
        self, kind: Any, number: int, node: Found | None, overwrote: str = ""
    ) -> Callable[[], str]:
        """Return what writes the program of an op or node, whose inputs are taken now."""
        sides = self.first, self.second
        written = kind(sides, self.tolerances, number)
        written.overwrites = bool(overwrote)
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
        what = found.what if made == "argument" or len(step.results) > 1 else ""
        detail = found.other_call and f"{self.second.label} calls {found.other_call}"
        if found.overwrote:
            what = "overwrote its input"
            detail = f"argument {found.overwrote!r} was changed, which {step.name} shall not write"
        return Finding(
            made,
            step.name,
            found.number,
            what,
            step.arguments,
            step.line,
            equal_inputs if made == "op" and not found.other_call else None,
            found.difference,
            detail,
        )

    def node_finding(
        self, found: Found, equal_inputs: bool, unequal: Container[int] = ()
    ) -> Finding:
        """Return the finding of a node, with the op that recorded it."""
        number = self.op_of_node.get(found.number)
        step = None if number is None else self.steps[number]
        is_known, detail = True, ""
        if found.ran:
            is_known, detail = False, f"backward runs {found.ran} again, which differs itself"
        elif equal_inputs and number is not None and number in unequal:
            is_known, detail = False, "its forward keeps other values, which could not be replaced"
        return Finding(
            "node",
            self.node_names[found.number],
            found.number,
            found.what,
            step.arguments if step else "",
            step.line if step else "",
            equal_inputs if is_known else None,
            found.difference,
            detail,
        )

    def result_finding(
        self, actual: _Observed, expected: _Observed, watch: Compared | None
    ) -> Finding | None:
        """Return the first output, else the first input after the call, that differs.

        It names the op where the sides ran other ones.
        """
        detail = ""
        if watch is not None and watch.other_op is not None:
            detail = (
                f"the sides do not run the same ops, as from {watch.other_op!r} (number "
                f"{watch.other_number})"
            )
        label = self.second.label
        if actual.tensors != expected.tensors:
            counts = f"{actual.tensors} tensors instead of {expected.tensors}"
            return Finding("output", "count", detail=f"{label} returns {counts}")
        if actual.paths != expected.paths:
            what = f"{label} returns {actual.structure()} instead of {expected.structure()}"
            return Finding("output", "structure", detail=what)
        for number, pair in enumerate(zip(actual.outputs, expected.outputs)):
            found = difference(*pair, self.tolerances)
            if found is not None:
                return Finding("output", str(number), difference=found, detail=detail)
        for path, value in expected.state.items():
            if path not in actual.state:
                return Finding("state", path, detail=f"{label} has none")
            found = difference(actual.state[path], value, self.tolerances)
            if found is not None:
                return Finding("state", path, difference=found, detail=detail)
        for path in actual.state:
            if path not in expected.state:
                return Finding("state", path, detail=f"{self.first.label} has none")
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


class _Observed:
    """What a side returned, and what its inputs are after the call."""

    def __init__(self, result: Any, given: Given):
        found = list(parts(result))
        self.paths = [path for path, _ in found]
        self.parts = [part for _, part in found]
        self.outputs: list[Value | Plain | None] = [observed(part) for part in self.parts]
        self.tensors = sum(isinstance(part, pb.Tensor) for part in self.parts)
        self.state = {path: observed(part) for path, part in given.state().items()}
        self.gradients: dict[str, Value] = {}

    def structure(self) -> str:
        """Return the paths and kinds of what was returned."""
        kinds = (f"result{path}: {type(x).__name__}" for path, x in zip(self.paths, self.parts))
        return f"({', '.join(kinds)})"


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

    def handle_function(self, call: Any, args: tuple[Any, ...], kept: Kept) -> None:
        self.results.append([t.detach().clone() for t in kept.tensors])


class _CompiledAlone(Compared):
    """Runs each op a second time, compiled by itself."""

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        step = self.step_of(name_of(op, args))
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

    def handle_function(self, call: Any, args: tuple[Any, ...], kept: Kept) -> None:
        self.step_of_function(call)  # only ops are compiled alone
