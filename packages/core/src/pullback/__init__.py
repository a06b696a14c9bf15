"""Pullback: torch.autograd as a small, fast, pluggable package.

>>> import pullback as pb
>>> x = pb.tensor([1., 2.], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

import math as _math
import os as _os
import sys as _sys

from pullback.torch_version import TorchVersion as _TorchVersion

__version__ = _TorchVersion("0.1.0")


def get_include():
    """Return the folder of ``pullback/abi.h`` and ``pullback/abi.pxd``, for building plugins.

    >>> import os, pullback
    >>> os.path.exists(os.path.join(pullback.get_include(), "pullback", "abi.h"))
    True
    """
    return _os.path.join(_os.path.dirname(__file__), "include")


from pullback import backend, fft, linalg, nn, random, special, utils
from pullback._bind import bind_table as _bind_table
from pullback._c.base import dtype as _dtype
from pullback._c.base.dtype import (
    dtype,
    finfo,
    get_default_dtype,
    iinfo,
    promote_types,
    set_default_dtype,
)
from pullback._c.base.errors import OutOfMemoryError
from pullback._c.base.errors import publish as _publish
from pullback._c.base.state import (
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    set_anomaly_enabled,
)
from pullback._c.device.device import (
    device,
    empty_cache,
    get_default_device,
    memory_stats,
    reset_peak_memory_stats,
    set_default_device,
    synchronize,
)
from pullback._c.graph import overrides as _C
from pullback._c.graph import tensor as _tensor
from pullback._c.graph.size import LAYOUTS as _LAYOUTS
from pullback._c.graph.size import Size, layout, strided
from pullback._c.graph.tensor import Tensor
from pullback._c.ops.clone import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from pullback._c.python import overridable as _overridable
from pullback._c.python import tensor_methods as _tensor_methods
from pullback._c.transforms.autocast import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from pullback._construct import (
    as_tensor,
    asarray,
    from_numpy,
    frombuffer,
    scalar_tensor,
    tensor,
)
from pullback._context import (
    are_deterministic_algorithms_enabled,
    compiled_with_cxx11_abi,
    get_deterministic_debug_mode,
    get_device_module,
    get_file_path,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    memory_summary,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    set_warn_always,
    use_deterministic_algorithms,
)
from pullback._legacy_types import class_named as _class_named
from pullback._legacy_types import set_default_tensor_type
from pullback._printing import get_printoptions, printoptions, set_printoptions
from pullback._scalars import (
    is_conj,
    is_inference,
    is_neg,
    is_same_size,
    is_signed,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
    typename,
)
from pullback.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from pullback.utils.dlpack import from_dlpack, to_dlpack

_publish(Tensor, device, dtype, layout, memory_format)


def _dtypes():
    return _dtype.ALL


_named = {found.name: found for found in _dtype.ALL}
globals().update(_named)
e, inf, nan, newaxis, pi = _math.e, _math.inf, _math.nan, None, _math.pi
half, float, double = _named["float16"], _named["float32"], _named["float64"]  # torch's names
short, int, long = _named["int16"], _named["int32"], _named["int64"]
legacy_contiguous_format = contiguous_format
globals().update(_LAYOUTS)
chalf, cfloat, cdouble = _named["complex32"], _named["complex64"], _named["complex128"]

_bind_table(
    {
        "": globals(),
        "functional": vars(nn.functional),
        "fft": vars(fft),
        "linalg": vars(linalg),
        "special": vars(special),
    }
)

from pullback import _methods, autograd
from pullback._attributes import get_device
from pullback._interop import einops as _einops
from pullback._methods import (
    allclose,
    broadcast_shapes,
    can_cast,
    equal,
    is_complex,
    is_floating_point,
    is_tensor,
    isclose,
    numel,
    result_type,
)
from pullback.autograd import enable_grad, inference_mode, no_grad, set_grad_enabled

detach_ = Tensor.detach_
_sys.modules["pullback._C"] = _C  # whose names code written for torch takes from there

_methods.install()
_einops.install()
_overridable.install()
_overridable.wrap(
    globals(),
    (
        *("allclose", "equal", "is_complex", "is_conj", "is_floating_point", "is_inference"),
        *("detach_", "get_device"),
        *("is_neg", "is_same_size", "is_signed", "isclose", "numel", "result_type"),
    ),
)
_overridable.wrap(vars(autograd), ("backward", "grad"))
_overridable.wrap(
    globals(), ("as_tensor", "asarray", "from_numpy", "frombuffer", "tensor"), by_arguments=False
)


_LATE = (
    *("__future__", "_dynamo", "accelerator", "amp", "array_api", "backends", "compiler", "cpu"),
    *("cuda", "distributed", "func", "functional", "fx", "hub", "jit", "library"),
    *("multiprocessing", "onnx", "optim", "overrides", "profiler", "return_types"),
    *("safetensors", "serialization", "signal", "sparse", "storage", "testing", "types", "version"),
)
_LATE_NAMES = {
    **dict.fromkeys(("GradScaler", "autocast"), "amp"),
    **dict.fromkeys(("Event", "Stream"), "backend.streams"),
    **dict.fromkeys(("cond", "while_loop"), "func._control_flow"),
    "compile": "compiler.compiled",
    **dict.fromkeys(("load", "save"), "serialization"),
    **dict.fromkeys(("SymBool", "SymFloat", "SymInt"), "types"),
    "sparse_coo_tensor": "sparse",
    "vmap": "func",
}
_LATE_BEGINNINGS = {  # of names, and where those that are there stand
    "_assert": "compiler.checks",
    "_check": "compiler.checks",
    "_foreach_": "utils._foreach",
    "_shape_as": "compiler.checks",
    "float8_": "types",
}


def __getattr__(name):
    import importlib

    if name in _LATE:  # imported on first use
        return importlib.import_module(f"pullback.{name}")
    if name in _LATE_NAMES:
        return getattr(importlib.import_module(f"pullback.{_LATE_NAMES[name]}"), name)
    for beginning, module in _LATE_BEGINNINGS.items():
        if name.startswith(beginning):
            here = importlib.import_module(f"pullback.{module}")
            if hasattr(here, name):
                return getattr(here, name)
    if name.endswith("Storage") or name == "is_storage":
        from pullback import storage

        if name in storage.__all__:
            return getattr(storage, name)
    if name == "Storage":
        return __getattr__("FloatStorage")
    if name.endswith("Tensor") and (found := _class_named(f"pullback.{name}")) is not None:
        return found
    if "autocast" in name:
        from pullback.amp import legacy

        if hasattr(legacy, name):
            return getattr(legacy, name)
    from pullback._help.names import missing

    raise missing("pullback", name)


def __dir__():
    return sorted({*globals(), *_LATE, *_LATE_NAMES, "is_storage"})
