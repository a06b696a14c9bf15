"""Modules that take sizes from their first input."""

from __future__ import annotations

from pullback.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Makes a module lazy: the first call runs ``initialize_parameters`` with its arguments.

    A subclass names in ``cls_to_become`` the class that the module then has. Until then some of its
    parameters are UninitializedParameter.

    >>> import pullback
    >>> model = pullback.nn.Sequential(pullback.nn.LazyLinear(2), pullback.nn.LazyLinear(1))
    >>> model(pullback.ones(4, 3)).shape
    pullback.Size([4, 1])
    """

    cls_to_become: type | None = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._take_shapes)
        self._initialize_hook = self.register_forward_pre_hook(
            _initialize_before_call, with_kwargs=True
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None and name not in self._non_persistent_buffers_set:
                as_it_is = is_lazy(tensor) or keep_vars
                destination[prefix + name] = tensor if as_it_is else tensor.detach()

    def _take_shapes(self, state_dict, prefix, *others):
        """Give tensors without a size that of the state dict that is being loaded."""
        import pullback

        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            source = state_dict.get(prefix + name)
            if source is not None and is_lazy(tensor) and not is_lazy(source):
                with pullback.no_grad():
                    tensor.materialize(source.shape)

    def initialize_parameters(self, *args, **kwargs):
        """Give the parameters their sizes, from the arguments of the first call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self):
        """Return whether a parameter or buffer has no size yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _replicate_for_data_parallel(self):
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
            "forward pass to correctly initialize the modules"
        )


def _initialize_before_call(module, args, kwargs):
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
