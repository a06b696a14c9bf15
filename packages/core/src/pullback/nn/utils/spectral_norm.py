"""Spectral normalization by a hook: T. Miyato et al. (2018)."""

from __future__ import annotations

import pullback
from pullback.nn.parameter import Parameter, is_lazy

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def normalize(vector, eps):
    """Return a vector divided by its norm, or by eps if that is larger."""
    return pullback.nn.functional.normalize(vector, dim=0, eps=eps)


def as_matrix(weight, dim):
    """Return a weight with one dim first and all others joined."""
    if dim != 0:
        weight = weight.movedim(dim, 0)
    return weight.reshape((weight.shape[0], -1))


def iterate(matrix, u, v, count, eps):
    """Write better estimates of the first singular vectors into v, then u."""
    with pullback.no_grad():
        for _ in range(count):
            v.copy_(normalize(pullback.mv(matrix.t(), u), eps))
            u.copy_(normalize(pullback.mv(matrix, v), eps))


def default_dim(module, dim):
    """Return the dim of a weight that counts outputs."""
    if dim is not None:
        return dim
    nn = pullback.nn
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return 1 if isinstance(module, transposed) else 0


class SpectralNorm:
    """The hook that divides a weight by an estimate of its largest singular value.

    >>> import pullback
    >>> from pullback.nn.utils.spectral_norm import SpectralNorm
    >>> SpectralNorm("weight", n_power_iterations=2).n_power_iterations
    2
    """

    _version = 1

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        self.name = name
        self.dim = dim
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight):
        """Return the weight with ``dim`` first and all others joined."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module, do_power_iteration):
        """Return the weight divided by the estimate, which is made better before if asked for."""
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            iterate(matrix, u, v, self.n_power_iterations, self.eps)
            # The next call writes into u and v while the graph of this one may keep them.
            u, v = u.clone(), v.clone()
        return weight / pullback.dot(u, pullback.mv(matrix, v))

    @staticmethod
    def apply(module, name, n_power_iterations, dim, eps):
        """Replace a parameter by ``<name>_orig`` and two buffers, and add the hook; return it."""
        if any(_is_of(hook, name) for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make "
                "sure to run the dummy forward before applying spectral normalization"
            )
        with pullback.no_grad():
            matrix = as_matrix(weight, dim)
            u, v = (normalize(weight.new_empty(size).normal_(0, 1), eps) for size in matrix.shape)
        del module._parameters[name]
        module.register_parameter(f"{name}_orig", weight)
        # A plain attribute until the hook computes it, for code that asks for its device.
        setattr(module, name, weight.data)
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(_StateDictHook(hook))
        module._register_load_state_dict_pre_hook(_LoadHook(hook))
        return hook

    def remove(self, module):
        """Make one parameter of the weight and the estimate."""
        with pullback.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for name in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + name)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))


class _StateDictHook:
    """Adds the version of the format to the metadata of a state dict."""

    def __init__(self, hook):
        self.hook = hook

    def __call__(self, module, state_dict, prefix, local_metadata):
        versions = local_metadata.setdefault("spectral_norm", {})
        versions[f"{self.hook.name}.version"] = self.hook._version


class _LoadHook:
    """Computes the buffer ``<name>_v`` for state dicts of before version 1, which have none."""

    def __init__(self, hook):
        self.hook = hook

    def __call__(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        name = self.hook.name
        version = local_metadata.get("spectral_norm", {}).get(f"{name}.version")
        key = prefix + name
        if version is not None and version >= 1:
            return
        if key not in state_dict and all(
            f"{key}_{part}" in state_dict for part in ("orig", "u", "v")
        ):
            return
        missing = [key + part for part in ("_orig", "", "_u") if key + part not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else ())
            return
        with pullback.no_grad():
            original, u = state_dict[f"{key}_orig"], state_dict[f"{key}_u"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = as_matrix(original, self.hook.dim)
            # v is the solution of W v = u of least norm, scaled so that u W v is sigma.
            left, values, right = pullback.linalg.svd(matrix, full_matrices=False)
            small = values <= values[0] * pullback.finfo(values.dtype).eps * max(matrix.shape)
            inverse = pullback.where(small, 0.0, 1.0 / values)
            v = pullback.mv(right.t(), inverse * pullback.mv(left.t(), u))
            state_dict[f"{key}_v"] = v * (sigma / pullback.dot(u, pullback.mv(matrix, v)))


def _is_of(hook, name):
    return isinstance(hook, SpectralNorm) and hook.name == name


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight by its largest singular value before each call, by a hook; return the module.

    ``<name>_orig`` is the parameter, the buffers ``<name>_u`` and ``<name>_v`` estimate the
    singular vectors by ``n_power_iterations`` steps of the power method in each call in training.
    ``dim`` counts outputs: by default 1 in transposed convolutions, else 0.

    Raises: RuntimeError if the parameter has such a hook; ValueError for less than one step.

    >>> import pullback
    >>> layer = pullback.nn.utils.spectral_norm(pullback.nn.Linear(3, 2), n_power_iterations=30)
    >>> _ = layer(pullback.ones(1, 3))
    >>> bool((pullback.linalg.svdvals(layer.weight)[0] - 1).abs() < 1e-4)
    True
    """
    SpectralNorm.apply(module, name, n_power_iterations, default_dim(module, dim), eps)
    return module


def remove_spectral_norm(module, name="weight"):
    """Undo ``spectral_norm``; return the module.

    Raises: ValueError if the parameter has no such hook.

    >>> import pullback
    >>> from pullback.nn.utils import remove_spectral_norm, spectral_norm
    >>> list(remove_spectral_norm(spectral_norm(pullback.nn.Linear(3, 2))).state_dict())
    ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if _is_of(hook, name):
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, other in list(hooks.items()):
            if isinstance(other, (_StateDictHook, _LoadHook)) and other.hook is hook:
                del hooks[key]
    return module
