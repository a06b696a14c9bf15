"""The class of compiled modules, which programs import from here to find them."""

from pullback.compiler.modules import OptimizedModule

__all__ = ["OptimizedModule"]
