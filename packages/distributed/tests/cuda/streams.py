"""Collectives on several streams of a CUDA device, and the memory that MPI is given."""

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.abilities import is_cuda_aware
from pullback_distributed.collectives.memory import Joined, Room, Source, Target


def check_memory():
    tensor = pb.ones(4, 3, device="cuda")
    half, columns = tensor.half(), tensor.t()
    aware = is_cuda_aware()
    for made in (Source("broadcast", tensor), Target("broadcast", tensor)):
        assert (made.plain.data_ptr() == tensor.data_ptr()) is aware
        assert made.plain.is_cuda is aware and made.plain.is_pinned() is not aware
    for made in (
        Source("broadcast", columns),
        Target("broadcast", columns),
        Joined("scatter", [tensor, tensor]),
        Room("gather", 5, tensor),
    ):
        assert made.plain.is_cuda is aware and made.plain.is_pinned() is not aware
    for made in (
        Source("reduce", half, reduced=True),
        Target("reduce", half, reduced=True),
        Joined("reduce_scatter", [half], reduced=True),
    ):  # combined by an op of our own, which works in host memory
        assert made.plain.is_pinned()
    made = Source("broadcast", pb.ones(2, device="cpu"))
    assert not made.plain.is_cuda and not made.plain.is_pinned()


def check_side_stream(rank, size, async_op):
    side, other = pb.cuda.Stream(), pb.cuda.Stream()
    with pb.cuda.stream(side):
        found = pb.full((6,), float(rank), device="cuda").exp().log()
        columns = pb.full((2, 3), float(rank), device="cuda").t()
        parts = [pb.zeros(6, device="cuda") for _ in range(size)]
        mean = pb.full((3,), float(rank), device="cuda")
        work = [
            dist.all_reduce(found, async_op=async_op),
            dist.all_reduce(columns, async_op=async_op),
            dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=async_op),
            dist.all_gather(parts, pb.full((6,), rank + 1.0, device="cuda"), async_op=async_op),
        ]
    if async_op:
        assert all(each.wait() for each in work)
    else:
        other.wait_stream(side)
    with pb.cuda.stream(other):  # an asynchronous collective has waited for the device
        total = size * (size - 1) / 2
        assert pb.allclose(found, pb.full((6,), total, device="cuda"), atol=1e-5)
        assert (columns == total).all() and (mean == total / size).all()
        assert all((part == k + 1).all() for k, part in enumerate(parts))


def check_places(rank, size):
    """Lists of tensors in host memory and on the device."""
    host, device = pb.zeros(2, device="cpu"), pb.zeros(2, device="cuda:1")
    targets = [host, device, *(pb.zeros(2, device="cuda") for _ in range(size - 2))]
    dist.all_gather(targets, pb.full((2,), rank + 1.0, device="cuda"))
    assert [target.tolist() for target in targets] == [[k + 1.0] * 2 for k in range(size)]
    dist.all_to_all(targets, [target + rank for target in targets])
    assert [target.tolist() for target in targets] == [[rank + 1.0 + k] * 2 for k in range(size)]


class Forked(pb.nn.Module):
    """Two layers whose work is on two streams, forward and backward."""

    def __init__(self):
        super().__init__()
        self.a, self.b = pb.nn.Linear(4, 4), pb.nn.Linear(4, 4)
        self.side = pb.cuda.Stream()

    def forward(self, x):
        self.side.wait_stream(pb.cuda.current_stream())
        with pb.cuda.stream(self.side):
            b = self.b(x).tanh()
        a = self.a(x).sin()
        pb.cuda.current_stream().wait_stream(self.side)
        return a * b


def check_layers_on_two_streams(rank, size):
    pb.manual_seed(0)
    module = Forked()
    x = pb.randn(4 * size, 4)
    module(x).square().mean().backward()
    expected = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    model = pb.nn.parallel.DistributedDataParallel(module)
    for _ in range(3):
        model.zero_grad()
        model(x[rank::size]).square().mean().backward()
        for parameter, grad in zip(module.parameters(), expected, strict=True):
            assert pb.allclose(parameter.grad, grad, atol=1e-6)


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    check_memory()
    for async_op in (False, True):
        check_side_stream(rank, size, async_op)
    check_places(rank, size)
    check_layers_on_two_streams(rank, size)
    dist.destroy_process_group()


main()
