"""Calls whose saved tensors are computed again.

While the function runs for the first time, each tensor that is saved for backward is replaced by an
empty ``Slot``. When a slot is read, the function runs again under hooks that count along: the
tensor saved as number i belongs to slot number i. A pass of backward fills the slots once and takes
each value once, so a value lives no longer than it is needed.

A slot holds its region, and the region holds its slots weakly: when the graph is freed, all is.
"""

from __future__ import annotations

import contextlib
import threading
import weakref

from pullback._c.device.handoff import carry
from pullback._c.engine import engine
from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.ops import create
from pullback._c.transforms import batching, tangents
from pullback.autograd.function import Function
from pullback.autograd.grad_mode import enable_grad
from pullback.autograd.graph import saved_tensors_hooks

HINT = (
    "Tip: To see a more detailed error, either pass `debug=True` to "
    "`pullback.utils.checkpoint.checkpoint(...)` or wrap the code block with `with "
    "pullback.utils.checkpoint.set_checkpoint_debug_enabled(True):`."
)

MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an "
    "inplace operation: [{} {}], saved as number {} of the checkpointed function, was "
    "written after that when the function ran again, as without the checkpoint. Hint: "
    "write to a clone()."
)


class CheckpointError(RuntimeError):
    """A function did not save, when it ran again, what it had saved the first time."""

    __module__ = "pullback.utils.checkpoint"


def describe(tensor):
    """Return what must be the same of a value that is computed again."""
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


DETERMINISM_CHECKS = {"default": describe, "none": lambda tensor: None}


# -- settings --------------------------------------------------------------------------------------


class _Settings:
    early_stop: bool | None = None


class _OfThread(threading.local):
    group: GraphExecGroup | None = None


_of_thread = carry(_OfThread())


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Set for all checkpoints that are made inside whether they stop early; None: as they say.

    >>> import pullback as pb
    >>> x = pb.ones(1, requires_grad=True)
    >>> def function(x):
    ...     y = x.exp()
    ...     print("done")
    ...     return y
    >>> with pb.utils.checkpoint.set_checkpoint_early_stop(False):
    ...     y = pb.utils.checkpoint.checkpoint(function, x)
    done
    >>> y.backward()
    done
    """
    before = _Settings.early_stop
    _Settings.early_stop = enable
    try:
        yield
    finally:
        _Settings.early_stop = before


class GraphExecGroup:
    """Passes of backward that run inside share what checkpoints compute again.

    The passes must go through different parts of the graph: each value can be taken once.
    """

    def __enter__(self):
        if _of_thread.group is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {_of_thread.group}"
            )
        _of_thread.group = self
        return self

    def __exit__(self, kind, value, traceback):
        _of_thread.group = None


# -- the first run ---------------------------------------------------------------------------------


class Slot:
    """What is kept instead of a saved tensor."""

    __slots__ = ("__weakref__", "region", "values")

    def __init__(self, region):
        self.region = region
        self.values = {}  # of each pass: the tensor, None once it was taken


class Inputs(Function):
    """Saves tensors under the hooks around, so that an outer checkpoint computes them again."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        return anchor.clone()


def save_inputs(tensors):
    """Return a node that keeps tensors as what they are in the graph."""
    disabled = levels.disable_all_levels()  # tangents stay with the tensors, nothing is computed
    try:
        return Inputs.apply(create.empty_tensor((0,)).requires_grad_(), *tensors).grad_fn
    finally:
        levels.restore_levels(disabled)


def can_be_saved(value):
    return isinstance(value, Tensor) and not (
        batching.are_batched((value,)) or value.is_inference()
    )


class Region:
    """One checkpointed call: its arguments, how to run it again, and the slots that it saved."""

    def __init__(self, run_again, args, early_stop, describe, explain):
        self.run_again = run_again
        self.early_stop = early_stop if _Settings.early_stop is None else _Settings.early_stop
        self.describe = describe
        self.explain = explain  # adds to an error; or None
        self.level = levels.level_count()
        self.had_tangents = tangents.innermost_level(args) > 0
        self.is_complete = False  # the first run is over
        self.slots = []
        self.described = []
        self.replayed = set()  # the passes that ran it again
        self.args = [None if can_be_saved(arg) else arg for arg in args]
        self.places = [k for k, arg in enumerate(args) if can_be_saved(arg)]
        self.saved_args = save_inputs([args[k] for k in self.places])

    def saving(self):
        """Return the hooks for the first run."""
        return saved_tensors_hooks(self.keep, take)

    def keep(self, tensor):
        """Make a slot for a tensor."""
        slot = Slot(self)
        self.slots.append(weakref.ref(slot))
        self.described.append(self.describe(tensor))
        return slot

    def inputs(self):
        """Return the arguments, with their history."""
        args = list(self.args)
        for arg in args:
            if batching.are_batched((arg,)) and batching.describe(arg) is None:
                raise RuntimeError(
                    "pullback.utils.checkpoint: an argument stands for an element "
                    "of a batch of vmap, which has ended, so the function cannot "
                    "run again. Call vmap inside the checkpointed function, or "
                    "compute the gradient inside vmap."
                )
        for place, tensor in zip(self.places, self.saved_args.saved_tensors):
            args[place] = tensor
        return args

    def replay(self, key):
        """Run the function again and fill the slots."""
        replay = Replay(self, key)
        try:
            self.run(replay)
            replay.check()
        except BaseException:
            self.forget(key)
            raise
        self.replayed.add(key)

    def run(self, replay):
        args = self.inputs()
        disabled = levels.disable_levels_inside(self.level)
        try:
            with saved_tensors_hooks(replay.fill, as_it_is), enable_grad():
                self.run_again(*args)
        except Stop as stop:
            if stop.replay is not replay:
                raise
        finally:
            levels.restore_levels(disabled)

    def forget(self, key):
        """Drop what a pass computed again."""
        self.replayed.discard(key)
        for reference in self.slots:
            slot = reference()
            if slot is not None:
                slot.values.pop(key, None)


# -- later runs ------------------------------------------------------------------------------------


class Stop(BaseException):
    """Leaves a function whose values have all been saved; no ``except Exception`` stops it."""

    def __init__(self, replay):
        self.replay = replay


def as_it_is(tensor):
    return tensor


def version_of(tensor):
    """Return how often the memory of a tensor, or of the batch that it stands for, was written."""
    tensor = levels.whole(tensor)
    return 0 if tensor.is_inference() else tensor._version


class Replay:
    """One later run of a region's function."""

    def __init__(self, region, key):
        self.region = region
        self.key = key
        self.count = 0
        self.versions = []  # of what went into the slots, at that time
        self.went_on = False  # past what the first run has saved until now

    def fill(self, tensor):
        """Put a tensor into the next slot."""
        slots = self.region.slots
        tensor = create.alias_raw(tensor)  # no history, and no op that watchers would see
        number = self.count
        self.count += 1
        if number < len(slots):
            slot = slots[number]()
            if slot is not None:
                slot.values[self.key] = tensor
            self.versions.append(version_of(tensor))
        elif not self.region.is_complete:  # backward runs inside the function
            self.went_on = True
        elif not self.region.early_stop:
            raise CheckpointError(
                f"pullback.utils.checkpoint: trying to save more tensors during "
                f"recomputation than during the original forward pass, which "
                f"saved {len(slots)}.\n{HINT}"
            )
        if self.region.early_stop and self.count >= len(slots):
            raise Stop(self)
        return tensor

    def check(self):
        """Raise CheckpointError unless this run saved what the first one did."""
        region = self.region
        if self.went_on:
            return
        if self.count != len(region.slots):
            why = ""
            if region.had_tangents and levels.level_count() < region.level:
                why = (
                    "Forward mode was on during the original forward and has ended: compute the "
                    "gradient before.\n"
                )
            raise CheckpointError(
                f"pullback.utils.checkpoint: A different number of tensors was "
                f"saved during the original forward and recomputation.\nNumber "
                f"of tensors saved during forward: {len(region.slots)}\nNumber "
                f"of tensors saved during recomputation: {self.count}.\n{why}"
                f"{HINT}"
            )
        different = ""
        for number, (reference, expected) in enumerate(zip(region.slots, region.described)):
            slot = reference()
            if slot is None:
                continue
            tensor = slot.values[self.key]
            if version_of(tensor) != self.versions[number]:
                raise RuntimeError(MODIFIED.format(tensor.dtype, list(tensor.shape), number))
            found = region.describe(tensor)
            if found != expected:
                different += (
                    f"tensor at position {number}:\nsaved metadata: {expected}\n"
                    f"recomputed metadata: {found}\n"
                )
        if different:
            raise CheckpointError(
                f"pullback.utils.checkpoint: Recomputed values for the following "
                f"tensors have different metadata than during the forward pass.\n"
                f"{different}{HINT}"
            )


def take(slot):
    """Return the tensor of a slot: what every use of a saved value leads to."""
    try:
        return _take(slot)
    except CheckpointError as error:
        if slot.region.explain is None:
            raise
        raise CheckpointError(slot.region.explain()) from error


def _take(slot):
    region = slot.region
    key = _of_thread.group or engine.current_task_id()
    if key == -1:  # no pass runs: compute it for this use alone
        key = object()
        region.replay(key)
        value = slot.values[key]
        region.forget(key)
        return value
    if key not in region.replayed:
        region.replay(key)
        if key is not _of_thread.group:
            forget_later(weakref.ref(region), key)
    value = slot.values.get(key)
    if value is None:
        more = ""
        if key is _of_thread.group:
            more = (
                "Performing two backward calls that overlap (i.e. require the same saved "
                "activation in order to compute gradients) is not allowed while under the "
                "pullback.utils.checkpoint.GraphExecGroup context. "
            )
        raise CheckpointError(
            f"pullback.utils.checkpoint: Unpack is being triggered for a tensor "
            f"that was already unpacked once. {more}If you are calling "
            f"ctx.saved_tensors in backward, make sure to do so only once: keep "
            f"the tensors in a variable."
        )
    slot.values[key] = None
    return value


def forget_later(region, key):
    """Drop at the end of the pass what it did not take."""

    def forget():
        found = region()
        if found is not None:
            found.forget(key)

    engine.queue_callback(forget)
