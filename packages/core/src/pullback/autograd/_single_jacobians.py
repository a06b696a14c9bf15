"""The Jacobian functions of torch's module gradcheck."""

from __future__ import annotations

import warnings
from typing import Any

import pullback as pb

from ._jacobian import (
    Function,
    Problem,
    Tensor,
    analytical_jacobian,
    as_tuple,
    call_function,
    combine_axes,
    make_evaluator,
    max_difference,
    numerical_jacobian,
    requires_grad,
    zeros_like,
)


def get_numerical_jacobian(
    fn: Function,
    inputs: Any,
    target: Any = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[Any, ...]:
    """Return the derivative of ``fn(inputs)`` by each of ``target``, by central differences.

    Deprecated. Skips tensors that do not require grad. Only the first output counts; each matrix
    has a row for each input element.
    """
    _warn_private("get_numerical_jacobian")
    _check_grad_out("get_numerical_jacobian", grad_out)
    targets = _find_tensors(inputs if target is None else target)
    output = call_function(fn, (inputs,))[0]
    _check_not_complex("get_numerical_jacobian", output)

    def evaluate() -> list[Tensor]:
        return [call_function(fn, (inputs,))[0].detach().clone()]

    return tuple(
        combine_axes(*(axis[0] for axis in numerical_jacobian(evaluate, x, [output], eps)))
        for x in targets
    )


def get_analytical_jacobian(
    inputs: Any, output: Any, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Any, ...], bool, bool, bool]:
    """Return the derivative of ``output`` by each of ``inputs`` that backward computes.

    Deprecated. Also says whether backward is reentrant, and whether gradients have the sizes and
    the dtypes of the inputs.
    """
    _warn_private("get_analytical_jacobian")
    _check_grad_out("get_analytical_jacobian", grad_out)
    _check_not_complex("get_analytical_jacobian", output)
    wanted = _find_tensors(inputs)
    first, again = (analytical_jacobian(output, wanted, 1) for _ in range(2))
    reentrant = all(max_difference(a, b) <= nondet_tol for a, b in zip(first, again))
    seed = zeros_like(output)
    grads = pb.autograd.grad([output], wanted, [seed], retain_graph=True, allow_unused=True)
    pairs = [(grad, x) for grad, x in zip(grads, wanted) if grad is not None]
    sizes_agree = all(grad.shape == x.shape for grad, x in pairs)
    dtypes_agree = all(grad.dtype == x.dtype for grad, x in pairs)
    return tuple(first), reentrant, sizes_agree, dtypes_agree


def get_numerical_jacobian_wrt_specific_input(
    fn: Function,
    input_idx: int,
    inputs: Any,
    outputs: Any,
    eps: float,
    input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Any, ...]:
    """Return the derivative of each output of ``fn(*inputs)`` by one input, by central differences.

    ``input`` is the tensor to change, by default ``inputs[input_idx]``. Each matrix has a row for
    each of its elements. ``outputs`` are the outputs at ``inputs``. ``is_forward_ad`` permits
    complex outputs of a real input.

    Raises: AssertionError when the input requires no grad, or for complex outputs.

    >>> import pullback
    >>> from pullback.autograd.gradcheck import get_numerical_jacobian_wrt_specific_input
    >>> x = pullback.ones(2, dtype=pullback.float64, requires_grad=True)
    >>> found = get_numerical_jacobian_wrt_specific_input(lambda x: x * 3, 0, (x,), (x * 3,), 1e-6)
    >>> found[0].round()
    tensor([[3., 0.],
            [0., 3.]], dtype=pullback.float64)
    """
    x = inputs[input_idx] if input is None else input
    if not requires_grad(x):
        raise AssertionError("Expected input to have requires_grad=True")
    before = as_tuple(outputs)
    if any(output.is_complex() for output in before) and not (is_forward_ad and not x.is_complex()):
        raise AssertionError(
            "Expected ds_dx to be real-valued, not complex: the derivative of a complex output is "
            "not one matrix"
        )
    positions = list(range(len(before)))
    problem = Problem(fn, tuple(inputs), [input_idx], before, positions, eps, 0.0, 0.0, 0.0)
    axes = numerical_jacobian(make_evaluator(problem), x, before, eps)
    return tuple(combine_axes(*(axis[i] for axis in axes)) for i in positions)


def _warn_private(name: str) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and is kept for programs that use it. Use "
        "`gradcheck`, or `autograd.functional.jacobian` for a jacobian.",
        FutureWarning,
        stacklevel=3,
    )


def _check_grad_out(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )


def _check_not_complex(name: str, output: Tensor) -> None:
    if output.is_complex():
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return "
            "complex outputs."
        )


def _find_tensors(value: Any) -> list[Tensor]:
    """Return the tensors that require grad in nested tuples, lists and dicts."""
    if isinstance(value, pb.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in _find_tensors(item)]
