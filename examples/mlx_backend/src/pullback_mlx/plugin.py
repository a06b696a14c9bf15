"""What the core calls when the device ``mlx`` is used for the first time."""

from pullback.backend import hookimpl
from pullback.backend.masks import ALL, C128, F64, UNSIGNED
from pullback_mlx.kernels import kernels
from pullback_mlx.memory import MEMORY


@hookimpl
def pullback_backend(device):
    """Give memory for our device, nothing for others."""
    return MEMORY if device == "mlx" else None


@hookimpl
def pullback_dtypes(device):
    """Leave out what Apple's GPUs do not have."""
    return (ALL | UNSIGNED) & ~(F64 | C128) if device == "mlx" else None


@hookimpl
def pullback_register_kernels(table, device):
    """Register what MLX has a function for; the core composes the rest."""
    if device == "mlx":
        for kernel in kernels():
            table.add(*kernel)


@hookimpl
def pullback_requirements(device):
    """Tell the conformance suite where the device is less exact than it demands."""
    if device != "mlx":
        return None
    from pullback.testing import Requirements

    return Requirements(expected_failures={"value:moments": "float32 sums lose a digit more"})
