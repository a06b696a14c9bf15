"""torch.distributed's names for one process; process groups are left out.

A program that asks ``is_available()`` or ``is_initialized()`` gets False and goes on alone. What
needs a group raises as torch does before ``init_process_group``, which raises NotImplementedError.
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any

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
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]


class ReduceOp(IntEnum):
    """How values of several processes are combined.

    >>> import pullback
    >>> pullback.distributed.ReduceOp.SUM.name
    'SUM'
    """

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class _LeftOut:
    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            f"pullback.distributed.{type(self).__name__}: process groups are left out"
        )


class ProcessGroup(_LeftOut):
    """A group of processes: of none of its objects, for annotations and ``isinstance``."""


class Work(_LeftOut):
    """A collective under way, for annotations and ``isinstance``."""


class Store(_LeftOut):
    """Keys and values that processes share, for annotations and ``isinstance``."""


class P2POp(_LeftOut):
    """A message between two processes, for annotations and ``isinstance``."""


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


class group:
    """Where torch has the group of all processes, which is None here."""

    WORLD = None


class GroupMember:
    """Where torch has the group of all processes, and what stands for no member."""

    WORLD = None
    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    """Return False: there are no process groups.

    >>> import pullback
    >>> pullback.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    """Return False: this process is in no group.

    >>> import pullback
    >>> pullback.distributed.is_initialized()
    False
    """
    return False


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


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Refuse: there are no process groups.

    Raises: NotImplementedError.

    >>> import pullback
    >>> pullback.distributed.init_process_group("gloo")
    Traceback (most recent call last):
    NotImplementedError: pullback.distributed.init_process_group: process groups are left out; ...
    """
    raise NotImplementedError(
        "pullback.distributed.init_process_group: process groups are left out; "
        "is_available() says so"
    )


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Refuse: there is no group to destroy.

    Raises: AssertionError, as in torch without a group.

    >>> import pullback
    >>> pullback.distributed.destroy_process_group()
    Traceback (most recent call last):
    AssertionError: Process group cannot be None
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

    >>> import pullback
    >>> pullback.distributed.{name}()
    Traceback (most recent call last):
    ValueError: Default process group has not been initialized, ...
    """
    return refuse


def _never(name: str) -> Any:
    def answer() -> bool:
        return False

    answer.__name__ = answer.__qualname__ = name
    answer.__module__ = __name__
    answer.__doc__ = f"""Return False: no library for messages between processes is used.

    >>> import pullback
    >>> pullback.distributed.{name}()
    False
    """
    return answer


for _name in __all__:
    if _name not in globals():
        globals()[_name] = (_never if _name.endswith("_available") else _needs_group)(_name)


def __getattr__(name):
    from pullback._help.names import missing

    raise missing("pullback.distributed", name)
