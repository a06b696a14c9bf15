"""Handles of registered hooks."""

from __future__ import annotations

import functools
import warnings
import weakref

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


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


class BackwardHook:
    """Backward hooks around a function: the class runs them when gradients pass both of its ends.

    ``user_hooks`` are called as ``hook(module, grad_inputs, grad_outputs)`` and may return other
    gradients of the inputs, ``user_pre_hooks`` as ``hook(module, grad_outputs)`` with the same
    right for the outputs. Gradients are tuples as long as the arguments or results; None stands
    for what is no tensor, or requires no grad. Each end is an identity in the graph.

    >>> import pullback
    >>> show = lambda module, ins, outs: print(module, ins, outs)
    >>> hook = pullback.utils.hooks.BackwardHook("sine", [show], [])
    >>> x = pullback.zeros(1, requires_grad=True)
    >>> (inner,) = hook.setup_input_hook((x,))
    >>> hook.setup_output_hook(inner.sin() * 3).sum().backward()
    sine (tensor([3.]),) (tensor([1.]),)
    """

    def __init__(self, module, user_hooks, user_pre_hooks):
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs = None
        self.input_count = 0
        self.has_input = False

    def setup_input_hook(self, args):
        """Return the arguments with tensors that run the hooks in the backward pass."""

        def add_hook(node, where, count):
            def hook(grad_inputs, _):
                if self.grad_outputs is None:  # no gradient came through the outputs
                    return None
                found = self._run(_spread(grad_inputs, where, count))
                return None if found is None else tuple(found[i] for i in where)

            self.has_input = True
            node.register_hook(hook)

        self.input_count = len(args)
        return self._through_identity(args, add_hook)

    def setup_output_hook(self, result):
        """Return the result with tensors that run the hooks in the backward pass."""

        def add_hook(node, where, count):
            def hook(grads):
                grads = self.grad_outputs = _spread(grads, where, count)
                for pre_hook in self.user_pre_hooks:
                    changed = pre_hook(self.module, grads)
                    if changed is None:
                        continue
                    changed = changed if isinstance(changed, tuple) else (changed,)
                    if len(changed) != len(grads):
                        raise RuntimeError(
                            "Backward pre hook returned an invalid number of grad_output, "
                            f"got {len(changed)}, but expected {len(grads)}"
                        )
                    grads = self.grad_outputs = changed
                if not self.has_input and self.user_hooks:
                    warnings.warn(
                        "Full backward hook is firing when gradients are computed with respect to "
                        "module outputs since no inputs require gradients.",
                        stacklevel=2,
                    )
                    found = self._run((None,) * self.input_count)
                    if found is not None and any(grad is not None for grad in found):
                        raise RuntimeError(
                            "Backward hook for Modules where no input requires "
                            "gradient should always return None or None for all gradients."
                        )
                return tuple(grads[i] for i in where) if self.user_pre_hooks else None

            node.register_prehook(hook)

        alone = not isinstance(result, tuple)
        results = self._through_identity((result,) if alone else result, add_hook)
        return results[0] if alone else results

    def _run(self, grad_inputs):
        """Run the hooks; return gradients of the inputs if one of them has returned any."""
        found, grad_outputs = None, self.grad_outputs
        self.grad_outputs = None
        for hook in self.user_hooks:
            changed = hook(self.module, grad_inputs, grad_outputs)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(grad_inputs):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(changed)}, but expected {len(grad_inputs)}"
                )
            found = grad_inputs = changed
        return found

    def _through_identity(self, values, add_hook):
        import pullback

        where = [i for i, value in enumerate(values) if isinstance(value, pullback.Tensor)]
        if not pullback.is_grad_enabled() or not any(values[i].requires_grad for i in where):
            return values
        made = _identity().apply(*(values[i] for i in where))
        node = next(tensor.grad_fn for tensor in made if tensor.grad_fn is not None)
        add_hook(node, where, len(values))
        values = list(values)
        for i, tensor in zip(where, made, strict=True):
            values[i] = tensor
        return tuple(values)


def _spread(grads, where, count):
    """Return gradients at the positions of the tensors, None at others."""
    found = [None] * count
    for i, grad in zip(where, grads, strict=True):
        found[i] = grad
    return tuple(found)


@functools.cache
def _identity():
    import pullback

    class BackwardHookFunction(pullback.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.mark_non_differentiable(*(t for t in tensors if not t.requires_grad))
            return tensors

        @staticmethod
        def backward(ctx, *grads):
            return grads

    return BackwardHookFunction
