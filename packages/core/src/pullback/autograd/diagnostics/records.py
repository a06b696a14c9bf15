"""What ``record_sites`` notes of ops: source lines, and which tensors led to which.

A record names tensors by numbers. The table that gives them has weak references only, so that
records keep no tensor alive.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable
from typing import NamedTuple

from pullback._c.graph.levels import whole
from pullback._c.graph.tensor import Tensor

KEY = "site_"  # of a node's metadata: the Site of the op that made the node


class Site(NamedTuple):
    """A source line, as in ``model.py:12, in forward``."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}"


class Record(NamedTuple):
    """One op: its name and line, the numbers of the tensors that it took, and returned or wrote.

    Arrays and floats that an op returned have numbers, too. ``tracked`` are the inputs with a
    history; ``ends`` says of each output why it has none although an input has, or is None.
    ``function`` is the custom Function whose ``forward`` ran the op.
    """

    op: str
    site: Site
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tracked: tuple[int, ...]
    ends: tuple[str | None, ...]
    function: str | None = None

    @property
    def end(self) -> str | None:
        """Why no output has a history; None where one has, or no input had."""
        return None if None in self.ends else next(iter(self.ends), None)

    def end_of(self, numbers: Iterable[int]) -> str | None:
        """Return why the first of these outputs that has no history has none."""
        wanted = set(numbers)
        found = zip(self.outputs, self.ends, strict=True)
        return next((end for k, end in found if end is not None and k in wanted), None)


# ---- numbers of tensors --------------------------------------------------------------------------

_table: dict[int, tuple[weakref.ref, list[int]]] = {}  # by id
_counter = itertools.count()


def _batch_of(tensor: Tensor) -> Tensor:
    """Return the batch that a tensor stands for inside of vmap: it has the number for both."""
    try:
        return whole(tensor)
    except RuntimeError:  # of one that has left the function
        return tensor


def numbers_of(tensor: Tensor) -> tuple[int, ...]:
    """Return the numbers that a tensor has had, one for each time it was written; none if new."""
    tensor = _batch_of(tensor)
    entry = _table.get(id(tensor))
    return tuple(entry[1]) if entry is not None and entry[0]() is tensor else ()


def numbered(ids: list[int], count: int) -> list[Tensor]:
    """Return the living tensors of some ids that have numbers, and those numbered last."""
    entries = [_table[key] for key in ids if key in _table]
    entries.extend(itertools.islice(reversed(_table.values()), count))
    return [tensor for reference, _ in entries if (tensor := reference()) is not None]


def fresh_number() -> int:
    """Return a number for a value that is no tensor."""
    return next(_counter)


def number(tensor: Tensor, renew: bool = False) -> int:
    """Return a tensor's number: with ``renew`` another one, as after a write."""
    tensor = _batch_of(tensor)
    key = id(tensor)
    entry = _table.get(key)
    if entry is None or entry[0]() is not tensor:

        def forget(reference, key=key, table=_table):  # also while the interpreter ends
            found = table.get(key)
            if found is not None and found[0] is reference:
                del table[key]

        entry = _table[key] = (weakref.ref(tensor, forget), [])
    if renew or not entry[1]:
        entry[1].append(fresh_number())
    return entry[1][-1]


# ---- the records ---------------------------------------------------------------------------------


class Sites:
    """The records of one ``record_sites`` block, in the order in which the ops ran."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Sites: {len(self.records)} operations>"

    def clear(self) -> None:
        """Forget all records, and the weak references to their tensors."""
        known = {n for record in self.records for n in (*record.inputs, *record.outputs)}
        for key, (_, numbers) in list(_table.items()):
            if known.intersection(numbers):
                _table.pop(key, None)
        self.records.clear()


class _Thread(threading.local):
    """The records of one thread: of its open blocks, and of the block that was closed last."""

    open: tuple[Sites, ...] = ()
    last: Sites | None = None


of_thread = _Thread()


def known_sites() -> list[Sites]:
    """Return this thread's open records, the outermost first, or else those closed last."""
    if of_thread.open:
        return list(of_thread.open)
    return [] if of_thread.last is None else [of_thread.last]
