"""A small backend for Pullback; everything it does is in ``plugin`` and ``_native``."""
