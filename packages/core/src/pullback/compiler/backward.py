"""Backward passes of compiled functions: programs that are the graph of their results."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pullback._c.base.state import is_grad_enabled, swap_grad_enabled
from pullback._c.capture.compiled import Entry, are_transformed, flat_memory
from pullback._c.capture.outside import (
    address_of_edge,
    edge_of,
    lead_to,
    outer_edges,
    outer_sources,
    sequence_of,
)
from pullback._c.capture.recorder import Recorder
from pullback._c.engine import engine
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.autocast import get_autocast_state, set_autocast_state
from pullback.autograd import Function
from pullback.autograd.grad_mode import enable_grad, no_grad
from pullback.compiler.effects import may_have_effects
from pullback.compiler.trees import leaves
from pullback.ops import ops
from pullback.random import default_generator

__all__ = ["Backward", "CompiledFunction", "has_graph"]


class Backward:
    """The backward pass of some of a function's results, captured with it.

    Results of which one is computed from another, or that have nothing in common, have passes of
    their own: ``following`` has those after the first, in an order in which each comes after those
    of the results that it reaches.
    """

    def __init__(self, capture: Any, results: list[Any], graph: list[int]):
        self.function = capture.owner.function
        self.count = len(results)
        self.autocast = get_autocast_state()  # a replay has the same
        self.graph = graph  # numbers of results
        self.twins: list[tuple[int, int]] = []  # results, and others that are the same tensors
        self.following: list[Backward] = []
        self.shared: set[int] = set()  # results that share memory with others, or with arguments
        self.targets: list[Any] = []  # leaves, numbers of arguments, and ("result", number)
        self.program: Any = None
        self.given: list[bool] = []  # whether each target has a gradient
        self.sources: list[tuple[str, Any]] = []
        self.saved_results: list[Tensor] = []  # until the forward program is made
        self.saved = slice(0, 0)  # what the forward program returns for this pass
        self.layouts: list[Any] = []  # of the gradients that the program takes
        self.kinds: list[Any] = []  # the same: dtypes and devices
        self.reach: list[set[int]] = []  # the targets of each result
        self.recording: Any = None  # for programs for other sizes
        self.draws_again = False  # checkpoints in it draw the numbers of the forward pass
        self.reads_leaves = False  # as targets, and nothing else
        self.passes_gradients = False  # to hooks or custom functions, which see None
        self.has_code = False  # code of the program runs in it, and reads what may change

    @classmethod
    def of(
        cls, capture: Any, recorder: Recorder, results: list[Any], graph: list[Tensor]
    ) -> Backward | None:
        """Capture the backward pass of results that require grad; None where it is refused."""
        known = {id(one) for one in graph}
        first_of: dict[int, int] = {}
        same = [(i, first_of.setdefault(id(one), i)) for i, one in enumerate(results)]
        same = [(i, first) for i, first in same if id(results[i]) in known]
        numbers = [i for i, first in same if i == first]
        groups = _groups(capture, recorder, results, numbers)
        if isinstance(groups, str):
            capture.refusal = groups
            return None
        parts: list[Backward] = []
        for group in groups:
            ends = {address_of_edge(results[i]): ("result", i) for i in numbers if len(groups) > 1}
            for i in group:
                ends.pop(address_of_edge(results[i]), None)
            part = cls._of_group(capture, recorder, results, group, ends)
            if part is None:
                return None
            begin = parts[-1].saved.stop if parts else 0
            part.saved = slice(begin, begin + len(part.saved_results))
            parts.append(part)
        first, *first.following = parts
        first.twins = [(i, j) for i, j in same if i != j]
        return first

    @classmethod
    def _of_group(
        cls,
        capture: Any,
        recorder: Recorder,
        results: list[Any],
        group: list[int],
        ends: dict[Any, Any],
    ) -> Backward | None:
        made = cls(capture, results, group)
        edges = outer_edges(recorder, [results[i] for i in made.graph], capture.inputs, ends)
        if isinstance(edges, str):
            capture.refusal = edges
            return None
        made.targets, _, freed, code, own = edges
        different = {id(one): one for one in results}.values()
        owners = Counter(map(_memory_of, (*different, *capture.inputs)))
        made.shared = {i for i in made.graph if owners[_memory_of(results[i])] > 1}
        if freed:  # a backward pass inside the function has run through it
            return made
        made.has_code = bool(code)
        made.passes_gradients = any(type(one) is not tuple for one in code)  # else what is saved
        for one in code:
            if may_have_effects(one):
                kind = getattr(type(one), "_forward_cls", type(one))
                name = getattr(one, "__qualname__", kind.__qualname__)
                capture.refusal = f"a backward pass in which {name} may do more than compute"
                return None
        if made.passes_gradients and len(made.graph) > 1 and recorder.has_written():
            # It cannot run again for a pass in which some of them have no gradient.
            capture.refusal = (
                "writes to memory from outside, with several results behind a hook or function"
            )
            return None
        tensors = [_given(one, capture.inputs, results, edge_of) for one in made.targets]
        outputs = [results[i] for i in made.graph]
        with no_grad():
            seeds = [one.detach().clone().fill_(1) for one in outputs]
        made.layouts = [(one.shape, one.stride()) for one in seeds]
        made.kinds = [(one.dtype, one.device) for one in seeds]
        for one in outputs if len(outputs) > 1 else ():
            reached = outer_edges(recorder, [one], capture.inputs, ends)[0]
            made.reach.append(
                {i for i, t in enumerate(made.targets) if any(_same_target(t, r) for r in reached)}
            )
        position = default_generator.position()
        inner = Recorder(tuple(seeds), capture.owner.fullgraph, capture.sizes, recorder)
        if not inner.begin():  # another thread records
            capture.is_late = True
            return None
        try:
            with capture.sizes or contextlib.nullcontext():
                # Nobody sees the gradients of its own leaves, but a pass to them may fail.
                grads = _gradients(outputs, tensors + own, seeds, create_graph=False)
                del grads[len(tensors) :]
        except Exception as error:
            if inner.refusal is not None and capture.owner.fullgraph:
                raise
            capture.refusal = f"results whose backward pass fails: {error}"
            return None
        finally:
            inner.end()
            writes = inner.has_written()
            inner.restore()
            default_generator.set_position(*position)
        if inner.refusal is not None:
            capture.refusal = f"{inner.refusal} in its backward pass"
            return None
        if any(one is not None and one.is_sparse for one in grads):
            capture.refusal = "a sparse gradient of its results"
            return None
        if writes and len(outputs) > 1:
            capture.refusal = "several results whose backward pass writes to memory from outside"
            return None
        made.given = [one is not None for one in grads]
        made.sources, made.saved_results = outer_sources(inner, recorder)
        made.program = inner.program([one for one in grads if one is not None])
        made.recording = inner.recording
        made.draws_again = any(blocks == -1 for *_, blocks in inner.draws)
        if made.program is None:
            capture.refusal = inner.refusal or "a backward pass that keeps new memory"
            return None
        return made

    def parts(self) -> list[Backward]:
        """Return the passes of all results."""
        return [self, *self.following]

    def attach(self, entry: Entry, name: str) -> None:
        """Make an entry's runs return results with a graph."""
        for part in self.parts():
            part.saved_results = []
            part.reads_leaves = bool(part.targets) and all(
                isinstance(one, Tensor) for one in part.targets
            )
            if part.program is not None:
                part.program.name = f"{name} backward"
        entry.backward = self
        entry.replay = self.replay

    def is_like(self, other: Backward) -> bool:
        """Return True if another call's backward pass has the same arguments and results."""
        return (
            self.graph == other.graph
            and self.twins == other.twins
            and not (self.following or other.following)
            and self.given == other.given
            and (self.program is None) == (other.program is None)
            and len(self.targets) == len(other.targets)
            and len(self.sources) == len(other.sources)
            and len(self.layouts) == len(other.layouts)
            and all(_same_target(*pair) for pair in zip(self.targets, other.targets))
            and all(
                kind == kind_there
                and (what.data_ptr() == there.data_ptr() if kind == "outside" else what == there)
                for (kind, what), (kind_there, there) in zip(self.sources, other.sources)
            )
        )

    def with_program(self, program: Any, layouts: list[Any]) -> Backward:
        """Return the backward pass for another size."""
        made = copy.copy(self)
        made.program, made.layouts, made.recording = program, layouts, None
        return made

    def replay(
        self, entry: Entry, tensors: list[Tensor], args: Any, kwargs: Any
    ) -> list[Any] | None:
        """Run the forward program; its results have the backward programs as their graph."""
        call = _Call(self, entry, tensors, args, kwargs)
        before = swap_grad_enabled(True)  # the function has recorded them
        try:
            for part in self.parts():
                targets = part.targets
                if not part.reads_leaves:
                    targets = [_given(one, tensors, call.results) for one in targets]
                if not targets:  # the graph ends in leaves that the function has made
                    targets.append(ops.zeros((), requires_grad=True))
                found = CompiledFunction.apply(call, part, *targets)
                if not call.done:
                    return None
                for i, one in zip(part.graph, found):
                    call.results[i] = one
            for i, first in self.twins:
                call.results[i] = call.results[first]
        finally:
            swap_grad_enabled(before)
        return call.results + call.rest

    def gradients(self, ctx: Any, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
        """Return the gradients of the targets: by the program, or recorded where that is asked."""
        seeds = list(grads)
        if is_grad_enabled():
            return self.recorded(ctx, seeds, True)
        changed = (self.passes_gradients and any(one is None for one in seeds)) or (
            self.has_code and not ctx.call.entry.signature.holds()
        )
        if changed or are_transformed(seeds):
            return self.recorded(ctx, seeds, False)
        fitting = [self.fitting(number, one) for number, one in enumerate(seeds)]
        given = [*fitting, *ctx.saved_tensors]
        if self.draws_again:
            with _drawn_again(ctx.call.drawn):
                found = self.program.run(given)
        else:
            found = self.program.run(given)
        if found is None:  # another choice by values than when it was recorded
            return self.recorded(ctx, seeds, False)
        each = iter(found)
        result = [next(each) if one else None for one in self.given]
        used = [number for number, one in enumerate(seeds) if one is not None]
        if len(used) == len(seeds):
            return result
        # Zeros stood for gradients that are not there. That is the same, but where 0 * inf is NaN.
        if not ctx.call.entry.program.writes and not all(one.isfinite().all() for one in found):
            return self.recorded(ctx, seeds, False)
        reached = set().union(*(self.reach[number] for number in used))
        return [one if i in reached else None for i, one in enumerate(result)]

    def fitting(self, number: int, seed: Tensor | None) -> Tensor:
        """Return the gradient of a result in the layout that the program takes."""
        shape, stride = self.layouts[number]
        if seed is None:
            dtype, device = self.kinds[number]
            return ops.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        seed = seed.resolve_conj().resolve_neg()
        if seed.stride() == stride:
            return seed
        found = seed.contiguous()  # cheaper, and mostly enough
        return found if found.stride() == stride else _in_layout(seed, shape, stride)

    def recorded(self, ctx: Any, seeds: list[Tensor], create_graph: bool) -> list[Tensor | None]:
        """Return gradients, perhaps with a history: the function runs again, eagerly."""
        call = ctx.call
        if call.entry.program.writes or call.entry.grads:
            raise RuntimeError(
                "backward(): a compiled function that writes to its arguments or outer tensors, "
                "or to their gradients, has no create_graph, nor another backward pass for other "
                "values: call the function itself"
            )
        signature = call.entry.signature
        now = [one for one in leaves((call.args, call.kwargs)) if isinstance(one, Tensor)]
        if not (
            signature.takes(call.args, call.kwargs)
            and signature.holds()
            and all(any(one is each for each in call.tensors) for one in now)
            and signature.versions(call.tensors) == call.versions
        ):
            raise RuntimeError(
                "backward(): what a compiled function refers to, or an argument, was changed since "
                "its call: then it has no create_graph, nor another backward pass for other values"
            )
        _ = ctx.saved_tensors  # raises where they were changed since
        with enable_grad(), _drawn_again(call.drawn), _autocast_as(self.autocast):
            again = leaves(self.function(*call.args, **call.kwargs))
            pairs = [(again[i], one) for i, one in zip(self.graph, seeds) if one is not None]
        with enable_grad():
            outputs, given = zip(*pairs)
            targets = [
                edge_of(again[one[1]]) if type(one) is tuple else tensor
                for one, tensor in zip(self.targets, ctx.targets)
            ]
            found = _gradients(outputs, targets, given, create_graph)
            for one, tensor in zip(self.targets, ctx.targets):
                if create_graph and type(one) is tuple:
                    lead_to([each for each in found if each is not None], again[one[1]], tensor)
            return found


def _gradients(outputs: Any, targets: Any, seeds: Any, create_graph: bool) -> list[Tensor | None]:
    """Return gradients of targets; one's history is not gone through to reach another."""
    return engine.run_backward(
        list(outputs), list(seeds), True, create_graph, list(targets), False, True
    )


def has_graph(value: Any) -> bool:
    """Return True for a tensor that requires grad."""
    return isinstance(value, Tensor) and value.requires_grad


def _memory_of(value: Any) -> int:
    """Return a number of a tensor's memory; one of its own for what has none."""
    plain = isinstance(value, Tensor) and not value.is_sparse
    return value.untyped_storage()._cdata if plain else id(value)


def _given(target: Any, inputs: Any, results: Any, way: Callable[..., Any] | None = None) -> Any:
    """Return the tensor of a target, or what it is in some way if it is no leaf."""
    if isinstance(target, Tensor):
        return target
    found = results[target[1]] if type(target) is tuple else inputs[target]
    return found if way is None else way(found)


def _same_target(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in (int, tuple) and one == other)


def _groups(
    capture: Any, recorder: Recorder, results: list[Any], graph: list[int]
) -> list[list[int]] | str:
    """Return which results have a backward pass in common, in an order for passes.

    Results with a common history have, unless it is that of another result behind which all of it
    is. A str says why there is no such pass.
    """
    if len(graph) < 2 or capture.sizes is not None or recorder.has_written():
        return [graph]
    edges = [address_of_edge(results[i]) for i in graph]
    ends = {edge: ("result", i) for edge, i in zip(edges, graph)}
    groups: list[tuple[list[int], set[int], set[int]]] = []  # results, nodes, results behind
    for i in graph:
        found = outer_edges(recorder, [results[i]], capture.inputs, ends)
        if isinstance(found, str):
            return found
        behind = {one[1] for one in found[0] if type(one) is tuple}
        group = [i], set(found[1]), behind
        for other in [one for one in groups if not one[1].isdisjoint(group[1])]:
            groups.remove(other)
            group = other[0] + group[0], other[1] | group[1], other[2] | group[2]
        groups.append(group)
    # In the order in which the function has made them, so that gradients are summed in its order.
    groups.sort(key=lambda one: max(sequence_of(results[i]) for i in one[0]))
    ready: set[int] = set()
    for numbers, _, behind in groups:
        ready.update(numbers)
        if not behind <= ready:  # each depends on another
            return [graph]
    return [sorted(one[0]) for one in groups]


@contextlib.contextmanager
def _autocast_as(state: Any) -> Iterator[None]:
    """Cast as in the function's call."""
    before = set_autocast_state(state)
    try:
        yield
    finally:
        set_autocast_state(before)


@contextlib.contextmanager
def _drawn_again(drawn: list[Any]) -> Iterator[None]:
    """Let generators give the numbers that they gave once: (generator, seed, first block)."""
    before = [(one, one.position()) for one, _, _ in drawn]
    try:
        for generator, seed, first in reversed(drawn):
            generator.set_position(seed, first)
        yield
    finally:
        for generator, position in before:
            generator.set_position(*position)


def _in_layout(tensor: Tensor, shape: Any, stride: Any) -> Tensor:
    return ops.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


class _Call:
    """One run: its arguments, and what its backward passes read."""

    def __init__(self, backward: Backward, entry: Entry, tensors: Any, args: Any, kwargs: Any):
        self.count = backward.count
        self.entry = entry
        self.tensors = tensors
        self.args, self.kwargs = args, kwargs
        self.results: list[Any] = []
        self.rest: list[Any] = []
        self.saved: list[Any] = []
        self.drawn: list[Any] = []  # random numbers
        self.versions = entry.signature.versions(tensors)
        self.done = False  # whether the program was for these values

    def run(self, saved: int) -> None:
        """Run the forward program, whose last results are for the backward passes."""
        found = self.entry.program.run(self.tensors, self.drawn)
        if found is not None:
            self.done = True
            end = len(found) - saved
            self.results, self.rest = found[: self.count], found[self.count : end]
            self.saved = found[end:]


class CompiledFunction(Function):
    """The graph of some of a compiled function's results."""

    @staticmethod
    def forward(ctx: Any, call: _Call, part: Backward, *targets: Tensor) -> Any:
        if not call.done:  # the first pass
            call.run(part.parts()[-1].saved.stop)
        if not call.done:
            return ()
        ctx.call, ctx.part = call, part
        ctx.is_several_nodes = True  # so hooks of results without a gradient do not run
        ctx.targets = targets
        ctx.set_materialize_grads(False)
        if part.program is not None:
            saved = call.saved[part.saved]
            ctx.save_for_backward(
                *[
                    saved[what]
                    if kind == "result"
                    else flat_memory(call.tensors[what])
                    if kind == "input"
                    else what
                    for kind, what in part.sources
                ]
            )
        results = call.results
        if not part.shared:
            return tuple([results[i] for i in part.graph])
        return tuple(  # as views, those that share memory must not be written in place
            results[i].view_as(results[i]) if i in part.shared else results[i] for i in part.graph
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if ctx.part.program is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )
        return None, None, *(ctx.part.gradients(ctx, grads) or [None])
