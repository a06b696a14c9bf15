"""Backward passes of compiled functions: programs that are the graph of their results."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pullback._c.base.state import is_grad_enabled, swap_grad_enabled
from pullback._c.capture.compiled import Entry, are_transformed, flat_memory
from pullback._c.capture.outside import edge_of, outer_edges, outer_sources
from pullback._c.capture.recorder import Recorder
from pullback._c.engine import engine
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.autocast import get_autocast_state, set_autocast_state
from pullback.autograd import Function
from pullback.autograd.grad_mode import enable_grad, no_grad
from pullback.compiler.effects import may_have_effects
from pullback.func._tree import leaves
from pullback.ops import ops
from pullback.random import default_generator

__all__ = ["Backward", "CompiledFunction", "has_graph"]


class Backward:
    """The backward pass of a function's results, captured with it."""

    def __init__(self, capture: Any, results: list[Any], graph: list[Tensor]):
        self.function = capture.owner.function
        self.count = len(results)
        self.autocast = get_autocast_state()  # a replay has the same
        self.graph = [i for i, one in enumerate(results) if any(one is each for each in graph)]
        self.there = {  # results that were there before: arguments, and leaves from outside
            i for i, one in enumerate(results) if has_graph(one) and i not in self.graph
        }
        self.shared: set[int] = set()  # results that share memory with others, or with arguments
        self.targets: list[Any] = []  # leaves, and numbers of arguments
        self.program: Any = None
        self.given: list[bool] = []  # whether each target has a gradient
        self.sources: list[tuple[str, Any]] = []
        self.saved_results: list[Tensor] = []  # until the forward program is made
        self.saved_count = 0
        self.layouts: list[Any] = []  # of the gradients that the program takes
        self.kinds: list[Any] = []  # the same: dtypes and devices
        self.reach: list[set[int]] = []  # the targets of each result
        self.recording: Any = None  # for programs for other sizes
        self.draws_again = False  # checkpoints in it draw the numbers of the forward pass
        self.has_code = False  # code of the program runs in it, and reads what may change

    @classmethod
    def of(
        cls, capture: Any, recorder: Recorder, results: list[Any], graph: list[Tensor]
    ) -> Backward | None:
        """Capture the backward pass of results that require grad; None where it is refused."""
        made = cls(capture, results, graph)
        edges = outer_edges(recorder, [results[i] for i in made.graph], capture.inputs)
        if isinstance(edges, str):
            capture.refusal = edges
            return None
        made.targets, freed, code = edges
        owners = Counter(map(_memory_of, (*results, *capture.inputs)))
        made.shared = {i for i in made.graph if owners[_memory_of(results[i])] > 1}
        if freed:  # a backward pass inside the function has run through it
            return made
        made.has_code = bool(code)
        for one in code:
            if may_have_effects(one):
                kind = getattr(type(one), "_forward_cls", type(one))
                name = getattr(one, "__qualname__", kind.__qualname__)
                capture.refusal = f"a backward pass in which {name} may do more than compute"
                return None
        tensors = [
            edge_of(capture.inputs[one]) if isinstance(one, int) else one for one in made.targets
        ]
        outputs = [results[i] for i in made.graph]
        with no_grad():
            seeds = [one.detach().clone().fill_(1) for one in outputs]
        made.layouts = [(one.shape, one.stride()) for one in seeds]
        made.kinds = [(one.dtype, one.device) for one in seeds]
        for one in outputs if len(outputs) > 1 else ():
            reached = outer_edges(recorder, [one], capture.inputs)[0]
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
                grads = _gradients(outputs, tensors, seeds, create_graph=False)
        except Exception as error:
            if inner.refusal is not None and capture.owner.fullgraph:
                raise
            capture.refusal = f"results whose backward pass fails: {error}"
            return None
        finally:
            inner.end()
            inner.restore()
            default_generator.set_position(*position)
        if inner.refusal is not None:
            capture.refusal = f"{inner.refusal} in its backward pass"
            return None
        if any(one is not None and one.is_sparse for one in grads):
            capture.refusal = "a sparse gradient of its results"
            return None
        made.given = [one is not None for one in grads]
        made.sources, made.saved_results = outer_sources(inner, recorder)
        made.saved_count = len(made.saved_results)
        made.program = inner.program([one for one in grads if one is not None])
        made.recording = inner.recording
        made.draws_again = any(blocks == -1 for *_, blocks in inner.draws)
        if made.program is None:
            capture.refusal = inner.refusal or "a backward pass that keeps new memory"
            return None
        return made

    def attach(self, entry: Entry, name: str) -> None:
        """Make an entry's runs return results with a graph."""
        self.saved_results = []
        if self.program is not None:
            self.program.name = f"{name} backward"
        entry.backward = self
        entry.replay = self.replay

    def is_like(self, other: Backward) -> bool:
        """Return True if another call's backward pass has the same arguments and results."""
        return (
            self.graph == other.graph
            and self.there == other.there
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
        """Run the forward program; its results have the backward program as their graph."""
        targets = [tensors[one] if isinstance(one, int) else one for one in self.targets]
        call = _Call(self, entry, tensors, args, kwargs)
        if not targets:  # the graph ends in leaves that the function has made
            targets.append(ops.zeros((), requires_grad=True))
        before = swap_grad_enabled(True)  # the function has recorded them
        try:
            found = list(CompiledFunction.apply(call, *targets))
        finally:
            swap_grad_enabled(before)
        if not call.done:
            return None
        for i, one in call.there.items():
            found[i] = one
        return found + call.rest

    def gradients(self, ctx: Any, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
        """Return the gradients of the targets: by the program, or recorded where that is asked."""
        seeds = [grads[i] for i in self.graph]
        if is_grad_enabled():
            return self.recorded(ctx, seeds, True)
        changed = self.has_code and (
            any(one is None for one in seeds) or not ctx.call.entry.signature.holds()
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
        return seed if seed.stride() == stride else _in_layout(seed, shape, stride)

    def recorded(self, ctx: Any, seeds: list[Tensor], create_graph: bool) -> list[Tensor | None]:
        """Return gradients, perhaps with a history: the function runs again, eagerly."""
        call = ctx.call
        if call.entry.program.writes:
            raise RuntimeError(
                "backward(): a compiled function that writes to its arguments or outer tensors "
                "has no create_graph, nor another backward pass for other values: call the "
                "function itself"
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
            return _gradients(outputs, ctx.targets, given, create_graph)


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


def _same_target(one: Any, other: Any) -> bool:
    return one is other or (type(one) is int and type(other) is int and one == other)


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
    """One run: its arguments, and what its backward pass reads."""

    def __init__(self, backward: Backward, entry: Entry, tensors: Any, args: Any, kwargs: Any):
        self.backward = backward
        self.entry = entry
        self.tensors = tensors
        self.args, self.kwargs = args, kwargs
        self.rest: list[Any] = []
        self.drawn: list[Any] = []  # random numbers
        self.versions = entry.signature.versions(tensors)
        self.there: dict[int, Any] = {}
        self.done = False  # whether the program was for these values


class CompiledFunction(Function):
    """The graph of a compiled function's results."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *targets: Tensor) -> Any:
        backward = call.backward
        found = call.entry.program.run(call.tensors, call.drawn)
        if found is None:
            return ()
        call.done = True
        results, call.rest = found[: backward.count], found[backward.count :]
        call.there = {i: results[i] for i in backward.there}
        for i in backward.there:
            results[i] = None
        for i in backward.shared:  # as views they must not be written in place
            results[i] = results[i].view_as(results[i])
        ctx.call = call
        ctx.targets = targets
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(
                one
                for i, one in enumerate(results)
                if isinstance(one, Tensor) and i not in backward.graph
            )
        )
        if backward.program is not None:
            first = len(call.rest) - backward.saved_count
            saved = call.rest[first:]
            kept = []
            for kind, what in backward.sources:
                if kind == "result":
                    kept.append(saved[what])
                elif kind == "input":
                    kept.append(flat_memory(call.tensors[what]))
                else:
                    kept.append(what)
            ctx.save_for_backward(*kept)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        backward = ctx.call.backward
        if backward.program is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )
        return None, *(backward.gradients(ctx, grads) or [None])
