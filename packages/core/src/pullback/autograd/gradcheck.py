"""Compare derivatives with finite differences.

``gradcheck`` moves each element of each input a little, both ways, and compares the change of
the outputs with what backward (and forward mode, if asked) computes. The derivatives of output i
with respect to input j form a matrix with one row for each input element and one column for each
output element.

Complex numbers: a complex output counts as two real ones, its real and its imaginary part. A
complex input is moved along both axes; the derivative along the real axis plus ``1j`` times that
along the imaginary axis is what ``.grad`` holds for a real output.

In fast mode the matrix J is not built. Random vectors u and v of positive numbers are drawn and
only the number v^T J u is compared: two calls of the function and one backward suffice for it.
"""

from __future__ import annotations

import warnings
from typing import Any

import pullback as pb
from pullback._help import explain_names as _explain_names

from ._gradient_rules import (
    verify_batched_forward_grad,
    verify_batched_grad,
    verify_undefined_grad,
    verify_undefined_tangents,
    verify_zero_seeds,
)
from ._jacobian import (
    Function,
    GradcheckError,
    Problem,
    Tensor,
    analytical_jacobian,
    as_tuple,
    axes_of,
    call_function,
    central_difference,
    combine_axes,
    dot_product,
    forward_jacobian,
    is_close,
    make_evaluator,
    max_difference,
    numerical_jacobian,
    part_of,
    random_unit,
    requires_grad,
    run_backward,
    run_forward,
    zeros_like,
)
from ._single_jacobians import (
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
)

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]


# -- public entry points -------------------------------------------------------------------------


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check derivatives of ``func`` at ``inputs`` against central differences.

    Every input that requires grad should be of dtype float64 or complex128 and is moved by
    ``eps``; what is computed must agree with the differences within ``atol`` and ``rtol``, and
    with itself, computed again, within ``nondet_tol``.

    ``check_backward_ad`` and ``check_forward_ad`` choose what is compared with the differences.
    ``check_undefined_grad``: gradients and tangents that are missing count as zeros.
    ``check_batched_grad`` and ``check_batched_forward_grad``: a batch of them gives what its
    elements give. ``check_grad_dtypes``: gradients have the dtypes of the inputs. ``masked``
    concerns sparse tensors and changes nothing for the dense ones here.

    Raises: GradcheckError when a check fails, unless ``raise_exception=False``, which returns
    False instead. Misuse raises ValueError, TypeError, RuntimeError or AssertionError.

    >>> import pullback
    >>> x = pullback.ones(3, dtype=pullback.float64, requires_grad=True)
    >>> pullback.autograd.gradcheck(pullback.tanh, (x,))
    True
    """
    _check_flags(
        check_forward_ad, check_backward_ad, check_batched_grad, check_batched_forward_grad
    )
    inputs = as_tuple(inputs)
    inputs_at = _find_inputs(inputs)
    outputs = call_function(func, inputs)
    outputs_at = [i for i, output in enumerate(outputs) if output.requires_grad]
    problem = Problem(func, inputs, inputs_at, outputs, outputs_at, eps, atol, rtol, nondet_tol)
    try:
        if not outputs_at:
            _check_constant(problem)
            return True
        compare = _compare_fast if fast_mode else _compare_slow
        compare(problem, check_backward_ad, check_forward_ad)
        if check_forward_ad and check_undefined_grad:
            verify_undefined_tangents(problem)
        if check_batched_forward_grad:
            verify_batched_forward_grad(problem)
        if check_batched_grad:
            verify_batched_grad(problem)
        if check_backward_ad:
            verify_zero_seeds(problem, check_grad_dtypes)
        if check_backward_ad and check_undefined_grad:
            verify_undefined_grad(problem)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check derivatives of the gradient of ``func``, that is second derivatives.

    ``grad_outputs`` are the seeds, one for each output that requires grad; without them random
    ones in [-1, 1) are drawn, not contiguous if ``gen_non_contig_grad_outputs``. The gradient
    is checked as a function of the inputs and of the seeds. Other arguments as in ``gradcheck``.

    Raises: as ``gradcheck`` does.

    >>> import pullback
    >>> x = pullback.ones(3, dtype=pullback.float64, requires_grad=True)
    >>> pullback.autograd.gradgradcheck(pullback.tanh, (x,))
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    inputs = as_tuple(inputs)
    outputs = [output for output in call_function(func, inputs) if output.requires_grad]
    if grad_outputs is None:
        grad_outputs = tuple(_random_seed(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        grad_outputs = as_tuple(grad_outputs)
    if len(grad_outputs) != len(outputs):
        raise ValueError(
            f"gradgradcheck expects one grad_output for each of the {len(outputs)} outputs of "
            f"func that require grad, got {len(grad_outputs)}"
        )

    inputs_at = [j for j, x in enumerate(inputs) if requires_grad(x)]

    def gradient(*args: Any) -> tuple[Any, ...]:
        arguments, seeds = args[: len(inputs)], args[len(inputs) :]
        wanted = [arguments[j].requires_grad_() for j in inputs_at]  # forward mode detaches them
        results = [result for result in call_function(func, arguments) if result.requires_grad]
        if not results or not wanted:
            return ()
        grads = pb.autograd.grad(results, wanted, seeds, create_graph=True, allow_unused=True)
        return tuple(grad for grad in grads if grad is not None)

    return gradcheck(
        gradient,
        inputs + grad_outputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# -- misuse --------------------------------------------------------------------------------------


def _check_flags(forward: bool, backward: bool, batched: bool, batched_forward: bool) -> None:
    if not (forward or backward):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if batched and not backward:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if batched_forward and not forward:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )


def _find_inputs(inputs: tuple[Any, ...]) -> list[int]:
    """Return the positions of the inputs to check; raises or warns for their layouts and dtypes."""
    found = [j for j, x in enumerate(inputs) if requires_grad(x)]
    if not found:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
    for j in found:
        x = inputs[j]
        if x.dtype not in (pb.float64, pb.complex128):
            warnings.warn(
                f"Input #{j} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex.",
                stacklevel=3,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape)):
            raise RuntimeError(
                f"The {j}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients "
                "correctly. You should call .contiguous on the input before passing it to "
                "gradcheck."
            )
    return found


def _random_seed(output: Tensor, non_contiguous: bool) -> Tensor:
    shape = (*output.shape, 2) if non_contiguous else tuple(output.shape)
    seed = 2 * pb.rand(shape, dtype=output.dtype, device=output.device)
    seed = seed - (1 + 1j if output.is_complex() else 1)
    if non_contiguous:
        seed = seed[..., 0]
    return seed.detach().requires_grad_()


# -- comparing in full ---------------------------------------------------------------------------


def _compare_slow(problem: Problem, backward: bool, forward: bool) -> None:
    evaluate, outputs = make_evaluator(problem), problem.checked_outputs()
    numerical = {
        j: numerical_jacobian(evaluate, problem.inputs[j], outputs, problem.eps)
        for j in problem.inputs_at
    }
    if backward:
        for k, i in enumerate(problem.outputs_at):
            expected = {j: [axis[k] for axis in axes] for j, axes in numerical.items()}
            _compare_backward(problem, i, expected)
    if not forward:
        return
    for j in problem.inputs_at:
        for a, axis in reversed(list(enumerate(axes_of(problem.inputs[j])))):
            computed = forward_jacobian(problem, j, axis)
            for k, i in enumerate(problem.outputs_at):
                if not is_close(computed[k], numerical[j][a][k], problem.rtol, problem.atol):
                    text = _part_note(problem.inputs[j], axis, "inputs")
                    text += _mismatch(i, j, forward=True)
                    raise GradcheckError(text + _matrices(numerical[j][a][k], computed[k]))


def _compare_backward(problem: Problem, i: int, numerical: dict[int, list[Tensor]]) -> None:
    """Check one output; ``numerical`` has its matrices by each axis of each input."""
    output, inputs = problem.outputs[i], problem.checked_inputs()
    for part in reversed(axes_of(output)):
        first, again = (analytical_jacobian(output, inputs, part) for _ in range(2))
        for computed, j in zip(first, problem.inputs_at):
            expected = combine_axes(*(part_of(matrix, part) for matrix in numerical[j]))
            if not is_close(computed, expected, problem.rtol, problem.atol):
                text = _part_note(output, part, "outputs") + _mismatch(i, j)
                raise GradcheckError(text + _matrices(expected, computed))
        _check_reentrant(problem, first, again)


def _check_reentrant(problem: Problem, first: list[Tensor], again: list[Tensor]) -> None:
    if any(max_difference(a, b) > problem.nondet_tol for a, b in zip(first, again)):
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches "
            f"numerical gradient. The tolerance for nondeterminism was {problem.nondet_tol}; "
            "if the function is nondeterministic on purpose, pass a larger nondet_tol."
        )


def _check_constant(problem: Problem) -> None:
    """Check that outputs, none of which requires grad, do not depend on the inputs."""
    inexact = [
        i
        for i, output in enumerate(problem.outputs)
        if output.is_floating_point() or output.is_complex()
    ]
    problem = problem._replace(outputs_at=inexact)
    evaluate, outputs = make_evaluator(problem), problem.checked_outputs()
    for x in problem.checked_inputs():
        for axis in numerical_jacobian(evaluate, x, outputs, problem.eps):
            for matrix in axis:
                if not is_close(matrix, zeros_like(matrix), problem.rtol, problem.atol):
                    raise GradcheckError("Numerical gradient for function expected to be zero")


# -- comparing along random vectors --------------------------------------------------------------


def _compare_fast(problem: Problem, backward: bool, forward: bool) -> None:
    from random import Random  # imports hashlib, which is slow

    evaluate, generator = make_evaluator(problem), Random(0)
    vectors = {
        j: [random_unit(problem.inputs[j], generator) for _ in axes_of(problem.inputs[j])]
        for j in problem.inputs_at
    }
    numerical = {
        j: [
            central_difference(evaluate, problem.inputs[j], ..., axis * u, problem.eps)
            for axis, u in zip(axes_of(problem.inputs[j]), vectors[j])
        ]
        for j in problem.inputs_at
    }
    if backward:
        for k, i in enumerate(problem.outputs_at):
            moved = {j: [axis[k] for axis in axes] for j, axes in numerical.items()}
            v = random_unit(problem.outputs[i], generator)
            _compare_backward_fast(problem, i, v, vectors, moved)
    if not forward:
        return
    for j in problem.inputs_at:
        for a, axis in reversed(list(enumerate(axes_of(problem.inputs[j])))):
            u = vectors[j][a]
            computed = run_forward(problem, j, (axis * u).to(problem.inputs[j].dtype))
            atol = problem.atol * float(u.sum())
            for k, i in enumerate(problem.outputs_at):
                if not is_close(computed[k], numerical[j][a][k], problem.rtol, atol):
                    text = _part_note(problem.inputs[j], axis, "inputs")
                    text += _mismatch(i, j, forward=True)
                    text += _matrices(numerical[j][a][k].reshape(-1), computed[k].reshape(-1))
                    raise GradcheckError(text + _recompute_forward(problem, k, j, a))


def _compare_backward_fast(
    problem: Problem,
    i: int,
    v: Tensor,
    vectors: dict[int, list[Tensor]],
    moved: dict[int, list[Tensor]],
) -> None:
    """Check one output; ``moved`` has its change along each axis of each input."""
    output, inputs = problem.outputs[i], problem.checked_inputs()
    for part in reversed(axes_of(output)):
        seed = (part * v).to(output.dtype)
        first, again = (run_backward(output, inputs, seed) for _ in range(2))
        for grad, j in zip(first, problem.inputs_at):
            axes = axes_of(problem.inputs[j])
            expected = sum(
                axis * dot_product(part_of(change, part), v) for axis, change in zip(axes, moved[j])
            )
            computed = sum(
                axis * dot_product(part_of(grad, axis), u) for axis, u in zip(axes, vectors[j])
            )
            atol = problem.atol * sum(float(u.sum()) for u in vectors[j]) * float(v.sum())
            if not abs(computed - expected) <= atol + problem.rtol * abs(expected):
                text = _part_note(output, part, "outputs") + _mismatch(i, j)
                text += f"numerical:{expected}\nanalytical:{computed}\n"
                raise GradcheckError(text + _recompute_backward(problem, i, j, part))
        _check_reentrant(problem, first, again)


def _recompute_backward(problem: Problem, i: int, j: int, part: complex) -> str:
    output, x = problem.outputs[i], problem.inputs[j]
    alone = problem._replace(outputs_at=[i])
    axes = numerical_jacobian(make_evaluator(alone), x, [output], problem.eps)
    numerical = combine_axes(*(part_of(axis[0], part) for axis in axes))
    return _explain_fast(problem, numerical, analytical_jacobian(output, [x], part)[0])


def _recompute_forward(problem: Problem, k: int, j: int, a: int) -> str:
    x, outputs = problem.inputs[j], problem.checked_outputs()
    numerical = numerical_jacobian(make_evaluator(problem), x, outputs, problem.eps)[a][k]
    return _explain_fast(problem, numerical, forward_jacobian(problem, j, axes_of(x)[a])[k])


def _explain_fast(problem: Problem, numerical: Tensor, analytical: Tensor) -> str:
    text = (
        "\nThe quantities above relate the numerical and analytical jacobians and are computed "
        "in fast mode. Both jacobians recomputed in slow mode:\n\n"
        f"Numerical:\n{numerical}\nAnalytical:\n{analytical}\n\n"
        "The max per-element difference (slow mode) is: "
        f"{max_difference(numerical, analytical)}.\n"
    )
    if is_close(analytical, numerical, problem.rtol, problem.atol):
        text += (
            "\nThe jacobians agree in slow mode: fast mode may be too strict for this function. "
            "Pass fast_mode=False, or larger atol and rtol.\n"
        )
    return text


# -- messages ------------------------------------------------------------------------------------


def _mismatch(i: int, j: int, *, forward: bool = False) -> str:
    mode = "computed with forward mode " if forward else ""
    return f"Jacobian {mode}mismatch for output {i} with respect to input {j},\n"


def _matrices(numerical: Tensor, analytical: Tensor) -> str:
    return f"numerical:{numerical}\nanalytical:{analytical}\n"


def _part_note(x: Tensor, part: complex, what: str) -> str:
    if not x.is_complex():
        return ""
    name = "real" if part == 1 else "imaginary"
    return f"While considering the {name} part of complex {what} only, "


_explain_names(globals())
