"""Random computations on streams of two devices, against the same on the host."""

import random

import pytest
from async_device import DEVICES, EXTRA, address, current, forget, on, wait

import pullback as pb


class Program:
    """A random computation, on the host and on streams of two devices."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.leaves = []  # (on the host, on a device)
        self.values = []  # (on the host, on a device, where it was made)

    def run(self):
        """Compute something, go back, and compare; three times into the same leaves."""
        for _ in range(3):
            for device in range(DEVICES):
                numbers = pb.rand(4)
                there = numbers.to(f"async:{device}").requires_grad_()
                self.leaves.append((numbers.clone().requires_grad_(), there))
        forget()
        for _ in range(3):
            self.values = [(*pair, None) for pair in self.leaves]
            for _ in range(self.random.randrange(5, 25)):
                self.step()
            self.go_back()
        for host, there in self.leaves:
            if host.grad is not None:
                assert pb.allclose(there.grad.cpu(), host.grad, rtol=1e-4, atol=1e-5)

    def step(self):
        """Make a value of two others on some stream."""
        device, number = self.random.randrange(DEVICES), self.random.randrange(EXTRA + 1)
        first, second = self.random.sample(self.values, 2)
        name = self.random.choice(["mul", "add", "sin", "parts", "in_place", "large"])
        with on(number, device):
            operands = [self.fetch(each, device, number) for each in (first, second)]
            there = compute(name, *operands)
        host = compute(name, first[0], second[0])
        self.values.append((host, there, (device, number)))
        if len(self.values) > 12:
            del self.values[self.random.randrange(len(self.values))]

    def fetch(self, value, device, number):
        """Return a value on a device, ready for a stream."""
        _, there, source = value
        if source is not None:
            wait(number, source[1], device, source[0])
        index = there.device.index
        if index == device:
            there.record_stream(address(device, number))
            return there
        now = current(index)
        if source is not None:
            pb.backend.wait_stream(f"async:{index}", now, address(*source), f"async:{source[0]}")
        there.record_stream(now)
        return there.to(f"async:{device}")

    def go_back(self):
        """Add values up on some stream, and go back from there or from another one."""
        device, number = self.random.randrange(DEVICES), self.random.randrange(EXTRA + 1)
        chosen = self.random.sample(self.values, min(4, len(self.values)))
        with on(number, device):
            loss = sum(self.fetch(each, device, number).sum() for each in chosen)
        expected = sum(each[0].sum() for each in chosen)
        self.values = []
        caller = self.random.randrange(EXTRA + 1)
        wait(caller, number, device, device)
        for other in range(DEVICES):  # where .grad was left before
            wait(caller, 0, device, other)
        with on(caller, device):
            if self.random.random() < 0.3:
                self.capture(loss, expected)
            else:
                loss.backward()
                expected.backward()
            for other in range(DEVICES):
                wait(0, caller, other, device)
        trash = [pb.full((4,), float("inf"), device=f"async:{k % DEVICES}") for k in range(10)]
        assert all(t.sum().item() == float("inf") for t in trash)

    def capture(self, loss, expected):
        """Compare gradients that are asked for."""
        theirs = pb.autograd.grad(expected, [pair[0] for pair in self.leaves], allow_unused=True)
        ours = pb.autograd.grad(loss, [pair[1] for pair in self.leaves], allow_unused=True)
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None:
                assert pb.allclose(mine.cpu(), other, rtol=1e-4, atol=1e-5)


def compute(name, a, b):
    """Return something of the shape of two small tensors."""
    if name == "sin":
        return (a * 2).sin()
    if name == "parts":
        first, second = a.chunk(2)
        return pb.cat([second * 2, first]) + b
    if name == "in_place":
        made = a * 1
        made[1:3] = b[:2]
        made.mul_(b)
        return made
    if name == "large":
        return (a.repeat(2048).reshape(2048, 4) * b).mean(0)
    return getattr(a, name)(b)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    Program(seed).run()
