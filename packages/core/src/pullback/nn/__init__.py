"""What networks are made of, as functions: ``pullback.nn.functional``."""

from pullback.nn import functional

__all__ = ["functional"]
