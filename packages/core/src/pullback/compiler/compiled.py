"""``compile``: functions whose kernels are recorded once and replayed."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from pullback import random
from pullback._c.capture.compiled import (
    CompiledCallable,
    Entry,
    set_forced_eager,
)
from pullback._c.capture.references import CannotWatch, guards_of
from pullback._c.capture.signature import Signature
from pullback._c.capture.spec import has_fields
from pullback._c.graph.tensor import Tensor
from pullback._context import are_deterministic_algorithms_enabled, get_num_threads
from pullback.autograd._dot import Dot
from pullback.compiler.capture import DRAWING, Capture
from pullback.compiler.modules import OptimizedModule
from pullback.compiler.numbers import device_of_numbers
from pullback.compiler.report import Explanation, dot_of
from pullback.compiler.sizes import Family, Sample, SizeLog, settle
from pullback.compiler.trees import contains_itself, is_node, items
from pullback.nn import Module

__all__ = ["compile"]

ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()  # that exist
stance = "default"
_LIMIT = 16  # signatures after which a function that varies is named
_MISMATCHES = 3  # calls that are not what lies between others, until none is taken for that
_FAMILIES = 8  # kinds of calls of which programs for other sizes are looked for
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_EXACT = {  # names of what takes no number but a plain one
    *("dumps", "dump", "sleep", "timedelta", "fromtimestamp", "utcfromtimestamp", "gmtime"),
    *("localtime", "ctime", "statistics", "decimal", "Decimal", "execute", "executemany"),
}
_TRIES = 3  # captures of one function in a row that keep new memory, or are refused

# What tells modes of the process, by the names with which code asks for them.
MODES: dict[str, Callable[[], Any]] = {
    "initial_seed": random.initial_seed,
    "get_num_threads": get_num_threads,
    "are_deterministic_algorithms_enabled": are_deterministic_algorithms_enabled,
}


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
        self.rates: dict[int, Any] = {}  # of optimizers' groups, as tensors
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
        self.rates.clear()
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
        if contains_itself((args, kwargs)):
            self._refused += 1
            self._refuse("an argument that contains itself")
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
        if signature.overlaps(guards) or signature.has_repeated(args, kwargs):
            self._kept += 1
            return self.function(*args, **kwargs)
        sizes = SizeLog() if self.dynamic and not numbers and not asks_types else None
        capture = Capture(self, Entry(signature), found, args, kwargs, numbers, sizes)
        capture.may_draw = not names.isdisjoint(DRAWING)
        capture.takes_elements = not (asks_types or self._plain or names & _EXACT)
        modules = [(one, one.training) for one in found if issubclass(type(one), Module)]
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
        if not signature.holds() and not self._only_sets_modes(capture.entry, modules):
            self._kept += 1
            self._changed = signature.difference(args, kwargs)
            return value
        if not reads_options:
            options = [option for _, _, option in capture.entry.program.options]
            signature.guard(guards, capture.entry.program.writes, options, capture.stepped)
        self._kept = 0
        self.entries.append(capture.entry)
        if capture.sizes is not None and not capture.entry.sets:
            with self._lock:
                self._note(Sample(capture, reads_options))
        return value

    @staticmethod
    def _only_sets_modes(entry: Entry, modules: list[tuple[Module, bool]]) -> bool:
        """Let an entry set the modes of modules as its function does; False if that is not all."""
        now = [(vars(one), one.training) for one, before in modules if one.training is not before]
        for one, before in modules:
            vars(one)["training"] = before
        only = entry.signature.holds()
        for attributes, training in now:
            attributes["training"] = training
        entry.sets = now
        return only

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


def _objects(value: Any) -> Iterator[Any]:
    """Yield what is in arguments, of which signatures know containers and fields from inside."""
    if is_node(value):
        if has_fields(value):
            yield type(value)
        for one in items(value):
            yield from _objects(one)
    else:
        yield value


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
