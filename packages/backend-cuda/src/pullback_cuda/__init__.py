"""The CUDA backend of Pullback.

Importing this package imports neither pycuda nor the core: both wait until a ``cuda`` device is
asked for.
"""

from pullback_cuda.driver import device_count, is_available, why_unavailable

__version__ = "0.1.0"
__all__ = ["device_count", "is_available", "why_unavailable"]
