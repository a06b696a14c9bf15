"""The base class of modules: members, modes, calls and representation."""

from __future__ import annotations

from collections import OrderedDict

import pullback
from pullback import Tensor
from pullback._c.python.module_base import ModuleBase, set_own_call
from pullback.nn.base import errors as _errors  # noqa: F401  # errors of calls name the module
from pullback.nn.base import hooks as _hooks
from pullback.nn.base.conversion import ConversionMethods
from pullback.nn.base.hooks import *  # noqa: F403  # torch has these names here
from pullback.nn.base.state import (
    StateDictMethods,
    _IncompatibleKeys,  # noqa: F401  # torch has it here
)
from pullback.nn.parameter import Buffer, Parameter

__all__ = ["Module"]

_TABLES = (
    "_parameters",
    "_buffers",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)
# Plain dicts, as members of these are not reordered.
_PLAIN = frozenset(("_parameters", "_buffers", "_modules"))


def _forward_unimplemented(self, *input):
    """Compute the result of a call. Every subclass defines it."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


def _typename(value):
    return pullback.typename(value)


class Module(_hooks.HookMethods, StateDictMethods, ConversionMethods, ModuleBase):
    """The base class of layers and models: a function with parameters, buffers and submodules.

    A subclass calls ``super().__init__()`` first, assigns parameters and submodules as attributes,
    and defines ``forward``; a call runs it, with hooks around it.

    >>> import pullback
    >>> from pullback import nn
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = nn.Linear(2, 3)
    ...         self.scale = nn.Parameter(pullback.ones(3))
    ...     def forward(self, x):
    ...         return self.hidden(x).relu() * self.scale
    >>> model = Model()
    >>> model(pullback.ones(4, 2)).shape
    pullback.Size([4, 3])
    >>> [name for name, _ in model.named_parameters()]
    ['scale', 'hidden.weight', 'hidden.bias']
    """

    dump_patches = False
    _version = 1
    training: bool
    call_super_init = False
    _compiled_call_impl = None
    forward = _forward_unimplemented

    def __init__(self, *args, **kwargs):
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                    f"'{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but "
                    f"{len(args) + 1} were given"
                )
        attributes = self.__dict__
        attributes["training"] = True
        for name in _TABLES:
            attributes[name] = {} if name in _PLAIN else OrderedDict()
        attributes["_non_persistent_buffers_set"] = set()
        attributes["_is_full_backward_hook"] = None
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ---- calls -----------------------------------------------------------------------------------

    def _call_impl(self, *args, **kwargs):
        return _hooks.call_with_hooks(self, args, kwargs)

    def _wrapped_call_impl(self, *args, **kwargs):
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    # ---- members ---------------------------------------------------------------------------------

    __getattr__ = ModuleBase._missing_attribute
    __setattr__ = ModuleBase._set_attribute
    __delattr__ = ModuleBase._delete_attribute

    def _set_member(self, name, value):
        """Assign to a member; return False for what is a plain attribute."""
        attributes = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in attributes:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif name in attributes.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' "
                    "(pullback.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in attributes:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            self._put_module(name, value)
        elif name in attributes.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' "
                    "(pullback.nn.Module or None expected)"
                )
            self._put_module(name, value)
        elif isinstance(value, Buffer) or name in attributes.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' "
                    "(pullback.nn.Buffer, pullback.Tensor or None expected)"
                )
            if isinstance(value, Buffer):
                self._forget(name, "_parameters", "_modules")
                if name in attributes.get("_buffers", ()):
                    self._forget(name, "_buffers")
                self.register_buffer(name, value, getattr(value, "persistent", True))
            else:
                hooks = _hooks.buffer_registration_hooks
                value = _hooks.run_registration_hooks(hooks, self, name, value)
                attributes["_buffers"][name] = value
        else:
            return False
        return True

    def _put_module(self, name, module):
        hooks = _hooks.module_registration_hooks
        self._modules[name] = _hooks.run_registration_hooks(hooks, self, name, module)

    def _forget(self, name, *tables):
        """Remove a name from attributes and tables of members, so that another may have it."""
        for table in (self.__dict__, *(self.__dict__.get(table, {}) for table in tables)):
            table.pop(name, None)
        if "_buffers" in tables:
            self._non_persistent_buffers_set.discard(name)

    def _check_name(self, kind, name, table):
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            suffix = f", got: {name}" if kind == "module" else ""
            raise KeyError(f'{kind} name can\'t contain "."{suffix}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor, or None, that is no parameter: it moves with the module.

        With ``persistent=False`` it is no part of the state dict.

        Raises: KeyError for a name that is taken, empty or has a dot; TypeError for what is no
        tensor.

        >>> import pullback
        >>> module = pullback.nn.Module()
        >>> module.register_buffer("mean", pullback.zeros(2))
        >>> module.mean
        tensor([0., 0.])
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                "(pullback Tensor or None required)"
            )
        hooks = _hooks.buffer_registration_hooks
        self._buffers[name] = _hooks.run_registration_hooks(hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name, param):
        """Add a parameter, or None, under a name; as assigning it to an attribute does.

        Raises: KeyError for a name that is taken, empty or has a dot; TypeError for what is no
        Parameter; ValueError for one with a history.
        """
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                "(pullback.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        hooks = _hooks.parameter_registration_hooks
        self._parameters[name] = _hooks.run_registration_hooks(hooks, self, name, param)

    def add_module(self, name, module):
        """Add a submodule, or None, under a name; as assigning it to an attribute does.

        Raises: KeyError for a name that is taken, empty or has a dot; TypeError for what is no
        Module.
        """
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._put_module(name, module)

    def register_module(self, name, module):
        """Do as ``add_module``."""
        self.add_module(name, module)

    def __dir__(self):
        names = {*dir(type(self)), *self.__dict__}
        for table in (self._parameters, self._modules, self._buffers):
            names.update(table)
        return sorted(name for name in names if not name[:1].isdigit())

    # ---- members by path -------------------------------------------------------------------------

    def get_submodule(self, target):
        """Return the submodule of a path of names, like ``"encoder.layers.0"``; "" is the module.

        Raises: AttributeError if there is none.
        """
        found = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(found._get_name() + " has no attribute `" + name + "`")
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError("`" + name + "` is not an nn.Module")
        return found

    def set_submodule(self, target, module, strict=False):
        """Put a module at a path of names. ``strict`` demands that there is one already.

        Raises: ValueError for an empty path or what is no Module; AttributeError where the path
        leads nowhere.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(parent._get_name() + " has no attribute `" + name + "`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError("`" + name + "` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target, table, kind):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + " has no attribute `" + name + "`")
        found = getattr(module, name)
        if name not in getattr(module, table) and not (
            table == "_parameters" and isinstance(found, Parameter)
        ):
            raise AttributeError("`" + name + f"` is not {kind}")
        return found

    def get_parameter(self, target):
        """Return the parameter of a path, like ``"encoder.weight"``; AttributeError if none is."""
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target):
        """Return the buffer of a path of names; AttributeError if there is none."""
        return self._get_member(target, "_buffers", "a buffer")

    # ---- members of all submodules ---------------------------------------------------------------

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Iterate over (path, parameter), each once unless ``remove_duplicate`` is False."""
        yield from self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse=True):
        """Iterate over parameters; with ``recurse`` over those of submodules, too.

        >>> import pullback
        >>> sum(p.numel() for p in pullback.nn.Linear(2, 3).parameters())
        9
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Iterate over (path, buffer), each once unless ``remove_duplicate`` is False."""
        yield from self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse=True):
        """Iterate over buffers; with ``recurse`` over those of submodules, too."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_children(self):
        """Iterate over (name, module) of direct submodules, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """Iterate over direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Iterate over (path, module), the module itself first, each once.

        >>> import pullback
        >>> [name for name, _ in pullback.nn.Sequential(pullback.nn.ReLU()).named_modules()]
        ['', '0']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = prefix + ("." if prefix else "") + name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate=True):
        """Iterate over the module and all submodules, each once if ``remove_duplicate``."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    # ---- modes and gradients ---------------------------------------------------------------------

    def train(self, mode=True):
        """Set training mode, here and in submodules; dropout and batch norm depend on it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Set evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Say of all parameters whether they require grad; return the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or set them to zero."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.detach()
                parameter.grad.zero_()

    # ---- copies, representation, compilation -----------------------------------------------------

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in _TABLES:
            self.__dict__.setdefault(name, {} if name in _PLAIN else OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def _replicate_for_data_parallel(self):
        replica = type(self).__new__(type(self))
        replica.__dict__ = dict(self.__dict__)
        for name in _PLAIN:
            replica.__dict__[name] = dict(self.__dict__[name])
        return replica

    def compile(self, *args, **kwargs):
        """Compile the module's calls in place, with the arguments of ``pullback.compile``.

        >>> import pullback
        >>> layer = pullback.nn.Linear(2, 3)
        >>> layer.compile()
        >>> layer(pullback.ones(1, 2)).shape
        pullback.Size([1, 3])
        """
        self._compiled_call_impl = pullback.compile(self._call_impl, *args, **kwargs)

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """Return what the representation shows beside submodules; subclasses override it."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        if not lines + children:
            return f"{self._get_name()}()"
        return self._get_name() + "(\n  " + "\n  ".join(lines + children) + "\n)"


set_own_call(Module._call_impl)
