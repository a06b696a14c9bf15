"""One side of a comparison: where a function runs, on copies of what it is given."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback._context import filled_memory
from pullback.sparse.coo import cloned
from pullback.testing.comparison import parts


class Side(NamedTuple):
    """Where and in which dtype a function runs."""

    label: str
    device: Any
    dtype: Any = None  # of floating-point inputs; None: each keeps its own
    rounded_to: Any = None  # the dtype whose numbers these inputs are on both sides
    compiled: bool = False

    def cast(self, tensor: pb.Tensor) -> pb.Tensor:
        """Return a copy of a tensor for this side."""
        dtype = tensor.dtype
        if self.dtype is not None and dtype.is_floating_point:
            tensor, dtype = tensor.to(self.rounded_to), self.dtype
        elif self.dtype is not None and dtype.is_complex:
            tensor, dtype = tensor.to(self.rounded_to.to_complex()), self.dtype.to_complex()
        return tensor.to(self.device, dtype, copy=True)


def sides_of(fn: Any, devices: Any, dtypes: Any, compiled: bool) -> tuple[Side, Side]:
    """Return the two sides of the arguments of ``compare_backends``."""
    _check_function(fn)
    names = _items("devices", "two devices", [devices] if isinstance(devices, str) else devices)
    if dtypes is not None:
        dtypes = _items("dtypes", "two floating-point dtypes", dtypes)
    if compiled and dtypes is not None:
        raise ValueError("compare_backends(): expected either dtypes or compiled=True, got both")
    if (compiled or dtypes is not None) and not names:
        raise ValueError("compare_backends(): argument 'devices' must be a device, got none")
    for name in names:
        if pb.device(name).type == "meta":
            raise ValueError(
                "compare_backends(): argument 'devices' must be devices that compute, but tensors "
                "of 'meta' have no elements"
            )
    if compiled:
        device = pb.device(names[0])
        return Side(f"{device}", device), Side(f"{device} compiled", device, compiled=True)
    if dtypes is not None:
        return _sides_of_dtypes(pb.device(names[0]), dtypes)
    if len(names) != 2:
        raise ValueError(
            f"compare_backends(): argument 'devices' must be two devices, got {devices!r}"
        )
    one, other = (Side(str(pb.device(name)), pb.device(name)) for name in names)
    return one, other


def _sides_of_dtypes(device: Any, dtypes: list[Any]) -> tuple[Side, Side]:
    if len(dtypes) != 2 or not all(isinstance(d, pb.dtype) and d.is_floating_point for d in dtypes):
        raise ValueError(
            f"compare_backends(): argument 'dtypes' must be two floating-point dtypes, "
            f"got {tuple(dtypes)!r}"
        )
    coarser = max(dtypes, key=lambda dtype: pb.finfo(dtype).eps)
    one, other = (Side(f"{device} in {d.name}", device, d, coarser) for d in dtypes)
    return one, other


def _check_function(fn: Any) -> None:
    """Raise TypeError for what cannot be called, or does not run when it is."""
    if not callable(fn):
        raise TypeError(f"compare_backends(): argument 'fn' must be callable, not {type(fn)}")
    kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    if any(kind(fn) for kind in kinds):
        raise TypeError(
            "compare_backends(): argument 'fn' must return its results, but it is a generator "
            "function or a coroutine function, which does not run when it is called"
        )


def check_tolerance(argument: str, value: Any) -> None:
    """Raise TypeError or ValueError for a tolerance that is no number from 0 on."""
    if value is not None and not isinstance(value, int | float):
        raise TypeError(
            f"compare_backends(): argument {argument!r} must be a number, got {value!r}"
        )
    if value is not None and not value >= 0:
        raise ValueError(
            f"compare_backends(): argument {argument!r} must not be negative or NaN, got {value!r}"
        )


def _items(argument: str, wanted: str, value: Any) -> list[Any]:
    """Return the items of an argument, which must be a sequence."""
    if not isinstance(value, Iterable):
        raise TypeError(
            f"compare_backends(): argument {argument!r} must be {wanted}, got {value!r}"
        )
    return list(value)


class Given:
    """Copies of a function and its inputs for one side, with the leaves that get gradients."""

    def __init__(self, side: Side, function: Callable[..., Any], inputs: tuple[Any, ...]):
        self.side = side
        self.copies: dict[int, Any] = {}  # by the id of the original, which the caller keeps
        self.leaves: dict[str, pb.Tensor] = {}
        self.roots: list[tuple[str, Any]] = []  # the paths and copies of all that was copied
        self.generators: list[tuple[Any, Any]] = []
        self.notes: list[str] = []  # of what was not copied
        self.inputs = tuple(self.root(x, f"inputs[{i}]") for i, x in enumerate(inputs))
        self.function = self.of_function(function)

    def state(self) -> dict[str, Any]:
        """Return what the call may have changed, by path: tensors, arrays, numbers and others."""
        return {path: part for root, value in self.roots for path, part in parts.parts(value, root)}

    def root(self, value: Any, path: str) -> Any:
        """Return a copy of an input, and remember it as one."""
        made = self.copied(value, path)
        self.roots.append((path, made))
        return made

    def of_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose module, if it is one's or has one's method, is a copy."""
        if isinstance(function, functools.partial):
            return functools.partial(
                self.of_function(function.func),
                *(self.root(x, f"fn.args[{i}]") for i, x in enumerate(function.args)),
                **{key: self.root(x, f"fn.{key}") for key, x in function.keywords.items()},
            )
        if isinstance(function, types.MethodType) and isinstance(function.__self__, pb.nn.Module):
            return types.MethodType(function.__func__, self.root(function.__self__, "fn"))
        return self.root(function, "fn") if isinstance(function, pb.nn.Module) else function

    def copied(self, value: Any, path: str) -> Any:
        """Return a copy of tensors, arrays, modules and generators, and of trees of them.

        What occurs twice is copied once. Other values are returned as they are, which a note says
        of those that may refer to tensors.
        """
        if id(value) in self.copies:
            return self.copies[id(value)]
        if isinstance(value, pb.Tensor | pb.nn.Module | pb.Generator):
            self.copies[id(value)] = self.fresh(value, path)
            return self.copies[id(value)]
        if isinstance(value, np.ndarray):
            self.copies[id(value)] = value.copy()
            return self.copies[id(value)]
        if isinstance(value, tuple | list):
            items = [self.copied(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if parts.is_dataclass_instance(value):
            return self.of_dataclass(value, path)
        if isinstance(value, MutableMapping | deque):
            return self.of_container(value, path)
        if not parts.is_harmless(value):
            self.notes.append(
                f"{path} (a {type(value).__name__}) was neither copied nor compared: both sides "
                f"got the same"
            )
        return value

    def of_container(self, value: Any, path: str) -> Any:
        """Return a copy of a dict or deque, with its other attributes."""
        made = copy.copy(value)
        for key in value if isinstance(value, MutableMapping) else range(len(value)):
            made[key] = self.copied(value[key], f"{path}[{key!r}]")
        return made

    def of_dataclass(self, value: Any, path: str) -> Any:
        """Return a copy of the object of a dataclass, frozen or not."""
        made = copy.copy(value)
        for name in parts.fields_of(value):
            field = self.copied(getattr(value, name), f"{path}.{name}")
            try:
                setattr(made, name, field)
            except dataclasses.FrozenInstanceError:
                object.__setattr__(made, name, field)
        return made

    def fresh(self, value: Any, path: str) -> Any:
        """Return a new copy of a tensor, module or generator."""
        if isinstance(value, pb.Generator):
            made = pb.Generator(self.side.device)
            made.set_state(value.get_state())
            self.generators.append((made, value.get_state()))
            return made
        if isinstance(value, pb.nn.Module):
            module = copy.deepcopy(value, dict(self.copies))
            module._apply(self.side.cast)
            for name, parameter in module.named_parameters():
                parameter.grad = None
                self.leaves[f"{path}.{name}"] = parameter
            return module
        made = self.side.cast(value.detach())
        if isinstance(value, pb.nn.Parameter):
            made = pb.nn.Parameter(made, requires_grad=value.requires_grad)
        else:
            made.requires_grad_(value.requires_grad)
        if value.requires_grad:
            self.leaves[path] = made
        return made

    def call(self) -> Any:
        """Call the function."""
        result = self.function(*self.inputs)
        parts.check_result(result)
        return result

    @contextlib.contextmanager
    def entered(self, seeds: Seeds) -> Iterator[None]:
        """Make this side the default, with gradients on, and begin the random numbers anew."""
        before = pb.get_default_dtype()
        seeds.restore()
        for generator, state in self.generators:
            generator.set_state(state)
        try:
            if self.side.dtype is not None:
                pb.set_default_dtype(self.side.dtype)
            with (
                pb.device(self.side.device),
                pb.inference_mode(False),
                pb.enable_grad(),
                filled_memory(),  # elements that nobody wrote are equal, too
            ):
                yield
        finally:
            pb.set_default_dtype(before)


class Seeds:
    """The states of the generators of random numbers that programs use."""

    def __init__(self) -> None:
        self.ours = pb.get_rng_state()
        self.numpy = np.random.get_state()
        self.python = random.getstate()

    def restore(self) -> None:
        """Set the generators back to these states."""
        pb.set_rng_state(self.ours)
        np.random.set_state(self.numpy)
        random.setstate(self.python)


class Gradients:
    """The gradients of tensors that a function uses without getting them, as they were."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[pb.Tensor, Any, Any, int]] = {}

    def keep(self, tensor: pb.Tensor) -> None:
        """Remember the gradient of a leaf, unless it is known."""
        if id(tensor) not in self.kept:
            grad = tensor.grad
            copied: Any = None
            if grad is not None:
                copied = cloned(grad) if grad.is_sparse else grad.detach().clone()
            self.kept[id(tensor)] = tensor, grad, copied, 0 if grad is None else grad._version

    def restore(self) -> None:
        """Give all leaves their gradients again, with the elements that these had."""
        for key, (tensor, grad, copied, version) in self.kept.items():
            if grad is not None and grad.is_sparse:
                grad._coo = cloned(copied)._coo
            elif grad is not None and grad._version != version:
                grad.detach().copy_(copied)
                self.kept[key] = tensor, grad, copied, grad._version
            if tensor.grad is not grad:
                tensor.grad = grad
