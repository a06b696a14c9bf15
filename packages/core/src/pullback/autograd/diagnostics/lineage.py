"""Where history ends between two tensors, in the records of ``record_sites``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pullback._c.graph.tensor import Tensor
from pullback.autograd.diagnostics.records import Record, known_sites, numbers_of

REASONS = {  # {} is the op, and the line that ran it; of .data the line alone
    "detach": "{} cut the history",
    "data": ".data was read at {}, and has no history",
    "no_grad": "{} ran under no_grad()",
    "inference_mode": "{} ran in inference mode",
    "integer": "{} returned integers or bools, which have no derivative",
    "number": "{} returned a Python number or an array; what is computed from it is not in the "
    "graph",
    "copy": "{} copied values into a new leaf",
    "no_create_graph": "{} computed a gradient without create_graph=True, so it has no history",
    "not_differentiable": "{} has no derivative",
    "alias": "{} wrote memory through .data or a detached tensor; the tensor itself has no history "
    "of it",
    "marked": "{} returned this without a history: by mark_non_differentiable(), as integers, or "
    "under no_grad()",
    "unused": "{} was the last operation here: the root does not use its result",
}
WHAT_TO_DO = {
    "detach": "Remove the call, or use the tensor from before it.",
    "data": "Use the tensor itself instead of .data.",
    "no_grad": "Run this operation outside of no_grad(), set_grad_enabled(False) or the decorator.",
    "inference_mode": "Run this operation outside of inference mode.",
    "integer": "Keep the computation in floating point: a smooth function instead of it has "
    "a gradient.",
    "number": "Compute with the tensor instead of a Python number or an array.",
    "copy": "Use the tensor itself, or clone(), which has a history.",
    "no_create_graph": "Pass create_graph=True to differentiate through the gradient.",
    "not_differentiable": "Replace the operation by one that has a derivative.",
    "alias": "Write the tensor itself.",
    "marked": "Let backward() of the Function return its gradient; do not mark the result.",
    "unused": "Use the result in what the root is computed from.",
}


class End(NamedTuple):
    """The op at which history ends on the way from a tensor, and why (a key of REASONS)."""

    reason: str
    op: str
    site: str
    to_root: bool  # True when the root was computed from what the op returned

    def __str__(self) -> str:
        subject = self.site if self.reason == "data" else f"{self.op} ({self.site})"
        return REASONS[self.reason].format(subject)


def _unlikeliness(end: End) -> tuple[bool, int]:
    if end.to_root:  # from masks and constants, too
        return (False, int(end.reason in ("integer", "not_differentiable")))
    return (
        True,
        ("unused", "number").index(end.reason) if end.reason in ("unused", "number") else 2,
    )


class Lineage:
    """What records say of the way from a tensor to a root."""

    def __init__(self, tensor: Tensor, root: Tensor | None) -> None:
        self.records: list[Record] = []
        start, goal = numbers_of(tensor), () if root is None else numbers_of(root)[-1:]
        for sites in known_sites():
            numbers = {n for record in sites.records for n in (*record.inputs, *record.outputs)}
            if numbers.intersection(start) or numbers.intersection(goal):
                self.records = list(sites.records)
                break
        self.start, self.goal = start, goal
        self.is_late = False  # set by ends(): the root used the tensor before it required grad

    def __bool__(self) -> bool:
        return bool(self.records)

    def ends(self) -> list[End]:
        """Return where history ends on the way from the tensor, the likeliest answer first.

        That is an op from whose results the root was computed. A branch that the root does not use
        ends at its last op.
        """
        used = self._ancestors(self.goal)
        reached = set(self.start)
        was_tracked = False
        found: dict[End, None] = {}
        consumed: set[int] = set()
        last: dict[int, Record] = {}
        for record in self.records:  # in the order of time
            taken = reached.intersection(record.inputs)
            if not taken:
                continue
            consumed.update(taken)
            if record.function is None:
                for number in taken.difference(record.tracked):
                    made = last.get(number)
                    if made is not None and made.function is not None:
                        leads = not used.isdisjoint(record.outputs)
                        found[End("marked", made.function, str(made.site), leads)] = None
            was_tracked = was_tracked or not set(self.start).isdisjoint(record.tracked)
            had_history = bool(reached.intersection(record.tracked))
            for number, end in zip(record.outputs, record.ends, strict=True):
                if end is not None and had_history:
                    leads = number in used
                    if leads or record.end is not None:
                        found[End(end, record.op, str(record.site), leads)] = None
                elif number not in reached:
                    reached.add(number)
                    last[number] = record
        for number, record in last.items():
            if number not in consumed and number not in used:
                found[End("unused", record.op, str(record.site), False)] = None
        if not was_tracked and reached.intersection(self.goal):
            self.is_late = True
        return sorted(found, key=_unlikeliness)

    def origin(self) -> End | None:
        """Return the op at which the history of the tensor itself ended: the nearest one before."""
        wanted = set(self.start[-1:])
        for record in reversed(self.records):
            if not wanted.intersection(record.outputs):
                continue
            end = record.end_of(wanted)
            if end is not None:
                return End(end, record.op, str(record.site), True)
            wanted.update(record.inputs)
        return None

    def takes_tensor(self) -> bool:
        """True when a recorded op takes the tensor."""
        return any(set(self.start).intersection(record.inputs) for record in self.records)

    def made_at(self) -> str | None:
        """Return the op and line that made or last wrote the tensor."""
        for record in reversed(self.records):
            if set(self.start[-1:]).intersection(record.outputs):
                return f"{record.op} at {record.site}"
        return None

    def _ancestors(self, numbers: Iterable[int]) -> set[int]:
        """Return these numbers and those that they were computed from."""
        found = set(numbers)
        for record in reversed(self.records):
            if found.intersection(record.outputs):
                found.update(record.inputs)
        return found
