"""Training with divided parameters is training with whole ones."""

import os
import tempfile

import pullback as pb
import pullback_distributed as dist
from pullback_distributed import checkpoint, fsdp

F = pb.nn.functional


class Network(pb.nn.Module):
    def __init__(self):
        super().__init__()
        pb.manual_seed(0)
        self.blocks = pb.nn.ModuleList(
            pb.nn.Sequential(pb.nn.Linear(9, 9), pb.nn.LayerNorm(9), pb.nn.Tanh()) for _ in range(3)
        )
        self.last = pb.nn.Linear(9, 2, bias=False)
        self.scale = pb.nn.Parameter(pb.ones(1))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.last(x) * self.scale


def divided(frees=True):
    model = Network()
    for block in model.blocks:
        fsdp.fully_shard(block, reshard_after_forward=frees)
    return fsdp.fully_shard(model, reshard_after_forward=frees)


def batch(number, size):
    pb.manual_seed(number)
    return pb.randn(2 * size, 9), pb.randn(2 * size, 2)


def check_training(rank, size, frees):
    whole, model = Network(), divided(frees)
    plain = pb.optim.Adam(whole.parameters(), lr=0.01)
    optimizer = pb.optim.Adam(model.parameters(), lr=0.01)
    for number in range(20):
        x, y = batch(number, size)
        plain.zero_grad()
        F.mse_loss(whole(x), y).backward()
        expected = pb.nn.utils.clip_grad_norm_(whole.parameters(), 0.5)
        plain.step()
        optimizer.zero_grad()
        F.mse_loss(model(x[rank::size]), y[rank::size]).backward()
        norm = fsdp.clip_grad_norm_(model.parameters(), 0.5)
        assert pb.allclose(norm, expected, rtol=1e-4), (norm, expected)
        optimizer.step()
    found = fsdp.full_state_dict(model)
    for key, value in whole.state_dict().items():
        assert pb.allclose(found[key], value, rtol=1e-3, atol=1e-5), key
    kept = sum(parameter.numel() for parameter in model.parameters())
    total = sum(parameter.numel() for parameter in whole.parameters())
    assert kept <= total / size + 9 * 12, (kept, total)
    again = divided(frees)
    fsdp.load_full_state_dict(again, found)
    with pb.no_grad():
        assert pb.allclose(again(x), whole(x), atol=1e-4)


def check_checkpoints(rank, size):
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    folder = os.path.join(folder[0], "last")
    models = [divided(), divided()]
    optimizers = [pb.optim.Adam(model.parameters(), lr=0.01) for model in models]
    for number in (0, 1, 2):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(batch(number, 1)[0]).square().sum().backward()
            optimizer.step()
        if number == 1:
            state = fsdp.sharded_state_dict(models[0])
            checkpoint.save(
                {"model": state, "optim": fsdp.sharded_state_dict(models[0], optimizers[0])},
                checkpoint_id=folder,
            )
            expected = {key: value.clone() for key, value in models[0].state_dict().items()}
    checkpoint.load(
        {
            "model": fsdp.sharded_state_dict(models[1]),
            "optim": fsdp.sharded_state_dict(models[1], optimizers[1]),
        },
        checkpoint_id=folder,
    )
    for key, value in models[1].state_dict().items():
        assert (value == expected[key]).all(), key
    optimizers[1].zero_grad()
    models[1](batch(2, 1)[0]).square().sum().backward()
    optimizers[1].step()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert pb.allclose(one, other, atol=1e-6)
    if rank == 0:
        whole = {key: pb.empty_like(value) for key, value in Network().state_dict().items()}
        checkpoint.load({"model": whole}, checkpoint_id=folder, process_group=alone(rank))
    else:
        alone(rank)
    found = fsdp.full_state_dict(models[1])
    assert rank or not all((whole[key] == found[key]).all() for key in whole)  # a step later


def alone(rank):
    """Return a group of process 0."""
    return dist.new_group([0])


def check_that_whole_parameters_are_freed():
    model = divided()
    loss = model(batch(0, 1)[0]).sum()
    seen = []

    def note(unit, gather):
        def run():
            units = [part.__dict__["_pullback_sharded_unit"] for part in (*model.blocks, model)]
            seen.append(sum(one._gathered is not None for one in units))
            return gather()

        return run

    for part in (*model.blocks, model):
        unit = part.__dict__["_pullback_sharded_unit"]
        unit.gather = note(unit, unit.gather)
    loss.backward()
    assert seen == [0, 1, 1, 1], seen  # the outer one is in use until the end


def check_class():
    model, plain = divided(), Network()
    assert isinstance(model, fsdp.FSDPModule) and isinstance(model, Network)
    assert not isinstance(plain, fsdp.FSDPModule)
    assert type(model).__name__ == "FSDPNetwork" and type(model) is type(divided())
    model.set_reshard_after_forward(False, recurse=False)
    units = [part.__dict__["_pullback_sharded_unit"] for part in (*model.blocks, model)]
    assert [unit.frees for unit in units] == [True, True, True, False]
    model.set_reshard_after_forward(False)
    assert not any(unit.frees for unit in units)


def check_errors():
    for module, error, text in (
        (3, TypeError, "must be Module, not int"),
        (divided(), ValueError, "divided already"),
    ):
        try:
            fsdp.fully_shard(module)
        except error as found:
            assert text in str(found), found
        else:
            raise AssertionError(text)


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    for frees in (True, False):
        check_training(rank, size, frees)
    check_checkpoints(rank, size)
    check_that_whole_parameters_are_freed()
    check_class()
    check_errors()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
