"""What the core calls when the device ``example`` is used for the first time."""

from pullback.backend import hookimpl
from pullback_example.kernels import KERNELS
from pullback_example.memory import MEMORY


@hookimpl
def pullback_backend(device):
    """Give memory for our device, nothing for others."""
    return MEMORY if device == "example" else None


@hookimpl
def pullback_register_kernels(table, device):
    """Register a kernel for each primitive that cannot be composed; the core composes the rest."""
    if device == "example":
        for primitive, (mask, kernel) in KERNELS.items():
            table.add(primitive, mask, kernel)
