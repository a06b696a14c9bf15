"""Sample calls of every op: those of its entry, or those that its signature calls for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.ops import ops
from pullback.ops.table.samples import Case, Draw, Dtype, binary, reduction, unary
from pullback.ops.table.schema import BOOL, INTEGRAL
from pullback.testing.draw import draw_array, lay_out

__all__ = [
    "DTYPES",
    "OPTIONAL_DTYPES",
    "Sample",
    "accepts",
    "cases_of",
    "op_of",
    "reason_without_cases",
    "samples_of",
    "tensors_in",
]

DTYPES = (
    pb.bool,
    pb.uint8,
    pb.int8,
    pb.int16,
    pb.int32,
    pb.int64,
    pb.float16,
    pb.bfloat16,
    pb.float32,
    pb.float64,
    pb.complex64,
    pb.complex128,
)
OPTIONAL_DTYPES = (pb.uint16, pb.uint32, pb.uint64, pb.complex32)

Entry = Any


class Sample(NamedTuple):
    """One call with real tensors."""

    entry: Entry
    case: Case
    number: int
    dtype: Any
    layout: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    without: frozenset[str] = frozenset()  # dtypes that the device does not have

    def __str__(self) -> str:
        return f"{self.entry.name} #{self.number} {self.dtype.name} {self.layout}"

    def tensors(self) -> list[pb.Tensor]:
        """Return the tensors among the arguments, in order."""
        return tensors_in((self.args, self.kwargs))

    def mapped(self, function: Callable[[pb.Tensor], Any]) -> Sample:
        """Return the same call with ``function`` applied to each tensor."""
        args = replace_tensors(self.args, function)
        kwargs = replace_tensors(self.kwargs, function)
        return self._replace(args=args, kwargs=kwargs)

    def cloned(self) -> Sample:
        """Return the same call on copies of the tensors, outside the graph, with their strides."""
        return self.mapped(copy_as_it_lies)


def op_of(entry: Entry) -> Any:
    """Return the op that an entry became."""
    return getattr(ops, entry.name)


def cases_of(entry: Entry) -> Sequence[Case]:
    """Return an entry's cases, or those that follow from its signature; empty if there are none."""
    if isinstance(entry.samples, str):
        return ()
    cases = entry.cases()
    return derive(entry) if cases is None else tuple(cases)


def reason_without_cases(entry: Entry) -> str | None:
    """Return why an entry has no cases, if it says so."""
    return entry.samples if isinstance(entry.samples, str) else None


def derive(entry: Entry) -> Sequence[Case]:
    """Return cases for the common signatures: one operand, two, and reductions."""
    required = [argument.type for argument in entry.arguments if argument.required]
    names = [argument.name for argument in entry.arguments]
    if required == ["Tensor"] and names[1:3] == ["dim", "keepdim"]:
        return tuple(reduction())
    if required in (["Tensor"], ["Operand"]) and len(names) == 1:
        return tuple(unary(-3, 3))
    if required in (["Operand", "Operand"], ["Tensor", "Operand"], ["Tensor", "Tensor"]):
        return tuple(binary())
    return ()


def accepts(entry: Entry, dtype: Any) -> bool:
    """Tell whether an op takes tensors of a dtype; those that are promoted to it included."""
    promoted = BOOL | INTEGRAL if entry.promote == "float" else 0
    return bool((entry.dtypes | promoted) >> dtype.code & 1)


def samples_of(
    entry: Entry,
    dtype: Any,
    *,
    layout: str = "contiguous",
    device: Any = None,
    checks: Collection[str | None] = (),
    requires_grad: bool = False,
    without: Collection[str] = (),
) -> Iterator[Sample]:
    """Yield an entry's sample calls in one dtype and layout.

    ``checks`` leaves out the cases that skip one of these checks, ``without`` those that name one
    of these dtypes. With ``requires_grad`` every floating and complex tensor requires grad. The
    elements depend on nothing but the arguments.
    """
    for number, case in enumerate(cases_of(entry)):
        if not case.skip.keys().isdisjoint((*checks, layout)) or not case.only >> dtype.code & 1:
            continue
        if without and not dtypes_in((case.args, case.kwargs)).isdisjoint(without):
            continue
        seed = zlib.crc32(f"{entry.name} {number} {dtype.name} {layout}".encode())
        maker = Maker(np.random.default_rng(seed), dtype, layout, device, requires_grad)
        args, kwargs = maker.make(case.args), maker.make(case.kwargs)
        yield Sample(entry, case, number, dtype, layout, args, kwargs, frozenset(without))


def dtypes_in(value: Any) -> set[str]:
    """Return the dtypes that what a case writes down names."""
    if isinstance(value, Draw):
        return {value.kind}
    if isinstance(value, Dtype):
        return {value.name}
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return set().union(*map(dtypes_in, value)) if type(value) in (tuple, list) else set()


class Maker(NamedTuple):
    """Turns what a case writes down into arguments."""

    rng: np.random.Generator
    dtype: Any
    layout: str
    device: Any
    requires_grad: bool

    def make(self, value: Any) -> Any:
        """Return an argument: tensors for draws, dtypes for their names, the rest as it is."""
        if isinstance(value, Draw):
            return self.make_tensor(value)
        if isinstance(value, Dtype):
            return self.find_dtype(value.name)
        if isinstance(value, Mapping):
            return {name: self.make(item) for name, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self.make(item) for item in value)
        return value

    def find_dtype(self, name: str) -> Any:
        if name == "tested":
            return self.dtype
        if name == "real":
            return self.dtype.to_real() if self.dtype.is_complex else self.dtype
        return getattr(pb, name)

    def make_tensor(self, draw: Draw) -> pb.Tensor:
        dtype = self.find_dtype(draw.kind)
        if draw.values is None:
            values = draw_array(draw.shape, dtype, self.rng, draw.low, draw.high, draw.step)
        else:
            values = np.array(draw.values).reshape(draw.shape)
        made = lay_out(values, dtype, self.device, self.layout)
        differentiable = (dtype.is_floating_point or dtype.is_complex) and not draw.constant
        return made.requires_grad_(self.requires_grad and differentiable)


# -- tensors among arguments -----------------------------------------------------------------------


def tensors_in(value: Any) -> list[pb.Tensor]:
    """Return the tensors in nested tuples, lists and mappings, in order."""
    if isinstance(value, pb.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and not isinstance(value, pb.Size):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def replace_tensors(value: Any, function: Callable[[pb.Tensor], Any]) -> Any:
    """Return nested arguments with ``function`` applied to each tensor."""
    if isinstance(value, pb.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: replace_tensors(item, function) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(replace_tensors(item, function) for item in value)
    return value


def copy_as_it_lies(tensor: pb.Tensor) -> pb.Tensor:
    """Return a copy with the same strides, where these name each element once."""
    source = tensor.detach()
    if any(stride == 0 and size > 1 for stride, size in zip(source.stride(), source.shape)):
        return source.clone(memory_format="contiguous_format")
    length = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride()))
    memory = pb.zeros((max(length, 0),), dtype=source.dtype, device=source.device)
    copy = memory.as_strided(source.shape, source.stride()) if source.numel() else source.clone()
    return copy.copy_(source).detach() if source.numel() else copy
