"""Handles of registered hooks."""

from __future__ import annotations

import warnings
import weakref

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


class RemovableHandle:
    """The handle of a hook, which it removes by ``remove()`` or at the end of a ``with`` block.

    It does not keep the object with the hook alive.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> with x.register_hook(lambda g: g * 2):
    ...     (x * 3).sum().backward()
    >>> x.grad
    tensor([6.])
    """

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        others = (
            ()
            if extra_dict is None
            else (extra_dict if isinstance(extra_dict, (list, tuple)) else (extra_dict,))
        )
        self.extra_dict_ref = tuple(weakref.ref(other) for other in others)

    def remove(self):
        """Remove the hook; the second call does nothing."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = reference()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id

    def __setstate__(self, state):
        from collections import OrderedDict

        hooks = OrderedDict() if state[0] is None else state[0]
        self.hooks_dict_ref = weakref.ref(hooks)
        self.id = state[1]
        self.extra_dict_ref = ()
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.remove()


def unserializable_hook(f):
    """Mark a hook that need not be pickled, so that pickling its tensor does not warn.

    Returns the hook: it may be used as a decorator.

    >>> import pullback
    >>> @pullback.utils.hooks.unserializable_hook
    ... def show(grad):
    ...     print(grad)
    >>> x = pullback.ones(1, requires_grad=True)
    >>> handle = x.register_hook(show)
    >>> pullback.utils.hooks.warn_if_has_hooks(x)
    """
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor):
    """Warn of each hook of a tensor that pickling would lose, unless it was marked as such.

    >>> import pullback, warnings
    >>> x = pullback.ones(1, requires_grad=True)
    >>> handle = x.register_hook(print)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     pullback.utils.hooks.warn_if_has_hooks(x)
    >>> len(caught)
    1
    """
    from pullback._c.python.tensor_methods import leaf_hooks

    for hook in leaf_hooks(tensor):
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is "
                f"expected, you can decorate the function with "
                f"@pullback.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=3,
            )
