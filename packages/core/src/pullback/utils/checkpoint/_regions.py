"""Regions: checkpointed calls, whose saved tensors are recomputed.

While the function runs for the first time, each tensor that is saved for backward is replaced by an
empty ``Holder``. When a holder is read, the function runs again under hooks with a counter: the
i-th saved tensor belongs to the i-th holder. A backward pass fills the holders once and takes each
tensor once, so that none exists longer than needed.

A holder refers to its region, the region to its holders weakly: both are freed with the graph.
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
    """A checkpointed function saved other tensors when it ran again than the first time."""

    __module__ = "pullback.utils.checkpoint"


def describe(tensor):
    """Return the metadata that a recomputed tensor must have, too."""
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
    """Override ``early_stop`` of all checkpoints that are made inside; None: no override.

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
    """Backward passes that run inside share the tensors that checkpoints recompute.

    The passes must run through different parts of the graph: each tensor can be taken once.
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


class Holder:
    """The placeholder of a saved tensor."""

    __slots__ = ("__weakref__", "checkpoint_region", "values")

    def __init__(self, region):
        self.checkpoint_region = region
        self.values = {}  # of each pass: the tensor, or None after it was taken


class CheckpointInputs(Function):
    """Saves tensors under the outer hooks, so that an outer checkpoint recomputes them."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        return anchor.clone()


def save_inputs(tensors):
    """Return a node that saves tensors with their histories."""
    disabled = levels.disable_all_levels()  # tangents stay with the tensors
    try:
        return CheckpointInputs.apply(create.empty_tensor((1,)).requires_grad_(), *tensors).grad_fn
    finally:
        levels.restore_levels(disabled)


def can_be_saved(value):
    return isinstance(value, Tensor) and not (
        batching.are_batched((value,)) or value.is_inference()
    )


class Region:
    """One checkpointed call: its arguments, how to run it again, and the holders that it saved."""

    def __init__(self, run_again, args, early_stop, describe, explain):
        self.run_again = run_again
        self.early_stop = early_stop if _Settings.early_stop is None else _Settings.early_stop
        self.describe = describe
        self.explain = explain  # returns more text for an error; or None
        self.level = levels.level_count()
        self.had_tangents = tangents.innermost_level(args) > 0
        self.is_complete = False  # whether the first run has ended
        self.holders = []
        self.described = []
        self.replayed = set()  # the passes that ran it again
        self.args = [None if can_be_saved(arg) else arg for arg in args]
        self.positions = [k for k, arg in enumerate(args) if can_be_saved(arg)]
        self.saved_args = save_inputs([args[k] for k in self.positions])

    def saving(self):
        """Return the hooks for the first run."""
        return saved_tensors_hooks(self.keep, take)

    def keep(self, tensor):
        """Make a holder for a tensor."""
        holder = Holder(self)
        self.holders.append(weakref.ref(holder))
        self.described.append(self.describe(tensor))
        return holder

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
        for position, tensor in zip(self.positions, self.saved_args.saved_tensors):
            args[position] = tensor
        return args

    def replay(self, key):
        """Run the function again and fill the holders."""
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
        """Drop the tensors that a pass recomputed."""
        self.replayed.discard(key)
        for reference in self.holders:
            holder = reference()
            if holder is not None:
                holder.values.pop(key, None)


# -- later runs ------------------------------------------------------------------------------------


class Stop(BaseException):
    """Ends a function that has saved all tensors again; ``except Exception`` does not catch it."""

    def __init__(self, replay):
        self.replay = replay


def as_it_is(tensor):
    return tensor


def version_of(tensor):
    """Return the version of a tensor, or of the batch that it represents."""
    tensor = levels.whole(tensor)
    return 0 if tensor.is_inference() else tensor._version


class Replay:
    """One later run of a region's function."""

    def __init__(self, region, key):
        self.region = region
        self.key = key
        self.count = 0
        self.versions = []  # of the tensors in the holders, when they were saved
        self.went_on = False  # it saved more tensors than the first run so far

    def fill(self, tensor):
        """Put a tensor into the next holder."""
        holders = self.region.holders
        tensor = create.alias_raw(tensor)  # without history, and without an op for dispatch modes
        number = self.count
        self.count += 1
        if number < len(holders):
            holder = holders[number]()
            if holder is not None:
                holder.values[self.key] = tensor
            self.versions.append(version_of(tensor))
        elif not self.region.is_complete:  # backward runs inside the function
            self.went_on = True
        elif not self.region.early_stop:
            raise CheckpointError(
                f"pullback.utils.checkpoint: trying to save more tensors during "
                f"recomputation than during the original forward pass, which "
                f"saved {len(holders)}.\n{HINT}"
            )
        if self.region.early_stop and self.count >= len(holders):
            raise Stop(self)
        return tensor

    def check(self):
        """Raise CheckpointError unless this run saved tensors like those of the first one."""
        region = self.region
        if self.went_on:
            return
        if self.count != len(region.holders):
            why = ""
            if region.had_tangents and levels.level_count() < region.level:
                why = (
                    "Forward mode was on during the original forward and has ended: compute the "
                    "gradient before.\n"
                )
            raise CheckpointError(
                f"pullback.utils.checkpoint: A different number of tensors was "
                f"saved during the original forward and recomputation.\nNumber "
                f"of tensors saved during forward: {len(region.holders)}\nNumber "
                f"of tensors saved during recomputation: {self.count}.\n{why}"
                f"{HINT}"
            )
        different = ""
        for number, (reference, expected) in enumerate(zip(region.holders, region.described)):
            holder = reference()
            if holder is None:
                continue
            tensor = holder.values[self.key]
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


def take(holder):
    """Return the tensor of a holder, recomputed if necessary: the unpack hook."""
    try:
        return _take(holder)
    except CheckpointError as error:
        if holder.checkpoint_region.explain is None:
            raise
        raise CheckpointError(holder.checkpoint_region.explain()) from error


def _take(holder):
    region = holder.checkpoint_region
    key = _of_thread.group or engine.current_task_id()
    if key == -1:  # no backward pass runs: recompute it for this use only
        key = object()
        region.replay(key)
        value = holder.values[key]
        region.forget(key)
        return value
    if key not in region.replayed:
        region.replay(key)
        if key is not _of_thread.group:
            forget_later(weakref.ref(region), key)
    value = holder.values.get(key)
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
    holder.values[key] = None
    return value


def forget_later(region, key):
    """Drop, at the end of the pass, the tensors that it did not take."""

    def forget():
        found = region()
        if found is not None:
            found.forget(key)

    engine.queue_callback(forget)
