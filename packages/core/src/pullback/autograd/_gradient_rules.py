"""Checks of gradcheck other than values: batched, undefined and zero gradients."""

from __future__ import annotations

import functools
import warnings
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
    push_forward,
    random_unit,
    run_backward,
    run_forward,
    zeros_like,
)


def _draws() -> Any:
    import random  # slow to import

    return random.Random(0)


def verify_batched_grad(problem: Problem) -> None:
    """Check that one batched backward equals one backward for each seed of the batch."""
    inputs, generator = problem.checked_inputs(), _draws()
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
            raise GradcheckError(
                _batched_failure(error, "gradcheck or gradgradcheck", "", "_grad")
            ) from error
        for k, j in enumerate(problem.inputs_at):
            single = pb.stack([grad[k] for grad in expected])
            batched = zeros_like(single) if grads[k] is None else grads[k]
            _compare_batched(problem, i, j, batched, single)


def verify_batched_forward_grad(problem: Problem) -> None:
    """Check that forward mode works on a batch of tangents."""
    generator = _draws()
    for j in problem.inputs_at:
        x = problem.inputs[j]
        tangents = [random_unit(x, generator).to(x.dtype) for _ in range(2)]
        expected = [run_forward(problem, j, tangent) for tangent in tangents]
        try:
            results = pb.func.vmap(functools.partial(run_forward, problem, j))(pb.stack(tangents))
        except RuntimeError as error:
            raise GradcheckError(
                _batched_failure(error, "gradcheck", " with forward-mode AD", "_forward_grad")
            ) from error
        for k, i in enumerate(problem.outputs_at):
            _compare_batched(problem, i, j, results[k], pb.stack([row[k] for row in expected]))


def _compare_batched(problem: Problem, i: int, j: int, batched: Tensor, single: Tensor) -> None:
    if not is_close(batched, single, problem.rtol, problem.atol):
        raise GradcheckError(
            f"Batched gradients differ from those computed one by one for output {i} and input "
            f"{j}.\n\nGot:\n{batched}\n\nExpected:\n{single}"
        )


def _batched_failure(error: Exception, who: str, mode: str, flag: str) -> str:
    return (
        f"While computing batched gradients, got: {error}\n\n{who} failed while testing batched "
        f"gradient computation{mode}: the derivative is run on a batch of seeds or tangents at "
        "once, so it may only use operations that can be batched, no values of tensors and no "
        f"random numbers. Pass check_batched{flag}=False if it cannot do without."
    )


def verify_zero_seeds(problem: Problem, check_grad_dtypes: bool) -> None:
    """Check that zero gradients give zeros, with the dtypes and shapes of the inputs."""
    outputs, inputs = problem.checked_outputs(), problem.checked_inputs()
    seeds = [zeros_like(output) for output in outputs]
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
    """Return an identity whose backward returns None."""

    class WithoutGradient(pb.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> None:
            return None

    return WithoutGradient.apply


def verify_undefined_grad(problem: Problem) -> None:
    """Check that formulas accept undefined gradients: for all outputs, then for one at a time."""
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
        seeds = [zeros_like(output) for output in roots]
        try:
            grads = pb.autograd.grad(roots, inputs, seeds, allow_unused=True)
        except RuntimeError as error:
            raise _undefined_failure(
                "Expected backward function to handle undefined output grads", undefined
            ) from error
        if not all(grad is None or bool((grad == 0).all()) for grad in grads):
            raise _undefined_failure(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero",
                undefined,
            )


def _undefined_failure(start: str, undefined: Iterable[int]) -> GradcheckError:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by "
        "default. Pass check_undefined_grad=False if the function is never used so.",
        UserWarning,
        stacklevel=4,
    )
    return GradcheckError(
        f"{start}; it is not so where no gradient reaches outputs {sorted(undefined)} and zeros "
        "reach the others"
    )


def verify_undefined_tangents(problem: Problem) -> None:
    """Check that forward mode treats a missing tangent as zeros."""
    generator = _draws()
    tangents = {
        j: random_unit(problem.inputs[j], generator).to(problem.inputs[j].dtype)
        for j in problem.inputs_at
    }
    for j in problem.inputs_at:
        x = problem.inputs[j]
        expected = push_forward(problem, {**tangents, j: zeros_like(x)})
        found = push_forward(problem, {k: t for k, t in tangents.items() if k != j})
        for i, one, other in zip(problem.outputs_at, found, expected):
            if not is_close(one, other, problem.rtol, problem.atol):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index {i} when input {j} has an "
                    f"undefined tangent.\n\nGot:\n{one}\n\nExpected, as with zeros:\n{other}"
                )
