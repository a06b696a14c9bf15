"""Weight normalization by a hook: T. Salimans and D. P. Kingma (2016)."""

from __future__ import annotations

import warnings

import pullback
from pullback.nn.parameter import Parameter, is_lazy

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v, dim):
    """Return the norm over all dims but one, which are kept with size 1; over all for -1."""
    if dim == -1:
        return pullback.linalg.vector_norm(v)
    return pullback.linalg.vector_norm(v, dim=[d for d in range(v.dim()) if d != dim], keepdim=True)


def normalized(v, g, dim):
    """Return v with the norms g, over all dims but one."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """The hook that computes a weight of its direction and its norm before each call.

    >>> import pullback
    >>> from pullback.nn.utils.weight_norm import WeightNorm
    >>> layer = pullback.nn.utils.parametrizations.weight_norm(pullback.nn.Linear(2, 1))
    >>> WeightNorm("weight", 0).name
    'weight'
    """

    def __init__(self, name, dim):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        """Return the weight for the module's parameters of now."""
        g, v = (getattr(module, f"{self.name}_{part}") for part in "gv")
        return normalized(v, g, self.dim)

    @staticmethod
    def apply(module, name, dim):
        """Replace a parameter by two, and add the hook; return it.

        Raises: RuntimeError if the parameter has such a hook; ValueError if it has no size yet.
        """
        warnings.warn(
            "`pullback.nn.utils.weight_norm` is deprecated in favor of "
            "`pullback.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if any(_is_of(hook, name) for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure "
                "to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        norm = norm_except_dim(weight.detach(), hook.dim)
        module.register_parameter(f"{name}_g", Parameter(norm))
        module.register_parameter(f"{name}_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module):
        """Make one parameter of the two again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        for part in "gv":
            del module._parameters[f"{self.name}_{part}"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def _is_of(hook, name):
    return isinstance(hook, WeightNorm) and hook.name == name


def weight_norm(module, name="weight", dim=0):
    """Do as ``parametrizations.weight_norm``, by a hook, with a FutureWarning.

    The parameter becomes ``<name>_g``, the norms over all dims but ``dim``, and ``<name>_v``.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Undo ``weight_norm``; return the module.

    Raises: ValueError if the parameter has no such hook.
    """
    for key, hook in module._forward_pre_hooks.items():
        if _is_of(hook, name):
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
