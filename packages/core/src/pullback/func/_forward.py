"""Transforms by forward mode: jvp, jacfwd, hessian, linearize."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pullback as pb
from pullback._c.graph import levels
from pullback._c.graph.grad_modes import Transformed
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import tangents
from pullback.autograd.forward_ad import check_dtypes
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
from pullback.func._reverse import basis_of, jacrev
from pullback.func._tree import leaves, rebuild, structure, tree_map
from pullback.func._vmap import vmap
from pullback.ops import ops

__all__ = ["hessian", "jacfwd", "jvp", "linearize"]


def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return (output, tangent): ``func`` at ``primals``, and its derivative along tangents.

    Both are tuples of the same structure. With ``has_aux``, ``func`` returns (output, aux) and the
    result is (output, tangent, aux). With ``strict`` an output that does not depend on the primals
    raises; else its tangent is zeros.

    Raises: RuntimeError when primals are not a tuple of tensors or tangents do not fit them;
    ValueError for a dtype without derivatives.

    >>> import pullback
    >>> pullback.func.jvp(pullback.sin, (pullback.tensor(0.),), (pullback.tensor(2.),))
    (tensor(0.), tensor(2.))
    """
    return _push(func, primals, tangents, strict, has_aux)


def _push(func: Callable[..., Any], primals: Any, given: Any, strict: bool, has_aux: bool) -> Any:
    """Implement jvp: its argument ``tangents`` would shadow the module of that name."""
    where = "jvp(f, primals, tangents)"
    _check_primals(where, primals, given)
    with Transformed(differentiates=True):
        level = levels.enter_level()
        try:
            duals = rebuild(
                primals,
                [tangents.make_dual(x, t, level) for x, t in zip(leaves(primals), leaves(given))],
            )
            output = func(*duals)
            aux = None
            if has_aux:
                output, aux = split_aux(output, where)
                aux = tree_map(lambda leaf: tangents.unpack_dual(leaf, level)[0], aux)
            pairs = [
                tangents.unpack_dual(leaf, level)
                for leaf in only_tensors(output, where, "f(*primals)")
            ]
            if strict and any(tangent is None for _, tangent in pairs):
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): The output of f is "
                    "independent of the inputs. This is not allowed with "
                    "strict=True."
                )
            value = rebuild(output, [primal for primal, _ in pairs])
            moved = rebuild(
                output,
                [
                    ops.zeros_like(primal.detach()) if tangent is None else tangent
                    for primal, tangent in pairs
                ],
            )
        finally:
            levels.exit_level(level)
    return (value, moved, aux) if has_aux else (value, moved)


def _check_primals(where: str, primals: Any, given: Any) -> None:
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{where}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    if structure(primals) != structure(given):
        raise RuntimeError(
            f"{where}: Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
            f"structure {structure(primals)} and tangents with structure {structure(given)}"
        )
    if not leaves(primals):
        raise RuntimeError(f"{where}: Expected primals to contain at least one Tensor.")
    for name, tree in (("primals", primals), ("tangents", given)):
        for leaf in leaves(tree):
            if not isinstance(leaf, Tensor):
                raise RuntimeError(
                    f"{where}: Expected {name} to only contain Tensors, got {type(leaf)}"
                )
    for primal, tangent in zip(leaves(primals), leaves(given)):
        check_dtypes(primal, tangent)


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func`` by forward mode.

    It is a nest like the output, of nests like the argument, of shape output.shape + input.shape.
    ``randomness`` is that of :func:`vmap`.

    Raises: RuntimeError when argnums do not fit, or an argument or the output holds anything but
    tensors.

    >>> import pullback
    >>> pullback.func.jacfwd(lambda x: x * x)(pullback.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = chosen(argnums, args)
        primals = tuple(args[number] for number in numbers)
        inputs = leaves(primals)
        for leaf in inputs:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"jacfwd: Expected all inputs to be Tensors, got {type(leaf)}")
        only_real(inputs, "jacfwd", "inputs")

        def of_chosen(*values: Any) -> Any:
            return func(*replaced(args, numbers, values), **kwargs)

        def push(*basis: Tensor) -> Any:
            found = jvp(of_chosen, primals, rebuild(primals, list(basis)), has_aux=has_aux)
            only_real(leaves(found[1]), "jacfwd", "outputs")
            return found[1:] if has_aux else found[1]

        columns = vmap(push, randomness=randomness, out_dims=(0, None) if has_aux else 0)(
            *basis_of(inputs)
        )
        columns, aux = columns if has_aux else (columns, None)
        single = not isinstance(argnums, tuple)

        def of_output(part: Tensor) -> Any:
            nested = rebuild(primals, blocks_of_columns(part, inputs))
            return nested[0] if single else nested

        result = tree_map(of_output, columns)
        return (result, aux) if has_aux else result

    return wrapped


def blocks_of_columns(columns: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the blocks of a Jacobian whose columns, stacked, are those of all inputs' elements.

    Each has the shape of a column followed by that of its input.
    """
    blocks = []
    start = 0
    for x in inputs:
        block = columns.narrow(0, start, x.numel()).movedim(0, -1)
        blocks.append(block.reshape((*columns.shape[1:], *x.shape)))
        start += x.numel()
    return blocks


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian of ``func``: forward mode over reverse mode.

    Raises: as :func:`jacfwd` does.

    >>> import pullback
    >>> pullback.func.hessian(lambda x: (x ** 3).sum())(pullback.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return (output, jvp_fn): jvp_fn computes the derivative along tangents without ``func``.

    ``func`` runs once; jvp_fn transposes its vjp, which is linear. Use it for many tangents at the
    same primals.

    Raises: RuntimeError for tangents that do not fit the primals.

    >>> import pullback
    >>> y, push = pullback.func.linearize(pullback.sin, pullback.tensor([0.0]))
    >>> push(pullback.tensor([3.0]))
    tensor([3.])
    """
    recording = pb.is_grad_enabled()
    with Transformed(records=True):
        inputs = [fresh(primal, recording) for primal in primals]
        flat = leaves(inputs)
        output = func(*inputs)
        outputs = only_tensors(output, "linearize(f, *primals)", "f(*primals)")
        seeds = [ops.zeros_like(y.detach()) for y in outputs]
        for seed in seeds:
            levels.whole(seed).requires_grad_()
        pulled = gradients(outputs, list(seeds), flat, True, True)

    def jvp_fn(*given: Any) -> Any:
        if structure(given) != structure(primals):
            raise RuntimeError(
                f"Expected tangents {structure(given)} to have the same argspec as "
                f"the primals {structure(primals)}"
            )
        directions = leaves(given)
        for i, (direction, x) in enumerate(zip(directions, flat)):
            if direction.shape != x.shape:
                raise RuntimeError(
                    f"tangent:{i} with shape {direction.shape} in flattened pytree "
                    f"doesn't match the shape {x.shape} of the corresponding "
                    f"primal."
                )
            if direction.dtype != x.dtype:
                raise RuntimeError(
                    f"tangent:{i} with dtype {direction.dtype} in flattened pytree "
                    f"doesn't match the dtype {x.dtype} of the corresponding "
                    f"primal."
                )
        with Transformed(records=True):
            moved = gradients(pulled, directions, seeds, True, True)
        return settled(rebuild(output, moved), (inputs, seeds), recording)

    return settled(output, inputs, recording), jvp_fn
