"""The parts of results and inputs that are compared, each with the path to it."""

from __future__ import annotations

import dataclasses
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pullback as pb
from pullback.testing.comparison.measure import PLAIN

# Values that no call changes, and that hold no tensor which a call could change.
HARMLESS = (
    *PLAIN,
    float,
    complex,
    pb.dtype,
    pb.device,
    pb.Generator,  # copied
    type(...),
    type(pb.add),
    types.FunctionType,
    types.BuiltinFunctionType,
)
NOT_RUN = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def parts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in modules, containers and dataclasses, with their paths.

    >>> list(parts({"a": (1, [2])}, "x"))
    [("x['a'][0]", 1), ("x['a'][1][0]", 2)]
    """
    if isinstance(value, pb.Tensor):
        yield path, value
    elif isinstance(value, pb.nn.Module):
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{path}.{name}", tensor
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from parts(item, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list | deque):
        for i, item in enumerate(value):
            yield from parts(item, f"{path}[{i}]")
    elif is_dataclass_instance(value):
        for name in fields_of(value):
            yield from parts(getattr(value, name), f"{path}.{name}")
    else:
        yield path, value


def is_dataclass_instance(value: Any) -> bool:
    """Return True for an object, not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields_of(value: Any) -> list[str]:
    """Return the names of the fields that a dataclass's object has."""
    return [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]


def tensors_in_parts(value: Any) -> list[pb.Tensor]:
    """Return the tensors in modules, containers and dataclasses."""
    return [part for _, part in parts(value) if isinstance(part, pb.Tensor)]


def is_harmless(value: Any) -> bool:
    """Return True for a value that both sides may share."""
    if isinstance(value, set | frozenset):
        return all(map(is_harmless, value))
    return isinstance(value, HARMLESS)


def check_result(result: Any) -> None:
    """Raise TypeError for a result that has not been computed yet."""
    if isinstance(result, NOT_RUN):
        raise TypeError(
            f"compare_backends(): expected 'fn' to return its results, but it returned a "
            f"{type(result).__name__}, whose code has not run: let it return a list"
        )
