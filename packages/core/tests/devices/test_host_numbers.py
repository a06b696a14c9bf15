"""Numbers on the host beside tensors of another device: in ops, and in programs of ``compile``."""

import numpy as np
import pytest

import pullback as pb
from pullback.backend.array_library import ArrayLibrary

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.5},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "weight_decay": 0.1},
    "NAdam": {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "Adamax": {"lr": 0.1, "weight_decay": 0.1},
    "Adadelta": {"lr": 0.5},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.25},
    "Adafactor": {"lr": 0.1, "weight_decay": 0.1},
    "ASGD": {"lr": 0.1, "lambd": 0.1, "t0": 3.0},
    "Rprop": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "centered": True},
    "Muon": {"lr": 0.1},
}


@pytest.fixture(scope="module")
def device():
    """The name of a device with memory of its own, loaded as an installed plugin's would be."""
    from library_device import load

    return load("hostless", ArrayLibrary("numpy"))


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("reflected", [False, True])
def test_a_number_on_the_host_takes_the_other_device(device, shape, reflected):
    x, number = pb.full(shape, 3.0, device=device), pb.tensor(2.0)
    for op in (pb.sub, pb.div, pb.maximum, pb.lt, pb.fmod):
        operands = (number, x) if reflected else (x, number)
        found = op(*operands)
        assert found.device == x.device
        assert pb.equal(found.cpu(), op(*[one.cpu() for one in operands]))


def test_what_is_no_number_must_be_on_the_device(device):
    x = pb.ones((), device=device)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        pb.mul(x, pb.ones(2))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        pb.mul(pb.ones(1), x)


def test_replays_read_numbers_on_the_host(device):
    """A program takes the number of its run, in each operand, of another dtype too."""
    x = pb.tensor([1.0, 2.0, 3.0], device=device)
    scale = pb.tensor(1.0, dtype=pb.float64)

    def function():
        scale.mul_(1.5)
        y = pb.where(x > scale, x * scale, scale - x)
        y.mul_(scale)
        return pb.addcmul(y, x, scale, value=0.5) / (scale + 1)

    compiled = pb.compile(function, fullgraph=True)
    found = [compiled() for _ in range(5)]
    assert len(compiled.entries) == 1
    scale.fill_(1.0)
    for one in found:
        assert pb.equal(one, function())


def test_programs_with_temporaries_on_two_devices_need_no_more_memory(device):
    x = pb.ones(1000, device=device)
    count = pb.zeros(300)

    def function():
        count.add_(1)
        y = (x * count.exp().log().sum()).exp()
        return (y + y).sum() + count.square().mean()

    compiled = pb.compile(function, fullgraph=True)
    expected = compiled()
    count.fill_(0)
    assert pb.equal(compiled(), expected)
    program = compiled.entries[0].program
    assert 0 < program.arena <= program.temporaries


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_step_is_one_program_whatever_the_rate(device, name):
    """Counters of steps are on the host; a scheduler changes the rate."""

    def train(compiled):
        pb.manual_seed(3)
        weight = pb.rand(4, 3).to(device).requires_grad_()
        optimizer = getattr(pb.optim, name)([weight], **OPTIMIZERS[name])
        schedule = pb.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        x = pb.rand(5, 4).to(device)

        def step():
            optimizer.zero_grad()
            loss = (x @ weight).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = pb.compile(step, fullgraph=True) if compiled else step
        losses = []
        for _ in range(8):
            losses.append(run().item())
            schedule.step()
        return losses, weight.detach().cpu().numpy(), len(run.entries) if compiled else 1

    losses, weight, _ = train(False)
    found, replayed, count = train(True)
    assert found == losses
    np.testing.assert_array_equal(replayed, weight)
    assert count == 1


@pytest.mark.parametrize("truth", [False, True])
def test_a_condition_on_the_host(device, truth):
    """It has one byte, whatever the dtype of the values."""
    condition = pb.tensor(truth)
    for dtype in (pb.float32, pb.float64, pb.int64, pb.float16):
        x, y = pb.tensor([1, 2]).to(dtype), pb.tensor([10, 20]).to(dtype)
        for _ in range(3):
            found = pb.where(condition, x.to(device), y.to(device))
            assert pb.equal(found.cpu(), x if truth else y)
            found = x.to(device).masked_fill(condition, 7)
            assert found.tolist() == ([7, 7] if truth else [1, 2])


def test_gradients_of_numbers_on_the_host(device):
    """They come back to the host, as in torch."""
    x = pb.tensor([1.0, 2.0, 4.0], device=device, requires_grad=True)
    for function in (pb.mul, pb.add, pb.div, pb.pow, pb.maximum):
        scale = pb.tensor(1.5, dtype=pb.float64, requires_grad=True)
        function(x, scale).sum().backward()
        on_host = pb.tensor(1.5, dtype=pb.float64, requires_grad=True)
        function(x.detach().cpu(), on_host).sum().backward()
        assert scale.grad.device == scale.device
        assert scale.grad.dtype == scale.dtype
        pb.testing.assert_close(scale.grad, on_host.grad)


def test_average_of_asgd_is_the_parameter_at_first(device):
    """Also where it is infinite."""
    weight = pb.tensor([1.0, -2.0, 3.0], device=device, requires_grad=True)
    optimizer = pb.optim.ASGD([weight], lr=0.1)
    for grad in ([0.3, 0.1, -0.7], [float("inf"), 1.0, 0.2], [1.0, 1.0, 1.0]):
        weight.grad = pb.tensor(grad, device=device)
        optimizer.step()
        assert optimizer.state[weight]["ax"].tolist() == weight.tolist()
