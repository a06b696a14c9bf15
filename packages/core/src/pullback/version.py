"""Versions: of pullback, and of the torch whose names and results it follows.

>>> import pullback
>>> pullback.version.torch
'2.13.0'
"""

from pullback import __version__
from pullback.torch_version import TorchVersion

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "torch", "xpu"]

torch = TorchVersion("2.13.0")
debug = False
cuda = hip = rocm = xpu = None
git_version = "Unknown"
