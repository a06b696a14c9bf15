"""Records the ops of one side, compares those of the other, and gives these equal inputs."""

from __future__ import annotations

import contextlib
import linecache
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pullback as pb
from pullback._c.base.errors import user_frame
from pullback._c.graph import levels
from pullback.func._tree import leaves
from pullback.testing.comparison.functions import FunctionCall, close_watch, open_watch
from pullback.testing.comparison.measure import Difference, Tolerances, Value, difference, value_of

LONGEST = 400  # characters of the arguments that are shown
MOVE, CAST = "move", "cast"  # the ops that copy to another device, and to another dtype


class Step(NamedTuple):
    """An op of the reference: its name, arguments, line of the program, and values.

    The forward of a custom Function is one more, behind the ops inside it.
    """

    name: str
    arguments: str
    line: str
    fresh: dict[int, Value]  # tensors among the arguments, by number, that no op before it made
    results: list[Value]
    numbers: list[str]  # among the arguments; of a Function also among what it kept
    first: int | None = None  # of a Function: the number of the first op inside it


class Divergence(Exception):
    """The sides run other ops or nodes, so nothing after this can be compared one by one."""


class Found(NamedTuple):
    """What differs: the number of the op or node, and how."""

    number: int
    what: str  # "result 0", "argument 'other'", "gradient 1"
    difference: Difference
    other_call: str = ""  # where the op got other numbers as arguments
    overwrote: str = ""  # the name of an argument that the op wrote, though it shall not
    ran: str = ""  # of a node: a wrong op that it ran again, or may have got values from


class OpWatch:
    """Receives the ops of a function while it is open, and remembers which node each records."""

    def __init__(self) -> None:
        self.count = 0
        self.nodes: dict[Any, int] = {}  # node -> number of its op
        self.pending: list[pb.Tensor] = []
        self.levels: list[int] = []  # open ones: the function's, and those of custom Functions
        self.begun: list[int] = []  # the counts where the custom Functions that run began
        self.on_leaf: Callable[[pb.Tensor], None] | None = None

    def __enter__(self) -> OpWatch:
        open_watch(self)
        self.levels.append(levels.enter_dispatch_mode(self.on_op))
        return self

    def __exit__(self, *error: object) -> None:
        levels.exit_level(self.levels.pop())
        close_watch(self)
        self.note_nodes()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Receive ops within a custom Function, which has disabled the levels outside."""
        self.levels.append(levels.enter_dispatch_mode(self.on_op))
        try:
            yield
        finally:
            levels.exit_level(self.levels.pop())

    def is_listening(self) -> bool:
        """Return False while an op is handled, and in code that works below all levels."""
        disabled = levels.disable_all_levels()
        levels.restore_levels(disabled)
        return not disabled >> self.levels[-1] & 1

    def on_op(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Handle an op, whose results get their node after this has returned."""
        self.note_nodes()
        if self.on_leaf is not None:
            for tensor in tensors_in(args):
                if tensor.requires_grad and tensor.is_leaf:
                    self.on_leaf(tensor)
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

    def begin_function(self) -> int:
        """Note that the forward of a custom Function begins; returns how many run already."""
        self.begun.append(self.count)
        return len(self.begun) - 1

    def end_function(self, call: FunctionCall, ctx: Any, args: tuple[Any, ...], out: Any) -> None:
        """Handle a custom Function whose forward has ended, before its node is made."""
        self.note_nodes()
        self.handle_function(call, args, Kept.of(ctx, args, out))
        self.nodes.setdefault(ctx, self.count)
        self.count += 1

    def handle_function(self, call: FunctionCall, args: tuple[Any, ...], kept: Kept) -> None:
        """Handle what a custom Function returned and keeps."""

    def leave_function(self, depth: int) -> None:
        """Note that a custom Function has returned, or raised."""
        del self.begun[depth:]


class Kept(NamedTuple):
    """What the forward of a custom Function returned, and what its ctx keeps for backward."""

    tensors: list[pb.Tensor]
    names: list[str]
    numbers: list[str]

    @classmethod
    def of(cls, ctx: Any, args: tuple[Any, ...], outputs: Any) -> Kept:
        """Return the tensors of outputs, saved tensors and attributes of a ctx, by name."""
        named = [(f"result {i}", t) for i, t in enumerate(tensors_in(outputs))]
        saved = [] if ctx.saved_for_forward is not None else ctx.saved_tensors
        named += [(f"saved tensor {i}", t) for i, t in enumerate(saved) if t is not None]
        attributes = {key: x for key, x in vars(ctx).items() if not key.startswith("_")}
        for name, value in attributes.items():
            named += [(f"attribute {name!r}", t) for t in tensors_in(value)]
        numbers = [*numbers_in(args), *numbers_in(tuple(attributes.values()))]
        return cls([t for _, t in named], [name for name, _ in named], numbers)


class Names(OpWatch):
    """Collects the names of the ops of a backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.recomputed: set[str] = set()  # of ops that record: parts of a forward pass

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op and keep its name."""
        self.note(op.name)
        return run()

    def handle_function(self, call: FunctionCall, args: tuple[Any, ...], kept: Kept) -> None:
        """Keep the name of a custom Function."""
        self.note(call.name)

    def note(self, name: str) -> None:
        """Keep a name."""
        (self.recomputed if pb.is_grad_enabled() else self.seen).add(name)


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
        name, numbers = name_of(op, args), numbers_in(args)
        self.steps.append(Step(name, call, user_line(), fresh, values, numbers))
        return result

    def handle_function(self, call: FunctionCall, args: tuple[Any, ...], kept: Kept) -> None:
        """Keep the values of a custom Function."""
        text, values = call_of(call, args), list(map(value_of, kept.tensors))
        self.known.update((id(tensor), weakref.ref(tensor)) for tensor in kept.tensors)
        step = Step(call.name, text, user_line(), {}, values, kept.numbers, self.begun[-1])
        self.steps.append(step)


class Compared(OpWatch):
    """Compares the ops of the other side with those of the reference, in the same order.

    Inside a custom Function the sides may run other ops; they meet again where it ends. Anywhere
    one side may copy a tensor to the device, or of two dtypes to the one, that it has elsewhere.
    """

    def __init__(
        self, steps: list[Step], tolerances: Tolerances, share_random_numbers: bool = False
    ) -> None:
        super().__init__()
        self.steps = steps
        self.tolerances = tolerances
        self.share_random_numbers = share_random_numbers  # a dtype draws others than another one
        self.found: Found | None = None
        self.other_op: str | None = None  # what ran where the reference ran another op
        self.other_number = 0  # where that was
        self.astray: int | None = None  # how many custom Functions ran where their ops parted
        self.parted: list[str] = []  # the names of these Functions
        self.unequal: set[int] = set()  # Functions that keep what cannot be made equal

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op and compare its results."""
        step = self.step_of(name_of(op, args))
        if step is None:
            return run()
        if self.share_random_numbers:
            give_fresh(step, args)
        result = run()
        if self.found is None:
            self.compare(step, tensors_of(result, args), other_call(step, op, args))
        return result

    def step_of(self, name: str) -> Step | None:
        """Return the op of the reference that one of a name stands for, or None if it has none."""
        if self.other_op is not None or self.astray is not None:
            return None
        ahead = self.count
        while ahead < len(self.steps) and self.is_copy(self.steps[ahead].name, unlike=name):
            ahead += 1
        step = self.steps[ahead] if ahead < len(self.steps) else None
        if step is not None and step.name == name and step.first is None:
            self.count = ahead
            return step
        if self.is_copy(name):
            self.count -= 1  # as if there were no such op
            return None
        if self.begun:
            self.astray = len(self.begun)
        else:
            self.part(name)
        return None

    def is_copy(self, name: str, unlike: str = "") -> bool:
        """Return True for an op that one side needs and the other does not, as it is there."""
        copies = (MOVE, CAST) if self.share_random_numbers else (MOVE,)
        return name in copies and unlike not in copies

    def part(self, name: str) -> None:
        """Note an op that the reference does not run here; no later one is compared."""
        self.other_op, self.other_number = name, self.count

    def compare(
        self, step: Step, results: list[pb.Tensor], other: str = "", names: Iterable[str] = ()
    ) -> None:
        """Note the first result that differs."""
        named = list(names) or [f"result {i}" for i in range(len(results))]
        for name, tensor, expected in zip(named, results, step.results):
            found = difference(value_of(tensor), expected, self.tolerances)
            if found is not None:
                self.found = Found(self.count, name, found, other)
                return

    # ---- custom Functions ----

    def handle_function(self, call: FunctionCall, args: tuple[Any, ...], kept: Kept) -> None:
        """Compare a custom Function, whatever ops it ran."""
        step = self.step_of_function(call)
        if step is None:
            return
        other = "" if kept.numbers == step.numbers else f"{call_of(call, args)}, of other numbers"
        if other:
            self.unequal.add(self.count)
        if self.found is None:
            self.compare(step, kept.tensors, other, kept.names)
        self.force_function(step, kept)

    def force_function(self, step: Step, kept: Kept) -> None:
        """Do nothing: the side runs as it is."""

    def step_of_function(self, call: FunctionCall) -> Step | None:
        """Return the reference's call of a custom Function, at which both sides meet again."""
        if self.other_op is not None:
            return None
        if self.astray is not None and self.astray < len(self.begun):
            return None  # it is one of those that the reference does not have
        firsts = [self.begun[-1]]
        while firsts[-1] < len(self.steps) and self.is_copy(self.steps[firsts[-1]].name):
            firsts.append(firsts[-1] + 1)
        for number in range(self.begun[-1], len(self.steps)):
            step = self.steps[number]
            if step.first in firsts and step.name == call.name:
                if number != self.count or self.astray is not None:
                    self.parted.append(call.name)
                self.count, self.astray = number, None
                return step
        self.astray = None
        if len(self.begun) > 1:
            self.astray = len(self.begun) - 1
        else:
            self.part(call.name)
        return None

    def leave_function(self, depth: int) -> None:
        """Note that a custom Function has returned, or raised before the sides met again."""
        super().leave_function(depth)
        if self.astray is not None and self.astray > depth:
            self.astray = depth or None
            if self.astray is None and self.other_op is None:
                self.part("an exception")


class Forced(Compared):
    """Also gives each op the inputs of the reference: no op gets an error from one before it."""

    def handle(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run an op on equal inputs, compare its results, and replace them by the reference's."""
        step = self.step_of(name_of(op, args))
        if step is None:
            return run()
        if self.share_random_numbers:
            give_fresh(step, args)
        elif self.found is None:
            self.compare_fresh(step, args)
        inputs = unwritten(op, args)
        before = [value_of(tensor) for _, tensor in inputs]
        result = run()
        results = tensors_of(result, args)
        if result is not None:
            self.restore(inputs, before)
        if self.found is None:
            self.compare(step, results, other_call(step, op, args))
        if not op.is_view:
            for tensor, expected in zip(results, step.results):
                overwrite(tensor, expected)
        return result

    def restore(self, inputs: list[tuple[str, pb.Tensor]], before: list[Value]) -> None:
        """Compare the inputs that an op shall not write with what they were, and restore them."""
        for (name, tensor), value in zip(inputs, before):
            found = difference(value_of(tensor), value, Tolerances(0, 0))
            if found is not None:
                self.found = self.found or Found(self.count, "its input", found, overwrote=name)
                overwrite(tensor, value)

    def force_function(self, step: Step, kept: Kept) -> None:
        """Replace what a custom Function returned and keeps by the reference's."""
        for tensor, expected in zip(kept.tensors, step.results):
            if not overwrite(tensor, expected):
                self.unequal.add(self.count)
        if len(kept.tensors) != len(step.results):
            self.unequal.add(self.count)

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


# ---- tensors in arguments and results ------------------------------------------------------------


def tensors_in(value: Any) -> list[pb.Tensor]:
    """Return the tensors in a tree."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, pb.Tensor)]


def tensors_of(result: Any, args: tuple[Any, ...]) -> list[pb.Tensor]:
    """Return the tensors that an op computed: its results, or the lists that it wrote."""
    return tensors_in(list(args) if result is None else result)


def unwritten(op: Any, args: tuple[Any, ...]) -> list[tuple[str, pb.Tensor]]:
    """Return the tensors that an op has no right to write, with the names of their arguments."""
    written: list[pb.Tensor] = []
    others: list[tuple[str, pb.Tensor]] = []
    for i, (argument, value) in enumerate(zip(op.entry.arguments, args)):
        tensors = [t for t in tensors_in(value) if not t.is_sparse and t.device.type != "meta"]
        if argument.written or (i == 0 and op.is_inplace):
            written += tensors
        else:
            others += [(op.arg_names[i], tensor) for tensor in tensors]
    memory = {tensor.untyped_storage()._cdata for tensor in written}
    return [(name, t) for name, t in others if t.untyped_storage()._cdata not in memory]


def overwrite(tensor: pb.Tensor, value: Value) -> bool:
    """Set a tensor's elements, behind the back of its version and its history.

    Returns False where that cannot be done.
    """
    if tensor.is_sparse or value.kind != "tensor" or tuple(tensor.shape) != value.array.shape:
        return tensor.device.type == "meta"
    if not tensor.numel():
        return True
    once = tuple(slice(0, None if step else 1) for step in tensor.stride())  # of expanded dims
    given = pb.tensor(value.array[once], dtype=tensor.dtype, device=tensor.device)
    tensor.detach().data[once].copy_(given)
    return True


def name_of(op: Any, args: tuple[Any, ...]) -> str:
    """Return an op's name, with a remark where it computes nothing but shapes and dtypes."""
    is_meta = any(tensor.device.type == "meta" for tensor in tensors_in(args))
    return f"{op.name} of meta tensors" if is_meta else str(op.name)


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
    if isinstance(op, FunctionCall):
        args = args[: len(args) - op.is_operator]  # whose last argument is no one's
        text = ", ".join(described(x) if _is_short(x) else type(x).__name__ for x in args)
        return f"{op.name}({text if len(text) < LONGEST else text[:LONGEST] + '...'})"
    text = ", ".join(f"{name}={described(value)}" for name, value in zip(op.arg_names, args))
    return f"{op.name}({text if len(text) < LONGEST else text[:LONGEST] + '...'})"


def _is_short(value: Any) -> bool:
    return isinstance(value, pb.Tensor | int | float | complex | str | None)


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
        strides = (
            ""
            if value.is_sparse or value.is_contiguous()
            else f" with strides {tuple(value.stride())}"
        )
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
