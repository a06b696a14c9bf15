"""What compiled functions recorded, as text and as a drawing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback._c.program.groups import why_alone
from pullback._interop import notebook
from pullback.autograd._dot import Dot

__all__ = ["Explanation", "dot_of"]


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 10_000:
            return f"{count} {unit}"
        count //= 1000
    return f"{count} GB"


def _operand(operand: tuple[Any, ...]) -> str:
    number, dtype, shape, _, _ = operand
    return f"{'number' if number is None else f'%{number}'}: {dtype.name}{list(shape)}"


class Explanation:
    """The programs of a compiled function: ``str`` of it is a report.

    ``programs`` has a dict for each: its arguments (``signature``), ``launches``, ``groups``,
    ``parts`` that a backend's executor runs (known after a replay), ``buffers``, bytes of the
    ``arena`` and of all ``temporaries``, how often it ran (``runs``), and ``guards``, the
    references that it depends on. ``refusals`` says what could not be captured. With ``dynamic``,
    ``sizes`` has a text for each kind of calls that differ in a size.
    """

    def __init__(self, compiled: Any):
        self.name = repr(compiled)
        self.refusals = list(compiled.refusals)
        self.sizes = [family.described() for family in compiled.families]
        self.programs: list[dict[str, Any]] = []
        for entry in compiled.entries:
            passes = entry.backward.parts() if entry.backward else []
            for part, program in (
                ("forward", entry.program),
                *(("backward", one.program) for one in passes),
            ):
                if program is not None:
                    self.programs.append(self._described(entry, part, program))

    @staticmethod
    def _described(entry: Any, part: str, program: Any) -> dict[str, Any]:
        return {
            "part": part,
            "signature": entry.signature.described(),
            "guards": entry.signature.watched(),
            "runs": entry.runs,
            "launches": program.launches,
            "groups": program.groups,
            "parts": program.parts,
            "buffers": program.buffers,
            "arena": program.arena,
            "temporaries": program.temporaries,
        }

    def __str__(self) -> str:
        lines = [self.name]
        for number, program in enumerate(self.programs):
            lines += ["", *self._program(number, program)]
        lines += [*([""] if self.sizes else []), *self.sizes]
        lines += [f"not captured: {why}" for why in self.refusals]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = [notebook.text(self.name)]
        for number, program in enumerate(self.programs):
            title, *facts = _facts(number, program)
            rows = [
                (text, group or why) for group, kernels in _runs(program) for text, why in kernels
            ]
            table = notebook.table(["kernel", "group, or why it is in none"], rows)
            shown.append(notebook.folded(title, notebook.text("\n".join(facts)), table))
        shown += [notebook.text(one) for one in self.sizes]
        shown += [notebook.text(f"not captured: {why}") for why in self.refusals]
        return "".join(shown)

    @staticmethod
    def _program(number: int, program: dict[str, Any]) -> list[str]:
        lines = _facts(number, program)
        for group, kernels in _runs(program):
            if group:
                lines += [f"  group: {group}", *(f"    {text}" for text, _ in kernels)]
            else:
                lines += [f"  {text}  -- {why}" for text, why in kernels]
        return lines


def _facts(number: int, program: dict[str, Any]) -> list[str]:
    """Return a program's title, and lines of counts."""
    launches, groups = program["launches"], program["groups"]
    grouped = sum(group.count for group in groups)
    kinds: dict[str, int] = {}
    for buffer in program["buffers"]:
        if buffer.used:
            kinds[buffer.kind_name] = kinds.get(buffer.kind_name, 0) + 1
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    lines = [
        f"program {number}, {program['part']}: {program['signature']}",
        f"  {len(launches)} kernels, {grouped} of them in {len(groups)} groups, "
        f"{program['runs']} replays, {len(program['guards'])} guards",
        f"  buffers: {listed}; arena {_bytes(program['arena'])} for temporaries of "
        f"{_bytes(program['temporaries'])}",
    ]
    parts = program["parts"]
    if parts:
        count = sum(count for _, count in parts)
        lines.append(
            f"  {count} kernels are run by their backend's executor, in {len(parts)} parts"
        )
    return lines


def _runs(program: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield a program's groups, and the kernels between them with the group ''.

    A kernel is its text, and outside of groups why it is in none.
    """
    launches = program["launches"]
    in_parts = {first + i for first, count in program["parts"] for i in range(count)}
    at = 0
    for group in [*program["groups"], None]:
        end = len(launches) if group is None else group.first
        alone = enumerate(launches[at:end], at)
        yield "", [(_shown(x), "in a part" if k in in_parts else why_alone(x)) for k, x in alone]
        if group is not None:
            at = end + group.count
            text = f"{group.count} kernels on {group.rows} rows, {group.tile} at a time, "
            text += f"{len(group.inner)} buffers stay in the cache"
            yield text, [(_shown(launch), "") for launch in launches[end:at]]


def _shown(launch: Any) -> str:
    if launch.expected is not None:
        return repr(launch)
    operands = [_operand(operand) for operand in launch.operands]
    outputs, inputs = operands[: launch.outputs], operands[launch.outputs :]
    return f"{', '.join(outputs)} = {launch.primitive}({', '.join(inputs)})"


def dot_of(compiled: Any) -> Dot:
    """Return the kernels of a compiled function's programs as a graph in Graphviz's language.

    Kernels are boxes, a group is a frame around its own; an arrow is a buffer.
    """
    lines = ["digraph compiled {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
    for number, entry in enumerate(compiled.entries):
        if entry.program is None:
            continue
        writer: dict[int, str] = {}
        frames = {group.first: group for group in entry.program.groups}
        end = -1
        for k, launch in enumerate(entry.program.launches):
            name = f"p{number}_{k}"
            if k in frames:
                end = k + frames[k].count
                lines.append(f"  subgraph cluster_p{number}_{k} {{ style=rounded;")
            lines.append(f'  {name} [label="{launch.primitive}"];')
            operands = launch.operands
            for buffer, *_ in operands[launch.outputs :]:
                if buffer is None:
                    continue
                source = writer.get(buffer)
                if source is None:
                    source = f"p{number}_b{buffer}"
                    kind = entry.program.buffers[buffer].kind_name
                    lines.append(f'  {source} [shape=ellipse, label="{kind} %{buffer}"];')
                    writer[buffer] = source
                lines.append(f'  {source} -> {name} [label="%{buffer}"];')
            for buffer, *_ in operands[: launch.outputs]:
                if buffer is not None:
                    writer[buffer] = name
            if k == end - 1:
                lines.append("  }")
    return Dot("\n".join([*lines, "}"]))
