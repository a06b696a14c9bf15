"""Hooks of modules: the tables of one module and of all modules, and calls that run them."""

from __future__ import annotations

import warnings
from collections import OrderedDict

from pullback import Tensor
from pullback._c.python.module_base import set_call_hooked
from pullback.utils.hooks import BackwardHook, RemovableHandle

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]


class _GlobalTable(OrderedDict):
    """Hooks of all modules: while there are any, calls look at them."""

    def __setitem__(self, key, hook):
        super().__setitem__(key, hook)
        set_call_hooked(True)

    def pop(self, key, *default):
        found = super().pop(key, *default)
        set_call_hooked(any(_CALL_TABLES))
        return found


forward_hooks, forward_pre_hooks, backward_hooks, backward_pre_hooks = _CALL_TABLES = [
    _GlobalTable() for _ in range(4)
]
forward_hooks_with_kwargs: dict = {}
forward_hooks_always_called: dict = {}
parameter_registration_hooks, buffer_registration_hooks, module_registration_hooks = (
    OrderedDict() for _ in range(3)
)


def add_hook(table, hook, prepend=False, *flags):
    """Add a hook to a table and to those of its flags; return its handle."""
    handle = RemovableHandle(table, extra_dict=flags)
    table[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def run_registration_hooks(table, module, name, value):
    """Return the value that the hooks of a registration make of one."""
    for hook in table.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


# ---- the call ------------------------------------------------------------------------------------


def call_with_hooks(module, args, kwargs):
    """Run ``forward`` with the hooks of the module and of all modules."""
    called: set[int] = set()
    try:
        return _call(module, args, kwargs, called)
    except Exception:
        # Hooks with always_call run once also if something before them raised.
        always = [
            (number, hook)
            for table, flags in (
                (forward_hooks, forward_hooks_always_called),
                (module._forward_hooks, module._forward_hooks_always_called),
            )
            for number, hook in table.items()
            if number in flags and number not in called
        ]
        for number, hook in always:
            try:
                _run_forward_hook(module, number, hook, args, kwargs, None)
            except Exception as error:
                warnings.warn(
                    f"module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}",
                    stacklevel=3,
                )
        raise


def _call(module, args, kwargs, called):
    for number, hook in (*forward_pre_hooks.items(), *module._forward_pre_hooks.items()):
        args, kwargs = _run_pre_hook(module, number, hook, args, kwargs)
    full, partial = _backward_hooks_of(module)
    pre = [*backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
    backward = BackwardHook(module, full, pre) if full or pre else None
    if backward is not None:
        args = backward.setup_input_hook(args)
    result = module.forward(*args, **kwargs)
    for number, hook in (*forward_hooks.items(), *module._forward_hooks.items()):
        called.add(number)
        changed = _run_forward_hook(module, number, hook, args, kwargs, result)
        if changed is not None:
            result = changed
    if backward is not None:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=4,
            )
        result = backward.setup_output_hook(result)
    if partial:
        _add_partial_hooks(module, partial, result)
    return result


def _run_pre_hook(module, number, hook, args, kwargs):
    if number not in module._forward_pre_hooks_with_kwargs:
        changed = hook(module, args)
        if changed is None:
            return args, kwargs
        return (changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if isinstance(changed, tuple) and len(changed) == 2:
        return changed
    raise RuntimeError(
        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
        f"{changed}."
    )


def _run_forward_hook(module, number, hook, args, kwargs, result):
    if number in module._forward_hooks_with_kwargs or number in forward_hooks_with_kwargs:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def _backward_hooks_of(module):
    """Return the hooks that run when all gradients are there, and those of the last node."""
    full, partial = [], []
    if _global_is_full[0] is not False:
        full += backward_hooks.values()
    else:
        partial += backward_hooks.values()
    (full if module._is_full_backward_hook is not False else partial).extend(
        module._backward_hooks.values()
    )
    return full, partial


def _add_partial_hooks(module, hooks, result):
    """Add deprecated backward hooks to the node of the first tensor of a result."""
    found = result
    while not isinstance(found, Tensor):
        found = next(iter(found.values() if isinstance(found, dict) else found))
    if found.grad_fn is not None:
        for hook in hooks:
            found.grad_fn.register_hook(
                lambda inputs, outputs, hook=hook: hook(module, inputs, outputs)
            )


# ---- hooks of one module -------------------------------------------------------------------------


class HookMethods:
    """The methods of modules that add hooks."""

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments.

        ``with_kwargs`` calls ``hook(module, args, kwargs)``, which returns both or None.
        """
        flags = [self._forward_pre_hooks_with_kwargs] * with_kwargs
        return add_hook(self._forward_pre_hooks, hook, prepend, *flags)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call ``hook(module, args, result)`` after ``forward``; it may return another result.

        ``with_kwargs`` adds the keyword arguments before the result; ``always_call`` runs the hook
        also when ``forward`` raises. Returns a handle with ``remove()``.

        >>> import pullback
        >>> layer = pullback.nn.Identity()
        >>> handle = layer.register_forward_hook(lambda module, args, result: result + 1)
        >>> layer(pullback.zeros(1))
        tensor([1.])
        """
        flags = [self._forward_hooks_with_kwargs] * with_kwargs
        flags += [self._forward_hooks_always_called] * always_call
        return add_hook(self._forward_hooks, hook, prepend, *flags)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call ``hook(module, grad_output)`` before the backward pass of the module.

        What it returns, if not None, replaces the gradients of the outputs.
        """
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call ``hook(module, grad_input, grad_output)`` when gradients have reached the inputs.

        What it returns, if not None, replaces the gradients of the inputs.

        Raises: RuntimeError beside hooks of ``register_backward_hook``.
        """
        self._choose_backward_hooks(True)
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook):
        """Add a deprecated backward hook of the last node; see register_full_backward_hook."""
        self._choose_backward_hooks(False)
        return add_hook(self._backward_hooks, hook)

    def _choose_backward_hooks(self, full):
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = full


# ---- hooks of all modules ------------------------------------------------------------------------

_global_is_full: list[bool | None] = [None]


def register_module_forward_pre_hook(hook):
    """Call ``hook(module, args)`` before every forward pass of every module.

    What it returns, if not None, replaces the arguments.

    >>> import pullback
    >>> from pullback.nn.modules.module import register_module_forward_pre_hook
    >>> seen = []
    >>> with register_module_forward_pre_hook(lambda module, args: seen.append(type(module))):
    ...     _ = pullback.nn.Identity()(1)
    >>> seen
    [<class 'pullback.nn.modules.linear.Identity'>]
    """
    return add_hook(forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call ``hook(module, args, result)`` after every forward pass of every module.

    ``with_kwargs`` adds the keyword arguments before the result. ``always_call`` runs it also
    when ``forward`` raises. What it returns, if not None, replaces the result.
    """
    flags = [forward_hooks_with_kwargs] * with_kwargs + [forward_hooks_always_called] * always_call
    return add_hook(forward_hooks, hook, False, *flags)


def _register_backward(hook, full):
    if _global_is_full[0] is (not full) and backward_hooks:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    _global_is_full[0] = full
    return add_hook(backward_hooks, hook)


def register_module_backward_hook(hook):
    """Add a deprecated backward hook of all modules; see register_module_full_backward_hook."""
    return _register_backward(hook, False)


def register_module_full_backward_hook(hook):
    """Call ``hook(module, grad_input, grad_output)`` when all gradients of a module are there.

    What it returns, if not None, replaces the gradients of the inputs.

    Raises: RuntimeError beside hooks of register_module_backward_hook.
    """
    return _register_backward(hook, True)


def register_module_full_backward_pre_hook(hook):
    """Call ``hook(module, grad_output)`` before the backward pass of every module."""
    return add_hook(backward_pre_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Call ``hook(module, name, parameter)`` when a parameter is registered in any module."""
    return add_hook(parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook):
    """Call ``hook(module, name, buffer)`` when a buffer is registered in any module."""
    return add_hook(buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Call ``hook(module, name, submodule)`` when a submodule is registered in any module."""
    return add_hook(module_registration_hooks, hook)
