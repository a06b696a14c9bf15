"""The driver, devices and their contexts, memory, streams, libraries, and compiled kernels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the compiled modules

    def __getattr__(name: str) -> Any: ...
