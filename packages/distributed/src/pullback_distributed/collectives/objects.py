"""Collectives of Python objects, which are pickled."""

from __future__ import annotations

from typing import Any

from pullback_distributed import mpi as MPI
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
