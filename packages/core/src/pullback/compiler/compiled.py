"""``compile``: functions whose kernels are recorded once and replayed."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from pullback._c.base.state import is_grad_enabled
from pullback._c.capture.compiled import (
    CompiledCallable,
    Entry,
    flat_memory,
    grad_now,
    set_forced_eager,
)
from pullback._c.capture.recorder import Recorder
from pullback._c.capture.signature import Signature
from pullback._c.graph.tensor import Tensor
from pullback.autograd import Function
from pullback.autograd import grad as _grad
from pullback.autograd._dot import Dot
from pullback.autograd.grad_mode import enable_grad, no_grad
from pullback.compiler.guards import TooManyReferences, guards_of
from pullback.compiler.modules import OptimizedModule
from pullback.compiler.numbers import (
    NumberArgument,
    device_of_numbers,
    with_numbers,
    without_numbers,
)
from pullback.compiler.report import Explanation, dot_of
from pullback.func._tree import leaves, rebuild, tree_map
from pullback.nn import Module
from pullback.ops import ops

__all__ = ["compile"]

ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()  # that exist
stance = "default"
_LIMIT = 16  # signatures after which a function that varies is named
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TRIES = 3  # captures of one function in a row that keep new memory

# What `Recorder.changes` holds: the constants of _c/base/state.pxd.
_CLEARED, _SET, _READ, _ADDED, _HISTORY = range(5)


def set_stance(name: str) -> None:
    """Set how compiled functions run: see ``pullback.compiler.set_stance``."""
    global stance
    stance = name
    set_forced_eager(name == "force_eager")


class Compiled(CompiledCallable):
    """What ``compile`` returns for a function.

    >>> import pullback
    >>> double = pullback.compile(lambda x: x * 2)
    >>> double(pullback.ones(2)), double(pullback.zeros(2))
    (tensor([2., 2.]), tensor([0., 0.]))
    >>> len(double.entries)
    1
    """

    def __init__(self, function: Callable[..., Any], fullgraph: bool, limit: int):
        super().__init__(function)
        self.fullgraph = fullgraph
        self.limit = limit
        self.refusals: list[str] = []
        self._kept = 0  # captures in a row that kept new memory
        self._warned = False
        self._plain = False  # floats are taken as they are
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            with contextlib.suppress(AttributeError):
                setattr(self, name, getattr(function, name))
        self.__wrapped__ = function
        ALL.add(self)

    def forget(self) -> None:
        """Drop all programs; later calls record again."""
        del self.entries[:]
        self.refusals = []
        self._kept = 0
        self._warned = False
        self._plain = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles begin without programs."""
        return Compiled, (self.function, self.fullgraph, self.limit)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """Return a method that passes the object, as functions in classes do."""
        if owner is None:
            return self
        return lambda *args, **kwargs: self(owner, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self, '__qualname__', self.function)!s}>"

    def explain(self) -> Explanation:
        """Return what was recorded: kernels, groups, buffers and guards of each program.

        >>> import pullback
        >>> double = pullback.compile(lambda x: x * 2)
        >>> _ = double(pullback.ones(2))
        >>> print(double.explain())
        <compiled <lambda>>
        <BLANKLINE>
        program 0, forward: (float32[2])
          1 kernels, 0 of them in 0 groups, 0 replays, 0 guards
          buffers: 1 input, 1 result; arena 0 B for temporaries of 0 B
          %1: float32[2] = mul(%0: float32[2], number: float32[2])  -- fewer than 8192 elements
        """
        return Explanation(self)

    def to_dot(self) -> Dot:
        """Return the kernels and what they pass on as Graphviz text, a str with ``svg()``.

        >>> import pullback
        >>> double = pullback.compile(lambda x: x * 2)
        >>> _ = double(pullback.ones(2))
        >>> print(double.to_dot())
        digraph compiled {
          rankdir=TB; node [shape=box, fontname=monospace];
          p0_0 [label="mul"];
          p0_b0 [shape=ellipse, label="input %0"];
          p0_b0 -> p0_0 [label="%0"];
        }
        """
        return dot_of(self)

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, and record its kernels for later calls that are alike."""
        if stance == "fail_on_recompile":
            raise RuntimeError(f"compile(): {self!r} has no program for this call")
        if stance == "eager_on_recompile":
            return self.function(*args, **kwargs)
        if self._kept >= _TRIES or len(self.entries) >= self.limit:
            self._warn_of_limit(args, kwargs)
            return self.function(*args, **kwargs)
        self.entries[:] = [one for one in self.entries if not one.signature.outdated()]
        try:
            guards, reads_options, asks_types = guards_of(self.function, (args, kwargs))
        except TooManyReferences as error:
            self._refuse(f"a function that refers to too much, as {error}")
            self._kept = _TRIES
            return self.function(*args, **kwargs)
        numbers = {} if asks_types or self._plain else self._numbers(args, kwargs)
        signature = Signature(args, kwargs, numbers)
        if signature.overlaps(guards):
            self._kept += 1
            return self.function(*args, **kwargs)
        capture = _Capture(self, Entry(signature), args, kwargs, numbers)
        try:
            value = capture.run()
        except TypeError:
            if not numbers or capture.has_effects:
                raise
            self._plain = True  # perhaps what it calls takes floats alone
            return self.capture(args, kwargs)
        if capture.refusal is not None:
            self._refuse(capture.refusal)
            signature.guard(guards, False)
            self.entries.append(capture.entry)
            return value
        if capture.entry.program is None:  # it made what a later call finds
            self._kept += 1
            return value
        signature.guard(guards, capture.entry.program.writes)
        if not signature.holds():  # the function changes what it refers to
            self._kept += 1
            return value
        if not reads_options:
            options = [option for _, _, option in capture.entry.program.options]
            signature.guard(guards, capture.entry.program.writes, options)
        self._kept = 0
        self.entries.append(capture.entry)
        return value

    def _numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        """Return which floats vary from call to call, as Signature takes them."""
        for entry in self.entries:
            found = entry.program and entry.signature.varying(args, kwargs)
            if found:
                like = device_of_numbers((args, kwargs))
                return {} if like is None else dict.fromkeys(found, like)
        return {}

    def _refuse(self, why: str) -> None:
        self.refusals.append(why)
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"compile(): {self!r} runs eagerly, since a capture cannot replay {why}",
                UserWarning,
                stacklevel=3,
            )

    def _warn_of_limit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._warned:
            return
        self._warned = True
        if self._kept >= _TRIES:
            why = (
                "each of its calls changes what it refers to, or keeps tensors besides its results"
            )
        else:
            found = self.entries[-1].signature.difference(args, kwargs)
            why = f"it has {len(self.entries)} programs; in this call differs {found}"
        warnings.warn(f"compile(): {self!r} runs eagerly: {why}", UserWarning, stacklevel=3)


class _Capture:
    """One call of a function that is recorded."""

    def __init__(
        self, owner: Compiled, entry: Entry, args: Any, kwargs: Any, numbers: dict[str, Tensor]
    ):
        self.owner = owner
        self.entry = entry
        self.args, self.kwargs = args, kwargs
        self.numbers: dict[str, NumberArgument] = {}
        self.given = args, kwargs
        if numbers:
            self.given = (
                with_numbers(args, "args", numbers, self.numbers),
                with_numbers(kwargs, "kwargs", numbers, self.numbers),
            )
        self.inputs = entry.signature.tensors
        self.refusal: str | None = None
        self.has_effects = False

    def run(self) -> Any:
        """Run the function; fill the entry if its kernels can be replayed."""
        recorder = Recorder(self.inputs, self.owner.fullgraph)
        recorder.begin()
        try:
            value = self.owner.function(*self.given[0], **self.given[1])
            if self.numbers:
                value = without_numbers(value)
        finally:
            recorder.end()
            self.has_effects = recorder.has_effects()
            read = {where for where, one in self.numbers.items() if one.close()}
        if read:
            self.entry.signature.fix(self.args, self.kwargs, read)
        self.refusal = recorder.refusal
        if self.refusal is None:
            self.use(recorder, value)
        if self.refusal is None and not self.entry.signature.takes(self.args, self.kwargs):
            self.refusal = "a change of an argument other than of its elements"
            self.entry.program = None
        if self.refusal is not None and self.owner.fullgraph:
            raise RuntimeError(f"compile(): cannot capture {self.refusal}")
        return value

    def use(self, recorder: Recorder, value: Any) -> None:
        """Make the program, and what sets results and gradients."""
        results = leaves(value)
        self.entry.rebuild = _rebuilder(value)
        extra = self.gradients(recorder, results)
        if self.refusal is not None:
            return
        graph = [one for one in results if _has_graph(one) and not self.is_there(recorder, one)]
        backward = _Backward.of(self, recorder, results, graph) if graph else None
        if self.refusal is not None:
            return
        saved = backward.saved_results if backward else []
        self.entry.program = recorder.program([*results, *extra, *saved])
        if self.entry.program is None:
            self.refusal = recorder.refusal
            return
        name = getattr(self.owner, "__qualname__", type(self.owner.function).__name__)
        self.entry.program.name = f"compiled {name}"
        if backward is not None:
            backward.attach(self.entry)
            if backward.program is not None:
                backward.program.name = f"compiled {name} backward"

    def gradients(self, recorder: Recorder, results: list[Any]) -> list[Tensor]:
        """Note the leaves whose gradients the function sets; return these gradients."""
        extra: list[Tensor] = []
        changes = recorder.changes
        while changes:
            tensor, events = changes.popitem()[1]
            if any(what == _HISTORY for what, _ in events) and recorder.is_known(tensor):
                self.refusal = "an in-place write that autograd records, to a tensor from outside"
            events = [event for event in events if event[0] != _HISTORY]
            if not events:
                continue
            what, before = events[0]
            number = next((i for i, one in enumerate(self.inputs) if one is tensor), None)
            leaf = tensor if number is None else number
            if what in (_READ, _ADDED):
                self.entry.expected.append((leaf, before))
            now = grad_now(tensor)
            if now is None:
                self.entry.grads.append((leaf, None))
            elif now is not before:
                if _has_graph(now):
                    self.refusal = "a gradient with a history of its own"
                self.entry.grads.append((leaf, len(results) + len(extra)))
                extra.append(now)
        return extra

    def is_there(self, recorder: Recorder, one: Tensor) -> bool:
        """Return True for arguments, and leaves from outside: they are returned as they are."""
        given = any(one is each for each in self.inputs)
        return given or (one.is_leaf and recorder.is_known(one))


def _has_graph(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _rebuilder(value: Any) -> Callable[[list[Any]], Any] | None:
    """Return what makes a function's value from its leaves; None if it is one leaf."""
    if isinstance(value, Tensor):
        return None
    shape = tree_map(lambda leaf: None, value)
    if type(value) is tuple and all(one is None for one in shape):
        count = len(value)
        return lambda found: tuple(found[:count])
    return lambda found: rebuild(shape, found)


# ---- results with a graph ------------------------------------------------------------------------


class _Backward:
    """The backward pass of a function's results, captured with it."""

    def __init__(self, capture: _Capture, results: list[Any], graph: list[Tensor]):
        self.owner = capture.owner
        self.count = len(results)
        self.graph = [i for i, one in enumerate(results) if any(one is each for each in graph)]
        self.there = {  # results that were there before: arguments, and leaves from outside
            i for i, one in enumerate(results) if _has_graph(one) and i not in self.graph
        }
        self.targets: list[Any] = []  # leaves, and numbers of arguments
        self.program: Any = None
        self.given: list[bool] = []  # whether each target has a gradient
        self.sources: list[tuple[str, Any]] = []
        self.saved_results: list[Tensor] = []
        self.layouts: list[Any] = []  # of the gradients that the program takes

    @classmethod
    def of(
        cls, capture: _Capture, recorder: Recorder, results: list[Any], graph: list[Tensor]
    ) -> _Backward | None:
        """Capture the backward pass of results that require grad; None where it is refused."""
        made = cls(capture, results, graph)
        edges = recorder.outer_edges([results[i] for i in made.graph], capture.inputs)
        if isinstance(edges, str):
            capture.refusal = edges
            return None
        made.targets, freed = edges
        if freed:  # a backward pass inside the function has run through it
            return made
        tensors = [capture.inputs[one] if isinstance(one, int) else one for one in made.targets]
        outputs = [results[i] for i in made.graph]
        with no_grad():
            seeds = [one.detach().clone().fill_(1) for one in outputs]
        made.layouts = [(one.shape, one.stride()) for one in seeds]
        inner = Recorder(tuple(seeds), capture.owner.fullgraph)
        inner.begin()
        try:
            grads = _grad(
                outputs, tensors, seeds, retain_graph=True, create_graph=False, allow_unused=True
            )
        except RuntimeError as error:
            if inner.refusal is not None:
                raise
            capture.refusal = f"results whose backward pass fails: {error}"
            return None
        finally:
            inner.end()
        if inner.refusal is not None:
            capture.refusal = f"{inner.refusal} in its backward pass"
            return None
        made.given = [one is not None for one in grads]
        made.sources, made.saved_results = inner.outer_sources(recorder)
        made.program = inner.program([one for one in grads if one is not None])
        if made.program is None:
            capture.refusal = inner.refusal or "a backward pass that keeps new memory"
            return None
        return made

    def attach(self, entry: Entry) -> None:
        """Make an entry's runs return results with a graph."""
        entry.backward = self
        entry.replay = self.replay

    def replay(
        self, entry: Entry, tensors: list[Tensor], args: Any, kwargs: Any
    ) -> list[Any] | None:
        """Run the forward program; its results have the backward program as their graph."""
        targets = [tensors[one] if isinstance(one, int) else one for one in self.targets]
        call = _Call(self, entry, tensors, args, kwargs)
        found = list(CompiledFunction.apply(call, *targets))
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
        fitting = [
            one if one.stride() == stride else _in_layout(one, shape, stride)
            for one, (shape, stride) in zip(seeds, self.layouts)
        ]
        found = self.program.run([*fitting, *ctx.saved_tensors])
        if found is None:  # another choice by values than when it was recorded
            return self.recorded(ctx, seeds, False)
        given = iter(found)
        return [next(given) if one else None for one in self.given]

    def recorded(self, ctx: Any, seeds: list[Tensor], create_graph: bool) -> list[Tensor | None]:
        """Return gradients, perhaps with a history: the function runs again, eagerly."""
        call = ctx.call
        if call.entry.program.writes:
            raise RuntimeError(
                "backward(): a compiled function that writes to its arguments or outer tensors "
                "has no create_graph, nor another backward pass for other values: call the "
                "function itself"
            )
        _ = ctx.saved_tensors  # raises where they were changed since
        with enable_grad(), _drawn_again(call.drawn):
            again = leaves(self.owner.function(*call.args, **call.kwargs))
            outputs = [again[i] for i in self.graph]
            found = _grad(outputs, ctx.targets, seeds, create_graph=create_graph, allow_unused=True)
            return list(found)


@contextlib.contextmanager
def _drawn_again(drawn: list[Any]) -> Iterator[None]:
    """Let generators give the numbers that they gave once: (generator, seed, first block)."""
    before = {id(one): (one, one.get_state()) for one, _, _ in drawn}
    try:
        for generator, seed, first in reversed(drawn):
            generator.set_position(seed, first)
        yield
    finally:
        for generator, state in before.values():
            generator.set_state(state)


def _in_layout(tensor: Tensor, shape: Any, stride: Any) -> Tensor:
    return ops.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


class _Call:
    """One run: its arguments, and what its backward pass reads."""

    def __init__(self, backward: _Backward, entry: Entry, tensors: Any, args: Any, kwargs: Any):
        self.backward = backward
        self.entry = entry
        self.tensors = tensors
        self.args, self.kwargs = args, kwargs
        self.rest: list[Any] = []
        self.drawn: list[Any] = []  # random numbers
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
        ctx.call = call
        ctx.targets = targets
        ctx.mark_non_differentiable(
            *(
                one
                for i, one in enumerate(results)
                if isinstance(one, Tensor) and i not in backward.graph
            )
        )
        if backward.program is not None:
            first = len(call.rest) - len(backward.saved_results)
            saved = call.rest[first:]
            kept = []
            for kind, what in backward.sources:
                if kind == "result":
                    kept.append(saved[what])
                elif kind == "input":
                    number, offset, size = what
                    moved = (call.tensors[number].storage_offset() - offset) * size
                    kept.append(flat_memory(call.tensors[number], moved))
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
        return None, *backward.gradients(ctx, grads)


# ---- the function --------------------------------------------------------------------------------


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Return a function that records its kernels at the first call and replays them later.

    A later call runs the recorded program if it is like the first: arguments with the same sizes,
    strides, dtypes, devices and ``requires_grad``, equal other arguments, and the same modes,
    modules and numbers that the function refers to. Otherwise another program is recorded, up to
    ``recompile_limit`` (16). Floats that vary from call to call are arguments of the program where
    only arithmetic with tensors, or comparisons with them, use them. Results and gradients are
    those of the function itself, bit for bit.

    What cannot be replayed, such as ``item()``, runs eagerly, with one warning; with ``fullgraph``
    it raises. ``disable`` returns the function as it is. Without a model it is a decorator.
    ``mode``, ``backend``, ``name``, ``isolate_recompiles`` and ``shapes_spec`` change nothing; nor
    does ``dynamic``, since each size of an argument has a program of its own.

    Raises: RuntimeError for a ``mode`` that torch does not have, for one with ``options``, and with
    ``fullgraph`` for what cannot be captured; TypeError for what cannot be called.

    >>> import pullback
    >>> @pullback.compile
    ... def double(x):
    ...     return x * 2
    >>> double(pullback.ones(2))
    tensor([2., 2.])
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if model is None:
        return lambda function: compile(
            function,
            fullgraph=fullgraph,
            mode=mode,
            options=options,
            disable=disable,
            recompile_limit=recompile_limit,
        )
    if not callable(model):
        raise TypeError(f"compile(): argument 'model' must be callable, not {type(model).__name__}")
    if disable or isinstance(model, (Compiled, OptimizedModule)):
        return model
    limit = _LIMIT if recompile_limit is None else recompile_limit
    compiled = Compiled(model, fullgraph, limit)
    return OptimizedModule(model, compiled) if isinstance(model, Module) else compiled
