"""Data parallel training gives what one process with all inputs gives."""

import copy

import numpy as np

import pullback as pb
import pullback_distributed as dist
from pullback.nn.parallel import DistributedDataParallel
from pullback_distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

F = pb.nn.functional


def make(seed=0):
    pb.manual_seed(seed)
    return pb.nn.Sequential(
        pb.nn.Linear(6, 40), pb.nn.ReLU(), pb.nn.Linear(40, 30), pb.nn.Tanh(), pb.nn.Linear(30, 3)
    )


def batch(step, size):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((4 * size, 6)).astype(np.float32)
    return pb.tensor(x), pb.tensor(rng.integers(0, 3, 4 * size))


def part(tensor, rank, size):
    return tensor[rank::size]


def train(model, steps, rank=0, size=1, world=1):
    optimizer = pb.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = batch(step, world)
        optimizer.zero_grad()
        F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def distance(found, expected):
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True)
    )


def check_equal_to_one_process(rank, size):
    expected = train(make(), 100, world=size)
    for options in (
        {},
        {"bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.002},
        {"find_unused_parameters": True},
    ):
        model = DistributedDataParallel(make(rank), **options)  # rank 0's parameters win
        found = train(model, 100, rank, size, size)
        assert distance(found, expected) < 1e-4, (options, distance(found, expected))
        again = train(DistributedDataParallel(make(rank), **options), 100, rank, size, size)
        assert all((a == b).all() for a, b in zip(found, again, strict=True)), options


def check_plain_list(rank, size):
    expected = train(make(), 5, world=size)
    model = make()
    optimizer = pb.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        x, y = batch(step, size)
        optimizer.zero_grad()
        F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
        dist.synchronize_gradients(model.parameters(), bucket_cap_mb=0.003)
        optimizer.step()
    assert distance(list(model.parameters()), expected) < 1e-5


def check_no_sync(rank, size):
    model, alone = DistributedDataParallel(make()), make()
    x, y = batch(0, size)
    with model.no_sync():
        F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
    F.cross_entropy(alone(part(x, rank, size)), part(y, rank, size)).backward()
    for ours, theirs in zip(model.module.parameters(), alone.parameters(), strict=True):
        assert (ours.grad == theirs.grad).all()
    F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
    alone.zero_grad()
    F.cross_entropy(alone(x), y).backward()
    for ours, theirs in zip(model.module.parameters(), alone.parameters(), strict=True):
        assert pb.allclose(ours.grad, 2 * theirs.grad, atol=1e-6)


class Branches(pb.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = pb.nn.ModuleList(pb.nn.Linear(2, 2) for _ in range(4))

    def forward(self, x, which):
        return self.parts[which](x)


def check_unused(rank, size):
    for finds in (False, True):
        model = DistributedDataParallel(
            Branches(), find_unused_parameters=finds, bucket_cap_mb=1e-5
        )
        for _ in range(3):
            model.zero_grad()
            model(pb.ones(1, 2), rank % 2).sum().backward()
            for k, one in enumerate(model.module.parts):
                users = sum(r % 2 == k for r in range(size))
                if not users:
                    assert one.bias.grad is None, k
                else:
                    assert pb.allclose(one.bias.grad, pb.full((2,), users / size)), (k, users)


def check_buffers(rank, size):
    model = DistributedDataParallel(pb.nn.Sequential(pb.nn.Linear(3, 3), pb.nn.BatchNorm1d(3)))
    pb.manual_seed(rank)
    for _ in range(3):
        model(pb.randn(8, 3)).sum().backward()
    model(pb.randn(8, 3))  # rank 0's before it
    means = [pb.empty(3) for _ in range(size)]
    dist.all_gather(means, model.module[1].num_batches_tracked.float().expand(3).contiguous())
    assert all((mean == 4).all() for mean in means)


def check_hooks(rank, size):
    expected = train(make(), 30, world=size)
    state = powerSGD_hook.PowerSGDState(matrix_approximation_rank=3, start_powerSGD_iter=2)
    hooks = (
        (None, default_hooks.allreduce_hook, 1e-5),
        (None, default_hooks.bf16_compress_hook, 0.1),
        (None, default_hooks.fp16_compress_hook, 0.02),
        (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 0.02),
        (state, powerSGD_hook.powerSGD_hook, 0.7),
    )
    for state, hook, bound in hooks:
        model = DistributedDataParallel(make())
        model.register_comm_hook(state, hook)
        found = train(model, 30, rank, size, size)
        assert distance(found, expected) < bound, (hook, distance(found, expected))
        parts = [pb.empty_like(found[0]) for _ in range(size)]
        dist.all_gather(parts, found[0])
        assert all((one == parts[0]).all() for one in parts), hook
    # With all of the rank PowerSGD leaves nothing out.
    full = powerSGD_hook.PowerSGDState(
        matrix_approximation_rank=40, start_powerSGD_iter=2, min_compression_rate=0.01
    )
    model = DistributedDataParallel(make())
    model.register_comm_hook(full, powerSGD_hook.powerSGD_hook)
    assert distance(train(model, 30, rank, size, size), expected) < 1e-3


def check_join(rank, size):
    for views in (False, True):
        model = DistributedDataParallel(make(), gradient_as_bucket_view=views)
        optimizer = pb.optim.SGD(model.parameters(), lr=0.1)
        alone = make()
        theirs = pb.optim.SGD(alone.parameters(), lr=0.1)
        with model.join():
            for step in range(3 + rank):
                x, y = batch(step, size)
                optimizer.zero_grad()
                F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
                optimizer.step()
        for step in range(3 + size - 1):
            x, y = batch(step, size)
            theirs.zero_grad()
            for other in range(size):
                if step < 3 + other:
                    loss = F.cross_entropy(alone(part(x, other, size)), part(y, other, size))
                    (loss / size).backward()
            theirs.step()
        found = list(model.module.parameters())
        assert distance(found, list(alone.parameters())) < 1e-5, (rank, views)
    if size == 1:
        return
    model = DistributedDataParallel(make())
    try:
        with model.join(throw_on_early_termination=True):
            for step in range(2 + (rank > 0)):
                x, y = batch(step, size)
                F.cross_entropy(model(part(x, rank, size)), part(y, rank, size)).backward()
    except RuntimeError as error:
        assert "exhausted inputs" in str(error)
    else:
        raise AssertionError("the join context did not raise")


def check_errors(rank, size):
    for module, text in (
        (pb.nn.ReLU(), "not needed when a module doesn't have any parameters"),
        (pb.nn.Linear(2 + (rank > 0), 2), "different parameters"),
    ):
        try:
            DistributedDataParallel(module)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"not raised: {text}")


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    checks = [value for name, value in globals().items() if name.startswith("check_")]
    for check in checks:
        check(rank, size)
    model = DistributedDataParallel(make())
    assert copy.deepcopy(model).state_dict().keys() == model.state_dict().keys()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
