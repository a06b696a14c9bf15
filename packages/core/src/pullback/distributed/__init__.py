"""torch.distributed's names. Process groups are in the package pullback-distributed.

Its names are looked up at their first use, and so are its modules: ``pullback.distributed.optim``
is ``pullback_distributed.optim``; ``absent`` has those that are not there. Without the package a
program that asks ``is_available()`` or ``is_initialized()`` gets False and goes on alone; what
needs a group raises as torch does before ``init_process_group``, which raises ImportError.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pullback._help import explain_names as _explain_names

if TYPE_CHECKING:  # names are looked up at their first use

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "Backend",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]


_HOME = "pullback_distributed"
_NAMED_ALIKE = {"_composable.fsdp": "fsdp"}  # an older name of torch's for it


class ReduceOp(IntEnum):
    """How values of several processes are combined.

    >>> import pullback
    >>> pullback.distributed.ReduceOp.SUM.name
    'SUM'
    """

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)
    __hash__ = int.__hash__  # that of enumerations is a function in Python


class Backend(str):
    """The name of a library for messages, in lower case.

    >>> import pullback
    >>> pullback.distributed.Backend("NCCL")
    'nccl'
    """

    __slots__ = ()
    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return name.lower()


class _OfAll(type):
    @property
    def WORLD(cls) -> Any:
        """The group of all processes, None before ``init_process_group``."""
        return import_module(f"{_HOME}.groups.lifecycle").world() if is_initialized() else None


class group(metaclass=_OfAll):
    """Where the group of all processes is found.

    >>> import pullback
    >>> pullback.distributed.group.WORLD is None
    True
    """


class GroupMember(metaclass=_OfAll):
    """Where the group of all processes is found, and what stands for no member.

    >>> import pullback
    >>> pullback.distributed.GroupMember.NON_GROUP_MEMBER
    -100
    """

    NON_GROUP_MEMBER = -100


class Store:
    """A class of which there are no objects: processes find each other through MPI.

    Raises: NotImplementedError, where an object is made.

    >>> import pullback
    >>> pullback.distributed.Store()
    Traceback (most recent call last):
    NotImplementedError: pullback.distributed.Store(): processes find each other through MPI
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "pullback.distributed.Store(): processes find each other through MPI"
        )


def is_available() -> bool:
    """Return whether there can be process groups: the package pullback-distributed is installed.

    >>> import pullback
    >>> pullback.distributed.is_available() in (False, True)
    True
    """
    return _HOME in sys.modules or find_spec(_HOME) is not None


def is_mpi_available() -> bool:
    """Return ``is_available()``: process groups rest on MPI.

    >>> import pullback
    >>> pullback.distributed.is_mpi_available() == pullback.distributed.is_available()
    True
    """
    return is_available()


def is_initialized() -> bool:
    """Return whether this process is in a group: after ``init_process_group``.

    >>> import pullback
    >>> pullback.distributed.is_initialized()
    False
    """
    home = sys.modules.get(_HOME)
    return home is not None and bool(home.is_initialized())


def is_torchelastic_launched() -> bool:
    """Return whether torchrun started this process.

    >>> import pullback
    >>> pullback.distributed.is_torchelastic_launched()
    False
    """
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this process's number on its machine: ``LOCAL_RANK``, else the fallback.

    Raises: RuntimeError without both.

    >>> import pullback
    >>> pullback.distributed.get_node_local_rank(0)
    0
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context and "
        "want the code to run locally instead."
    )


def _init_process_group(*args: Any, **kwargs: Any) -> None:
    """Refuse: there are no process groups without the package pullback-distributed.

    Raises: ImportError.
    """
    raise ImportError(
        "pullback.distributed.init_process_group needs the package pullback-distributed: install "
        "it with 'pip install pullback-distributed' (or pullback[distributed])",
        name=_HOME,
    )


def _destroy_process_group(group: Any = None) -> None:
    """Refuse: there is no group to destroy.

    Raises: AssertionError, as in torch without a group.
    """
    raise AssertionError("Process group cannot be None")


def _needs_group(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = __name__
    refuse.__doc__ = f"""Refuse: {name} needs a process group.

    Raises: ValueError, as in torch before ``init_process_group``.
    """
    return refuse


def _left_out(name: str) -> type:
    """Return a class of which there are no objects, for annotations and ``isinstance``."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise ImportError(
            f"pullback.distributed.{name} needs the package pullback-distributed", name=_HOME
        )

    doc = f"""{name} of the package pullback-distributed, which is not installed.

    Raises: ImportError, where an object is made.

    >>> import pullback
    >>> pullback.distributed.{name}()
    Traceback (most recent call last):
    ImportError: pullback.distributed.{name} needs the package pullback-distributed
    """
    return type(name, (), {"__init__": refuse, "__module__": __name__, "__doc__": doc})


def _never(name: str) -> Any:
    def answer() -> bool:
        return False

    answer.__name__ = answer.__qualname__ = name
    answer.__module__ = __name__
    answer.__doc__ = f"""Return False: this library for messages between processes is not used.

    >>> import pullback
    >>> pullback.distributed.{name}()
    False
    """
    return answer


for _name in __all__:
    if _name not in globals() and _name.endswith("_available"):
        globals()[_name] = _never(_name)
_WITHOUT = {
    **{name: _needs_group(name) for name in __all__ if name not in globals()},
    "init_process_group": _init_process_group,
    "destroy_process_group": _destroy_process_group,
    **{
        name: _left_out(name)
        for name in ("ProcessGroup", "Work", "P2POp", "DistributedDataParallel")
    },
}


class _Alias(Loader):
    """Gives a module of the package under a name of this one."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # importlib has replaced it


class _Modules(MetaPathFinder):
    """Finds ``pullback.distributed.X`` as ``pullback_distributed.X``."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}.") or name == f"{__name__}.absent":
            return None
        inner = name.removeprefix(f"{__name__}.")
        home = f"{_HOME}.{_NAMED_ALIKE.get(inner, inner)}"
        try:
            module = import_module(home)
        except ModuleNotFoundError as error:
            if not f"{home}.".startswith(f"{error.name}."):
                raise
            return import_module(f"{__name__}.absent").find(inner)
        import_module(f"{__name__}.absent").complete(module, inner)
        return ModuleSpec(name, _Alias(module), is_package=hasattr(module, "__path__"))


sys.meta_path.insert(0, _Modules())  # before modules are looked for on the path of a package


def _find(name: str) -> Any:
    if name in ("__path__", "__wrapped__") or not is_available():
        found = _WITHOUT.get(name)
    else:
        found = getattr(import_module(_HOME), name, None)
        if found is not None:
            globals()[name] = found
    if found is None and name not in ("__path__", "__wrapped__"):
        from pullback.distributed.absent import find

        if find(name) is not None:
            return import_module(f"{__name__}.{name}")
    return found


_explain_names(globals(), _find)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
