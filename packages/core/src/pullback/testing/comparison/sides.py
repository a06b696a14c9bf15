"""One side of a comparison: where a function runs, on copies of what it is given."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback._context import filled_memory
from pullback.func._tree import is_node


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


class Given:
    """Copies of a function and its inputs for one side, with the leaves that get gradients."""

    def __init__(self, side: Side, function: Callable[..., Any], inputs: tuple[Any, ...]):
        self.side = side
        self.copies: dict[int, Any] = {}  # by the id of the original, which the caller keeps
        self.leaves: dict[str, pb.Tensor] = {}
        self.state: list[pb.Tensor] = []  # every tensor that a call may change
        self.generators: list[tuple[Any, Any]] = []
        self.inputs = tuple(self.copied(x, f"inputs[{i}]") for i, x in enumerate(inputs))
        self.function = self.of_function(function)

    def of_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose module, if it is one's or has one's method, is a copy."""
        if isinstance(function, functools.partial):
            return functools.partial(
                self.of_function(function.func),
                *(self.copied(x, f"fn.args[{i}]") for i, x in enumerate(function.args)),
                **{key: self.copied(x, f"fn.{key}") for key, x in function.keywords.items()},
            )
        if isinstance(function, types.MethodType) and isinstance(function.__self__, pb.nn.Module):
            return types.MethodType(function.__func__, self.copied(function.__self__, "fn"))
        return self.copied(function, "fn")

    def copied(self, value: Any, path: str) -> Any:
        """Return a copy of a tensor, module or generator, or of a tree of them; the rest as it is.

        What occurs twice is copied once.
        """
        if isinstance(value, tuple | list):
            parts = [self.copied(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if is_node(value):
            made = value.copy()
            made.update((key, self.copied(x, f"{path}[{key!r}]")) for key, x in value.items())
            return made
        if not isinstance(value, pb.Tensor | pb.nn.Module | pb.Generator):
            return value
        if id(value) not in self.copies:
            self.copies[id(value)] = self.fresh(value, path)
        return self.copies[id(value)]

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
            self.state += [*module.parameters(), *module.buffers()]
            return module
        made = self.side.cast(value.detach())
        if isinstance(value, pb.nn.Parameter):
            made = pb.nn.Parameter(made, requires_grad=value.requires_grad)
        else:
            made.requires_grad_(value.requires_grad)
        if value.requires_grad:
            self.leaves[path] = made
        self.state.append(made)
        return made

    def call(self) -> Any:
        """Call the function."""
        return self.function(*self.inputs)

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
