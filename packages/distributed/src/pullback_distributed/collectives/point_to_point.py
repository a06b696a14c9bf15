"""Messages from one process to another."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from pullback import Tensor
from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.buffers import check_tensor
from pullback_distributed.collectives.memory import Source, Target, on_streams, streams_of
from pullback_distributed.collectives.progress import MessageWork, Work
from pullback_distributed.collectives.running import member, root_of
from pullback_distributed.groups.process_group import ANY_RANK, ProcessGroup


def other_rank(
    found: ProcessGroup, what: str, global_rank: int | None, group_rank: int | None
) -> int:
    """Return the rank in the group that a message goes to or comes from.

    Raises: ValueError for this process's own, as ``root_of`` else.
    """
    place = root_of(found, global_rank, group_rank)
    if place == found.rank():
        raise ValueError(
            f"Invalid {what} rank: {what} rank should not be the same as the rank of the current "
            f"process."
        )
    return place


def peer(found: ProcessGroup, place: int) -> int:
    """Return the global rank that a message needs."""
    return ANY_RANK if place == MPI.ANY_SOURCE else found.ranks[place]


def source_rank(found: ProcessGroup, src: int | None, group_src: int | None) -> int:
    """Return the rank in the group that a message comes from, MPI's word for any without one."""
    if src is None and group_src is None:
        return int(MPI.ANY_SOURCE)
    return other_rank(found, "source", src, group_src)


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send a tensor to ``dst``, a global rank; do not write it until it is sent.

    ``tag`` tells messages between the same two processes apart. ``wait()`` of the ``Work`` returns
    when the tensor may be written again.
    Raises: TypeError if it is no tensor; ValueError without a rank, for this process's own, or for
    one that is not in the group.
    """
    check_tensor(tensor, "tensor")
    found = member(group, "isend")
    if found is None:
        return None
    place = other_rank(found, "destination", dst, group_dst)
    sent = Source("isend", tensor)

    def keep(sent: Source = sent) -> None:
        """Hold the memory until it is sent."""

    request = found.communicator.Isend(sent.message(), place, tag)
    return MessageWork(request, keep, "isend", found, found.ranks[place])


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor from ``src``, a global rank; None takes any.

    Raises: as ``isend``.
    """
    check_tensor(tensor, "tensor")
    found = member(group, "irecv")
    if found is None:
        return None
    written = Target("irecv", tensor, keeps=False)
    source = source_rank(found, src, group_src)
    request = found.communicator.Irecv(written.message(), source, tag)
    finish = on_streams(written.done, streams_of([tensor]))
    return MessageWork(request, finish, "irecv", found, peer(found, source))


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to ``dst``, a global rank, and wait until it may be written again.

    Raises: as ``isend``.
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from ``src``, a global rank; None takes any. Returns the sender's rank.

    -1 for a process that is not in the group. Raises: as ``isend``.
    """
    check_tensor(tensor, "tensor")
    found = member(group, "recv")
    if found is None:
        return -1
    written = Target("recv", tensor, keeps=False)
    status = MPI.Status()
    source = source_rank(found, src, group_src)
    found.current = ("recv", monotonic(), peer(found, source), None)
    try:
        found.communicator.Recv(written.message(), source, tag, status)
    finally:
        found.current = None
    written.done()
    return found.ranks[status.source]


class P2POp:
    """One message for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``.

    Raises: ValueError for another op.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``pullback.distributed.isend`` or "
                "``pullback.distributed.irecv``."
            )
        check_tensor(tensor, "tensor")
        self.op = op
        self.tensor = tensor
        self.peer = peer
        self.group = group
        self.tag = tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several messages, and return the work of each, in their order.

    Raises: ValueError if the list is empty or holds anything else.
    """
    if not p2p_op_list:
        raise ValueError("p2p_op_list: expected at least one P2POp")
    for each in p2p_op_list:
        if not isinstance(each, P2POp):
            raise ValueError(
                "Invalid ``p2p_op_list``. Each op is expected to be of type "
                "``pullback.distributed.P2POp``."
            )
    begun = (
        each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer)
        for each in p2p_op_list
    )
    return [work for work in begun if work is not None]
