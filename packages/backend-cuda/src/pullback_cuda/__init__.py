"""The CUDA backend of Pullback.

Importing this package imports neither pycuda nor the core: both wait until a ``cuda`` device is
asked for.
"""

from pullback_cuda.runtime.driver import device_count, is_available, why_unavailable

__version__ = "0.1.0"
__all__ = ["device_count", "elementwise_kernel", "is_available", "why_unavailable"]


def __getattr__(name):
    if name == "elementwise_kernel":
        from pullback_cuda.user_kernels import elementwise_kernel

        return elementwise_kernel
    raise AttributeError(f"module 'pullback_cuda' has no attribute {name!r}")
