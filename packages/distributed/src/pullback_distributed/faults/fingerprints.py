"""With PULLBACK_DISTRIBUTED_DEBUG=1, the calls of all ranks of a group are compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pullback import Tensor
from pullback.distributed import ReduceOp
from pullback_distributed import mpi as MPI
from pullback_distributed.groups.process_group import ProcessGroup

VARIABLE = "PULLBACK_DISTRIBUTED_DEBUG"


def wanted() -> bool:
    """Return whether the environment asks for the comparison.

    Raises: ValueError for a value that is neither a whole number nor OFF, INFO or DETAIL.
    """
    value = os.environ.get(VARIABLE, "").strip().upper()
    if value in ("", "0", "OFF", "INFO"):
        return False
    if value == "DETAIL" or value.isdecimal():
        return True
    raise ValueError(f"{VARIABLE}: expected 0 or 1, but it is {value!r}")


def _plain(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def fingerprint(
    group: ProcessGroup, name: str, like: Any, op: ReduceOp | None, root: int | None
) -> tuple[tuple[Any, ...], str]:
    """Return what must be the same on all ranks, and how a text says it.

    ``like`` is a tensor, whose shape is compared if there is an ``op`` and else its number of
    elements; a list of them, whose numbers of elements are; a dtype; or None.
    """
    compared: Any = None
    text = name
    if isinstance(like, Tensor):
        shape = tuple(like.shape)
        compared = (str(like.dtype), shape if op is not None else like.numel())
        text += f" of {_plain(like.dtype)} {shape}"
    elif isinstance(like, (list, tuple)):
        compared = (str(like[0].dtype), tuple(tensor.numel() for tensor in like))
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in like)
        text += f" of {_plain(like[0].dtype)} [{shapes}]"
    elif like is not None:
        compared = str(like)
        text += f" of {_plain(like)}"
    if op is not None:
        text += f" {op.name}"
    if root is not None:
        text += f" with root {group.ranks[root]}"
    return (name, compared, None if op is None else op.name, root), text


def compare(group: ProcessGroup, name: str) -> None:
    """Compare now.

    Raises: RuntimeError as ``compared``.
    """
    compared(group, name, lambda communicator: None, False, None, None, None)(group.communicator)


def compared(
    group: ProcessGroup,
    name: str,
    operate: Callable[[MPI.Intracomm], None],
    async_op: bool,
    like: Any,
    op: ReduceOp | None,
    root: int | None,
) -> Callable[[MPI.Intracomm], None]:
    """Return an operation that first compares the calls of all ranks.

    It raises RuntimeError on each of them, with the calls of all, if they differ.
    """
    number = group.checked[async_op] + 1
    group.checked[async_op] = number
    what, text = fingerprint(group, name, like, op, root)
    own = ((*what, number), text)

    def run(communicator: MPI.Intracomm) -> None:
        found = communicator.allgather(own)
        if any(each[0] != found[0][0] for each in found):
            calls = "; ".join(
                f"rank {place}: {text}, its call {which[-1]}"
                for place, (which, text) in zip(group.ranks, found)
            )
            raise RuntimeError(
                f"the ranks of group {group.group_name!r} call different collectives: {calls}"
            )
        operate(communicator)

    return run
