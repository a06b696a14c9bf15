"""Defined primitives in compiled programs: found by the kernels that their decomposition launches.

A pattern is a program of the decomposition for an example of arguments. Where a program has the
same kernels, fed by each other in the same way, sizes and numbers of the arguments are read from
them. The decomposition is recorded again for these: if its kernels then are those of the program in
every detail, one launch of the primitive's kernel takes their place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

import pullback as pb
from pullback._c.capture.recording import set_with_defined
from pullback._c.program.launches import launch_instead

__all__ = ["Pattern", "search_for"]

MERGED = frozenset(("unary", "binary", "ternary", "reduce"))  # families: dims may be merged
WRITE = 2  # PB_ARRAY_WRITE of abi.h


class Pattern(NamedTuple):
    """What is searched for, and what takes its place."""

    name: str
    decomposition: Callable[..., Any]
    example: tuple[Any, ...]
    mask: int  # dtypes of the kernel
    number: int  # of the primitive
    settle: Callable[[tuple[Any, ...]], tuple[Any, ...]]  # arguments to parameters of a launch


class Use(NamedTuple):
    """An operand of a launch: in a pattern, and in the program."""

    step: int
    launch: int
    operand: int


class Graph:
    """Launches, and from which launch each operand comes."""

    def __init__(self, launches: list[Any], buffers: list[Any]) -> None:
        self.launches, self.buffers = launches, buffers
        self.operands = [launch.operands for launch in launches]
        self.settings = [launch.settings for launch in launches]
        self.writers: list[list[int | None]] = []  # of each operand: the last launch before
        self.touched: dict[int, list[int]] = {}  # by buffer: the launches that use it
        last: dict[int, int] = {}
        for number, launch in enumerate(launches):
            used = [operand[0] for operand in self.operands[number]]
            self.writers.append([None if one is None else last.get(one) for one in used])
            for buffer in dict.fromkeys(used):
                if buffer is not None:
                    self.touched.setdefault(buffer, []).append(number)
            last.update(dict.fromkeys(used[: launch.outputs], number))

    def pairs(self, other: Graph, root: int) -> tuple[dict[int, int], dict[int, list[Use]]] | None:
        """Match the last launch with one of another graph, and all that it is made of.

        Returns which launches are the same, and the uses of each input; None if they are not.
        """
        found: dict[int, int] = {}
        taken: set[int] = set()
        inputs: dict[int, list[Use]] = {}
        left = [(len(self.launches) - 1, root)]
        while left:
            step, launch = left.pop()
            if step in found:
                if found[step] != launch:
                    return None
                continue
            if launch in taken or not self._alike(step, other, launch):
                return None
            found[step] = launch
            taken.add(launch)
            for i in range(self.launches[step].outputs, len(self.operands[step])):
                mine = self.operands[step][i]
                if mine[0] is None:
                    continue
                source, origin = self.writers[step][i], other.writers[launch][i]
                if source is None:
                    buffer = self.buffers[mine[0]]
                    if buffer.kind_name != "input":
                        return None
                    inputs.setdefault(buffer.input, []).append(Use(step, launch, i))
                elif origin is None or self._place(step, i, source) != other._place(
                    launch, i, origin
                ):
                    return None
                else:
                    left.append((source, origin))
        return (found, inputs) if len(found) == len(self.launches) else None

    def _alike(self, step: int, other: Graph, launch: int) -> bool:
        """Return whether two launches are of the same primitive, with operands of the same kind."""
        mine, theirs = self.launches[step], other.launches[launch]
        if not theirs.is_plain or not mine.is_plain:
            return False
        if (mine.primitive, mine.outputs) != (theirs.primitive, theirs.outputs):
            return False
        pairs = zip(self.operands[step], other.operands[launch])
        return len(self.operands[step]) == len(other.operands[launch]) and all(
            (one[0] is None) == (two[0] is None) for one, two in pairs
        )

    def _place(self, launch: int, operand: int, writer: int) -> int:
        """Return which output of its writer an operand is."""
        outputs = self.operands[writer][: self.launches[writer].outputs]
        return [one[0] for one in outputs].index(self.operands[launch][operand][0])


class Found(NamedTuple):
    """An argument in a program: the launch that reads it, the operand's number, its layout."""

    launch: int
    operand: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: Any


_patterns: dict[str, dict[str, Pattern]] = {}  # by type of device and name
_searching = threading.local()


def search_for(device: str, pattern: Pattern) -> None:
    """Search programs of a type of device for a pattern from now on, in place of its older one."""
    _patterns.setdefault(device, {})[pattern.name] = pattern
    set_with_defined(_with_defined)


def _with_defined(launches: list[Any], buffers: list[Any]) -> list[Any]:
    """Return a program's launches in which kernels of patterns stand for others."""
    patterns = _patterns.get(launches[0].device.type) if launches else None
    if not patterns or getattr(_searching, "now", False):
        return launches
    _searching.now = True  # patterns are programs, too
    try:
        return _with_patterns(launches, buffers, list(patterns.values()))
    finally:
        _searching.now = False


def _with_patterns(launches: list[Any], buffers: list[Any], patterns: list[Pattern]) -> list[Any]:
    device = launches[0].device
    if any(launch.device != device for launch in launches):
        return launches
    for pattern in patterns:
        template = _trace(pattern, pattern.example, device)
        if template is None:
            continue
        graph, at = Graph(launches, buffers), len(launches) - 1
        while at >= 0:
            made = _replaced(pattern, template, graph, at)
            if made is not None:
                graph, launches = Graph(made, buffers), made
                at = min(at, len(made))
            at -= 1
    return launches


class Trace(NamedTuple):
    """A decomposition for some arguments: its program, its arguments, the shape of its result."""

    graph: Graph
    arguments: tuple[Any, ...]
    result: tuple[int, ...]

    def tensors(self) -> list[Any]:
        """Return the arguments that are tensors, in the order of the program's inputs."""
        return [one for one in self.arguments if isinstance(one, pb.Tensor)]


def _trace(pattern: Pattern, arguments: tuple[Any, ...], device: Any) -> Trace | None:
    """Record a decomposition; None if it is no program with a result of its own."""
    given = tuple(one.to(device) if isinstance(one, pb.Tensor) else one for one in arguments)
    others = [one for one in given if not isinstance(one, pb.Tensor)]

    def function(*tensors: Any) -> Any:
        taken, rest = iter(tensors), iter(others)
        mixed = (next(taken if isinstance(one, pb.Tensor) else rest) for one in given)
        return pattern.decomposition(*mixed)

    compiled = pb.compile(function, fullgraph=True)
    try:
        with pb.no_grad(), pb.random.fork_rng(devices=()):
            result = compiled(*(one for one in given if isinstance(one, pb.Tensor)))
    except Exception:  # it does not take such arguments: the program stays as it is
        return None
    if not isinstance(result, pb.Tensor) or not result.is_contiguous() or not result.numel():
        return None
    program = compiled.entries[0].program if compiled.entries else None  # another thread records
    if program is None or not program.launches or program.writes:
        return None
    graph = Graph(program.launches, program.buffers)
    last = graph.operands[-1][0]
    kept = [one.number for one in program.buffers if one.kind_name == "result"]
    if kept != [last[0]] or last[4] or any(not one.is_plain for one in program.launches):
        return None
    return Trace(graph, given, tuple(result.shape))


def _replaced(pattern: Pattern, template: Trace, graph: Graph, root: int) -> list[Any] | None:
    """Return the launches with the pattern that ends at one replaced; None if none ends there."""
    match = template.graph.pairs(graph, root)
    if match is None or set(match[1]) != set(range(len(template.tensors()))):
        return None
    found, inputs = match
    places = []
    for number, tensor in enumerate(template.tensors()):
        place = _argument(tensor, template.graph, graph, inputs[number])
        if place is None:
            return None
        places.append(place)
    device = graph.launches[root].device
    left = iter(places)
    arguments = tuple(
        _empty(next(left), device)
        if isinstance(one, pb.Tensor)
        else _number(one, template.graph, graph, found)
        for one in template.arguments
    )
    exact = _trace(pattern, arguments, device)
    if exact is None or not pattern.mask >> exact.tensors()[0].dtype.code & 1:
        return None
    again = exact.graph.pairs(graph, root)
    if again is None or not _is_same(exact.graph, graph, again, places):
        return None
    gone = set(again[0].values())
    if not _is_alone(graph, gone, root, again[1]):
        return None
    shape = exact.result
    out = (graph.launches[root], 0, shape, _row_major(shape), graph.operands[root][0][4])
    ins = [(graph.launches[one.launch], *one[1:5]) for one in places]
    made = launch_instead(
        graph.launches[root],
        pattern.number,
        exact.tensors()[0].dtype.code,
        [out, *ins],
        pattern.settle(arguments),
    )
    return made and [
        made if number == root else launch
        for number, launch in enumerate(graph.launches)
        if number == root or number not in gone
    ]


def _is_alone(graph: Graph, gone: set[int], root: int, inputs: dict[int, list[Use]]) -> bool:
    """Return whether nothing else needs what the launches leave, and nothing changes inputs."""
    given = set()
    for uses in inputs.values():
        same = {
            (graph.operands[use.launch][use.operand][0], graph.writers[use.launch][use.operand])
            for use in uses
        }
        if len(same) != 1:
            return False
        given |= {buffer for buffer, _ in same}
    for number in range(min(gone), root + 1):
        written = {one[0] for one in graph.operands[number][: graph.launches[number].outputs]}
        if written & given:
            return False
        if number not in gone:
            continue
        for buffer in written:
            others = [one for one in graph.touched[buffer] if one not in gone]
            if number == root and all(one > root for one in others):
                continue
            if others or graph.buffers[buffer].kind_name != "temporary":
                return False
    return True


def _argument(tensor: Any, pattern: Graph, graph: Graph, uses: list[Use]) -> Found | None:
    """Return the layout that an argument has in a program, read from how kernels see it.

    A use with its dims is better than one in which they are merged.
    """
    dims = list(zip(tensor.shape, tensor.stride()))
    for wanted in (dims, [(tensor.numel(), 1)]):
        for use in uses:
            _, _, shape, strides, offset = pattern.operands[use.step][use.operand]
            theirs = graph.operands[use.launch][use.operand]
            seen = list(zip(shape, strides))
            if offset or len(seen) != len(theirs[2]) or any(seen.count(one) != 1 for one in wanted):
                continue
            order = [seen.index(one) for one in wanted]
            sizes, steps = (tuple(part[d] for d in order) for part in theirs[2:4])
            return Found(use.launch, use.operand, sizes, steps, theirs[4], theirs[1])
    return None


def _number(value: Any, pattern: Graph, graph: Graph, found: dict[int, int]) -> Any:
    """Return what a program has for a number of the example; others are as in the example."""
    if type(value) not in (int, float):
        return value
    for step, launch in found.items():
        mine, theirs = pattern.settings[step], graph.settings[launch]
        for one, other in zip(mine[0], theirs[0]):
            if one == value and type(one) is type(value):
                return other
        for i, (one, other) in enumerate(zip(mine[1], theirs[1])):
            dtype, theirs_dtype = pattern.operands[step][i][1], graph.operands[launch][i][1]
            if one is not None and one == pb.tensor(value, dtype=dtype).item():
                short = isinstance(other, float) and theirs_dtype != pb.float64
                return float(str(numpy.float32(other))) if short else other  # the fewest digits
    return value


def _empty(place: Found, device: Any) -> Any:
    """Return a tensor with the layout of an argument, for a decomposition to be recorded with."""
    extent = 1 + sum((size - 1) * step for size, step in zip(place.shape, place.strides))
    room = pb.zeros(extent, dtype=place.dtype, device=device)
    return room.as_strided(place.shape, place.strides)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _is_same(
    exact: Graph,
    graph: Graph,
    match: tuple[dict[int, int], dict[int, list[Use]]],
    places: list[Found],
) -> bool:
    """Return whether launches are the same in every detail, but for where arguments begin."""
    begins = {
        (use.launch, use.operand): places[number].offset
        for number, uses in match[1].items()
        for use in uses
    }
    for number, uses in match[1].items():
        at = graph.operands[places[number].launch][places[number].operand][0]
        if any(graph.operands[use.launch][use.operand][0] != at for use in uses):
            return False
    for step, launch in match[0].items():
        params, numbers, flags = exact.settings[step]
        others = graph.settings[launch]
        if params != others[0] or repr(numbers) != repr(others[1]):
            return False
        if [one & ~WRITE for one in flags] != [one & ~WRITE for one in others[2]]:
            return False
        mine, theirs = exact.operands[step], graph.operands[launch]
        is_last = step == len(exact.launches) - 1
        for i, (one, two) in enumerate(zip(mine, theirs)):
            moved = 0 if one[0] is None or (is_last and i == 0) else begins.get((launch, i), 0)
            if one[0] is not None and not (is_last and i == 0) and one[4] + moved != two[4]:
                return False
        merged = exact.launches[step].family in MERGED
        if _layouts(mine, merged) != _layouts(theirs, merged):
            return False
        if [one[1] for one in mine] != [one[1] for one in theirs]:
            return False
    return True


def _layouts(operands: list[Any], merged: bool) -> list[Any]:
    """Return the shapes and strides of operands, with dims merged that are one in each of them."""
    kept = [(one[2], one[3]) for one in operands if one[0] is not None]
    if not merged or len({len(shape) for shape, _ in kept}) != 1:
        return kept
    dims = [d for d in range(len(kept[0][0])) if any(shape[d] != 1 for shape, _ in kept)]
    groups: list[list[int]] = []
    for d in dims:
        before = groups[-1][-1] if groups else None
        if before is not None and all(
            (shape[before] == 1) == (shape[d] == 1)
            and (shape[d] == 1 or strides[before] == strides[d] * shape[d])
            for shape, strides in kept
        ):
            groups[-1].append(d)
        else:
            groups.append([d])
    found = []
    for shape, strides in kept:
        sizes = []
        for group in groups:
            size = 1
            for d in group:
                size *= shape[d]
            sizes.append((size, strides[group[-1]] if size != 1 else 0))
        found.append(sizes)
    return found
