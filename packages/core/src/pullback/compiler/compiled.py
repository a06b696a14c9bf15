"""``compile``: functions whose kernels are recorded once and replayed."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterator
from functools import reduce
from typing import Any

from pullback import random
from pullback._c.base import state
from pullback._c.base.dtype import get_default_dtype
from pullback._c.capture.compiled import (
    CompiledCallable,
    Entry,
    grad_now,
    hooks_now,
    set_forced_eager,
)
from pullback._c.capture.recorder import Recorder
from pullback._c.capture.references import CannotWatch, guards_of
from pullback._c.capture.signature import Signature
from pullback._c.capture.spec import has_fields, is_plain
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.autocast import get_autocast_state
from pullback._context import are_deterministic_algorithms_enabled, get_num_threads
from pullback.autograd._dot import Dot
from pullback.compiler.backward import Backward, has_graph
from pullback.compiler.elements import Numbers
from pullback.compiler.modules import OptimizedModule
from pullback.compiler.numbers import (
    Number,
    device_of_numbers,
    with_numbers,
)
from pullback.compiler.report import Explanation, dot_of
from pullback.compiler.results import holds_tensor, rebuilder
from pullback.compiler.sizes import Family, Sample, SizeLog, settle, without_sizes
from pullback.func._tree import is_node, items, leaves, structure
from pullback.nn import Module

__all__ = ["compile"]

ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()  # that exist
stance = "default"
_LIMIT = 16  # signatures after which a function that varies is named
_MISMATCHES = 3  # calls that are not what lies between others, until none is taken for that
_FAMILIES = 8  # kinds of calls of which programs for other sizes are looked for
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_EXACT = {"dumps", "dump", "sleep", "timedelta"}  # what takes no number but a plain one
_TRIES = 3  # captures of one function in a row that keep new memory

# What tells modes of the process, by the names with which code asks for them.
MODES: dict[str, Callable[[], Any]] = {
    "initial_seed": random.initial_seed,
    "get_num_threads": get_num_threads,
    "are_deterministic_algorithms_enabled": are_deterministic_algorithms_enabled,
}

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

    def __init__(
        self, function: Callable[..., Any], fullgraph: bool, limit: int, dynamic: bool = False
    ):
        super().__init__(function)
        self.fullgraph = fullgraph
        self.limit = limit
        self.dynamic = self._asked_dynamic = dynamic
        self.families: list[Family] = []  # of calls that differ in a size
        self._lock = threading.Lock()  # of the families, and of which programs are dropped
        self._between: list[Entry] = []  # for sizes between, in the order in which they were made
        self.refusals: list[str] = []
        self._kept = 0  # captures in a row that kept new memory
        self._refused = 0  # and that were refused
        self._changed: str | None = None  # what a call changes of what the function refers to
        self._warned = False
        self._plain = False  # floats are taken as they are
        self._names: frozenset[str] = frozenset()  # of globals and attributes, in its code
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            with contextlib.suppress(AttributeError):
                setattr(self, name, getattr(function, name))
        self.__wrapped__ = function
        ALL.add(self)

    def forget(self) -> None:
        """Drop all programs; later calls record again."""
        del self.entries[:]
        self.dynamic = self._asked_dynamic
        self.families = []
        self._between = []
        self.refusals = []
        self._kept = self._refused = 0
        self._changed = None
        self._warned = False
        self._plain = False

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Return its name, if it is the function of that name in its module.

        Copies and pickles of others begin without programs.
        """
        module = sys.modules.get(getattr(self, "__module__", ""))
        path = getattr(self, "__qualname__", "").split(".")
        with contextlib.suppress(AttributeError):
            if reduce(getattr, path, module) is self:
                return self.__qualname__
        return Compiled, (self.function, self.fullgraph, self.limit, self._asked_dynamic)

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
        if self.dynamic and self.families:
            with self._lock:
                entry = self._for_size(args, kwargs)
            if entry is not None:
                return self(*args, **kwargs) if entry else self.function(*args, **kwargs)
        if self._refused >= _TRIES:
            return self.function(*args, **kwargs)
        if self._kept >= _TRIES or len(self.entries) - len(self._between) >= self.limit:
            self._warn_of_limit(args, kwargs)
            return self.function(*args, **kwargs)
        with self._lock:
            self._drop_outdated()
        try:
            guards, reads_options, names, found, known = guards_of(
                self.function, list(_objects((args, kwargs))), MODES
            )
        except CannotWatch as error:
            if self.fullgraph:
                raise RuntimeError(f"compile(): cannot capture a function that {error}") from None
            self._refuse(f"a function that {error}")
            self._kept = _TRIES
            return self.function(*args, **kwargs)
        self._names |= names
        asks_types = "type" in names or "__class__" in names
        numbers = {} if asks_types or self._plain else self._numbers(args, kwargs)
        signature = Signature(args, kwargs, numbers, self._names)
        if known is not None:
            signature.compare_objects(known)
        if signature.overlaps(guards):
            self._kept += 1
            return self.function(*args, **kwargs)
        sizes = SizeLog() if self.dynamic and not numbers and not asks_types else None
        capture = _Capture(self, Entry(signature), found, args, kwargs, numbers, sizes)
        capture.takes_elements = not (asks_types or self._plain or names & _EXACT)
        try:
            value = capture.run()
            if sizes is not None:
                settle(guards)
        except (AttributeError, TypeError):  # perhaps what it calls takes plain numbers alone
            has_numbers = bool(capture.numbers.numbers)
            if not (has_numbers or sizes) or capture.has_effects:
                raise
            self._plain = self._plain or has_numbers
            self.dynamic = self.dynamic and sizes is None
            return self.capture(args, kwargs)
        finally:
            if sizes is not None:
                sizes.is_open = False
        if capture.is_late:
            return value
        self._refused = 0 if capture.refusal is None else self._refused + 1
        if capture.refusal is not None:
            self._refuse(capture.refusal)
            signature.guard(guards, False)
            self.entries.append(capture.entry)
            return value
        if capture.entry.program is None:  # it made what a later call finds
            self._kept += 1
            return value
        reads_options = reads_options or capture.reads_options
        signature.guard(guards, capture.entry.program.writes)
        if not signature.holds():  # the function changes what it refers to
            self._kept += 1
            self._changed = signature.difference(args, kwargs)
            return value
        if not reads_options:
            options = [option for _, _, option in capture.entry.program.options]
            signature.guard(guards, capture.entry.program.writes, options)
        self._kept = 0
        self.entries.append(capture.entry)
        if capture.sizes is not None:
            with self._lock:
                self._note(Sample(capture, reads_options))
        return value

    def _drop_outdated(self) -> None:
        """Drop programs of functions that refer to another object now."""
        self.entries[:] = [one for one in self.entries if not one.signature.outdated()]
        self._between = [one for one in self._between if one in self.entries]
        self.families = [one for one in self.families if not one.outdated()]

    def _note(self, sample: Sample) -> None:
        """Keep a recorded call, so that sizes between it and others need no recording."""
        if not any(family.add(sample) for family in self.families):
            self.families = [*self.families[-_FAMILIES + 1 :], Family(sample)]
        if sum(one.mismatches for one in self.families) >= _MISMATCHES:
            self.entries[:] = [one for one in self.entries if one not in self._between]
            self._between = []
            self.dynamic = False
        for family in self.families if self.dynamic else ():
            self._add_between([one for one in family.needless if one in self.entries])
            family.needless = []

    def _add_between(self, entries: list[Entry]) -> None:
        """Note entries that can be made again; drop the oldest if there are many."""
        self._between += [one for one in entries if one not in self._between]
        dropped = self._between[: -self.limit]
        self.entries[:] = [one for one in self.entries if one not in dropped]
        del self._between[: -self.limit]

    def _for_size(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | bool | None:
        """Return a new entry for a call with a size between others.

        None if it must be recorded, False if it is to run eagerly.
        """
        if any(one.signature.takes(args, kwargs) for one in self.entries):
            return None  # there is a program for this size, but for other values
        signature = Signature(args, kwargs, None, self._names)
        for family in self.families:
            entry = family.entry(signature)
            if entry is not None:
                self.entries.append(entry)
                self._add_between([entry])
                return entry
        return False if any(one.skips(signature) for one in self.families) else None

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
            changed = self._changed and f"changes what it refers to, {self._changed}"
            why = f"each of its calls {changed or 'keeps tensors besides its results'}"
        else:
            found = self.entries[-1:] and self.entries[-1].signature.difference(args, kwargs)
            why = f"it has {len(self.entries)} programs; in this call differs {found or 'nothing'}"
        warnings.warn(f"compile(): {self!r} runs eagerly: {why}", UserWarning, stacklevel=3)


class _Capture:
    """One call of a function that is recorded."""

    def __init__(
        self,
        owner: Compiled,
        entry: Entry,
        found: list[Any],
        args: Any,
        kwargs: Any,
        numbers: dict[str, Tensor],
        sizes: SizeLog | None,
    ):
        self.owner = owner
        self.entry = entry
        self.found = {id(one) for one in found}  # addresses of what the function refers to
        self.kept = found
        self.args, self.kwargs = args, kwargs
        self.numbers = Numbers(numbers)
        self.given = args, kwargs
        if numbers:
            arguments = self.numbers.arguments
            self.given = (
                with_numbers(args, "args", arguments),
                with_numbers(kwargs, "kwargs", arguments),
            )
        self.takes_elements = True  # that item() returns a number which is not read
        self.inputs = entry.signature.tensors
        self.refusal: str | None = None
        self.has_effects = self.reads_options = False
        self.is_late = False
        self.sizes = sizes
        self.structure: Any = None  # of the function's value
        self.recording: Any = None

    def run(self) -> Any:
        """Run the function; fill the entry if its kernels can be replayed."""
        recorder = Recorder(self.inputs, self.owner.fullgraph, self.sizes)
        if self.takes_elements:
            recorder.take_elements(self.numbers.take)
        if not recorder.begin():  # another thread records
            self.is_late = True
            return self.owner.function(*self.given[0], **self.given[1])
        modes = _modes()
        try:
            with self.sizes or contextlib.nullcontext():
                value = self.owner.function(*self.given[0], **self.given[1])
            if self.sizes is not None:
                value = without_sizes(value)
            self.numbers.keep(value)
        except BaseException:
            self.given = self.args, self.kwargs
            self.numbers.settle([])
            raise
        finally:
            recorder.end()
            self.has_effects = recorder.has_effects()
            self.reads_options = recorder.reads_options
        try:
            self.refusal = recorder.refusal
            made = [value]
            self.given = self.args, self.kwargs
            if self.numbers.numbers:
                value = None  # so that what was made is referred to once
                self.refusal = self.numbers.settle(made) or self.refusal
                value = self.numbers.plain(made[0])
            if self.refusal is None and _modes() != modes:
                self.refusal = "a change of a mode that lasts, such as the grad mode"
            if self.refusal is None:
                self.use(recorder, made[0])
        finally:
            read = self.numbers.read()  # the backward pass may read numbers, too
        if read:
            self.entry.signature.fix(self.args, self.kwargs, read)
        if self.refusal is None and not self.entry.signature.takes_same(
            self.args, self.kwargs, self.inputs
        ):
            self.refusal = "a change of an argument other than of its elements"
            self.entry.program = None
        if self.refusal is not None and self.owner.fullgraph:
            raise RuntimeError(f"compile(): cannot capture {self.refusal}")
        return value

    def use(self, recorder: Recorder, value: Any) -> None:
        """Make the program, and what sets results and gradients."""
        results = [None if isinstance(one, Number) else one for one in leaves(value)]
        numbers = self.numbers.returned(value, len(results))
        results += numbers.tensors
        if recorder.has_new_hooks():
            self.refusal = "a hook on an argument, or retain_grad() of it"
        for one in results:
            self.check_result(recorder, one)
        if self.refusal is not None:
            return
        self.structure = structure(value)
        try:
            self.entry.rebuild = rebuilder(value, (self.args, self.kwargs), self.kept, numbers)
        except Exception as error:
            self.refusal = f"a result that cannot be copied for each call ({error})"
            return
        extra = self.gradients(recorder, results)
        if self.refusal is not None:
            return
        graph = [one for one in results if has_graph(one) and not self.is_there(recorder, one)]
        backward = Backward.of(self, recorder, results, graph) if graph else None
        if self.refusal is not None or self.is_late:
            return
        saved = backward.saved_results if backward else []
        self.entry.program = recorder.program([*results, *extra, *saved], self.found)
        if self.entry.program is None:
            self.refusal = recorder.refusal
            return
        name = getattr(self.owner, "__qualname__", type(self.owner.function).__name__)
        self.entry.program.name = f"compiled {name}"
        self.recording = recorder.recording
        if backward is not None:
            backward.attach(self.entry, f"compiled {name}")

    def check_result(self, recorder: Recorder, one: Any) -> None:
        """Refuse results that a program cannot make anew."""
        name = type(one).__name__
        if isinstance(one, Tensor):
            if type(one) is not Tensor and not self.is_there(recorder, one):
                self.refusal = f"a result of class {name}"
            elif one.is_inference() and not state.is_inference_mode_enabled():
                self.refusal = "a result of inference mode"
        elif isinstance(one, (Iterator, Awaitable)):
            self.refusal = f"a result that is run later, a {name}"
        elif not is_plain(one) and holds_tensor(one, 3):
            self.refusal = f"a result of class {name}, which holds tensors"

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
            is_made = number is None and id(tensor) not in self.found
            if (
                is_made
                and recorder.became_leaf(tensor)
                and all(tensor is not one for one in results)
            ):
                continue  # a leaf that the function has made; only a graph may have it now
            leaf = tensor if number is None else number
            if what in (_READ, _ADDED):
                if before is not None and recorder.take_gradient(before):
                    self.entry.update(leaf, before)
                else:
                    self.entry.expected.append((leaf, before))
            now = grad_now(tensor)
            if now is not None:
                self.entry.hooked.append((leaf, hooks_now(tensor)))
            if now is None:
                self.entry.grads.append((leaf, None))
            elif now is not before:
                if has_graph(now):
                    self.refusal = "a gradient with a history of its own"
                number = next((k for k, one in enumerate(results) if one is now), None)
                self.entry.grads.append(
                    (leaf, len(results) + len(extra) if number is None else number)
                )
                extra += [now] if number is None else []
        return extra

    def is_there(self, recorder: Recorder, one: Tensor) -> bool:
        """Return True for arguments, and leaves from outside: they are returned as they are."""
        given = any(one is each for each in self.inputs)
        return given or (one.is_leaf and id(one) in self.found)


def _objects(value: Any) -> Iterator[Any]:
    """Yield what is in arguments, of which signatures know containers and fields from inside."""
    if is_node(value):
        for one in items(value):
            yield from _objects(one)
    elif has_fields(value):
        yield type(value)
        for one in vars(value).values():
            yield from _objects(one)
    else:
        yield value


def _modes() -> tuple[Any, ...]:
    """Return the modes of this thread that a function may leave changed."""
    casts, dtypes, uncached = get_autocast_state()
    return (
        state.is_grad_enabled(),
        state.is_inference_mode_enabled(),
        get_default_dtype(),
        (casts, dtypes if casts else None, uncached),
    )


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

    What cannot be replayed, such as ``if`` on a tensor, runs eagerly, with one warning; with
    ``fullgraph`` it raises. ``disable`` returns the function as it is. Without a model it is a
    decorator.
    ``mode``, ``backend``, ``name``, ``isolate_recompiles`` and ``shapes_spec`` change nothing.

    With ``dynamic``, calls that differ in one size (a batch, a length) share what is recorded:
    after three such calls, sizes between the least and the largest need no recording, where all
    kernels and the function's own code allow it. Otherwise each size has a program of its own.

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
            dynamic=dynamic,
            mode=mode,
            options=options,
            disable=disable,
            recompile_limit=recompile_limit,
        )
    if not callable(model):
        raise TypeError(f"compile(): argument 'model' must be callable, not {type(model).__name__}")
    is_eager = "_is_eager" in getattr(model, "__dict__", {})  # its result holds tensors elsewhere
    if disable or is_eager or isinstance(model, (Compiled, OptimizedModule)):
        return model
    limit = _LIMIT if recompile_limit is None else recompile_limit
    compiled = Compiled(model, fullgraph, limit, bool(dynamic))
    return OptimizedModule(model, compiled) if isinstance(model, Module) else compiled
