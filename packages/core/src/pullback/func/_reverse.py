"""Transforms by reverse mode: grad, grad_and_value, vjp, jacrev."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pullback as pb
from pullback._c.graph.grad_modes import Transformed
from pullback._c.graph.tensor import Tensor
from pullback.func._inputs import (
    chosen,
    fresh,
    gradients,
    only_real,
    only_tensors,
    replaced,
    settled,
    split_aux,
)
from pullback.func._tree import leaves, rebuild, structure
from pullback.func._vmap import vmap

__all__ = ["grad", "grad_and_value", "jacrev", "vjp"]


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``func``, which returns a 0-d tensor.

    ``argnums`` are the arguments to differentiate by: an int, or a tuple, which gives a tuple. An
    argument may be a nest of tensors; its gradient has the same structure. With ``has_aux``,
    ``func`` returns (output, aux) and the result is (gradient, aux).

    Raises: RuntimeError when the output is not a 0-d tensor or argnums do not fit.

    >>> import pullback
    >>> pullback.func.grad(lambda x: x ** 3)(pullback.tensor(2.))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapped


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes (gradient, output) of ``func``; see :func:`grad`.

    With ``has_aux`` the result is (gradient, (output, aux)).

    Raises: RuntimeError when the output is not a 0-d tensor or argnums do not fit.

    >>> import pullback
    >>> pullback.func.grad_and_value(lambda x: x ** 3)(pullback.tensor(2.))
    (tensor(12.), tensor(8.))
    """
    where = "grad_and_value(f)(*args)"

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = chosen(argnums, args)
        recording = pb.is_grad_enabled()
        with Transformed(records=True):
            inputs = [fresh(args[number], recording) for number in numbers]
            output = func(*replaced(args, numbers, inputs), **kwargs)
            aux = None
            if has_aux:
                output, aux = split_aux(output, where)
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    f"{where}: Expected f(*args) to return a Tensor, got {type(output)}"
                )
            if output.dim() != 0:
                raise RuntimeError(
                    f"{where}: Expected f(*args) to return a scalar Tensor, got tensor with "
                    f"{output.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            found = gradients([output], [None], leaves(inputs), True, True)
        nested = rebuild(inputs, found)
        made = tuple(nested) if isinstance(argnums, tuple) else nested[0]
        made, output, aux = settled((made, output, aux), inputs, recording)
        return (made, (output, aux)) if has_aux else (made, output)

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return (output, vjp_fn): vjp_fn computes the vector-Jacobian product of cotangents.

    ``vjp_fn`` takes cotangents with the structure and shapes of the output, may be called many
    times, and returns a tuple with one nest of gradients per primal. With ``has_aux``, ``func``
    returns (output, aux) and the result is (output, vjp_fn, aux).

    Raises: RuntimeError for cotangents that do not fit; ValueError for primals without tensors.

    >>> import pullback
    >>> y, back = pullback.func.vjp(pullback.sin, pullback.tensor([0.0]))
    >>> back(pullback.tensor([2.0]))
    (tensor([2.]),)
    """
    recording = pb.is_grad_enabled()
    with Transformed(records=True):
        inputs = [fresh(primal, recording) for primal in primals]
        output = func(*inputs)
        aux = None
        if has_aux:
            output, aux = split_aux(output, "vjp(f, *primals)")
        outputs = only_tensors(output, "vjp(f, *primals)", "f(*primals)")

    def vjp_fn(
        *cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        if structure(given) != structure(output):
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {structure(given)}, primal output: "
                f"{structure(output)}"
            )
        seeds = leaves(given)
        for i, (seed, made) in enumerate(zip(seeds, outputs)):
            if seed.shape != made.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of "
                    f"{seed.shape} and output[{i}] has a shape of {made.shape}."
                )
        now = pb.is_grad_enabled()
        keep = now if create_graph is None else create_graph
        with Transformed(records=True):
            found = gradients(outputs, seeds, leaves(inputs), keep, retain_graph)
        return settled(tuple(rebuild(inputs, found)), inputs, now)

    result = settled(output, inputs, recording, primals)
    return (result, vjp_fn, settled(aux, inputs, recording)) if has_aux else (result, vjp_fn)


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func`` by reverse mode.

    It is a nest like the output, of nests like the argument, of shape output.shape + input.shape.
    ``chunk_size`` bounds the number of rows that are computed together.

    Raises: ValueError for a ``chunk_size`` below 1; RuntimeError when argnums do not fit or the
    output holds anything but tensors.

    >>> import pullback
    >>> pullback.func.jacrev(lambda x: x * x)(pullback.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = chosen(argnums, args)

        def of_chosen(*values: Any) -> Any:
            return func(*replaced(args, numbers, values), **kwargs)

        primals = [args[number] for number in numbers]
        only_real(leaves(primals), "jacrev", "inputs")
        found = vjp(of_chosen, *primals, has_aux=has_aux)
        output, pull = found[:2]
        outputs = leaves(output)
        only_real(outputs, "jacrev", "outputs")
        basis = basis_of(outputs)
        rows = vmap(lambda *seeds: pull(rebuild(output, list(seeds))), chunk_size=chunk_size)(
            *basis
        )
        parts = [blocks_of_rows(part, outputs) for part in leaves(rows)]
        jacobians = [rebuild(rows, list(blocks)) for blocks in zip(*parts)]
        single = not isinstance(argnums, tuple)
        result = rebuild(output, [part[0] if single else part for part in jacobians])
        return (result, found[2]) if has_aux else result

    return wrapped


def blocks_of_rows(rows: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the blocks of a Jacobian whose rows are those of all elements of the outputs.

    Each has the shape of its output followed by that of a row.
    """
    blocks = []
    start = 0
    for output in outputs:
        block = rows.narrow(0, start, output.numel())
        blocks.append(block.reshape((*output.shape, *rows.shape[1:])))
        start += output.numel()
    return blocks


def basis_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return one batch per tensor: together, the unit vectors of all their elements."""
    total = sum(tensor.numel() for tensor in tensors)
    found = []
    start = 0
    for tensor in tensors:
        count = tensor.numel()
        rows = pb.zeros((total, count), dtype=tensor.dtype, device=tensor.device)
        rows.diagonal(-start).fill_(1)
        found.append(rows.view((total, *tensor.shape)))
        start += count
    return found
