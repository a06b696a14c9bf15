"""Selective checkpoints: the results of some ops are kept, others are recomputed."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections import Counter

import pullback as pb
from pullback import random
from pullback._c.graph.op import Op
from pullback._c.interop import arrays
from pullback._c.ops import create
from pullback.autograd.grad_mode import no_grad
from pullback.ops import ops
from pullback.utils.checkpoint._dispatch_mode import DispatchMode

DIFFERENT = (
    "The checkpointed function must call the same ops in the same order whenever it runs. "
    "See which ops ran with debug=True."
)


class CheckpointPolicy(enum.Enum):
    """What happens to an op's result: it is kept, kept in host memory, or recomputed.

    ``MUST_`` and ``PREFER_`` have the same effect here, as in torch's eager mode.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
SAC_IGNORED_OPS = frozenset({ops.detach, ops.alias})


class SelectiveCheckpointContext:
    """The ``ctx`` argument of a policy.

    ``op_output`` is the op's result. ``is_recompute`` is always False: a policy is called once.
    """

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute = is_recompute
        self.op_output = op_output


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """Return the two context managers of a checkpoint that keeps the results of some ops.

    Use it, with its arguments, as ``context_fn``. A list of ops, such as ``[pb.mm]``, has the ops
    whose results are kept. Or a function ``policy_fn(ctx, op, *args)`` is called after each op,
    with all arguments by position, and returns a ``CheckpointPolicy``, or a bool: whether to keep
    the result.

    ``op`` is the called op: ``op is pb.mm``, and ``op.name`` is its name. Composites such as
    ``matmul`` and ``conv2d`` are not passed to a policy, the ops that they call are. Views and
    in-place ops always run again. Keeping too much wastes memory: backward does not need every
    result.

    A region with a kept result allows one backward pass, even with ``retain_graph``.

    Raises: TypeError for anything but a function and a list; ValueError for a list with something
    other than an op, or with a composite. In backward: RuntimeError when a kept tensor was changed
    in place since, unless ``allow_cache_entry_mutation``.

    >>> import functools
    >>> import pullback as pb
    >>> from pullback.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> keep_products = functools.partial(create_selective_checkpoint_contexts, [pb.mm])
    >>> x = pb.ones(2, 2, requires_grad=True)
    >>> checkpoint(lambda x: (x @ x).sin() @ x, x, context_fn=keep_products).sum().backward()
    >>> x.grad
    tensor([[-1.5106, -1.5106],
            [-1.5106, -1.5106]])
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            check_is_seen(op)
        listed = frozenset(public(op) for op in policy_fn_or_list)

        def policy(ctx, op, *args):
            return op in listed
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError(
            f"policy_fn_or_list must be either a function or a list of ops, not "
            f"{type(policy_fn_or_list).__name__}"
        )
    results: dict = {}
    return Keeping(policy, results), Giving(results, allow_cache_entry_mutation)


def check_is_seen(op):
    if not isinstance(op, Op):
        raise ValueError(
            f"Expected op in `op_list` to be an op of pullback, such as pullback.mm, "
            f"but got: {op} of type {type(op)}"
        )
    if op.is_composite and not hasattr(ops, "_" + base_name(op)):
        raise ValueError(
            f"op_list: {op.name} is made of other ops: name those instead. A policy "
            f"function that prints op.name shows them."
        )


def base_name(op):
    """Return the name of an op without its overload: ``softmax`` for ``softmax.top``."""
    return op.name.partition(".")[0]


def public(op):
    """Return the op that users know: of ``_softmax``, which computes it, ``softmax``."""
    name = base_name(op).removeprefix("_")
    found = getattr(pb, name, None)
    return found if isinstance(found, Op) else getattr(ops, name, op)


class Kept:
    """The kept result of an op."""

    def __init__(self, result, offload, draws):
        self.is_tuple = isinstance(result, tuple)
        self.type = type(result)
        tensors = result if self.is_tuple else (result,)
        self.devices = [tensor.device for tensor in tensors]
        self.tensors = [create.alias_raw(tensor) for tensor in tensors]
        if offload:
            self.tensors = [
                tensor if arrays.is_host(tensor) else tensor.to("cpu") for tensor in self.tensors
            ]
        self.versions = [tensor._version for tensor in self.tensors]
        self.draws = draws  # number of random numbers that the op has drawn

    def value(self, may_have_changed):
        """Return the result."""
        for tensor, version in zip(self.tensors, self.versions):
            if tensor._version != version and not may_have_changed:
                raise RuntimeError(
                    "Tensor cached during selective activation checkpoint has been mutated"
                )
        if self.draws:
            random.default_generator.take(self.draws)
        tensors = [tensor.to(device) for tensor, device in zip(self.tensors, self.devices)]
        if not self.is_tuple:
            return tensors[0]
        return self.type(*tensors) if hasattr(self.type, "_fields") else self.type(tensors)


GIVEN = object()  # replaces a kept result after its use


class Counting(DispatchMode):
    """Calls ``on_call`` for each counted op, with the key (op, number of the call of that op)."""

    def __init__(self, results):
        super().__init__()
        self.results = results  # key -> Kept, GIVEN, or None: recomputed
        self.counts: Counter[Op] = Counter()

    def begin(self):
        """Reset the counters."""
        self.counts.clear()

    def on_op(self, op, args, run):
        """Count an op and return its result."""
        op = public(op)
        if op in SAC_IGNORED_OPS:
            return run()
        self.counts[op] += 1
        return self.on_call((op, self.counts[op]), args, run)

    @abstractmethod
    def on_call(self, key, args, run):
        """Handle a counted op and return its result."""


class Keeping(Counting):
    """The dispatch mode of the first run: calls the policy after each op, and keeps results."""

    def __init__(self, policy, results):
        super().__init__(results)
        self.policy = policy

    def on_call(self, key, args, run):
        """Run an op and keep its result, or mark it as recomputed."""
        before = random.default_generator.get_offset()
        result = run()
        op = key[0]
        with no_grad():
            policy = self.policy(
                SelectiveCheckpointContext(is_recompute=False, op_output=result), op, *args
            )
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        kept = None
        is_new = not (op.is_view or op.is_inplace or any(result is arg for arg in args))
        if is_new and policy in SAVE + OFFLOAD:
            draws = random.default_generator.get_offset() - before
            kept = Kept(result, policy in OFFLOAD, draws)
        self.results[key] = kept
        return result


class Giving(Counting):
    """The dispatch mode of later runs: returns kept results instead of running their ops."""

    def __init__(self, results, may_have_changed):
        super().__init__(results)
        self.may_have_changed = may_have_changed

    def on_call(self, key, args, run):
        """Return the kept result of an op, once, or run it."""
        if key not in self.results:
            raise RuntimeError(
                f"{key[0].name}, call number {key[1]}, encountered during "
                f"backward but not found in storage. {DIFFERENT}"
            )
        if create.runs_ahead():
            raise RuntimeError("a checkpoint that keeps results allows one backward pass")
        kept = self.results[key]
        if kept is None:
            return run()
        if kept is GIVEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward "
                "once on any region computed under selective activation checkpoint."
            )
        self.results[key] = GIVEN
        return kept.value(self.may_have_changed)
