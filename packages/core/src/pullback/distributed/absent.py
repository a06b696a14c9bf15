"""Modules of torch.distributed that are not there, for programs that import them and go on alone.

A program imports ``DTensor`` to ask ``isinstance``, or ``nn.all_reduce`` to call it where there is
a group. Such a module has torch's names: classes of which there are no objects, and functions that
raise.
"""

from __future__ import annotations

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_COLLECTIVES = (
    *("all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather"),
    *("reduce", "reduce_scatter", "scatter"),
)
_SHARDED = (
    *("BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FSDPModule"),
    *("FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel"),
    *("LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision"),
    *("MixedPrecisionPolicy", "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType"),
    *("ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy"),
    *("StateDictConfig", "StateDictSettings", "StateDictType", "UnshardHandle", "fully_shard"),
    "register_fsdp_forward_method",
)
_SPREAD = (
    *("DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard"),
    *("distribute_module", "distribute_tensor"),
)
_NAMES: dict[str, tuple[str, ...]] = {
    "nn": _COLLECTIVES,
    "nn.functional": _COLLECTIVES,
    "optim": ("ZeroRedundancyOptimizer",),
    "fsdp": _SHARDED,
    "fsdp.fully_sharded_data_parallel": _SHARDED,
    "_composable": (),
    "_composable.fsdp": _SHARDED,
    "tensor": _SPREAD,
    "tensor.experimental": ("implicit_replication",),
    "_tensor": _SPREAD,
    "_tensor.experimental": ("implicit_replication",),
    "device_mesh": ("DeviceMesh", "init_device_mesh"),
}
_IN_PACKAGE = ("nn", "optim", "fsdp", "_composable")  # of pullback-distributed


def complete(module: ModuleType, name: str) -> None:
    """Give a module of pullback-distributed the names of torch's that it lacks.

    >>> import types
    >>> from pullback.distributed.absent import complete
    >>> module = types.ModuleType("optim")
    >>> complete(module, "optim")
    >>> module.ZeroRedundancyOptimizer.__module__
    'pullback.distributed.optim'
    """
    for missing in _NAMES.get(name, ()):
        if not hasattr(module, missing):
            setattr(module, missing, _refusing(name, missing, installed=True))


def find(name: str) -> ModuleSpec | None:
    """Return the spec of ``pullback.distributed.NAME``, or None for a name that torch lacks.

    >>> from pullback.distributed.absent import find
    >>> find("tensor").name
    'pullback.distributed.tensor'
    >>> find("tenser") is None
    True
    """
    if name not in _NAMES:
        return None
    return ModuleSpec(f"pullback.distributed.{name}", _Absent(name), is_package=True)


class _Absent(Loader):
    """Makes a module of names that refuse."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"Names of torch.distributed.{self._name}, for programs that go on alone."
        for name in _NAMES[self._name]:
            setattr(module, name, _refusing(self._name, name))


def _refusing(module: str, name: str, installed: bool = False) -> Any:
    where = f"pullback.distributed.{module}"

    def refuse(*args: Any, **kwargs: Any) -> None:
        if not installed and module.partition(".")[0] in _IN_PACKAGE:
            raise ImportError(
                f"{where}.{name} needs the package pullback-distributed: install it with "
                "'pip install pullback-distributed' (or pullback[distributed])",
                name="pullback_distributed",
            )
        raise NotImplementedError(
            f"{where}.{name}: tensors on several processes are left out; fully_shard of "
            "pullback.distributed.fsdp divides parameters among processes"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = where
    if name[0].islower():
        return refuse
    return type(name, (), {"__init__": refuse, "__module__": where})
