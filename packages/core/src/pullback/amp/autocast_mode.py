"""Regions of autocast, and custom functions that say how they run inside one."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pullback
from pullback._c.transforms.autocast import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

LOWER = (pullback.bfloat16, pullback.float16)


class _Outside(NamedTuple):
    """What a region found, to restore at its end."""

    enabled: bool
    dtype: pullback.dtype
    cache_enabled: bool


class _Regions(threading.local):
    """The entered regions of a thread, the innermost last."""

    def __init__(self):
        self.outside: list[_Outside] = []


_regions = _Regions()


def autocast_decorator(autocast_instance, func):
    """Return a function that calls ``func`` inside a region.

    >>> import pullback as pb
    >>> from pullback.amp.autocast_mode import autocast_decorator
    >>> region = pb.autocast(pb.get_default_device().type)
    >>> autocast_decorator(region, pb.mm)(pb.ones(1, 2), pb.ones(2, 1)).dtype
    pullback.bfloat16
    """

    @functools.wraps(func)
    def decorated(*args, **kwargs):
        with autocast_instance:
            return func(*args, **kwargs)

    return decorated


class autocast:
    """A ``with`` block, or a decorator, in which ops choose the dtype of floating operands.

    Products, convolutions and attention run in ``dtype``: by default bfloat16 on the host, float16
    elsewhere. Losses, norms and other sums of many numbers run in float32, and ops of several
    tensors in the widest of their dtypes. All other ops take operands as they are, as do in-place
    forms and calls with ``out=``. float64 is never cast. ``docs/reference/amp.md`` lists the ops.

    Casts of parameters are kept until the outermost region ends, unless ``cache_enabled`` is False.
    ``enabled=False`` switches autocast off for an inner block. All of it is for one thread and one
    device type. ``backward`` belongs outside of the region; it uses the dtypes of the forward pass.

    Raises: RuntimeError for a device type without autocast; ValueError when it is no text. Another
    dtype than bfloat16 and float16 gives a warning and no autocast.

    >>> import pullback as pb
    >>> a, where = pb.ones(2, 2), pb.get_default_device().type
    >>> with pb.autocast(where):
    ...     low = a @ a
    ...     with pb.autocast(where, enabled=False):
    ...         full = low.float() @ a
    >>> low.dtype, full.dtype
    (pullback.bfloat16, pullback.float32)
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        self._cache_enabled = (
            is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        )
        self._enabled = bool(enabled) and self._is_possible()

    def _is_possible(self):
        """Warn and return False where the device or the dtype is not there for autocast."""
        if self.device == "cuda" and not pullback.cuda.is_available():
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=3)
            return False
        if self.fast_dtype not in LOWER:
            name = self.device.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of "
                f"{', '.join(map(str, LOWER))} currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self):
        _regions.outside.append(
            _Outside(
                is_autocast_enabled(self.device),
                get_autocast_dtype(self.device),
                is_autocast_cache_enabled(),
            )
        )
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        autocast_increment_nesting()
        set_autocast_cache_enabled(bool(self._cache_enabled))
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        before = _regions.outside.pop()
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        set_autocast_enabled(self.device, before.enabled)
        set_autocast_dtype(self.device, before.dtype)
        set_autocast_cache_enabled(before.cache_enabled)
        return False

    def __call__(self, func):
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                f"Did you mean to use autocast as a context manager? For example:\n"
                f"    with pullback.autocast(device_type=...):\n"
                f"        output = model(input)"
            )
        return autocast_decorator(self, func)


def _cast(value, device_type, dtype):
    """Return ``value`` with floating tensors of the device type in ``dtype``, float64 excepted."""
    if isinstance(value, pullback.Tensor):
        casts = (
            value.is_floating_point()
            and value.device.type == device_type
            and value.dtype != pullback.float64
        )
        return value.to(dtype) if casts else value
    if isinstance(value, str | bytes) or hasattr(value, "__array__"):
        return value
    if isinstance(value, Mapping):
        return {
            _cast(key, device_type, dtype): _cast(item, device_type, dtype)
            for key, item in value.items()
        }
    if isinstance(value, Iterable):
        items = [_cast(item, device_type, dtype) for item in value]
        return type(value)(items) if isinstance(value, list | tuple) else items
    return value


def _check_device_type(device_type):
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorate the ``forward`` of a custom function that may be called inside a region.

    With ``cast_inputs`` floating tensors of the device type are cast to it, and forward and
    backward run without autocast. Without it, forward runs in the region as it is, and a backward
    decorated by ``custom_bwd`` with the same autocast. Outside of a region it does nothing.

    Raises: ValueError when ``device_type`` is no text.

    >>> import pullback as pb
    >>> where = pb.get_default_device().type
    >>> class Product(pb.autograd.Function):
    ...     @staticmethod
    ...     @pb.amp.custom_fwd(device_type=where, cast_inputs=pb.float32)
    ...     def forward(ctx, a, b):
    ...         return a @ b
    >>> with pb.autocast(where):
    ...     Product.apply(pb.ones(1, 2).bfloat16(), pb.ones(2, 1)).dtype
    pullback.float32
    """
    _check_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        args[0]._dtype = get_autocast_dtype(device_type)
        is_on = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = is_on and cast_inputs is None
        if not is_on or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return decorated


def custom_bwd(bwd=None, *, device_type):
    """Decorate the ``backward`` of a custom function: it runs with the autocast of its forward.

    Raises: ValueError when ``device_type`` is no text.

    >>> import pullback as pb
    >>> where = pb.get_default_device().type
    >>> class Square(pb.autograd.Function):
    ...     @staticmethod
    ...     @pb.amp.custom_fwd(device_type=where)
    ...     def forward(ctx, a):
    ...         ctx.save_for_backward(a)
    ...         return a @ a
    ...     @staticmethod
    ...     @pb.amp.custom_bwd(device_type=where)
    ...     def backward(ctx, grad):
    ...         (a,) = ctx.saved_tensors
    ...         product = grad @ a.t() + a.t() @ grad
    ...         return product.float()
    >>> a = pb.eye(2, requires_grad=True)
    >>> with pb.autocast(where):
    ...     y = Square.apply(a)
    >>> y.sum().backward()
    >>> a.grad
    tensor([[2., 2.],
            [2., 2.]])
    """
    _check_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
