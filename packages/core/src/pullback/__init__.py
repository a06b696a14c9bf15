"""Pullback: torch.autograd as a small, fast, pluggable package.

>>> import pullback as pb
>>> x = pb.tensor([1., 2.], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

from __future__ import annotations

import os as _os

__version__ = "0.1.0"


def get_include():
    """Return the folder of ``pullback/abi.h`` and ``pullback/abi.pxd``, for building plugins.

    >>> import os, pullback
    >>> os.path.exists(os.path.join(pullback.get_include(), "pullback", "abi.h"))
    True
    """
    return _os.path.join(_os.path.dirname(__file__), "include")


from pullback._c import dtype as _dtype, surface as _surface, tensor as _tensor
from pullback._c.copies import (
    channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format,
)
from pullback._c.device import (
    device, empty_cache, get_default_device, memory_stats, set_default_device, synchronize,
)
from pullback._c.dtype import (
    dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype,
)
from pullback._c.state import (
    is_anomaly_check_nan_enabled, is_anomaly_enabled, is_grad_enabled, is_inference_mode_enabled,
    set_anomaly_enabled,
)
from pullback._c.tensor import Size, Tensor
from pullback import backend, nn, random, utils
from pullback._bind import bind_table as _bind_table
from pullback._construct import (
    as_tensor, asarray, from_numpy, frombuffer, scalar_tensor, tensor,
)
from pullback._printing import get_printoptions, printoptions, set_printoptions
from pullback.utils.dlpack import from_dlpack, to_dlpack
from pullback.random import (
    Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state,
)


def _dtypes():
    return _dtype.ALL


for _found in _dtype.ALL:
    globals()[_found.name] = _found
half, float, double = float16, float32, float64  # noqa: F821  (torch's names)
short, int, long = int16, int32, int64  # noqa: F821
cfloat, cdouble = complex64, complex128  # noqa: F821

_bind_table({"": globals(), "functional": vars(nn.functional)})

from pullback import _methods, autograd  # noqa: E402  (they need the ops)
from pullback._methods import is_tensor, is_floating_point, is_complex, numel, result_type, can_cast, equal, allclose, isclose
from pullback.autograd import enable_grad, no_grad, set_grad_enabled

_methods.install()


def __getattr__(name):
    if name == "testing":               # most programs do without
        import importlib

        return importlib.import_module("pullback.testing")
    raise AttributeError(f"module 'pullback' has no attribute {name!r}")
