"""Rules that derivative formulas must keep, apart from giving the right values."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from typing import Any

import pullback as pb

from ._jacobian import (
    Function,
    GradcheckError,
    Problem,
    Tensor,
    call_function,
    is_close,
    make_zeros,
    random_unit,
    run_backward,
    run_forward,
)


def verify_batched_grad(problem: Problem) -> None:
    """Check that one batched backward equals one backward for each seed of the batch."""
    inputs, generator = problem.checked_inputs(), random.Random(0)
    for i in problem.outputs_at:
        output = problem.outputs[i]
        seeds = [random_unit(output, generator).to(output.dtype) for _ in range(2)]
        expected = [run_backward(output, inputs, seed) for seed in seeds]
        try:
            grads = pb.autograd.grad(
                [output],
                inputs,
                [pb.stack(seeds)],
                retain_graph=True,
                allow_unused=True,
                is_grads_batched=True,
            )
        except RuntimeError as error:
            raise GradcheckError(_batched_failure(error, "check_batched_grad")) from error
        for k, j in enumerate(problem.inputs_at):
            single = pb.stack([grad[k] for grad in expected])
            batched = make_zeros(single.shape, single) if grads[k] is None else grads[k]
            _compare_batched(problem, i, j, batched, single)


def _push_forward(problem: Problem, j: int, tangent: Tensor) -> tuple[Tensor, ...]:
    """Return the tangents of the checked outputs, by a transform that can be batched."""

    def func(x: Tensor) -> tuple[Tensor, ...]:
        outputs = call_function(problem.func, (*problem.inputs[:j], x, *problem.inputs[j + 1 :]))
        return tuple(outputs[i] for i in problem.outputs_at)

    tangents: tuple[Tensor, ...] = pb.func.jvp(func, (problem.inputs[j],), (tangent,))[1]
    return tangents


def verify_batched_forward_grad(problem: Problem) -> None:
    """Check that forward mode works on a batch of tangents."""
    generator = random.Random(0)
    for j in problem.inputs_at:
        x = problem.inputs[j]
        tangents = [random_unit(x, generator).to(x.dtype) for _ in range(2)]
        expected = [run_forward(problem, j, tangent) for tangent in tangents]
        derivative = functools.partial(_push_forward, problem, j)
        try:
            results = pb.func.vmap(derivative)(pb.stack(tangents))
        except RuntimeError as error:
            raise GradcheckError(_batched_failure(error, "check_batched_forward_grad")) from error
        for k, i in enumerate(problem.outputs_at):
            _compare_batched(problem, i, j, results[k], pb.stack([row[k] for row in expected]))


def _compare_batched(problem: Problem, i: int, j: int, batched: Tensor, single: Tensor) -> None:
    if not is_close(batched, single, problem.rtol, problem.atol):
        raise GradcheckError(
            f"Batched gradients differ from those computed one by one for output {i} and input "
            f"{j}.\n\nGot:\n{batched}\n\nExpected:\n{single}"
        )


def _batched_failure(error: Exception, flag: str) -> str:
    return (
        f"While computing batched gradients, got: {error}\n\nThe derivative is run on a batch of "
        "seeds or tangents at once, so it may only use operations that can be batched, and no "
        f"values of tensors. Pass {flag}=False if it cannot do without."
    )


def verify_zero_seeds(problem: Problem, check_grad_dtypes: bool) -> None:
    """Check that gradients of zero give zeros, of the kind that the inputs have."""
    outputs, inputs = problem.checked_outputs(), problem.checked_inputs()
    seeds = [make_zeros(output.shape, output) for output in outputs]
    grads = pb.autograd.grad(outputs, inputs, seeds, retain_graph=True, allow_unused=True)
    for grad, x in zip(grads, inputs):
        if grad is None:
            continue
        if not bool((grad == 0).all()):
            raise GradcheckError("backward not multiplied by grad_output")
        if grad.shape != x.shape:
            raise GradcheckError("grad is incorrect size")
        if grad.device != x.device:
            raise GradcheckError("grad is incorrect device")
        if check_grad_dtypes and grad.dtype != x.dtype:
            raise GradcheckError("Gradient has dtype mismatch")


@functools.cache
def _without_gradient() -> Function:
    """Return an identity whose backward passes no gradient on."""

    class WithoutGradient(pb.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> None:
            return None

    return WithoutGradient.apply


def verify_undefined_grad(problem: Problem) -> None:
    """Check that formulas take missing gradients: all outputs, then one at a time."""
    count = len(problem.outputs_at)
    cases = [set(range(count))] + [{k} for k in range(count) if count > 1]
    inputs = problem.checked_inputs()
    for undefined in cases:
        outputs = [
            output for output in call_function(problem.func, problem.inputs) if output.requires_grad
        ]
        roots = [
            _without_gradient()(output) if k in undefined else output
            for k, output in enumerate(outputs)
        ]
        seeds = [make_zeros(output.shape, output) for output in roots]
        try:
            grads = pb.autograd.grad(roots, inputs, seeds, allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError(_undefined_failure(undefined)) from error
        if not all(grad is None or bool((grad == 0).all()) for grad in grads):
            raise GradcheckError(_undefined_failure(undefined))


def _undefined_failure(undefined: Iterable[int]) -> str:
    return (
        "Expected backward function to handle undefined output grads: where no gradient reaches "
        f"outputs {sorted(undefined)} and zeros reach the others, it must give zeros or None"
    )
