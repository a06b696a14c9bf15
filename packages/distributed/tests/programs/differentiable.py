"""Derivatives of differentiable collectives, first and second, against differences of values."""

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.nn import functional as F

STEP = 1e-4
OPS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX)


def functions(rank, size):
    """Return functions of a tensor of (size, 2) elements of this process."""
    empty = pb.empty(1, 2, dtype=pb.float64)
    last = size - 1
    for op in OPS:
        yield f"all_reduce {op.name}", lambda x, op=op: F.all_reduce(x, op)
        yield f"reduce {op.name}", lambda x, op=op: F.reduce(x, last, op)
        yield (
            f"reduce_scatter {op.name}",
            lambda x, op=op: F.reduce_scatter(empty, x.split(1), op),
        )
    yield "broadcast", lambda x: F.broadcast(x, last)
    yield "all_gather", lambda x: pb.cat(F.all_gather(x))
    yield "gather", lambda x: pb.cat(F.gather(x, last))
    yield "scatter", lambda x: F.scatter(x.split(1), last)
    yield "all_to_all", lambda x: pb.cat(F.all_to_all([empty] * size, x.split(1)))
    rows = [1] * size
    yield (
        "all_to_all_single",
        lambda x: F.all_to_all_single(pb.empty(size, 2, dtype=pb.float64), x, rows, rows),
    )


def total_of(value):
    """Return the sum over all processes of a number."""
    found = value.detach().clone()
    dist.all_reduce(found)
    return float(found)


def differences(value, x, rank, size):
    """Return the derivative of the total of a value by this process's x."""
    found = pb.zeros_like(x)
    for other in range(size):
        for i in range(x.numel()):
            ends = []
            for step in (-STEP, STEP):
                moved = x.detach().clone()
                if other == rank:
                    moved.view(-1)[i] += step
                ends.append(total_of(value(moved)))
            if other == rank:
                found.view(-1)[i] = (ends[1] - ends[0]) / (2 * STEP)
    return found


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    pb.manual_seed(rank)
    x = pb.randn(size, 2, dtype=pb.float64) + 2
    for name, function in functions(rank, size):
        out = function(x)
        weight, direction = pb.randn_like(out), pb.randn_like(x)

        def value(x, function=function, weight=weight):
            return (function(x).sin() * weight).sum()

        def slope(x, value=value, direction=direction):
            x = x.requires_grad_()
            (grad,) = pb.autograd.grad(value(x), x, create_graph=True)
            return (grad * direction).sum()

        for order, of in enumerate((value, slope), 1):
            leaf = x.clone().requires_grad_()
            (found,) = pb.autograd.grad(of(leaf), leaf)
            expected = differences(of, x, rank, size)
            assert pb.allclose(found, expected, rtol=1e-5, atol=1e-6), (
                name,
                order,
                found,
                expected,
            )
    try:
        F.all_reduce(x, dist.ReduceOp.BOR)
    except RuntimeError as error:
        assert "has no derivative" in str(error)
    else:
        raise AssertionError("a bitwise op was differentiated")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
