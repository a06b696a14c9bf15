"""``allow_mutation_on_saved_tensors``: copies saved tensors right before a write."""

from __future__ import annotations

import contextlib
import threading
from weakref import WeakKeyDictionary, WeakValueDictionary

from pullback._c.base import state
from pullback._c.device.handoff import carry
from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.ops import create

_OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which "
    "the graph was originally recorded."
)


class _Handle:
    """The handle that the graph saves instead of a tensor; it keeps the tensor alive."""

    __slots__ = ("__weakref__", "context", "version")

    def __init__(self, context, version):
        self.context = context
        self.version = version


class _Context:
    """The tensors that were saved inside one ``allow_mutation_on_saved_tensors``.

    A tensor is identified by its memory (the address, ``sid``) and its layout in it (``tid``).
    """

    def __init__(self):
        # The saved tensors; after a write their copies.
        self.original: WeakKeyDictionary[_Handle, Tensor] = WeakKeyDictionary()
        self.cloned: WeakKeyDictionary[_Handle, Tensor] = WeakKeyDictionary()
        self.tid_to_weakhandle: WeakValueDictionary[tuple, _Handle] = WeakValueDictionary()
        self.sid_to_tid: dict[int, set[tuple]] = {}
        self.is_open = True

    def clear(self):
        """Release all tensors; graphs recorded inside can no longer run backward."""
        self.original.clear()
        self.cloned.clear()
        self.tid_to_weakhandle.clear()
        self.sid_to_tid.clear()

    def keep(self, tensor):
        """Return the handle of a tensor: the same one as long as it has the same elements."""
        tensor = create.alias_raw(tensor)  # without history, and without an op for dispatch modes
        sid = _memory(tensor)
        tid = (
            sid,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.device,
            tensor._version,
        )
        handle = self.tid_to_weakhandle.get(tid)
        if handle is None:
            handle = _Handle(self, tensor._version)
            self.tid_to_weakhandle[tid] = handle
            self.original[handle] = tensor
            known = self.sid_to_tid.setdefault(sid, set())
            known.difference_update([old for old in known if old not in self.tid_to_weakhandle])
            known.add(tid)
        return handle

    def copy_before_write(self, op, targets):
        """Copy the saved tensors over memory that is about to be written."""
        for target in targets:
            for tid in self.sid_to_tid.pop(_memory(target), ()):
                handle = self.tid_to_weakhandle.pop(tid, None)
                if handle is not None:
                    self.cloned[handle] = self.unchanged(handle).clone()
                    del self.original[handle]

    def unchanged(self, handle):
        """Return a saved tensor, or its copy."""
        tensor = self.original[handle]
        if tensor._version != handle.version:
            raise RuntimeError(
                f"one of the variables needed for gradient computation has been "
                f"modified by an inplace operation that "
                f"allow_mutation_on_saved_tensors could not see: "
                f"[{tensor.dtype} {list(tensor.shape)}] is at version "
                f"{tensor._version}; expected version {handle.version} instead."
            )
        return tensor


def _memory(tensor):
    """Return the address that a tensor's memory begins at."""
    return tensor.data_ptr() - tensor.storage_offset() * tensor.dtype.itemsize


def _give_back(handle):
    context = handle.context
    assert context.is_open, _OUTSIDE
    found = context.cloned.get(handle)
    if found is None:
        assert handle in context.original, _OUTSIDE
        found = context.unchanged(handle)
    return found


_running = carry(threading.local())


@contextlib.contextmanager
def allow_mutation_on_saved_tensors():
    """Let in-place ops change tensors that are saved for backward.

    A saved tensor is copied right before an op inside overwrites it, so that backward has the saved
    values. Backward must run inside, too. Yields an object whose ``clear()`` frees all saved
    tensors. Thread-local.

    Raises: RuntimeError when nested. In backward: AssertionError outside of the context that the
    graph was recorded in; RuntimeError when other code than an op wrote to a tensor.

    >>> import pullback
    >>> x = pullback.ones(2, requires_grad=True)
    >>> with pullback.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = (y * y).sum()
    ...     _ = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if getattr(_running, "context", None) is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _Context()
    state.push_saved_tensor_hooks(context.keep, _give_back)
    level = levels.enter_dispatch_mode(on_write=context.copy_before_write)
    _running.context = context
    try:
        yield context
    finally:
        levels.exit_level(level)
        state.pop_saved_tensor_hooks()
        _running.context = None
        context.is_open = False
        context.clear()
