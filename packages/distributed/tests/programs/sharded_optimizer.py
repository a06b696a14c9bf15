"""Steps with a divided state are those of the whole optimizer, and so are its state dicts."""

import pullback as pb
import pullback_distributed as dist
from pullback.nn.parallel import DistributedDataParallel
from pullback_distributed.algorithms.join import Join
from pullback_distributed.optim import ZeroRedundancyOptimizer

F = pb.nn.functional


def make():
    pb.manual_seed(0)
    return pb.nn.Sequential(pb.nn.Linear(5, 17), pb.nn.Tanh(), pb.nn.Linear(17, 3))


def groups_of(model):
    return [
        {"params": list(model[0].parameters()), "lr": 0.02},
        {"params": list(model[2].parameters())},
    ]


def step(model, optimizer, number):
    pb.manual_seed(number)
    optimizer.zero_grad()
    F.mse_loss(model(pb.randn(8, 5)), pb.randn(8, 3)).backward()
    optimizer.step()


def same(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all((a == b).all() for a, b in pairs)


def check_steps_and_state(rank, size, views):
    whole, divided = make(), make()
    plain = pb.optim.Adam(groups_of(whole), lr=0.01)
    zero = ZeroRedundancyOptimizer(
        groups_of(divided), pb.optim.Adam, parameters_as_bucket_view=views, lr=0.01
    )
    schedules = [pb.optim.lr_scheduler.StepLR(one, 2, 0.5) for one in (plain, zero)]
    for number in range(5):
        step(whole, plain, number)
        step(divided, zero, number)
        for schedule in schedules:
            schedule.step()
    assert same(whole, divided)
    kept = sum(value.numel() for state in zero.state.values() for value in state.values())
    total = sum(value.numel() for state in plain.state.values() for value in state.values())
    assert kept < total * (1 / size + 0.4), (kept, total)
    try:
        zero.state_dict()
    except RuntimeError as error:
        assert "consolidate_state_dict" in str(error)
    else:
        raise AssertionError("a state dict without a state")
    zero.consolidate_state_dict(size - 1)
    states = [None]
    if rank == size - 1:
        states = [zero.state_dict()]
        expected = plain.state_dict()
        assert states[0]["param_groups"] == expected["param_groups"]
        for number, state in expected["state"].items():
            for key, value in state.items():
                assert (states[0]["state"][number][key] == value).all(), (number, key)
    dist.broadcast_object_list(states, size - 1)
    again = make()
    again.load_state_dict(divided.state_dict())
    other = ZeroRedundancyOptimizer(groups_of(again), pb.optim.Adam, lr=0.5)
    other.load_state_dict(states[0])
    for number in range(3):
        step(whole, plain, number)
        step(again, other, number)
    assert same(whole, again)


def check_added_group(rank, size):
    whole, divided = make(), make()
    plain = pb.optim.SGD(whole[0].parameters(), lr=0.1, momentum=0.9)
    zero = ZeroRedundancyOptimizer(divided[0].parameters(), pb.optim.SGD, lr=0.1, momentum=0.9)
    for optimizer, model in ((plain, whole), (zero, divided)):
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.3})
        for number in range(3):
            step(model, optimizer, number)
    assert same(whole, divided)


def check_join(rank, size):
    model = DistributedDataParallel(make())
    zero = ZeroRedundancyOptimizer(model.parameters(), pb.optim.Adam, lr=0.01)
    with Join([model, zero]):
        for number in range(2 + rank):
            step(model, zero, number)
    first = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in first:
        dist.broadcast(parameter, 0)
    assert all((a == b).all() for a, b in zip(first, model.parameters(), strict=True))


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    for views in (False, True):
        check_steps_and_state(rank, size, views)
    check_added_group(rank, size)
    check_join(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
