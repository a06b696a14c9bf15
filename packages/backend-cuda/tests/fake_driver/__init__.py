"""A CUDA driver, cuBLAS and cuSOLVER whose devices are memory of this process, for tests."""

from .build import build, compiler, load
from .control import Control, Launch, code

__all__ = ["Control", "Launch", "build", "code", "compiler", "load"]
