"""Support of einops and opt_einsum, without importing them.

einops finds a tensor's backend among the subclasses of its ``AbstractBackend``. opt_einsum keeps
functions by the name of a tensor's package. Ours are added when they are imported, before or after
this package.
"""

from __future__ import annotations

import sys


def install():
    """Add ours now to what is imported, and whenever it is imported or reloaded."""
    for name, (complete, add) in _MODULES.items():
        module = sys.modules.get(name)
        if hasattr(module, complete):
            add(module)
    sys.meta_path.insert(0, ImportHook())


class ImportHook:
    """An import finder that delegates to the others, and adds a step to a module's execution."""

    def find_spec(self, name, path=None, target=None):
        """Return the other finders' spec of a module with backends; None for any other module."""
        if name not in _MODULES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                return extended(spec)
        return None


def extended(spec):
    """Let the loader of a spec add our backend after it has run the module; returns the spec."""
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        if module.__name__ in _MODULES:  # a loader may serve several modules
            _MODULES[module.__name__][1](module)

    spec.loader.exec_module = exec_module
    return spec


def define_backend(module):
    """Subclass einops' ``AbstractBackend``, which registers the backend."""
    import pullback

    class PullbackBackend(module.AbstractBackend):  # type: ignore[name-defined]
        """The tensor operations that einops uses."""

        framework_name = "pullback"

        def is_appropriate_type(self, tensor):
            return isinstance(tensor, pullback.Tensor)

        def from_numpy(self, x):
            made = pullback.from_numpy(x)
            return made.requires_grad_() if self.is_float_type(made) else made

        def to_numpy(self, x):
            return x.detach().cpu().numpy()

        def arange(self, start, stop):
            return pullback.arange(start, stop, dtype=pullback.int64)

        def transpose(self, x, axes):
            return x.permute(axes)

        def reduce(self, x, operation, axes):
            if operation in ("any", "all", "prod"):  # prod reduces one dim at a time
                for axis in sorted(axes, reverse=True):
                    x = getattr(x, operation)(axis)
                return x
            return getattr(x, {"min": "amin", "max": "amax"}.get(operation, operation))(axes)

        def stack_on_zeroth_dimension(self, tensors):
            return pullback.stack(tensors)

        def add_axis(self, x, new_position):
            return x.unsqueeze(new_position)

        def add_axes(self, x, n_axes, pos2len):
            sizes = [-1] * n_axes
            for position, length in pos2len.items():
                x = self.add_axis(x, position)
                sizes[position] = length
            return x.expand(sizes)

        def tile(self, x, repeats):
            return x.repeat(repeats)

        def concat(self, tensors, axis):
            return pullback.cat(tensors, axis)

        def is_float_type(self, x):
            return x.dtype.is_floating_point

        def einsum(self, pattern, *x):
            return pullback.einsum(pattern, *x)

    module.PullbackBackend = PullbackBackend  # a class has only weak references to subclasses


def define_functions(module):
    """Give opt_einsum the functions whose arguments have other names than NumPy's."""
    import pullback

    module._cached_funcs.update(
        {
            ("tensordot", "pullback"): lambda x, y, axes=2: pullback.tensordot(x, y, axes),
            ("transpose", "pullback"): lambda x, axes: x.permute(axes),
        }
    )


# The modules, each with a name that it has once it is complete, and what adds ours.
_MODULES = {
    "einops._backends": ("AbstractBackend", define_backend),
    "opt_einsum.backends.dispatch": ("_cached_funcs", define_functions),
}
