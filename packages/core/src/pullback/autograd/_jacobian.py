"""Jacobians for gradcheck: by differences, by backward and by forward mode.

The derivatives of output i with respect to input j form a matrix with one row for each input
element and one column for each output element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pullback as pb

if TYPE_CHECKING:
    import random

Tensor = Any
Function = Callable[..., Any]


class GradcheckError(RuntimeError):
    """A derivative is wrong, or a backward formula breaks a rule that gradcheck tests.

    >>> import pullback
    >>> from pullback.autograd.gradcheck import GradcheckError
    >>> x = pullback.ones(2, dtype=pullback.float64, requires_grad=True)
    >>> try:
    ...     pullback.autograd.gradcheck(lambda x: x.detach() * x, (x,))
    ... except GradcheckError as error:
    ...     print(str(error).splitlines()[0])
    Jacobian mismatch for output 0 with respect to input 0,
    """

    __module__ = "pullback.autograd.gradcheck"


class Problem(NamedTuple):
    """The data of one call of gradcheck; positions refer to the caller's tuples."""

    func: Function
    inputs: tuple[Any, ...]
    inputs_at: list[int]  # inputs that require grad
    outputs: tuple[Any, ...]
    outputs_at: list[int]  # outputs that require grad
    eps: float
    atol: float
    rtol: float
    nondet_tol: float

    def checked_inputs(self) -> list[Tensor]:
        return [self.inputs[j] for j in self.inputs_at]

    def checked_outputs(self) -> list[Tensor]:
        return [self.outputs[i] for i in self.outputs_at]


def call_function(func: Function, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Call the function and return its outputs as a tuple of dense tensors.

    Sparse tensors can only come from extensions, which mark them by ``is_sparse``.
    """
    outputs = as_tuple(func(*inputs))
    for output in outputs:
        if not isinstance(output, pb.Tensor):
            raise TypeError(
                "gradcheck expects func to return a tensor or a tuple of tensors, got "
                f"{type(output).__name__}"
            )
        if getattr(output, "is_sparse", False):
            raise ValueError(
                "Sparse output is not supported at gradcheck yet. Please call to_dense() on the "
                "output of func for gradcheck."
            )
    return outputs


def central_difference(
    evaluate: Callable[[], list[Tensor]], x: Tensor, at: Any, step: Any, eps: float
) -> list[Tensor]:
    """Return central differences of all outputs while ``x[at]`` moves along ``step``.

    ``x`` is changed in place, because the function may also refer to it by a closure; its bits are
    restored. ``.data`` keeps the version counter.
    """
    data = x.data
    saved = data[at].clone()
    try:
        data[at] = saved + eps * step
        above = evaluate()
        data[at] = saved - eps * step
        below = evaluate()
    finally:
        data[at] = saved
    return [(high - low) / (2 * eps) for high, low in zip(above, below)]


def axes_of(x: Tensor) -> tuple[complex, ...]:
    return (1, 1j) if x.is_complex() else (1,)


def numerical_jacobian(
    evaluate: Callable[[], list[Tensor]], x: Tensor, outputs: Sequence[Tensor], eps: float
) -> list[list[Tensor]]:
    """Return, for each axis of ``x`` (real, imaginary), the matrix of each output."""
    return [
        [
            stack_matrix([column[i] for column in columns], output.numel(), output, 0)
            for i, output in enumerate(outputs)
        ]
        for columns in (
            [central_difference(evaluate, x, at, axis, eps) for at in places_of(x)]
            for axis in axes_of(x)
        )
    ]


def make_evaluator(problem: Problem) -> Callable[[], list[Tensor]]:
    """Return a function that computes the checked outputs again, as copies without a graph."""
    expected = problem.checked_outputs()

    def evaluate() -> list[Tensor]:
        outputs = call_function(problem.func, problem.inputs)
        if len(outputs) != len(problem.outputs):
            raise AssertionError(
                f"Expected `func` to return {len(problem.outputs)} outputs when inputs are "
                f"perturbed, but got {len(outputs)}"
            )
        checked = [outputs[i].detach().clone() for i in problem.outputs_at]
        for output, before in zip(checked, expected):
            for what in ("shape", "dtype"):
                was, is_now = getattr(before, what), getattr(output, what)
                if was != is_now:
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are "
                        f"perturbed by {problem.eps}, but got: {what}s {was} and {is_now}."
                    )
        return checked

    return evaluate


def run_backward(output: Tensor, inputs: Sequence[Tensor], seed: Tensor) -> list[Tensor]:
    """Return the gradient of one output by each input, zeros where there is none."""
    grads = pb.autograd.grad([output], inputs, [seed], retain_graph=True, allow_unused=True)
    for grad, x in zip(grads, inputs):
        if grad is not None and grad.shape != x.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
    return [zeros_like(x) if grad is None else grad.detach() for grad, x in zip(grads, inputs)]


def analytical_jacobian(output: Tensor, inputs: Sequence[Tensor], part: complex) -> list[Tensor]:
    """Return the matrix of one part (1 real, 1j imaginary) of an output by each input."""
    columns: list[list[Tensor]] = []
    for at in places_of(output):
        seed = zeros_like(output)
        seed[at] = part
        columns.append(run_backward(output, inputs, seed))
    return [
        stack_matrix([column[j] for column in columns], x.numel(), x, 1)
        for j, x in enumerate(inputs)
    ]


def push_forward(problem: Problem, tangents: Mapping[int, Tensor]) -> list[Tensor]:
    """Return the tangents of the checked outputs when some inputs have tangents."""
    forward_ad = pb.autograd.forward_ad
    arguments = list(problem.inputs)
    with forward_ad.dual_level():
        for j in problem.inputs_at:
            x = arguments[j].detach()
            arguments[j] = forward_ad.make_dual(x, tangents[j]) if j in tangents else x
        outputs = call_function(problem.func, tuple(arguments))
        found = [forward_ad.unpack_dual(outputs[i]).tangent for i in problem.outputs_at]
    return [
        zeros_like(output) if tangent is None else tangent.detach().clone()
        for tangent, output in zip(found, problem.checked_outputs())
    ]


def run_forward(problem: Problem, j: int, tangent: Tensor) -> list[Tensor]:
    """Return the tangents of the checked outputs for one of input ``j``, zeros for others."""
    zeros = {k: zeros_like(problem.inputs[k]) for k in problem.inputs_at}
    return push_forward(problem, {**zeros, j: tangent})


def forward_jacobian(problem: Problem, j: int, axis: complex) -> list[Tensor]:
    """Return the matrix of each checked output by one axis of input ``j``."""
    x, rows = problem.inputs[j], []
    for at in places_of(x):
        tangent = zeros_like(x)
        tangent[at] = axis
        rows.append(run_forward(problem, j, tangent))
    return [
        stack_matrix([row[i] for row in rows], output.numel(), output, 0)
        for i, output in enumerate(problem.checked_outputs())
    ]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def requires_grad(value: Any) -> bool:
    return isinstance(value, pb.Tensor) and value.requires_grad


def places_of(x: Tensor) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in x.shape))


def zeros_like(x: Tensor) -> Tensor:
    return make_zeros(x.shape, x)


def make_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    return pb.zeros(tuple(shape), dtype=like.dtype, device=like.device)


def stack_matrix(vectors: Sequence[Tensor], length: int, like: Tensor, dim: int) -> Tensor:
    """Stack flattened tensors as rows (dim 0) or columns (dim 1)."""
    if not vectors:
        return make_zeros((0, length) if dim == 0 else (length, 0), like)
    return pb.stack([vector.reshape(-1) for vector in vectors], dim)


def part_of(x: Tensor, part: complex) -> Tensor:
    """Return the real part (1) or the imaginary part (1j); of a real tensor, itself."""
    if not x.is_complex():
        return x
    return pb.real(x) if part == 1 else pb.imag(x)


def combine_axes(along_real: Tensor, along_imaginary: Tensor | None = None) -> Tensor:
    return along_real if along_imaginary is None else along_real + 1j * along_imaginary


def real_dtype(x: Tensor) -> Any:
    return {pb.complex64: pb.float32, pb.complex128: pb.float64}.get(x.dtype, x.dtype)


def random_unit(like: Tensor, generator: random.Random) -> Tensor:
    """Return a real vector of length 1, shaped like a tensor, with positive elements only."""
    numbers = [generator.random() for _ in range(like.numel())]
    length = sum(number * number for number in numbers) ** 0.5
    units = [number / length for number in numbers]
    flat = pb.tensor(units, dtype=real_dtype(like), device=like.device)
    return flat.reshape(tuple(like.shape))


def dot_product(a: Tensor, b: Tensor) -> float:
    return float((a * b.to(device=a.device)).sum())


def is_close(computed: Tensor, expected: Tensor, rtol: float, atol: float) -> bool:
    """Compare as allclose does: equal infinities agree, NaN agrees with nothing."""
    expected = expected.to(device=computed.device)
    error = (computed - expected).abs()
    near = (error <= atol + rtol * expected.abs()) & (error < float("inf"))
    return bool((near | (computed == expected)).all())


def max_difference(a: Tensor, b: Tensor) -> float:
    if a.numel() == 0:
        return 0.0
    return float((a - b.to(device=a.device)).abs().amax())
