"""PowerSGD: gradients travel as products of matrices of low rank.

Source: T. Vogels, S. P. Karimireddy, M. Jaggi, PowerSGD: practical low-rank gradient compression
for distributed optimization, NeurIPS 2019, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pullback
from pullback import Tensor
from pullback_distributed import mpi as MPI
from pullback_distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from pullback_distributed.collectives.datatypes import ReduceOp, reduction
from pullback_distributed.collectives.memory import Target
from pullback_distributed.collectives.progress import CollectiveWork
from pullback_distributed.data_parallel.buckets import GradBucket
from pullback_distributed.futures import Future
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup


@dataclass
class PowerSGDState:
    """What PowerSGD keeps from step to step.

    ``matrix_approximation_rank`` is the rank r of the products; gradients of n x m are compressed
    where n m > (n + m) r ``min_compression_rate``. The first ``start_powerSGD_iter`` steps send
    gradients whole. ``use_error_feedback`` adds what a step left out to the next one;
    ``warm_start`` begins with the matrices of the step before, which needs 2 steps before.
    ``orthogonalization_epsilon`` has no effect: QR decompositions are used.
    Raises: ValueError for a rank below 1, or too early a start for what is kept.
    """

    process_group: ProcessGroup | None = None
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1000
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    iter: int = 0
    errors: dict[int, Tensor] = field(default_factory=dict, repr=False)
    factors: dict[int, list[Tensor]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.matrix_approximation_rank < 1:
            raise ValueError(
                f"PowerSGDState: expected matrix_approximation_rank of 1 or more, but got "
                f"{self.matrix_approximation_rank}"
            )
        if (self.use_error_feedback or self.warm_start) and self.start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because PowerSGD can only be applied after the first two iterations in "
                "DDP."
            )


def _is_worth_it(shape: tuple[int, ...], state: PowerSGDState) -> bool:
    if len(shape) < 2:
        return False
    rows, columns = shape[0], math.prod(shape[1:])
    sent = (rows + columns) * state.matrix_approximation_rank
    return sent * state.min_compression_rate < rows * columns


def _orthonormal(matrix: Tensor) -> Tensor:
    """Return an orthonormal basis that spans the columns."""
    wide = matrix.float() if matrix.dtype.itemsize < 4 else matrix
    return pullback.linalg.qr(wide).Q.to(matrix.dtype)


def _factors(state: PowerSGDState, bucket: GradBucket, matrices: list[Tensor]) -> list[Tensor]:
    """Return the right factors to begin with, of the step before or random, the same everywhere."""
    kept = state.factors.get(bucket.index())
    if kept is not None and state.warm_start:
        return kept
    generator = pullback.Generator().manual_seed(state.random_seed + state.iter)
    return [
        pullback.randn(
            matrix.shape[1],
            min(state.matrix_approximation_rank, *matrix.shape),
            generator=generator,
            dtype=pullback.float32,
        ).to(matrix)
        for matrix in matrices
    ]


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients of two dims or more as products P Q^T of low rank, others as they are.

    A gradient M becomes P = M Q, summed and made orthonormal, and Q = M^T P, averaged.
    """
    group = world() if state.process_group is None else state.process_group
    if bucket.is_last():
        state.iter += 1
    if state.iter <= state.start_powerSGD_iter:
        return allreduce_hook(group, bucket)
    size, index, buffer = group.size(), bucket.index(), bucket.buffer()
    if state.use_error_feedback:
        if index in state.errors:
            buffer.add_(state.errors[index])
        kept = buffer.clone()
    chosen = [_is_worth_it(tuple(view.shape), state) for view in bucket.gradients()]
    parts, start = [], 0
    for view in bucket.gradients():
        parts.append(buffer[start : start + view.numel()].view(view.shape))
        start += view.numel()
    matrices = [
        part.view(part.shape[0], -1)
        for part, is_chosen in zip(parts, chosen, strict=True)
        if is_chosen
    ]
    others = [part for part, is_chosen in zip(parts, chosen, strict=True) if not is_chosen]
    right = _factors(state, bucket, matrices)

    def average(communicator: MPI.Intracomm, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors over the processes in one message, and divide."""
        if not tensors:
            return []
        flat = pullback.cat([tensor.reshape(-1) for tensor in tensors]).div_(size)
        written = Target("powerSGD_hook", flat, reduced=True)
        combining = reduction(flat.dtype, ReduceOp.SUM)
        for piece in written.pieces():
            communicator.Allreduce(MPI.IN_PLACE, piece, combining)
        written.done()
        found, start = [], 0
        for tensor in tensors:
            found.append(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()
        return found

    def run(communicator: MPI.Intracomm) -> None:
        with pullback.no_grad():
            left = average(communicator, [m @ q for m, q in zip(matrices, right, strict=True)])
            left = [_orthonormal(p) for p in left]
            products = [m.mT @ p for m, p in zip(matrices, left, strict=True)]
            averaged = average(communicator, [*products, *others])
            state.factors[index] = averaged[: len(matrices)]
            for matrix, p, q in zip(matrices, left, state.factors[index], strict=True):
                matrix.copy_(p @ q.mT)
            for part, found in zip(others, averaged[len(matrices) :], strict=True):
                part.copy_(found)
            if state.use_error_feedback:
                state.errors[index] = kept.sub_(buffer)
                for part, error in zip(parts, _split(state.errors[index], parts), strict=True):
                    if not _is_worth_it(tuple(part.shape), state):
                        error.zero_()

    work = CollectiveWork(group, "powerSGD_hook", run, [buffer])
    return work.get_future().then(lambda done: done.value()[0])


def _split(flat: Tensor, parts: list[Tensor]) -> list[Tensor]:
    return list(flat.split([part.numel() for part in parts]))
