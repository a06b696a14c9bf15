"""State that is restored when a function runs again: default device, random numbers, autocast."""

from __future__ import annotations

import contextlib

from pullback import random
from pullback._c.device.device import get_default_device
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.autocast import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_state,
    set_autocast_state,
)
from pullback.func._tree import leaves


def noop_context_fn():
    """Return two context managers that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def autocast_as_in(state):
    """Restore a state of autocast inside a ``with`` block, which is a region of its own."""
    before = set_autocast_state(state)
    autocast_increment_nesting()
    try:
        yield
    finally:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        set_autocast_state(before)


class Surroundings:
    """A copy of the default device, the state of the random numbers and that of autocast."""

    def __init__(self, with_random_numbers):
        self.device = get_default_device()
        self.random_state = random.default_generator.position() if with_random_numbers else None
        self.autocast_state = get_autocast_state()

    @contextlib.contextmanager
    def restored(self):
        """Restore them inside a ``with`` block."""
        with random.fork_rng(enabled=self.random_state is not None), self.device:
            if self.random_state is not None:
                random.default_generator.go_back(*self.random_state)
            with autocast_as_in(self.autocast_state):
                yield


class DefaultDeviceType:
    """The device type of random numbers where no argument determines it."""

    _name: str | None = None

    @staticmethod
    def set_device_type(device="cuda"):
        """Set the device type."""
        DefaultDeviceType._name = device

    @staticmethod
    def get_device_type():
        """Return the device type: by default that of the default device."""
        return DefaultDeviceType._name or get_default_device().type


def get_device_states(*args):
    """Return the indices of the devices of tensors in ``args``, and their random states.

    Host devices have no index and are skipped. All devices share one generator, so the states are
    equal.

    >>> import pullback as pb
    >>> pb.utils.checkpoint.get_device_states(pb.ones(1), 2)
    ([], [])
    """
    numbers = [
        leaf.get_device()
        for leaf in leaves(args)
        if isinstance(leaf, Tensor) and leaf.device.type != "meta"
    ]
    numbers = [number for number in numbers if number >= 0]
    return numbers, [random.get_rng_state() for _ in numbers]


def set_device_states(devices, states, *, device_type=None):
    """Restore the states that ``get_device_states`` returned."""
    if (device_type or DefaultDeviceType.get_device_type()) == "meta":
        return
    for _, state in zip(devices, states):
        random.set_rng_state(state)
