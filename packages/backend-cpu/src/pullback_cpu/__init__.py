"""The CPU backend of pullback: Cython loops, SciPy's BLAS and a caching allocator."""

__version__ = "0.1.0"
