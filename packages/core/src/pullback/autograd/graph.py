"""The public interface of the graph: nodes, edges, hooks and saved tensors."""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pullback._c.base import state
from pullback._c.base.errors import require_bool
from pullback._c.engine import stream_order
from pullback._c.graph.node import Node
from pullback._c.graph.tensor import Tensor
from pullback._c.python import node_methods, tensor_methods
from pullback.autograd._dot import to_dot
from pullback.autograd._mutation import allow_mutation_on_saved_tensors
from pullback.autograd._vmapped import hook_of_batch
from pullback.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from pullback.autograd.diagnostics.explain import explain_grad
    from pullback.autograd.diagnostics.holders import who_holds
    from pullback.autograd.diagnostics.memory import memory
    from pullback.autograd.diagnostics.peak import predict_peak
    from pullback.autograd.diagnostics.per_sample import per_sample_gradients
    from pullback.autograd.diagnostics.sites import record_sites

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "explain_grad",
    "get_gradient_edge",
    "increment_version",
    "memory",
    "per_sample_gradients",
    "predict_peak",
    "record_sites",
    "region_activation_memory_budget",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
    "to_dot",
    "who_holds",
]

# Modules of `diagnostics` that have further names; imported on first use.
_DIAGNOSTICS = {
    "explain_grad": "explain",
    "memory": "memory",
    "per_sample_gradients": "per_sample",
    "predict_peak": "peak",
    "record_sites": "sites",
    "who_holds": "holders",
}


def __getattr__(name):
    if name not in _DIAGNOSTICS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"pullback.autograd.diagnostics.{_DIAGNOSTICS[name]}")
    return getattr(module, name)


class GradientEdge(NamedTuple):
    """An edge: a node and the number of one of its forward outputs.

    ``backward`` and ``grad`` take edges instead of tensors. An edge keeps its node alive, but not
    the tensor.

    >>> import pullback
    >>> from pullback.autograd.graph import get_gradient_edge
    >>> x = pullback.ones(1, requires_grad=True)
    >>> edge = get_gradient_edge(x * 2)
    >>> pullback.autograd.grad(edge, x, pullback.ones(1))
    (tensor([2.]),)
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor):
    """Return the edge that the gradient of a tensor flows to; of a leaf, to its accumulator.

    Raises: RuntimeError when the tensor does not require grad; TypeError for anything but a tensor.

    >>> import pullback
    >>> y = pullback.ones(1, requires_grad=True) * 2
    >>> pullback.autograd.graph.get_gradient_edge(y).output_nr
    0
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"get_gradient_edge(): expected a Tensor, not {type(tensor).__name__}")
    edge = tensor_methods.gradient_edge(tensor)
    if edge is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not "
            "require gradients"
        )
    return GradientEdge(*edge)


def increment_version(tensor):
    """Count a write by another library to the memory of a tensor (or of several).

    So backward detects that a saved tensor was overwritten. Skips inference tensors.

    >>> import pullback
    >>> x = pullback.ones(1)
    >>> pullback.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for item in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not item.is_inference():
            tensor_methods.increment_version_of(item)


class saved_tensors_hooks:
    """Call a pair of hooks for every tensor that is saved for backward.

    ``pack_hook(tensor)`` runs when a tensor is saved, ``unpack_hook(packed)`` whenever it is
    needed; it must return a tensor of the same shape and dtype. The innermost pair is called;
    hooks are thread-local.

    With ``compose`` a tensor that ``pack_hook`` returned goes on to the enclosing pair, as if it
    were saved there; anything else that it returned is kept. Backward calls the unpack hooks in
    reverse order.

    The pair takes tensors of at least ``min_bytes``, saved by one of ``ops`` (names of ops such as
    'mul', as in ``memory(tensor).by_op``, or of nodes such as 'MulBackward0', whose last number
    does not count), for which ``predicate(tensor)`` is true. What it does not take goes to the
    enclosing pair, with ``compose`` or without, and is saved as without hooks if none takes it.

    Raises: TypeError for hooks or a predicate that cannot be called, and for other types of ``ops``
    or ``min_bytes``; ValueError for the name of no op, and of one that is composed of others, which
    save its tensors; RuntimeError where hooks are disabled, and when ``pack_hook`` writes into its
    argument. In backward: TypeError or RuntimeError when ``unpack_hook`` returns anything else.

    >>> import pullback
    >>> x = pullback.tensor([2.], requires_grad=True)
    >>> with pullback.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), pullback.tensor):
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor([4.])

    >>> def half(t):
    ...     return t.to(pullback.float16)
    >>> def full(t):
    ...     return t.to(pullback.float32)
    >>> with pullback.autograd.graph.save_on_cpu():                          # packs second
    ...     with pullback.autograd.graph.saved_tensors_hooks(
    ...         half, full, compose=True, ops=["mul"], min_bytes=4096
    ...     ):
    ...         y = (pullback.ones(2000, requires_grad=True) * 2).exp()
    """

    def __init__(
        self, pack_hook, unpack_hook, *, compose=False, ops=None, min_bytes=0, predicate=None
    ):
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise TypeError(
                    f"saved_tensors_hooks(): {name} must be callable, not {type(hook).__name__}"
                )
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self.compose = require_bool("saved_tensors_hooks", "compose", compose)
        self._selection = None
        if ops is not None or predicate is not None or min_bytes != 0:
            from pullback.autograd.diagnostics import composed_hooks

            self._selection = composed_hooks.Selection(ops, min_bytes, predicate)

    def __enter__(self):
        pair = self.pack_hook, self.unpack_hook
        if self.compose or self._selection is not None:
            from pullback.autograd.diagnostics import composed_hooks

            pair = composed_hooks.composed(*pair, self.compose, self._selection)
        state.push_saved_tensor_hooks(*pair)

    def __exit__(self, *args):
        state.pop_saved_tensor_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Move saved tensors to host memory, and back when they are needed.

    Tensors in host memory are saved as they are. With ``pin_memory`` the copies are in pinned
    memory, if the device supports it, and are copied back asynchronously. ``device_type`` is
    torch's argument and has no effect. ``compose``, ``ops``, ``min_bytes`` and ``predicate`` are
    those of ``saved_tensors_hooks``.

    >>> import pullback
    >>> x = pullback.ones(2, requires_grad=True)
    >>> with pullback.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(
        self,
        pin_memory=False,
        device_type="cuda",
        *,
        compose=False,
        ops=None,
        min_bytes=0,
        predicate=None,
    ):
        from pullback._c.interop import arrays, pinned_tensors
        from pullback.autograd.diagnostics.composed_hooks import Moved

        def pack(tensor):
            if arrays.is_host(tensor):
                return Moved(tensor.device, tensor)
            copy = pinned_tensors.pinned_like(tensor) if pin_memory else None
            return Moved(tensor.device, tensor.cpu() if copy is None else copy.copy_(tensor))

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(
            pack, unpack, compose=compose, ops=ops, min_bytes=min_bytes, predicate=predicate
        )


class disable_saved_tensors_hooks:
    """Make entering ``saved_tensors_hooks`` raise RuntimeError with this message.

    A context manager and a decorator, thread-local. Raises: RuntimeError inside of such hooks.

    >>> import pullback
    >>> from pullback.autograd.graph import disable_saved_tensors_hooks, save_on_cpu
    >>> with disable_saved_tensors_hooks("not here"):
    ...     with save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    RuntimeError: not here
    """

    def __init__(self, error_message):
        self.error_message = error_message
        self.before = []

    def __enter__(self):
        self.before.append(state.swap_saved_hooks_disabled(self.error_message))

    def __exit__(self, *args):
        state.swap_saved_hooks_disabled(self.before.pop())

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with disable_saved_tensors_hooks(self.error_message):
                return function(*args, **kwargs)

        return wrapped


# ---- hooks ---------------------------------------------------------------------------------------


def _callable(hook, name):
    if not callable(hook):
        raise TypeError(f"{name}(): the hook must be callable, not {type(hook).__name__}")


def register_hook(self, hook):
    """Call ``hook(grad)`` whenever the gradient of this tensor was computed.

    It may return a gradient to use instead. For an op with several outputs, ``grad`` is None for
    one that the backward pass did not reach. Returns a handle with ``remove()``.
    Inside of ``vmap`` it is called for an element, of passes that end there.
    Raises: RuntimeError when the tensor does not require grad.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> handle = x.register_hook(lambda g: g * 10)
    >>> (x * 2).backward()
    >>> x.grad
    tensor([20.])
    """
    _callable(hook, "register_hook")
    hook, target = hook_of_batch(hook, self)
    table, number = tensor_methods.tensor_hook_table(target)
    handle = RemovableHandle(table)
    table[handle.id] = hook if number is None else (number, hook)
    return handle


def register_post_accumulate_grad_hook(self, hook):
    """Call ``hook(tensor)`` after a gradient was added to the ``.grad`` of this leaf.

    It must return None, and may change or delete ``.grad``. Returns a handle with ``remove()``.
    Raises: RuntimeError for non-leaves and tensors that do not require grad.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda x: print(x.grad))
    >>> (x * 2).backward()
    tensor([2.])
    """
    _callable(hook, "register_post_accumulate_grad_hook")
    table = tensor_methods.post_accumulate_table(self)
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def _node_register_hook(self, fn):
    """Call ``fn(grad_inputs, grad_outputs)`` after this node ran.

    It may return a tuple to use instead of ``grad_inputs``. Returns a handle with ``remove()``.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> y = x * 2
    >>> handle = y.grad_fn.register_hook(lambda inputs, outputs: print(inputs[0], outputs))
    >>> y.backward()
    tensor([2.]) (tensor([1.]),)
    """
    _callable(fn, "register_hook")
    table = node_methods.node_hook_table(self, False)
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle


def _node_register_prehook(self, fn):
    """Call ``fn(grad_outputs)`` before this node runs.

    It may return a tuple to use instead. Returns a handle with ``remove()``.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> y = x * 2
    >>> handle = y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    >>> y.backward()
    >>> x.grad
    tensor([20.])
    """
    _callable(fn, "register_prehook")
    table = node_methods.node_hook_table(self, True)
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle


class _NodeInputMetadata(NamedTuple):
    """Shape, dtype and device of one forward output of a node."""

    shape: tuple
    dtype: object
    device: object
    is_nested_tensor: bool = False


def _node_input_metadata(self):
    """Shape, dtype and device of the gradients that the node receives, one per forward output."""
    return [
        _NodeInputMetadata(*node_methods.seed_description(self, k))
        for k in range(node_methods.node_output_count(self))
    ]


def install():
    """Bind the hook methods to Tensor and Node."""
    from pullback._c.graph.tensor import bind_attribute

    bind_attribute("register_hook", register_hook)
    bind_attribute("register_post_accumulate_grad_hook", register_post_accumulate_grad_hook)
    node_methods.bind_node("register_hook", _node_register_hook)
    node_methods.bind_node("register_prehook", _node_register_prehook)
    node_methods.bind_node("_input_metadata", property(_node_input_metadata))


class _MultiHandle(RemovableHandle):
    """A handle of several hooks, which it removes together."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state):
        self.handles = state


def register_multi_grad_hook(
    tensors: Sequence, fn: Callable, *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` once per backward pass: with all gradients of ``tensors``, or with the first.

    In mode 'all' it runs when every tensor that the pass reaches has its gradient; the others are
    None. In mode 'any' it receives the first gradient. Returns a handle with ``remove()``.
    Raises: ValueError for another mode; RuntimeError in mode 'all' for a tensor without grad.

    >>> import pullback
    >>> x, y = (pullback.ones(1, requires_grad=True) for _ in range(2))
    >>> handle = pullback.autograd.graph.register_multi_grad_hook((x, y), print)
    >>> (x * 2 + y * 3).backward()
    [tensor([2.]), tensor([3.])]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    _callable(fn, "register_multi_grad_hook")
    if mode == "any":
        return _any_hook([t for t in tensors if t.requires_grad], fn)
    for position, tensor in enumerate(tensors):
        if not tensor.requires_grad:
            raise RuntimeError(f"register_multi_grad_hook: tensor {position} does not require grad")
    return _all_hook(list(tensors), fn)


def _any_hook(tensors, fn):
    from pullback._c.engine import engine

    lock = threading.Lock()
    fired = set()

    def first(grad):
        task = engine.current_task_id()
        with lock:
            if task in fired:
                return
            fired.add(task)
        engine.queue_callback(lambda: fired.discard(task), always=True)
        fn(grad)

    return _MultiHandle([register_hook(t, first) for t in tensors])


def _all_hook(tensors, fn):
    from pullback._c.engine import engine

    lock = threading.Lock()
    passes: dict = {}
    count = len(tensors)  # the hooks' closures must not keep the tensors alive
    targets = [weakref.ref(t) if t.is_leaf else tensor_methods.gradient_edge(t) for t in tensors]

    def is_reached(target):
        leaf = target() if isinstance(target, weakref.ref) else None
        edge = target if leaf is None else tensor_methods.gradient_edge(leaf)
        return isinstance(edge, tuple) and engine.will_compute(*edge)

    def collect(position, grad):
        task = engine.current_task_id()
        with lock:
            if task not in passes:
                passes[task] = [sum(map(is_reached, targets)), [None] * count]
                engine.queue_callback(lambda: passes.pop(task, None), always=True)
            entry = passes[task]
            entry[0] -= 1
            entry[1][position] = grad
            done = entry[0] == 0
        if done:
            fn(entry[1])

    return _MultiHandle(
        [register_hook(t, functools.partial(collect, k)) for k, t in enumerate(tensors)]
    )


# ---- torch's names without effect here -----------------------------------------------------------


def _switch(name, enabled):
    if not isinstance(enabled, bool):
        raise RuntimeError(f"{name}(): enabled must be a bool, but got {type(enabled).__name__}")


def set_warn_on_accumulate_grad_stream_mismatch(enabled):
    """Turn the warning about a leaf's gradient from another stream on or off; it is given once.

    Raises: RuntimeError when ``enabled`` is no bool.

    >>> import pullback
    >>> pullback.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    """
    _switch("set_warn_on_accumulate_grad_stream_mismatch", enabled)
    stream_order.warn_of_mismatch(enabled)


def set_override_stale_capture_stream(enabled):
    """Accepted and without effect: no backend captures graphs of kernels.

    Raises: RuntimeError when ``enabled`` is no bool.

    >>> import pullback
    >>> pullback.autograd.graph.set_override_stale_capture_stream(True)
    """
    _switch("set_override_stale_capture_stream", enabled)


def region_activation_memory_budget(budget):
    """Limit the saved memory of a compiled region; there are none, so it raises RuntimeError.

    Raises: TypeError when ``budget`` is no number.

    >>> import pullback
    >>> pullback.autograd.graph.region_activation_memory_budget(0.5)
    Traceback (most recent call last):
    RuntimeError: region_activation_memory_budget() can only be used inside a compiled region; ...
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(
            f"region_activation_memory_budget(): argument 'budget' must be float, not "
            f"{type(budget).__name__}"
        )
    raise RuntimeError(
        "region_activation_memory_budget() can only be used inside a compiled "
        "region; it has no effect in eager mode."
    )
