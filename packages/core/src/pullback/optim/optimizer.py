"""The base class of optimizers: parameter groups, state, state dicts and hooks of steps."""

from __future__ import annotations

import functools
import sys
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import pullback
from pullback import Tensor
from pullback._c.base.state import swap_grad_enabled
from pullback._c.python.optimizer_steps import clear_grads, gather, note_options_read
from pullback.ops.rules.operands import all_hold
from pullback.optim._groups import cast_state, fill_with_zeros, split_names
from pullback.utils.hooks import RemovableHandle

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_global_optimizer_pre_hooks: OrderedDict = OrderedDict()
_global_optimizer_post_hooks: OrderedDict = OrderedDict()
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
_PROFILER = "pullback_profiler"


def _has_sparse(grads) -> bool:
    """Return True if a gradient is sparse; before `pullback.sparse` is imported, none is."""
    module = sys.modules.get("pullback.sparse")
    return module is not None and any(isinstance(grad, module.SparseTensor) for grad in grads)


class _RequiredParameter:
    """The default of an option that every parameter group has to give."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


def _register(hooks, hook, prepend=False):
    """Add a hook to a table, at its end or start; return the handle that removes it."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Register a hook that runs before each step of every optimizer; return its handle.

    It is called as ``hook(optimizer, args, kwargs)`` with the arguments of ``step``, and may
    return a pair of other ones.

    >>> import pullback
    >>> from pullback.optim.optimizer import register_optimizer_step_pre_hook
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)])
    >>> with register_optimizer_step_pre_hook(lambda *given: print("before")):
    ...     optimizer.step()
    before
    """
    return _register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Register a hook that runs after each step of every optimizer; return its handle.

    It is called as ``hook(optimizer, args, kwargs)`` with the arguments of ``step``.

    >>> import pullback
    >>> from pullback.optim.optimizer import register_optimizer_step_post_hook
    >>> optimizer = pullback.optim.SGD([pullback.ones(1, requires_grad=True)])
    >>> with register_optimizer_step_post_hook(lambda *given: print("after")):
    ...     optimizer.step()
    after
    """
    return _register(_global_optimizer_post_hooks, hook)


class Optimizer:
    """The base class of optimizers, which change parameters by their gradients.

    ``params`` is an iterable of tensors, of pairs of a name and a tensor, or of dicts: each is a
    parameter group, with its tensors under ``"params"`` and options of its own. ``defaults`` has
    the options of groups that give none. A subclass defines ``step``. ``state`` maps a parameter
    to its dict of state, ``param_groups`` lists the groups.

    Raises: TypeError if a parameter is no tensor, or the parameters are a set; ValueError if there
    are none, if one is in two groups or no leaf, or if only some have names.

    >>> import pullback
    >>> class Signs(pullback.optim.Optimizer):
    ...     def __init__(self, params, lr=0.1):
    ...         super().__init__(params, {"lr": lr})
    ...     @pullback.no_grad()
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p.sub_(p.grad.sign(), alpha=group["lr"])
    >>> x = pullback.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = Signs([x])
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    # Options that state dicts of older versions lack, and whether scalars of the state, which are
    # tensors, may be numbers there.
    _added_options: ClassVar = {}
    _has_tensor_steps = False
    _scalars: tuple[str, ...] = ("step",)
    _passed_options: tuple[str, ...] = ()
    _takes_sparse = False  # gradients
    _sparse_refusal: str | None = None

    def __init__(self, params, defaults):
        self.defaults = defaults
        for name in _HOOK_TABLES:
            setattr(self, name, OrderedDict())
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {pullback.typename(params)}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        self._warned_capturable_if_run_uncaptured = True

    # ---- steps -----------------------------------------------------------------------------------

    def step(self, closure=None):
        """Change the parameters by their gradients; return the loss of the closure, if any.

        ``closure`` computes the loss again with its gradients, and returns it.
        """
        loss = None
        if closure is not None:
            with pullback.enable_grad():
                loss = closure()
        before = swap_grad_enabled(self.defaults.get("differentiable", False))
        try:
            for group in self.param_groups:
                self._step_group(group)
        finally:
            swap_grad_enabled(before)
        return loss

    def _step_group(self, group):
        """Change the parameters of one group. Not called by a subclass with its own ``step``."""
        raise NotImplementedError

    def _init_state(self, state, param, group):
        """Fill the empty state of a parameter that has a gradient for the first time."""
        raise NotImplementedError

    def _gather(self, group, names=()):
        """Return parameters that have a gradient, the gradients, and a list of state a name.

        A name whose state is missing gives None.

        Raises: RuntimeError for a sparse gradient, which few optimizers take.
        """
        if not self._takes_sparse and _has_sparse(param.grad for param in group["params"]):
            raise RuntimeError(
                self._sparse_refusal or (f"{type(self).__name__} does not support sparse gradients")
            )
        return gather(group["params"], self.state, names, self._init_state, group)

    def _options(self, group):
        """Return the options of a group that its update function has too."""
        return {name: group[name] for name in self._passed_options}

    @staticmethod
    def profile_hook_step(func):
        """Return a step function with hooks around it, which profilers show as a range."""

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            self = args[0]
            if (
                self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
                or _PROFILER in sys.modules
            ):
                with _range(f"Optimizer.step#{type(self).__name__}.step"):
                    return _step_with_hooks(func, args, kwargs)
            return func(*args, **kwargs)

        return wrapper

    def _patch_step_function(self):
        kind = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{kind.__name__}.zero_grad"
        if not getattr(kind.step, "hooked", False):
            kind.step = self.profile_hook_step(kind.step)
            kind.step.hooked = True

    def register_step_pre_hook(self, hook):
        """Register ``hook(optimizer, args, kwargs)``, which runs before steps and may return
        other arguments; return its handle.
        """
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Register ``hook(optimizer, args, kwargs)``, which runs after steps; return its handle."""
        return _register(self._optimizer_step_post_hooks, hook)

    def zero_grad(self, set_to_none=True):
        """Set the gradients of all parameters to None, or to zeros in the same memory."""
        with _range(self._zero_grad_profile_name):
            for group in self.param_groups:
                if set_to_none:
                    clear_grads(group["params"])
                    continue
                for param in group["params"]:
                    fill_with_zeros(param.grad)

    # ---- parameter groups ------------------------------------------------------------------------

    def add_param_group(self, param_group):
        """Add a dict of parameters, under ``"params"``, and their options.

        Raises: as the constructor; TypeError if it is no dict.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params, names = split_names(param_group["params"])
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for param in params:
            self._check_param(param)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=3,
            )
        known = set()
        for group in self.param_groups:
            known.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with" if "param_names" in param_group else "without"
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param "
                    f"group {kind} names to the optimizer"
                )
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _check_param(self, param):
        if not isinstance(param, Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, but one of the params is "
                + pullback.typename(param)
            )
        differentiable = self.defaults.get("differentiable", None)
        if not (differentiable or param.is_leaf or param.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")

    def __repr__(self):
        note_options_read()
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])

    # ---- copies and state dicts ------------------------------------------------------------------

    def __getstate__(self):
        note_options_read()
        return {name: getattr(self, name) for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name, value in self._added_options.items():
                group.setdefault(name, value)
        if self._has_tensor_steps:
            for own in self.state.values():
                for name in self._scalars if isinstance(own, dict) else ():
                    value = own.get(name)
                    if value is not None and not isinstance(value, Tensor):
                        own[name] = pullback.tensor(float(value), dtype=_get_scalar_dtype())

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Register ``hook(optimizer)``, which runs before ``state_dict``; return its handle."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Register ``hook(optimizer, state_dict)``, which runs on a made state dict and may return
        another; return its handle.
        """
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Register ``hook(optimizer, state_dict)``, which runs before a state dict is loaded and
        may return another; return its handle.
        """
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Register ``hook(optimizer)``, which runs after ``load_state_dict``; return its handle."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self):
        """Return a dict of the state and the options of groups, with numbers for parameters.

        A parameter's number is its position among the parameters of all groups. Tensors of the
        state are not copied.
        """
        note_options_read()
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            first = len(numbers)
            for position, param in enumerate(group["params"], first):
                numbers.setdefault(id(param), position)
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: own
            for key, own in self.state.items()
        }
        state_dict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        return state_dict

    def load_state_dict(self, state_dict):
        """Take over a state dict, whose groups have as many parameters, in the same order.

        State moves to its parameter's device, and of a floating-point parameter to its dtype;
        ``"step"`` stays what it is, unless the group is ``fused`` or ``capturable``.

        Raises: ValueError if the numbers of groups, or of parameters in a group, differ.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(groups, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        params = dict(
            zip(
                chain.from_iterable(group["params"] for group in saved),
                chain.from_iterable(group["params"] for group in groups),
            )
        )
        state: defaultdict = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                param = params[key]
                state[param] = cast_state(self, param, value, key, state_dict["param_groups"])
            else:
                state[key] = value
        for old, new in zip(groups, saved):
            new["params"] = old["params"]
            if "param_names" in old and "param_names" not in new:
                new["param_names"] = old["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(param, value, param_id, param_groups, key=None):
        """Return a loaded tensor with the device and dtype that the state of a parameter has."""
        if key != "step":
            if param.is_floating_point():
                return value.to(dtype=param.dtype, device=param.device)
            return value.to(device=param.device)
        for group in param_groups:
            if param_id in group["params"]:
                if group.get("fused") or group.get("capturable"):
                    return value.to(dtype=pullback.float32, device=param.device)
                break
        return value


# ---- ranges and hooks of steps -------------------------------------------------------------------


class _Nothing:
    """A context manager that does nothing."""

    def __enter__(self):
        pass

    def __exit__(self, kind, value, traceback):
        pass


_nothing = _Nothing()


def _range(name):
    """Return a context manager that profilers show, if the profiler is loaded."""
    profiler = sys.modules.get(_PROFILER)
    return _nothing if profiler is None else profiler.record_function(name)


def _step_with_hooks(func, args, kwargs):
    self = args[0]
    for hook in chain(
        _global_optimizer_pre_hooks.values(), self._optimizer_step_pre_hooks.values()
    ):
        result = hook(self, args, kwargs)
        if result is not None:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(
                    f"{func} must return None or a tuple of (new_args, new_kwargs), but got "
                    f"{result}."
                )
            args, kwargs = result
    loss = func(*args, **kwargs)
    for hook in chain(
        self._optimizer_step_post_hooks.values(), _global_optimizer_post_hooks.values()
    ):
        hook(self, args, kwargs)
    return loss


# ---- what update functions share -----------------------------------------------------------------


def _get_scalar_dtype(is_fused=None):
    """Return the dtype of counters of steps."""
    if is_fused or pullback.get_default_dtype() != pullback.float64:
        return pullback.float32
    return pullback.float64


def _step_counter(param, on_device=False):
    """Return a counter of steps: a tensor without dimensions, on the device of its parameter if a
    kernel reads it.
    """
    if on_device:
        return pullback.zeros((), dtype=pullback.float32, device=param.device)
    return pullback.tensor(0.0, dtype=_get_scalar_dtype())


def _check_range(valid, name, value):
    if not valid:
        raise ValueError(f"Invalid {name}: {value}")


def _check_lr(lr):
    """Refuse a learning rate that is negative, or a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    _check_range(lr >= 0.0, "learning rate", lr)


def _check_betas(betas):
    for position, beta in enumerate(betas):
        _check_range(0.0 <= beta < 1.0, f"beta parameter at index {position}", beta)


def _check_options(foreach, fused, differentiable=False):
    """Refuse combinations of modes that exclude each other."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _check_modes(
    params,
    state_steps=(),
    *,
    foreach=None,
    fused=None,
    differentiable=False,
    capturable=False,
    what="params and state_steps",
):
    """Refuse what an update function cannot do in the modes that were asked for."""
    if not all(isinstance(step, Tensor) for step in state_steps):
        raise RuntimeError(
            "API has changed, `state_steps` argument must contain a list of singleton tensors"
        )
    if foreach and differentiable:
        raise AssertionError("_foreach ops don't support autograd")
    if capturable and any(param.device.type != "cuda" for param in params):
        raise AssertionError(f"If capturable=True, {what} must be on supported devices: ['cuda'].")
    if fused:
        for param in params:
            if not param.is_floating_point():
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of "
                    f"supported devices: ['cpu', 'cuda', 'ref'] but {param.dtype} and "
                    f"{param.device.type}"
                )


def _unscale(grads, grad_scale, found_inf):
    """Divide gradients by the scale of their loss; return False if one of them is not finite."""
    if found_inf is not None and not all_hold(found_inf == 0):
        return False
    if grad_scale is not None:
        for grad in grads:
            grad.div_(grad_scale.to(grad.device))
    return True


def _as_number(value):
    """Return the number in a tensor of one element, or the number itself."""
    return value.item() if isinstance(value, Tensor) else value


def _move(param, change, scale):
    """Subtract ``scale * change`` from a parameter; a scale that is a tensor is recorded."""
    if isinstance(scale, Tensor):
        param.sub_(change * scale)
    else:
        param.add_(change, alpha=-scale)


def _move_by_quotient(param, numerator, denominator, scale):
    """Subtract ``scale * numerator / denominator`` from a parameter."""
    if isinstance(scale, Tensor):
        param.sub_(numerator / denominator * scale)
    else:
        param.addcdiv_(numerator, denominator, value=-scale)


def _decay(param, grad, lr, weight_decay, decoupled=False):
    """Return the gradient with weight decay, or shrink the parameter."""
    if weight_decay == 0:
        return grad
    if not decoupled:
        return grad.add(param, alpha=weight_decay)
    if isinstance(lr, Tensor):
        param.copy_(param.clone() * (1 - lr * weight_decay))
    else:
        param.mul_(1 - lr * weight_decay)
    return grad


def _view_as_real(param, *others):
    """Return tensors of real and imaginary parts, for the tensors of a complex parameter."""
    return [
        pullback.view_as_real(tensor) if tensor is not None and tensor.is_complex() else tensor
        for tensor in (param, *others)
    ]
