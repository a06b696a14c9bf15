"""vmap: runs a function of single elements once on a whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pullback as pb
from pullback._c.graph import levels
from pullback._c.graph.grad_modes import Transformed
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching
from pullback.func._tree import drawn, is_node, leaves, rebuild, spread

__all__ = ["vmap"]

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that maps ``func`` over a dim of its arguments.

    ``in_dims`` is that dim: an int or None (not mapped) for all tensors, or a tuple with one per
    argument, nested as the arguments are. ``out_dims`` is the batch dim of the results. ``func``
    receives tensors without that dim; it runs once. ``randomness`` is 'error', 'same' (one draw for
    the batch) or 'different' (one per element). With ``chunk_size`` the batch runs in parts of that
    size.

    Raises: ValueError for dims that do not fit or sizes that differ; RuntimeError where ``func``
    reads values (``item()``, ``if tensor:``).

    >>> import pullback
    >>> dots = pullback.func.vmap(pullback.dot)
    >>> dots(pullback.tensor([[1., 2.], [3., 4.]]), pullback.tensor([[1., 1.], [1., 0.]]))
    tensor([3., 3.])
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or "
            f"'same'. Got {randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        name = _name(func)
        dims, values = _dims_of_leaves(name, in_dims, args)
        size = _batch_size(dims, values)
        if chunk_size is None or chunk_size >= size:
            return _run(func, name, dims, values, args, kwargs, out_dims, size, randomness)
        return _in_chunks(
            func, name, dims, values, args, kwargs, out_dims, size, randomness, chunk_size
        )

    return mapped


def _name(func: Callable[..., Any]) -> str:
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return getattr(func, "__name__", None) or repr(func)


def _dims_of_leaves(name: str, in_dims: Any, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the dim of every leaf of the arguments, and the leaves."""
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple "
            f"matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, "
            f"or you are trying to vmap over a function with no inputs. The latter is "
            f"unsupported."
        )
    dims = spread(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`. "
            f"in_dims has structure {drawn(in_dims)} but inputs has structure "
            f"{drawn(args)}."
        )
    values = leaves(args)
    for i, (dim, value) in enumerate(zip(dims, values)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but in_dim must be either an "
                f"integer dimension or None."
            )
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but the input is of type "
                f"{type(value)}. We cannot vmap over non-Tensor arguments, please use "
                f"None as the respective in_dim"
            )
        if not -value.dim() <= dim < value.dim():
            raise ValueError(
                f"{where}: Got in_dim={dim} for some input, but that input is a "
                f"Tensor of dimensionality {value.dim()} so expected in_dim to "
                f"satisfy -{value.dim()} <= in_dim < {value.dim()}."
            )
        dims[i] = dim % value.dim()
    return dims, values


def _batch_size(dims: list[Any], values: list[Any]) -> int:
    sizes = [value.shape[dim] for dim, value in zip(dims, values) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over: every in_dim is None")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped "
            f"dimension, got sizes {sizes} for the mapped dimension"
        )
    return sizes[0]


def _run(
    func: Callable[..., Any],
    name: str,
    dims: list[Any],
    values: list[Any],
    args: Any,
    kwargs: dict[str, Any],
    out_dims: Any,
    size: int,
    randomness: str,
) -> Any:
    level = levels.enter_level(size, randomness)
    try:
        inside = [
            value if dim is None else batching.make_batched(_dim_first(value, dim), level)
            for dim, value in zip(dims, values)
        ]
        with Transformed():
            outputs = func(*rebuild(args, inside), **kwargs)
        return _unwrap(name, outputs, out_dims, size, level)
    finally:
        levels.exit_level(level)


def _dim_first(value: pb.Tensor, dim: int) -> pb.Tensor:
    """Return a tensor with a dim moved to the front; of a subclass what its override makes."""
    return value.movedim(dim, 0) if dim or type(value) is not pb.Tensor else value


def _unwrap(name: str, outputs: Any, out_dims: Any, size: int, level: int) -> Any:
    where = f"vmap({name}, ..., out_dims={out_dims})(<inputs>)"
    found = leaves(outputs)
    if any(dim is not None and not isinstance(dim, int) for dim in leaves(out_dims)):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
            f"collection of ints representing where in the outputs the vmapped dimension should "
            f"appear."
        )
    single = isinstance(out_dims, tuple) and len(out_dims) == 1 and not is_node(outputs)
    positions = spread(out_dims[0] if single else out_dims, outputs)
    if positions is None:
        raise ValueError(
            f"{where}: out_dims is not compatible with the structure of `outputs`. "
            f"out_dims has structure {drawn(out_dims)} but outputs has structure "
            f"{drawn(outputs)}."
        )
    unwrapped = []
    for value, position in zip(found, positions):
        if not isinstance(value, Tensor):
            if position is None:
                unwrapped.append(value)
                continue
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                f"{type(value)}. Did you mean to set out_dims= to None for output?"
            )
        whole = batching.get_batch(value, level)
        if position is None:
            if whole is not None:
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is "
                    f"None"
                )
            unwrapped.append(value)
            continue
        if whole is None:
            whole = value.expand((size, *value.shape))
        unwrapped.append(whole.movedim(0, int(position)) if position else whole)
    return rebuild(outputs, unwrapped)


def _in_chunks(
    func: Callable[..., Any],
    name: str,
    dims: list[Any],
    values: list[Any],
    args: Any,
    kwargs: dict[str, Any],
    out_dims: Any,
    size: int,
    randomness: str,
    chunk_size: int,
) -> Any:
    """Run parts of the batch one after the other and concatenate the results."""
    results = []
    generator = pb.default_generator
    position = generator.position()
    for start in range(0, size, chunk_size):
        if randomness == "same":  # one draw for the batch, not for each part
            generator.go_back(*position)
        length = min(chunk_size, size - start)
        parts = [
            value if dim is None else value.narrow(dim, start, length)
            for dim, value in zip(dims, values)
        ]
        results.append(_run(func, name, dims, parts, args, kwargs, out_dims, length, randomness))
    positions = spread(out_dims, results[0])
    columns = zip(*map(leaves, results))
    joined = [
        column[0] if position is None else pb.cat(column, position)
        for column, position in zip(columns, positions or [])
    ]
    return rebuild(results[0], joined)
