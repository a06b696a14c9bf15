"""Signal processing: ``pullback.signal``, as ``torch.signal``; it has windows."""

from pullback.signal import windows

__all__ = ["windows"]
