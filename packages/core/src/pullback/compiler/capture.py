"""One call of a compiled function that is recorded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

from pullback._c.base import state
from pullback._c.base.dtype import get_default_dtype
from pullback._c.capture.compiled import Entry, grad_now, hooks_now
from pullback._c.capture.recorder import Recorder
from pullback._c.capture.spec import is_plain
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.autocast import get_autocast_state
from pullback.compiler.backward import Backward, has_graph
from pullback.compiler.elements import Numbers
from pullback.compiler.numbers import Number, with_numbers, without_numbers
from pullback.compiler.results import holds_tensor, rebuilder
from pullback.compiler.sizes import SizeLog, without_sizes
from pullback.compiler.trees import leaves, structure

__all__ = ["DRAWING", "Capture"]

# Names of functions that draw numbers from the generators of the modules random and numpy.random.
DRAWING = frozenset(
    "random randrange randint getrandbits randbytes choice choices shuffle sample uniform gauss "
    "normalvariate lognormvariate betavariate expovariate gammavariate triangular vonmisesvariate "
    "paretovariate weibullvariate rand randn random_sample random_integers ranf bytes normal "
    "standard_normal permutation poisson binomial beta exponential gamma laplace geometric".split()
)

# What `Recorder.changes` holds: the constants of _c/base/state.pxd.
_CLEARED, _SET, _READ, _ADDED, _HISTORY = range(5)


class Capture:
    """One call of a function that is recorded."""

    def __init__(
        self,
        owner: Any,
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
        self.has_effects = self.reads_options = self.may_draw = False
        self.sets_gradients = False
        self.stepped: list[Any] = []  # parameter groups of optimizers
        self.is_late = False
        self.sizes = sizes
        self.structure: Any = None  # of the function's value
        self.recording: Any = None

    def run(self) -> Any:
        """Run the function; fill the entry if its kernels can be replayed."""
        recorder = Recorder(self.inputs, self.owner.fullgraph, self.sizes)
        recorder.known_rates = self.owner.rates
        if self.takes_elements:
            recorder.element = self.numbers.take
        if not recorder.begin():  # another thread records
            self.is_late = True
            return self.owner.function(*self.given[0], **self.given[1])
        modes, numbers = _modes(), _other_numbers() if self.may_draw else None
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
            self.stepped = [group for group, _, _ in recorder.steps]
        try:
            self.refusal = recorder.refusal
            made = [value]
            self.given = self.args, self.kwargs
            if self.numbers.numbers:
                value = None  # so that what was made is referred to once
                self.refusal = self.numbers.settle(made) or self.refusal
                value = without_numbers(made[0])
            if self.refusal is None and self.may_draw and _other_numbers() != numbers:
                self.refusal = "a function that draws numbers of another generator"
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
            self.refusal = "a hook on a tensor from outside, or retain_grad() of it"
        elif recorder.has_other_memory():
            self.refusal = "an argument that gets the memory of another tensor"
        for group, count, fused in recorder.steps:
            rate = group["lr"]
            if isinstance(rate, Tensor) and (count != fused or recorder.has_written(rate)):
                self.refusal = "the number of a learning rate that is a tensor"
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
        parts = backward.parts() if backward else []
        if self.sets_gradients and any(part.has_code for part in parts):
            self.refusal = "code in the backward pass of results, where gradients are set as well"
            return
        saved = [one for part in parts for one in part.saved_results]
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
            try:
                _ = one.is_leaf
            except RuntimeError:  # as that of a view which an in-place write has made invalid
                self.refusal = "a result whose history is invalid"
                return
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
            self.sets_gradients = True
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


def _other_numbers() -> list[Any]:
    """Return the states of the generators of the modules that are there."""
    found: list[Any] = []
    if "random" in sys.modules:
        found.append(sys.modules["random"].getstate())
    if "numpy.random" in sys.modules:
        kind, key, *rest = sys.modules["numpy.random"].get_state()
        found.append((kind, key.tobytes(), *rest))
    return found


def _modes() -> tuple[Any, ...]:
    """Return the modes of this thread that a function may leave changed."""
    casts, dtypes, uncached = get_autocast_state()
    return (
        state.is_grad_enabled(),
        state.is_inference_mode_enabled(),
        get_default_dtype(),
        (casts, dtypes if casts else None, uncached),
    )
