"""Steps that succeed on all ranks or fail on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pullback_distributed.collectives.objects import all_gather_object
from pullback_distributed.collectives.running import member
from pullback_distributed.groups.lifecycle import is_initialized
from pullback_distributed.groups.process_group import ProcessGroup

Result = TypeVar("Result")

# What one rank raised is raised on the others as the first of these that fits.
_KINDS: tuple[type[Exception], ...] = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    OSError,
    TypeError,
    ValueError,
    MemoryError,
    RuntimeError,
)


def _raised_elsewhere(rank: int, kind: int, text: str) -> Exception:
    return _KINDS[kind](f"rank {rank} failed: {text}")


def _described(error: BaseException) -> tuple[int, str]:
    kinds = (k for k, kind in enumerate(_KINDS) if isinstance(error, kind))
    return next(kinds, len(_KINDS) - 1), str(error) or type(error).__name__


class Ranks:
    """The processes that save or load together: a group, or this process alone."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self._group = group
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()

    def together(self, step: Callable[[], Result]) -> list[Result]:
        """Run a step on all ranks; return what it returns on each, in the order of ranks.

        Raises: what the step raised here; else, if it failed on another rank, an exception of the
        same kind that names the rank.
        """
        own: BaseException | None = None
        result: Any = None
        try:
            result = step()
        except BaseException as error:  # the others wait for this rank, whatever it is
            if self.size == 1:
                raise
            own = error
        if self.size == 1:
            return [result]
        found: list[Any] = [None] * self.size
        told = None if own is None else _described(own)
        all_gather_object(found, (told, result), self._group)
        if own is not None:
            raise own
        for rank, (failed, _) in enumerate(found):
            if failed is not None:
                raise _raised_elsewhere(rank, *failed)
        return [each for _, each in found]

    def first(self, step: Callable[[], Result]) -> Result:
        """Run a step on rank 0; return on all ranks what it returns. Raises: as ``together``."""
        found: list[Any] = self.together(lambda: step() if self.rank == 0 else None)
        return found[0]


def ranks_of(caller: str, process_group: ProcessGroup | int | None) -> Ranks | None:
    """Return the ranks of a group, of this process alone before ``init_process_group``.

    None, with a warning, if this process is not in the group.
    Raises: TypeError if it is no group.
    """
    if process_group is None and not is_initialized():
        return Ranks(None)
    found = member(process_group, caller)
    return None if found is None else Ranks(found)
