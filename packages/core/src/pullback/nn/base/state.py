"""State dicts of modules: what they hold, how they are loaded, and the hooks on both ways."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

import pullback
from pullback import Tensor
from pullback.nn.base.hooks import add_hook
from pullback.nn.parameter import Parameter, is_lazy

__all__ = ["StateDictMethods"]

# The key of a module's own state, beside those of its tensors.
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What ``load_state_dict`` returns: the keys that only one side has."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _swap_loaded(target, source, assign):
    """Swap a parameter or buffer with what its ``module_load`` makes of a loaded tensor."""
    made = target.module_load(source, assign=assign)
    if made is source or made is target:
        raise RuntimeError(
            "module_load() of a parameter must return a new tensor, neither the parameter itself "
            "nor the loaded tensor. Call detach() on its result."
        )
    if isinstance(target, Parameter) and not isinstance(made, Parameter):
        made = Parameter(made, requires_grad=target.requires_grad)
    pullback.utils.swap_tensors(target, made.requires_grad_(target.requires_grad))


class StateDictMethods:
    """The methods of modules that make state dicts and load them."""

    def get_extra_state(self):
        """Return what the state dict has of the module beside tensors; a subclass may define it."""
        raise RuntimeError("get_extra_state() is only called where a subclass defines it")

    def set_extra_state(self, state):
        """Take what ``get_extra_state`` has returned; a subclass that has one defines both."""
        raise RuntimeError("set_extra_state() is only called where a subclass defines it")

    # ---- saving ----------------------------------------------------------------------------------

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Return an OrderedDict of all parameters and persistent buffers by path.

        The tensors are detached but share memory with the module; ``keep_vars`` leaves them as
        they are. ``_metadata`` of the dict has the version of each module.

        >>> import pullback
        >>> {name: t.shape for name, t in pullback.nn.Linear(2, 3).state_dict().items()}
        {'weight': pullback.Size([3, 2]), 'bias': pullback.Size([3])}
        """
        for value, name in zip(args, ("destination", "prefix", "keep_vars"), strict=False):
            if name == "destination":  # positional arguments are an older form
                destination = value if destination is None else destination
            elif name == "prefix":
                prefix = prefix or value
            else:
                keep_vars = keep_vars or value
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            changed = hook(self, destination, prefix, local)
            if getattr(hook, "_from_public_api", False):
                if changed is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif changed is not None:
                destination = changed
        return destination

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Put the module's own tensors into a dict; submodules follow."""
        kept = [*self._parameters.items()]
        kept += [
            item
            for item in self._buffers.items()
            if item[0] not in self._non_persistent_buffers_set
        ]
        for name, tensor in kept:
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not StateDictMethods.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    # ---- loading ---------------------------------------------------------------------------------

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy the tensors of a state dict into the parameters and buffers of their paths.

        ``strict`` demands the same keys on both sides. ``assign`` takes the tensors themselves
        instead of copying their elements. Returns (missing_keys, unexpected_keys).

        Raises: TypeError if it is no mapping; RuntimeError that lists every missing and unexpected
        key, every tensor of another shape and whatever could not be copied.

        >>> import pullback
        >>> layer, other = pullback.nn.Linear(2, 3), pullback.nn.Linear(2, 3)
        >>> layer.load_state_dict(other.state_dict())
        <All keys matched successfully>
        >>> pullback.equal(layer.weight, other.weight)
        True
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata
        self._load_tree(state_dict, metadata, "", assign, missing, unexpected, errors)
        if strict:
            for kind, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    listed = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listed}. ")
        if errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                + "\n\t".join(errors)
            )
        return _IncompatibleKeys(missing, unexpected)

    def _load_tree(self, state, metadata, prefix, assign, missing, unexpected, errors):
        """Load the module and its submodules; the lists collect what is wrong."""
        local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        self._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
        for name, module in self._modules.items():
            if module is not None:
                path = prefix + name + "."
                part = OrderedDict((k, v) for k, v in state.items() if k.startswith(path))
                module._load_tree(part, metadata, path, assign, missing, unexpected, errors)
        found = _IncompatibleKeys(missing, unexpected)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, found) is not None:
                raise RuntimeError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Load the module's own tensors; a subclass may convert older dicts first."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                *(state_dict, prefix, local_metadata, strict),
                *(missing_keys, unexpected_keys, error_msgs),
            )
        assign = local_metadata.get("assign_to_params_buffers", False)
        buffers = {
            name: buffer
            for name, buffer in self._buffers.items()
            if name not in self._non_persistent_buffers_set
        }
        for name, target in [*self._parameters.items(), *buffers.items()]:
            if target is None:
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            try:
                problem = self._load_one(name, target, key, state_dict[key], assign)
            except Exception as error:
                problem = (
                    f'While copying the parameter named "{key}", whose dimensions in the model are '
                    f"{target.size()} and whose dimensions in the checkpoint are "
                    f"{state_dict[key].size()}, an exception occurred : {error.args}."
                )
            if problem:
                error_msgs.append(problem)
        self._load_extra_state(state_dict, prefix, strict, missing_keys, unexpected_keys)
        if strict:
            tensors = {name for name in (*self._parameters, *buffers) if self._has_tensor(name)}
            for key in state_dict:
                if key.startswith(prefix) and key != prefix + _EXTRA_STATE_KEY_SUFFIX:
                    name, dot, _ = key[len(prefix) :].partition(".")
                    if name not in (self._modules if dot else tensors):
                        unexpected_keys.append(key)

    def _has_tensor(self, name):
        return self._parameters.get(name) is not None or self._buffers.get(name) is not None

    def _load_one(self, name, target, key, source, assign):
        """Load one tensor; return what is wrong with it, or None."""
        if not isinstance(source, Tensor):
            return (
                f'While copying the parameter named "{key}", expected pullback.Tensor or '
                f"Tensor-like object from checkpoint but received {type(source)}"
            )
        lazy = is_lazy(target)
        if not lazy:
            # Tensors of one number were saved as such, and with one element, in turns.
            if len(target.shape) == 0 and len(source.shape) == 1 and source.shape[0] == 1:
                source = source[0]
            if source.shape != target.shape:
                return (
                    f"size mismatch for {key}: copying a param with shape {source.shape} from "
                    f"checkpoint, the shape in current model is {target.shape}."
                )
            if target.is_meta and not source.is_meta and not assign:
                warnings.warn(
                    f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                    "parameter in the current model, which is a no-op. (Did you mean to pass "
                    "`assign=True` to assign items in the state dictionary to their corresponding "
                    "key in the module instead of copying them in place?)",
                    stacklevel=4,
                )
        with pullback.no_grad():
            if pullback.__future__.get_swap_module_params_on_conversion() and not lazy:
                _swap_loaded(target, source, assign)
            elif assign:
                if isinstance(target, Parameter):
                    if isinstance(source, Parameter):
                        source.requires_grad_(target.requires_grad)
                    else:
                        source = Parameter(source, requires_grad=target.requires_grad)
                setattr(self, name, source)
            else:
                if lazy:
                    target.materialize(source.shape, dtype=source.dtype)
                target.copy_(source)
        return None

    def _load_extra_state(self, state_dict, prefix, strict, missing_keys, unexpected_keys):
        key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateDictMethods.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)

    # ---- hooks -----------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook):
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` takes the tensors."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict``."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before the module's own tensors are loaded.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return add_hook(
            self._load_state_dict_pre_hooks, functools.partial(hook, self) if with_module else hook
        )

    def register_load_state_dict_post_hook(self, hook):
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the lists."""
        return add_hook(self._load_state_dict_post_hooks, hook)
