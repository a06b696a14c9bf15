"""Collectives and messages of Python objects, which are pickled."""

from __future__ import annotations

from time import monotonic
from typing import Any

from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.point_to_point import other_rank, peer, source_rank
from pullback_distributed.collectives.running import member, root_of, run
from pullback_distributed.groups.process_group import ProcessGroup


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill a list with the objects of all processes.

    Raises: RuntimeError if the list has not a place for each; what pickle raises.
    """
    found = member(group, "all_gather_object")
    if found is None:
        return
    if len(object_list) != found.size():
        raise RuntimeError(
            f"all_gather_object: expected a list of {found.size()} places, one for each process, "
            f"but got {len(object_list)}"
        )

    def operate(communicator: MPI.Intracomm) -> None:
        object_list[:] = communicator.allgather(obj)

    run(found, "all_gather_object", operate, False, [])


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """Fill the list of ``dst``, a global rank (0 if none is given), with all objects.

    Raises: ValueError if the list is missing there or given elsewhere; what pickle raises.
    """
    found = member(group, "gather_object")
    if found is None:
        return
    root = root_of(found, 0 if dst is None and group_dst is None else dst, group_dst)
    here = found.rank() == root
    if here and not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if object_gather_list and not here:
        raise ValueError(
            "Argument ``object_gather_list`` must NOT be specified on non-destination ranks."
        )

    def operate(communicator: MPI.Intracomm) -> None:
        gathered = communicator.gather(obj, root)
        if here and object_gather_list is not None:
            object_gather_list[:] = gathered

    run(found, "gather_object", operate, False, [], root=root)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Copy the objects of the list of ``src``, a global rank, into the lists of all others.

    ``device`` has no effect.
    Raises: ValueError without a rank; what pickle raises.
    """
    found = member(group, "broadcast_object_list")
    if found is None:
        return
    root = root_of(found, 0 if src is None and group_src is None else src, group_src)

    def operate(communicator: MPI.Intracomm) -> None:
        object_list[:] = communicator.bcast(list(object_list), root)

    run(found, "broadcast_object_list", operate, False, [], root=root)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """Put this process's object of the list of ``src`` into the first place of a list.

    Raises: ValueError if the output list has no place, or the input list not one object for each
    process; what pickle raises.
    """
    found = member(group, "scatter_object_list")
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    root = root_of(found, 0 if src is None and group_src is None else src, group_src)
    objects = scatter_object_input_list if found.rank() == root else None
    if found.rank() == root and len(objects or ()) != found.size():
        raise ValueError(
            f"scatter_object_list: expected a list of {found.size()} objects, one for each "
            f"process, but got {len(objects or ())}"
        )

    def operate(communicator: MPI.Intracomm) -> None:
        scatter_object_output_list[0] = communicator.scatter(objects, root)

    run(found, "scatter_object_list", operate, False, [], root=root)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects of a list to ``dst``, a global rank, which calls ``recv_object_list``.

    ``device`` and ``use_batch`` have no effect.
    Raises: ValueError without a rank, for this process's own, or for one that is not in the group;
    what pickle raises.
    """
    found = member(group, "send_object_list")
    if found is None:
        return
    place = other_rank(found, "destination", dst, group_dst)
    found.current = ("send_object_list", monotonic(), found.ranks[place], None)
    try:
        found.communicator.send(list(object_list), place)
    finally:
        found.current = None


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Put the objects that ``src``, a global rank, sends into a list of as many; None takes any.

    Returns the sender's rank, -1 for a process that is not in the group. ``device`` and
    ``use_batch`` have no effect.
    Raises: as ``send_object_list``; RuntimeError if there are more or fewer objects than places.
    """
    found = member(group, "recv_object_list")
    if found is None:
        return -1
    status = MPI.Status()
    source = source_rank(found, src, group_src)
    found.current = ("recv_object_list", monotonic(), peer(found, source), None)
    try:
        objects = found.communicator.recv(None, source, MPI.ANY_TAG, status)
    finally:
        found.current = None
    if len(objects) != len(object_list):
        raise RuntimeError(
            f"recv_object_list: expected a list of {len(objects)} places, as many as the objects "
            f"that were sent, but got {len(object_list)}"
        )
    object_list[:] = objects
    return found.ranks[status.source]
