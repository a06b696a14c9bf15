"""Derivatives of a function at given inputs: Jacobians, Hessians, and products with them.

``func`` runs with recording on, on aliases of the inputs: an input that it refers to by a closure
is a constant. Inputs, outputs and ``v`` are a tensor or a tuple of tensors, and results have the
same structure.

``create_graph=False`` gives results without a history. With True they can be differentiated by
inputs (and ``v``) that require grad.

``strict=True`` raises RuntimeError where an output or a derivative does not depend on an input;
else such derivatives are zeros.
"""

from __future__ import annotations

from typing import Any

import pullback as pb
from pullback.autograd._functional_parts import (
    Function,
    Tensors,
    aliases,
    call,
    call_single,
    check_strategy,
    fill,
    inputs_of,
    require_graph,
    run_pass,
    unwrap,
    vector_for,
)
from pullback.autograd.grad_mode import enable_grad
from pullback.func._forward import blocks_of_columns
from pullback.func._forward import jvp as push_forward
from pullback.func._inputs import fresh
from pullback.func._reverse import basis_of, blocks_of_rows
from pullback.func._vmap import vmap

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

UNREACHED = "The output of the user-provided function is independent of input {i}."
CONSTANT_JACOBIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with "
    "respect to input {i} is independent of the input. So it is for a linear function, whose "
    "second derivatives are zero."
)


@enable_grad()
def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (outputs, vjp): ``func`` at the inputs, and ``v`` times its Jacobian.

    ``v`` has the shapes of the outputs and may be left out if they are one element. The vjp has the
    shapes and dtypes of the inputs. It takes one backward pass.

    Raises: TypeError for what is not a tensor or a tuple of tensors; RuntimeError when ``v`` does
    not fit, and in strict mode.

    >>> import pullback
    >>> pullback.autograd.functional.vjp(pullback.exp, pullback.zeros(2), pullback.tensor([1., 3.]))
    (tensor([1., 1.]), tensor([1., 3.]))
    """
    given, is_tuple = inputs_of(inputs, "vjp")
    given = aliases(given, create_graph)
    outputs, many = call(func, given, "vjp", strict)
    vector = vector_for(v, outputs, many, "vjp", create_graph)
    found = run_pass(outputs, vector, given, create_graph)
    found = fill(found, given, strict, create_graph, UNREACHED)
    return unwrap(outputs, many, create_graph), unwrap(found, is_tuple, create_graph)


@enable_grad()
def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (outputs, jvp): ``func`` at the inputs, and its Jacobian times ``v``.

    ``v`` has the shapes of the inputs and may be left out if they are one element. The jvp has the
    shapes and dtypes of the outputs. It takes two backward passes, so every operation must be
    differentiable twice; :func:`pullback.func.jvp` uses forward mode instead.

    Raises: TypeError for what is not a tensor or a tuple of tensors; RuntimeError when ``v`` does
    not fit, and in strict mode.

    >>> import pullback
    >>> pullback.autograd.functional.jvp(pullback.sum, pullback.ones(2), pullback.tensor([1., 3.]))
    (tensor(2.), tensor(4.))
    """
    given, is_tuple = inputs_of(inputs, "jvp")
    given = aliases(given, create_graph)
    vector = vector_for(v, given, is_tuple, "jvp", create_graph)
    outputs, many = call(func, given, "jvp", strict)
    seeds = _zero_seeds(outputs)
    pulled = run_pass(outputs, seeds, given, True)
    if strict:
        require_graph(
            pulled,
            "The gradient with respect to input {i} is independent of the inputs "
            "of the user-provided function.",
        )
    # The vjp is linear in its cotangents, so its own vjp at zeros is the jvp.
    found = run_pass(pulled, vector, seeds, create_graph)
    found = fill(
        found,
        outputs,
        strict,
        create_graph,
        "The gradient with respect to the input is "
        "independent of entry {i} in the grad_outputs: output {i} is independent of it.",
    )
    return unwrap(outputs, many, create_graph), unwrap(found, many, create_graph)


@enable_grad()
def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (output, vhp): ``func`` at the inputs, and ``v`` times its Hessian.

    ``func`` returns a tensor with one element. ``v`` has the shapes of the inputs, as has the vhp,
    and may be left out if they are one element. It takes two backward passes.

    Raises: TypeError for what is not a tensor or a tuple of tensors; RuntimeError when ``func``
    returns more than one element or ``v`` does not fit, and in strict mode.

    >>> import pullback
    >>> pullback.autograd.functional.vhp(lambda x: (x ** 3).sum(), pullback.tensor([1., 2.]),
    ...                                  pullback.tensor([1., 0.]))
    (tensor(9.), tensor([6., 0.]))
    """
    given, is_tuple = inputs_of(inputs, "vhp")
    given = aliases(given, create_graph)
    vector = vector_for(v, given, is_tuple, "vhp", create_graph)
    output, first = _gradient(func, given, "vhp", strict)
    found = run_pass(first, vector, given, create_graph)
    found = fill(
        found,
        given,
        strict,
        create_graph,
        "The jacobian of the user-provided function is independent of input {i}.",
        "hessian",
    )
    return unwrap((output,), False, create_graph), unwrap(found, is_tuple, create_graph)


@enable_grad()
def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (output, hvp): ``func`` at the inputs, and its Hessian times ``v``.

    Arguments and errors as for :func:`vhp`, which gives the same where second derivatives are
    continuous, and is faster: hvp takes three backward passes.

    >>> import pullback
    >>> pullback.autograd.functional.hvp(lambda x: (x ** 3).sum(), pullback.tensor([1., 2.]),
    ...                                  pullback.tensor([1., 0.]))
    (tensor(9.), tensor([6., 0.]))
    """
    given, is_tuple = inputs_of(inputs, "hvp")
    given = aliases(given, create_graph)
    vector = vector_for(v, given, is_tuple, "hvp", create_graph)
    output, first = _gradient(func, given, "hvp", strict)
    seeds = _zero_seeds(given)
    pulled = run_pass(first, seeds, given, True)
    found = run_pass(pulled, vector, seeds, create_graph)
    found = fill(
        found,
        given,
        strict,
        create_graph,
        "The hessian of the user-provided function is "
        "independent of entry {i} in the grad_jacobian.",
        "hessian",
    )
    return unwrap((output,), False, create_graph), unwrap(found, is_tuple, create_graph)


@enable_grad()
def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of ``func`` at the inputs.

    For one input and one output it is a tensor of shape output.shape + input.shape; a tuple of
    inputs or of outputs gives a tuple, of both a tuple of tuples, ``J[output][input]``.

    ``strategy="reverse-mode"`` takes a backward pass for each element of the outputs, and results
    have the dtype of the input; ``"forward-mode"`` takes a forward pass for each element of the
    inputs, and results have the dtype of the output. ``vectorize=True`` makes all these passes in
    one, on a batch, which needs more memory; without it complex outputs raise in reverse mode.

    Raises: TypeError for what is not a tensor or a tuple of tensors; RuntimeError in strict mode,
    which neither ``vectorize`` nor forward mode has; NotImplementedError for ``create_graph`` in
    forward mode; AssertionError for another strategy.

    >>> import pullback
    >>> jacobian = pullback.autograd.functional.jacobian
    >>> jacobian(lambda x, y: x * y.sum(), (pullback.ones(2), pullback.ones(3)))
    (tensor([[3., 0.],
            [0., 3.]]), tensor([[1., 1., 1.],
            [1., 1., 1.]]))
    """
    check_strategy(strategy, "strategy")
    if strategy == "forward-mode":
        _check_no_forward(create_graph, strict)
    elif strict and vectorize:
        raise RuntimeError(
            "jacobian(): `strict=True` and `vectorized=True` are not supported "
            "together: a batched pass does not tell which outputs are independent."
        )
    given, is_tuple = inputs_of(inputs, "jacobian")
    given = aliases(given, create_graph, strategy == "reverse-mode")
    if strategy == "forward-mode":
        many, blocks = _by_columns(func, given, vectorize)
    else:
        outputs, many = call(func, given, "jacobian", strict)
        if vectorize:
            blocks = _by_batch(outputs, given, create_graph)
        else:
            blocks = [
                _by_rows(i, output, given, create_graph, strict) for i, output in enumerate(outputs)
            ]
    found = tuple(unwrap(row, is_tuple, create_graph) for row in blocks)
    return found if many else found[0]


@enable_grad()
def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of ``func``, which returns a tensor with one element.

    It has the shape input.shape + input.shape and the dtype of the input; a tuple of inputs gives
    a tuple of tuples, ``H[i][j]`` of shape inputs[i].shape + inputs[j].shape.

    It is the Jacobian, by ``outer_jacobian_strategy``, of the gradient, which is computed by
    reverse mode. ``vectorize`` concerns the Jacobian. Errors as for :func:`jacobian`, and
    RuntimeError when ``func`` returns more than one element.

    >>> import pullback
    >>> pullback.autograd.functional.hessian(lambda x: (x ** 3).sum(), pullback.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    check_strategy(outer_jacobian_strategy, "outer_jacobian_strategy")
    given, is_tuple = inputs_of(inputs, "hessian")

    def gradient(*xs: Any) -> Tensors:
        xs = fresh(xs)
        output = call_single(func, xs, "hessian", strict)
        first = fill(run_pass((output,), (None,), xs, True), xs)
        if strict:
            require_graph(first, CONSTANT_JACOBIAN)
        return first

    found = jacobian(gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if is_tuple else found[0][0]


def _zero_seeds(tensors: Tensors) -> Tensors:
    """Return zeros that require grad where the tensors do."""
    return tuple(x.detach().new_zeros(x.shape).requires_grad_(x.requires_grad) for x in tensors)


def _gradient(func: Function, inputs: Tensors, name: str, strict: bool) -> tuple[Any, Tensors]:
    """Return the one-element output and its gradients, which can be differentiated."""
    output = call_single(func, inputs, name, strict)
    first = run_pass((output,), (None,), inputs, True)
    if strict:
        require_graph(first, CONSTANT_JACOBIAN)
    return output, first


# -- strategies: for each output, a list of blocks of the Jacobian, one for each input -------------


def _by_rows(i: int, output: Any, inputs: Tensors, create_graph: bool, strict: bool) -> list[Any]:
    """Run one backward pass for each element of output i."""
    missing = f"Output {i} of the user-provided function is independent of input {{i}}."
    flat = output.reshape(-1)
    rows = []
    for k in range(flat.numel()):
        found = run_pass((flat[k],), (None,), inputs, create_graph, True)
        rows.append(fill(found, inputs, strict, create_graph, missing))
    if not rows:
        return [x.detach().new_zeros((*output.shape, *x.shape)) for x in inputs]
    return [
        pb.stack(column).reshape((*output.shape, *x.shape)) for column, x in zip(zip(*rows), inputs)
    ]


def _by_batch(outputs: Tensors, inputs: Tensors, create_graph: bool) -> list[list[Any]]:
    """Run one backward pass on a batch with one seed for each element of the outputs."""
    size = sum(output.numel() for output in outputs)
    rows: Tensors = (None,) * len(inputs)
    if size:
        rows = run_pass(outputs, basis_of(outputs), inputs, create_graph, batched=True)
    columns = [
        blocks_of_rows(x.detach().new_zeros((size, *x.shape)) if found is None else found, outputs)
        for found, x in zip(rows, inputs)
    ]
    return [list(row) for row in zip(*columns)]


def _construct_standard_basis_for(tensors: Tensors, tensor_numels: Tensors) -> Tensors:
    """Return, for each tensor, its part of all unit vectors, as a matrix; torch's tests call it."""
    return tuple(
        batch.reshape((len(batch), count)) for batch, count in zip(basis_of(tensors), tensor_numels)
    )


def _by_columns(func: Function, inputs: Tensors, vectorize: bool) -> tuple[bool, list[list[Any]]]:
    """Use forward mode; return whether the outputs are a tuple, too."""
    many = False

    def outputs_of(*xs: Any) -> Tensors:
        nonlocal many
        outputs, many = call(func, xs, "jacobian", False)
        return outputs

    def push(*tangents: Any) -> Any:
        return push_forward(outputs_of, inputs, tangents)[1]

    basis = basis_of(inputs)
    if vectorize or not len(basis[0]):
        columns = vmap(push)(*basis)
    else:
        columns = [pb.stack(parts) for parts in zip(*(push(*row) for row in zip(*basis)))]
    return many, [blocks_of_columns(column, inputs) for column in columns]


def _check_no_forward(create_graph: bool, strict: bool) -> None:
    if create_graph:
        raise NotImplementedError(
            'jacobian(): `create_graph=True` and `strategy="forward-mode"` '
            'are not supported together: use "reverse-mode".'
        )
    if strict:
        raise RuntimeError(
            'jacobian(): `strict=True` and `strategy="forward-mode"` are not '
            'supported together: use "reverse-mode".'
        )
