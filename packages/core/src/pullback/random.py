"""Seeded random numbers: Philox4x32-10 counters, the same numbers on every backend.

Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11, section 3.3.
"""

from __future__ import annotations

import contextlib
import os

from pullback._c.base.random_position import RandomPosition
from pullback._c.device.device import device as _device
from pullback._c.dispatch.launch import run_primitive
from pullback._help import explain_names as _explain_names

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

_MASK = (1 << 64) - 1


class Generator(RandomPosition):
    """A stream of random numbers: a seed and a position.

    >>> import pullback
    >>> a = pullback.Generator().manual_seed(7)
    >>> b = pullback.Generator().manual_seed(7)
    >>> bool((pullback.rand(3, generator=a) == pullback.rand(3, generator=b)).all())
    True
    """

    def __init__(self, device="cpu"):
        self.device = _device(device)  # a name only: all devices give the same numbers
        self.set_position(67280421310721, 0)

    def manual_seed(self, seed):
        """Begin the stream of this seed; returns the generator.

        Raises: RuntimeError unless the seed is an integer that fits in 64 bits.
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = seed.__index__()
        if not -(1 << 63) <= seed <= _MASK:
            raise RuntimeError(f"Overflow when unpacking long: seed {seed} does not fit in 64 bits")
        self.set_position(seed & _MASK, 0)
        return self

    def seed(self):
        """Begin an unpredictable stream and return its seed."""
        chosen = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self):
        """Return the seed of the stream."""
        return self._seed

    def get_state(self):
        """Return the state as a uint8 tensor."""
        import pullback

        data = self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little")
        where = pullback.get_default_device()
        if where.type == "meta":  # whose tensors have no elements
            where = "ref"
        return pullback.tensor(list(data), dtype=pullback.uint8, device=where)

    def set_state(self, state):
        """Restore a state that ``get_state`` returned.

        Raises: TypeError unless it is a uint8 tensor of 16 elements.
        """
        import pullback

        if not isinstance(state, pullback.Tensor) or state.dtype != pullback.uint8:
            raise TypeError(
                "expected a torch.ByteTensor, but got "
                f"{type(state).__name__}: the state must be a uint8 tensor"
            )
        if state.numel() != 16:
            raise RuntimeError(f"RNG state is wrong size: expected 16 bytes, got {state.numel()}")
        data = bytes((state if state.ndim == 1 else state.reshape(-1)).tolist())
        self.set_position(int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little"))
        return self

    def get_offset(self):
        """Return how many counter blocks of the stream are used up."""
        return self._offset

    def __reduce__(self):
        return _restore, (self._seed, self._offset, self.device)


def _restore(seed, offset, device):
    generator = Generator(device)
    generator.set_position(int(seed) & _MASK, int(offset) & _MASK)
    return generator


default_generator = Generator()


def draw(kind, out, generator, *params, integers=False):
    """Fill a tensor with random numbers of a primitive; returns it. Integers take 64 bits each."""
    if generator is None:
        generator = default_generator
    elif not isinstance(generator, Generator):
        raise TypeError(f"generator must be a pullback.Generator, not {type(generator).__name__}")
    count = out.numel()
    if not count:
        return out
    dtype = out.dtype
    parts = 2 if dtype.is_complex else 1
    wide = integers or dtype.itemsize == 8 * parts
    seed, first = generator.take(-(-count * parts // (2 if wide else 4)))
    run_primitive(kind, (out,), (), _signed(seed), _signed(first), *params)
    return out


def _signed(value):
    """Return 64 bits as the kernels' parameters hold them."""
    return value - (1 << 64) if value >> 63 else value


def manual_seed(seed):
    """Seed the default generator with ``int(seed)`` and return it.

    Raises: what ``int`` raises; RuntimeError unless the number fits in 64 bits.

    >>> import pullback
    >>> _ = pullback.manual_seed(0)
    >>> x = pullback.rand(2)
    >>> _ = pullback.manual_seed(0)
    >>> bool((x == pullback.rand(2)).all())
    True
    """
    return default_generator.manual_seed(int(seed))


def seed():
    """Seed the default generator unpredictably and return the seed."""
    return default_generator.seed()


def initial_seed():
    """Return the seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """Return the state of the default generator as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Restore a state of the default generator."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, device_type=None):
    """Bring the state of the default generator back at the end of a ``with`` block.

    All devices draw from this generator, so ``devices`` and ``device_type`` make no difference.
    With ``enabled=False`` nothing happens.

    >>> import pullback
    >>> with pullback.random.fork_rng():
    ...     x = pullback.rand(2)
    >>> bool((x == pullback.rand(2)).all())
    True
    """
    if not enabled:
        yield
        return
    before = default_generator.position()
    try:
        yield
    finally:
        default_generator.go_back(*before)


_explain_names(globals())
