"""Training steps that ``compile`` replays on a device, with counters of steps on the host."""

import numpy as np
import pytest
from primitive_calls import begin

import pullback as pb


@pytest.fixture(autouse=True)
def device(request):
    begin(request)


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Adagrad", "RMSprop", "Adafactor"])
def test_a_step_is_one_program_whatever_the_rate(name):
    def train(compiled):
        pb.manual_seed(3)
        weight = pb.rand(4, 3).cuda().requires_grad_()
        optimizer = getattr(pb.optim, name)([weight], lr=0.1)
        schedule = pb.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        x = pb.rand(5, 4).cuda()

        def step():
            optimizer.zero_grad()
            loss = (x @ weight).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = pb.compile(step, fullgraph=True) if compiled else step
        losses = []
        for _ in range(6):
            losses.append(run().item())
            schedule.step()
        return losses, weight.detach().cpu().numpy(), len(run.entries) if compiled else 1

    losses, weight, _ = train(False)
    found, replayed, count = train(True)
    assert found == losses
    np.testing.assert_array_equal(replayed, weight)
    assert count == 1
