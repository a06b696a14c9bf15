"""The CPU backend of pullback: Cython loops, SciPy's BLAS and a caching allocator."""

__version__ = "0.1.0"

from pullback_cpu.runtime.allocator import memory_limit, set_memory_limit

__all__ = ["memory_limit", "set_memory_limit"]
