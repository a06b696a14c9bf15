"""torch.cuda.amp's names: ``pullback.amp`` for the device type ``cuda``. Deprecated."""

from __future__ import annotations

import warnings

import pullback
from pullback import amp
from pullback._help import explain_names as _explain_names

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def _warn(name, replacement):
    warnings.warn(
        f"`pullback.cuda.amp.{name}(args...)` is deprecated. Please use "
        f"`pullback.amp.{replacement}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def amp_definitely_not_available():
    """Return whether there is no CUDA device.

    >>> import pullback
    >>> pullback.cuda.amp.amp_definitely_not_available() != pullback.cuda.is_available()
    True
    """
    return not pullback.cuda.is_available()


class autocast(amp.autocast):
    """Deprecated: ``pullback.autocast("cuda", ...)``, with another order of arguments.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     region = pb.cuda.amp.autocast()
    >>> region.device, region.fast_dtype
    ('cuda', pullback.float16)
    """

    def __init__(self, enabled=True, dtype=pullback.float16, cache_enabled=True):
        _warn("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """Deprecated: ``pullback.amp.GradScaler("cuda", ...)``.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.cuda.amp.GradScaler(enabled=False).get_scale()
    1.0
    """

    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        _warn("GradScaler", "GradScaler('cuda', args...)")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(fwd=None, *, cast_inputs=None):
    """Deprecated: ``pullback.amp.custom_fwd`` with ``device_type="cuda"``.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.cuda.amp.custom_fwd(lambda ctx, x: x).__name__
    '<lambda>'
    """
    _warn("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd):
    """Deprecated: ``pullback.amp.custom_bwd`` with ``device_type="cuda"``.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.cuda.amp.custom_bwd(lambda ctx, g: g).__name__
    '<lambda>'
    """
    _warn("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")


_explain_names(globals())
