"""torch.cpu.amp's names: ``pullback.amp`` for the device type ``cpu``. Deprecated."""

from __future__ import annotations

import warnings

import pullback
from pullback import amp

__all__ = ["GradScaler", "autocast"]


def _warn(name):
    warnings.warn(
        f"`pullback.cpu.amp.{name}(args...)` is deprecated. Please use "
        f"`pullback.amp.{name}('cpu', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """Deprecated: ``pullback.autocast("cpu", ...)``, with another order of arguments.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     region = pb.cpu.amp.autocast(dtype=pb.float16)
    >>> region.device, region.fast_dtype
    ('cpu', pullback.float16)
    """

    def __init__(self, enabled=True, dtype=pullback.bfloat16, cache_enabled=True):
        _warn("autocast")
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """Deprecated: ``pullback.amp.GradScaler("cpu", ...)``.

    >>> import pullback as pb, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pb.cpu.amp.GradScaler(init_scale=4.0).get_scale()
    4.0
    """

    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        _warn("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
