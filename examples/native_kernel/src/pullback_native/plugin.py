"""What the core calls when the device ``native`` is used for the first time."""

import numpy as np

from pullback.backend import hookimpl
from pullback_native import _native


def negate(out, x):
    """Write -x into ``out``: a kernel may be Python, which gets NumPy arrays on a host backend."""
    np.negative(x, out=out)


@hookimpl
def pullback_backend(device):
    """Give memory for our device, nothing for others."""
    return _native.BACKEND if device == "native" else None


@hookimpl
def pullback_register_kernels(table, device):
    """Register two kernels; the core finds a way for everything else."""
    if device == "native":
        table.add("add", _native.F32 | _native.F64, _native.ADD)
        table.add("neg", _native.F32 | _native.F64, negate)
