"""Begin and end process groups."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pullback_distributed import mpi as MPI
from pullback_distributed.abilities import cuda_aware_by_environment
from pullback_distributed.faults import fingerprints, watch
from pullback_distributed.groups.process_group import DEFAULT_TIMEOUT, ProcessGroup

NON_GROUP_MEMBER = -100  # what stands for a group that this process is not in
BACKENDS = ("mpi", "gloo", "nccl", "ucc", "xccl")  # names that scripts give: MPI does the work

_world: ProcessGroup | None = None
_groups: list[ProcessGroup] = []
_made = 0  # groups that were asked for, the same number on all processes


def is_initialized() -> bool:
    """Return whether ``init_process_group`` was called.

    >>> import pullback_distributed as dist
    >>> dist.is_initialized()
    False
    """
    return _world is not None


def world() -> ProcessGroup:
    """Return the group of all processes.

    Raises: ValueError before ``init_process_group``.
    """
    if _world is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return _world


def _check_backend(backend: Any) -> None:
    if backend is None:
        return
    if not isinstance(backend, str):
        raise ValueError(f"Backend constructor parameter must be string-ish: {backend!r}")
    names = [part.rpartition(":")[2].lower() for part in backend.split(",")]  # "cpu:gloo,cuda:nccl"
    for name in names:
        if name not in BACKENDS:
            raise ValueError(
                f"init_process_group: unknown backend {name!r}: expected one of "
                f"{', '.join(BACKENDS)}; MPI does the work of each"
            )


def _check_launch(size: int, rank: int, world_size: int, own_rank: int) -> None:
    """Compare what the script and launchers of torch say with what MPI says."""
    if world_size not in (-1, size) or own_rank not in (-1, rank):
        raise ValueError(
            f"init_process_group: rank={own_rank} and world_size={world_size} were given, but MPI "
            f"says rank {rank} of {size}: leave them out, mpiexec gives them"
        )
    launched = os.environ.get("WORLD_SIZE", "1")
    if size == 1 and launched.isdecimal() and int(launched) > 1:
        raise RuntimeError(
            f"init_process_group: WORLD_SIZE is {launched}, but MPI has one process: start the "
            f"script with 'mpiexec -n {launched} python ...'"
        )


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all processes that ``mpiexec`` started.

    ``timeout`` is how long a collective may take until the job is ended, with a text that says
    where each rank is. From here on an exception that nothing catches ends all ranks, as do ranks
    that leave while others wait for them; processes cannot be forked. With the environment
    variable ``PULLBACK_DISTRIBUTED_DEBUG=1`` the ranks compare their calls before each collective,
    and RuntimeError is raised on all of them if they differ; it also prints which process each rank
    is, as mpiexec names those that were killed. ``backend`` may be any of
    torch's names, so that scripts run as they are: MPI does the work. ``init_method``, ``store``,
    ``group_name``, ``pg_options`` and ``device_id`` have no effect: mpiexec brings the processes
    together.
    Raises: ValueError if the group is there already, for an unknown backend, or where ``rank`` and
    ``world_size`` are not MPI's, or for a timeout that is not positive; TypeError for one that is
    no timedelta; RuntimeError in a process that another launcher than mpiexec
    started.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.get_rank(), dist.get_world_size()
    (0, 1)
    >>> dist.destroy_process_group()
    """
    global _world
    if _world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    _check_backend(backend)
    timeout = checked_timeout(timeout)
    debug = fingerprints.wanted()
    cuda_aware_by_environment()  # which may be wrong
    with watch.starting(timeout):
        everyone = MPI.COMM_WORLD
    _check_launch(everyone.size, everyone.rank, world_size, rank)
    debug = watch.begin(everyone, timeout, debug)
    _world = ProcessGroup(everyone.Dup(), range(everyone.size), "0", timeout)
    _keep(_world, debug)


def _keep(group: ProcessGroup, debug: bool) -> None:
    group.debug = debug and group.size() > 1
    _groups.append(group)
    watch.add(group)


def checked_timeout(timeout: timedelta | None) -> timedelta:
    """Return a timeout, without one that of the group of all processes.

    Raises: TypeError if it is no timedelta; ValueError if it is not positive.
    """
    if timeout is None:
        return _world.timeout if _world is not None else DEFAULT_TIMEOUT
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )
    if timeout <= timedelta(0):
        raise ValueError(f"Expected a positive timeout, got {timeout}")
    return timeout


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | int:
    """Make a group of some processes, given by their global ranks; None means all.

    All processes must call this, in the same order, also those that are not members: they get
    ``GroupMember.NON_GROUP_MEMBER``. ``sort_ranks=False`` keeps the order of ``ranks``.
    Raises: RuntimeError for a rank that is not there or there twice; ValueError before
    ``init_process_group`` or for an unknown backend; TypeError for a timeout that is no timedelta.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.new_group([0])
    <ProcessGroup '1': rank 0 of 1>
    >>> dist.destroy_process_group()
    """
    global _made
    everyone = world()
    _check_backend(backend)
    timeout = checked_timeout(timeout)
    members = list(range(everyone.size()) if ranks is None else ranks)
    if sort_ranks:
        members.sort()
    if len(members) > everyone.size():
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by "
            "init_process_group"
        )
    if len(set(members)) != len(members):
        raise RuntimeError(f"new_group: a rank is there twice: {members}")
    for member in members:
        if not 0 <= member < everyone.size():
            raise ValueError(
                "The new group's rank should be within the world_size set by init_process_group"
            )
    _made += 1
    tag = (hash(tuple(members)) if use_local_synchronization else _made) % 32768
    if everyone.debug and not use_local_synchronization:
        fingerprints.compare(everyone, f"new_group of ranks {members}")
    if everyone.rank() not in members:
        return NON_GROUP_MEMBER
    family = everyone.communicator.Get_group()
    chosen = family.Incl(members)
    others = tuple(member for member in members if member != everyone.rank())
    everyone.current = (f"new_group of ranks {members}", time.monotonic(), others, None)
    try:
        made = ProcessGroup(
            everyone.communicator.Create_group(chosen, tag), members, str(_made), timeout
        )
    finally:
        everyone.current = None
    chosen.Free()
    family.Free()
    _keep(made, everyone.debug)
    return made


def new_subgroups(
    group_size: int,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | int, list[ProcessGroup | int]]:
    """Divide a group into groups of ``group_size`` neighbours; return this process's, and all.

    All processes of the job call it. A group that this process is not in is
    ``GroupMember.NON_GROUP_MEMBER``.
    Raises: ValueError for a size that does not divide the group's; as ``new_group`` else.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> own, groups = dist.new_subgroups(1)
    >>> own.ranks, len(groups)
    ((0,), 1)
    >>> dist.destroy_process_group()
    """
    whole = world() if group is None else group
    if not isinstance(group_size, int) or group_size < 1 or whole.size() % group_size:
        raise ValueError(
            f"new_subgroups: expected a group_size that divides the {whole.size()} processes of "
            f"the group, but got {group_size!r}"
        )
    parts = [
        whole.ranks[start : start + group_size] for start in range(0, whole.size(), group_size)
    ]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | int, list[ProcessGroup | int]]:
    """Make groups of global ranks, each in at most one; return this process's, and all.

    All processes of the job call it. A group that this process is not in is
    ``GroupMember.NON_GROUP_MEMBER``.
    Raises: ValueError without a group, or for a rank that two have; as ``new_group`` else.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> own, groups = dist.new_subgroups_by_enumeration([[0]])
    >>> own.ranks
    (0,)
    >>> dist.destroy_process_group()
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    members = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    twice = sorted({rank for rank in members if members.count(rank) > 1})
    if twice:
        raise ValueError(f"Rank {twice[0]} has appeared in more than one subgroup")
    made = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        for ranks in ranks_per_subgroup_list
    ]
    own = [group for group in made if isinstance(group, ProcessGroup)]
    return own[0] if own else NON_GROUP_MEMBER, made


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Free a group; without one, or with that of all processes, every group.

    Raises: AssertionError if there is no group; ValueError if it was destroyed before.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.destroy_process_group()
    >>> dist.is_initialized()
    False
    """
    global _world
    if group is None:
        group = _world
    if group is None:
        raise AssertionError("Process group cannot be None")
    if group not in _groups:
        raise ValueError("Invalid process group specified or has been destroyed.")
    ending = list(_groups) if group is _world else [group]
    with watch.ending(ending, group is _world):
        for each in reversed(ending):
            _groups.remove(each)
            each.free()
    if group is _world:
        _world = None


def get_rank(group: ProcessGroup | int | None = None) -> int:
    """Return this process's rank in a group, -1 if it is not in it.

    Raises: ValueError before ``init_process_group``.
    """
    found = world() if group is None else group
    return found.rank() if isinstance(found, ProcessGroup) else -1


def get_world_size(group: ProcessGroup | int | None = None) -> int:
    """Return how many processes are in a group, -1 for a process that is not in it.

    Raises: ValueError before ``init_process_group``.
    """
    found = world() if group is None else group
    return found.size() if isinstance(found, ProcessGroup) else -1


def get_backend(group: ProcessGroup | int | None = None) -> str:
    """Return the name of the library that carries messages: ``"mpi"``, whatever a script asked for.

    Raises: ValueError before ``init_process_group``, and in a process that is not in the group.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group("gloo")
    >>> dist.get_backend()
    'mpi'
    >>> dist.destroy_process_group()
    """
    found = world() if group is None else group
    if not isinstance(found, ProcessGroup):
        raise ValueError("Invalid process group specified")
    return found.name()


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Return the global ranks of a group's processes, in the order of their ranks in it."""
    return list((world() if group is None else group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in a group of a global rank.

    Raises: ValueError if that process is not in the group.
    """
    return group.rank_of(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the global rank of a rank in a group.

    Raises: ValueError if the group has no such rank.
    """
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group.group_name}")
    return group.ranks[group_rank]
