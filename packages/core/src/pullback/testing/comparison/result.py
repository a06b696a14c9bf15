"""What ``compare_backends`` found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pullback._interop import notebook
from pullback.testing.comparison.measure import Difference


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first op or node whose result differs, or a result that differs as a whole.

    ``kind`` is "op" (also the forward of a custom Function), "node", "argument" (of an op; no op
    made it, as with random numbers), "output", "state" (an input, or a parameter or buffer, after
    the call) or "gradient" (of a leaf). ``name`` is the op's or node's name, or where the value
    is: its number in the result, or a path. ``with_equal_inputs``: True, it differs
    even where it gets the reference's inputs, so the error is made here; False, the error was
    carried in, for no op differs by itself; None, this is not known.
    ``number`` counts ops and nodes from 0 in the order that they are recorded. The difference's
    fields are attributes too: ``max_abs_error``, ``max_relative_error``, ``ulps`` (in units in the
    last place), ``index`` of the worst element, and its values ``expected`` and ``actual``.

    >>> import pullback
    >>> from pullback.testing import compare_backends
    >>> dtypes = pullback.float32, pullback.float64
    >>> found = compare_backends(
    ...     pullback.exp, pullback.ones(2), devices="ref", dtypes=dtypes, rtol=0, atol=1e-9
    ... ).forward
    >>> found.name, found.arguments, found.with_equal_inputs, found.index
    ('exp', 'exp(self=float32[2])', True, (0,))
    """

    kind: str
    name: str
    number: int | None = None
    what: str = ""  # which result or gradient of it
    arguments: str = ""
    line: str = ""  # of the user: file:number: text
    with_equal_inputs: bool | None = None
    difference: Difference | None = None
    detail: str = ""

    def __getattr__(self, name: str) -> Any:
        """Give the fields of the difference, such as ``max_abs_error`` and ``index``."""
        if name in Difference.__dataclass_fields__ and self.__dict__.get("difference") is not None:
            return getattr(self.difference, name)
        raise AttributeError(f"'Finding' object has no attribute {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return dataclasses.asdict(self)

    def headline(self) -> str:
        """Return what differs in a few words."""
        if self.kind == "state":
            return f"{self.name} differs after the call"
        if self.what.startswith("overwrote"):
            return f"{self.name} {self.what}"
        why = {True: " with equal inputs", False: ", an error that was carried in", None: ""}
        subject = (
            f"{self.kind} {self.name}" if self.kind in ("node", "output", "gradient") else self.name
        )
        if self.kind == "argument":
            subject = f"an argument of {self.name} that no op made"
        return f"{subject} differs{why[self.with_equal_inputs]}"

    def __str__(self) -> str:
        where = f"{self.kind} {self.name}" if self.kind != "op" else self.arguments
        number = "" if self.number is None else f" (number {self.number})"
        lines = [f"{where}{number}{': ' + self.what if self.what else ''}"]
        if self.kind == "argument":
            lines = [f"{self.what}, which no op made"]
        if self.kind == "state":
            lines = [f"{self.name} after the call"]
        if self.arguments and self.kind != "op":
            lines.append(f"of {self.arguments}")
        if self.line:
            lines.append(f"at {self.line}")
        if self.with_equal_inputs is not None:
            lines.append(
                "differs with equal inputs"
                if self.with_equal_inputs
                else "the error was carried in: with equal inputs nothing differs"
            )
        if self.difference is not None:
            lines += str(self.difference).split("\n")
        if self.detail:
            lines.append(self.detail)
        return "\n  ".join(lines)


@dataclasses.dataclass(frozen=True)
class BackendComparison:
    """Whether a function computes the same on both sides, and where it does not.

    ``sides`` names the reference and the other side. ``forward`` is a ``Finding`` about ops or
    outputs and ``backward`` one about nodes or gradients, or None. ``ops`` and ``nodes`` are how
    many of each the reference ran. The first line of ``str()`` is the verdict; the truth of it is
    ``equal``.

    >>> import pullback
    >>> from pullback.testing import compare_backends
    >>> result = compare_backends(pullback.exp, pullback.ones(2), devices=("ref", "ref"))
    >>> bool(result), result.ops, result.to_dict()["verdict"]
    (True, 1, 'equal: ref and ref agree on 1 ops and 0 nodes')
    """

    sides: tuple[str, str]
    ops: int
    nodes: int
    forward: Finding | None = None
    backward: Finding | None = None
    notes: tuple[str, ...] = ()
    _program: Callable[[], str] | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def equal(self) -> bool:
        """True when nothing differs by more than is allowed."""
        return self.forward is None and self.backward is None

    def __bool__(self) -> bool:
        return self.equal

    def verdict(self) -> str:
        """Return the result in one line.

        >>> from pullback.testing import BackendComparison
        >>> BackendComparison(("ref", "cpu"), 3, 2).verdict()
        'equal: ref and cpu agree on 3 ops and 2 nodes'
        """
        first, second = self.sides
        if self.equal:
            return f"equal: {first} and {second} agree on {self.ops} ops and {self.nodes} nodes"
        finding = self.forward or self.backward
        assert finding is not None
        line = finding.line.partition(": ")[0]
        return f"different on {second}: {finding.headline()}" + (f", at {line}" if line else "")

    def __str__(self) -> str:
        lines = [self.verdict()]
        for part, finding in (("forward", self.forward), ("backward", self.backward)):
            if finding is not None:
                lines.append(f"{part}: {finding}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return notebook.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, which JSON can hold but for complex numbers."""
        return {
            "equal": self.equal,
            "verdict": self.verdict(),
            "sides": list(self.sides),
            "ops": self.ops,
            "nodes": self.nodes,
            "forward": self.forward and self.forward.to_dict(),
            "backward": self.backward and self.backward.to_dict(),
            "notes": list(self.notes),
        }

    def reproducer(self) -> str:
        """Return a Python program that runs the one op on both sides and fails where they differ.

        It shows the op of ``forward``, else the node of ``backward``. Inputs are numbers in the
        text where there are at most 64 of them; else random numbers of a seed, if these show it
        too; else a saved tensor as text.
        It has run once: its first lines say if it shows no difference here.
        Raises: RuntimeError when no single op or node differs with equal inputs, or when that is a
        custom Function's.
        """
        finding = self.forward or self.backward
        if self._program is None and finding is not None and finding.with_equal_inputs:
            raise RuntimeError(
                f"reproducer(): no program is written for a custom Function by itself, but "
                f"{self.verdict()}"
            )
        if self._program is None:
            raise RuntimeError(
                "reproducer(): expected an op or node that differs with equal inputs, but "
                + self.verdict()
            )
        return self._program()
