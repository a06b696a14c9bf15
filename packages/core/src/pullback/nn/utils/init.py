"""Modules whose parameters have no initial values."""

from __future__ import annotations

import inspect

import pullback

__all__ = ["skip_init"]


def skip_init(module_cls, *args, **kwargs):
    """Return ``module_cls(*args, **kwargs)`` with uninitialised parameters and buffers.

    It is for weights that are loaded next: nothing is drawn.

    Raises: RuntimeError for what is no class of modules, or takes no ``device``.

    >>> import pullback
    >>> pullback.nn.utils.skip_init(pullback.nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    if not issubclass(module_cls, pullback.nn.Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", None)
    if device is None:
        device = pullback.empty(0).device
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)
