"""Functions of neural networks: ``pullback.nn.functional``."""

from pullback.nn import functional

__all__ = ["functional"]
