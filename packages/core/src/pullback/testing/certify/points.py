"""Where derivatives are looked at: the sample calls of an op, and points at the edges of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.ops import ops
from pullback.testing.certify.derivatives import Problem, Tensors
from pullback.testing.checks.basic import SEED
from pullback.testing.compare import to_array
from pullback.testing.draw import LAYOUTS, lay_out
from pullback.testing.samples import Sample, op_of, replace_tensors, samples_of, tensors_in

__all__ = ["Point", "edges", "ordinary", "problem_of", "scalars", "widened"]

SCALARS = 40  # as many elements of a call are looked at one by one
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)  # of an op, for what it does not take
FAR = 1e8  # larger elements are moved by steps of their own size


class Point(NamedTuple):
    """A call at a point: a sample, and what was made of it."""

    sample: Sample
    label: str
    written: bool = False  # the in-place form of an op that has one

    def __str__(self) -> str:
        return f"#{self.sample.number} {self.label}"

    def name(self) -> str:
        """Return the op's name, or that of its in-place form."""
        return self.sample.entry.name + "_" * self.written

    def inputs(self) -> Tensors:
        """Return the tensors that require grad, outside the graph."""
        return tuple(t.detach() for t in self.sample.tensors() if t.requires_grad)

    def function(self) -> Callable[..., Tensors]:
        """Return the call as a function of the tensors that require grad.

        Its results are those that have derivatives. In-place ops write a copy.
        """
        sample = self.sample
        op = getattr(ops, self.name()) if self.written else op_of(sample.entry)
        writes = self.written or sample.entry.name.endswith("_")

        def function(*values: pb.Tensor) -> Tensors:
            given = iter(values)

            def pick(tensor: pb.Tensor) -> pb.Tensor:
                return next(given) if tensor.requires_grad else tensor

            args = replace_tensors(sample.args, pick)
            kwargs = replace_tensors(sample.kwargs, pick)
            pb.manual_seed(SEED)
            if writes:
                args = (args[0].clone(), *args[1:])
            found = tensors_in((op(*args, **kwargs),))
            return tuple(t for t in found if t.is_floating_point() or t.is_complex())

        return function


def ordinary(entry: Any, dtype: Any, device: Any = None) -> Iterator[Point]:
    """Yield the sample calls of an op in every memory layout."""
    for layout in LAYOUTS:
        found = samples_of(entry, dtype, layout=layout, device=device, requires_grad=True)
        for sample in found:
            yield Point(sample, layout)


# -- one element at a time -------------------------------------------------------------------------


def scalars(point: Point) -> list[Point] | None:
    """Return a point for each finite element of an elementwise call; None if it is another."""
    tensors = point.sample.tensors()
    try:
        shape = np.broadcast_shapes(*(tuple(t.shape) for t in tensors))
        (whole,) = point.function()(*point.inputs())
    except REFUSALS:
        return None
    if not shape or tuple(whole.shape) != shape or whole.dtype != tensors[0].dtype:
        return None
    columns = [np.broadcast_to(to_array(t.detach()), shape).reshape(-1) for t in tensors]
    found: dict[str, Point] = {}
    for expected, *numbers in zip(to_array(whole).reshape(-1), *columns):
        label = "at " + ", ".join(f"{number:.6g}" for number in numbers)
        if label in found or not np.isfinite(numbers).all():
            continue  # no differences are to be had at infinity
        part = point._replace(sample=at_numbers(point.sample, numbers), label=label)
        try:
            value = to_array(part.function()(*part.inputs())[0])
        except REFUSALS:
            return None
        if value.shape or not np.allclose(value, expected, equal_nan=True, rtol=1e-12):
            return None
        found[label] = part
    made = list(found.values())
    return made[:: max(1, len(made) // SCALARS)]


def at_numbers(sample: Sample, numbers: list[Any]) -> Sample:
    """Return a call with these numbers as tensors of no dims."""
    given = iter(numbers)

    def one(tensor: pb.Tensor) -> pb.Tensor:
        made = lay_out(np.array(next(given)), tensor.dtype, tensor.device, "contiguous")
        return made.requires_grad_(tensor.requires_grad)

    return sample.mapped(one)


# -- edges -----------------------------------------------------------------------------------------


def _a_zero(values: np.ndarray) -> np.ndarray:
    made = values.copy()
    made.reshape(-1)[:1] = 0
    return made


def _equal(values: np.ndarray) -> np.ndarray:
    return np.full_like(values, values.reshape(-1)[0]) if values.size else values


def _equal_rows(values: np.ndarray) -> np.ndarray | None:
    if values.ndim < 2 or values.shape[-2] < 2:
        return None
    made = values.copy()
    made[..., 1, :] = made[..., 0, :]
    return made


def _near_rows(values: np.ndarray) -> np.ndarray | None:
    made = _equal_rows(values)
    return None if made is None else made + 1e-4 * (values - made)


SUBNORMAL = "x 1e-310"
EDGES: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "zeros": np.zeros_like,
    "a zero": _a_zero,
    "ties": np.round,
    "equal": _equal,
    "equal rows": _equal_rows,
    "near rows": _near_rows,
    SUBNORMAL: lambda values: values * 1e-310,
    "x 1e-150": lambda values: values * 1e-150,
    "x 1e5": lambda values: values * 1e5,
}


def edges(point: Point) -> Iterator[Point]:
    """Yield the point with its first tensor moved to each edge, and with all of them."""
    count = len(point.inputs())
    for name, move in EDGES.items():
        if name == SUBNORMAL and point.sample.dtype.is_complex:
            continue  # a quotient of complex ones is infinite, as in torch and NumPy
        for which in ({0}, set(range(count))) if count > 1 else ({0},):
            sample = moved(point.sample, move, which)
            if sample is not None:
                first = " (first)" if len(which) < count else ""
                yield point._replace(sample=sample, label=name + first)


def moved(
    sample: Sample, move: Callable[[np.ndarray], np.ndarray | None], which: Collection[int]
) -> Sample | None:
    """Return a call with some of the tensors that require grad moved; None if one cannot be."""
    numbers = iter(range(len(sample.tensors())))
    refused = []

    def change(tensor: pb.Tensor) -> pb.Tensor:
        if not tensor.requires_grad or next(numbers) not in which:
            return tensor
        made = move(to_array(tensor.detach()))
        if made is None:
            refused.append(tensor)
            return tensor
        return lay_out(made, tensor.dtype, tensor.device, "contiguous").requires_grad_()

    made = sample.mapped(change)
    return None if refused else made


# -- problems --------------------------------------------------------------------------------------


def problem_of(point: Point) -> Problem | None:
    """Return directions and weights for a point; None without inputs or results.

    Raises: what the op raises for arguments that it does not take.
    """
    inputs = point.inputs()
    function = point.function()
    with pb.no_grad():
        results = function(*inputs)
    if not inputs or not results:
        return None
    rng = np.random.default_rng(zlib.crc32(f"{point.sample.entry.name} {point}".encode()))
    v, w, z = (directions(rng, inputs) for _ in range(3))
    other = tuple(x + 1e-3 * d for x, d in zip(inputs, w))
    try:
        with pb.no_grad():
            function(*other)
    except (RuntimeError, ValueError):  # the point is at the edge of where it is defined
        other = inputs
    return Problem(function, inputs, other, v, w, z, drawn(rng, results), drawn(rng, results))


def drawn(rng: np.random.Generator, like: Tensors) -> Tensors:
    """Return tensors like others with elements of both signs between 0.3 and 1 in size."""
    made = []
    for tensor in like:
        shape = tuple(tensor.shape)
        parts = [rng.uniform(0.3, 1, shape) * rng.choice([-1, 1], shape) for _ in range(2)]
        values = parts[0] + 1j * parts[1] if tensor.is_complex() else parts[0]
        made.append(lay_out(np.asarray(values), tensor.dtype, tensor.device, "contiguous"))
    return tuple(made)


def directions(rng: np.random.Generator, inputs: Tensors) -> Tensors:
    """Return tensors like the inputs; where these are huge, of their size."""
    made = []
    for x, direction in zip(inputs, drawn(rng, inputs)):
        size = np.abs(to_array(x))
        scale = np.where(np.isfinite(size) & (size > FAR), size, 1.0)
        if (scale != 1.0).any():
            values = to_array(direction) * scale
            direction = lay_out(values, x.dtype, x.device, "contiguous")
        made.append(direction)
    return tuple(made)


def widened(problem: Problem, point: Point) -> Problem:
    """Return the same problem in float64 or complex128."""
    wide = pb.complex128 if point.sample.dtype.is_complex else pb.float64

    def widen(tensor: pb.Tensor) -> pb.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        dtype = pb.complex128 if tensor.is_complex() else pb.float64
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    def all_of(tensors: Tensors) -> Tensors:
        return tuple(widen(tensor) for tensor in tensors)

    sample = point.sample.mapped(widen)._replace(dtype=wide)
    function = point._replace(sample=sample).function()
    return Problem(function, *(all_of(tensors) for tensors in problem[1:]))
