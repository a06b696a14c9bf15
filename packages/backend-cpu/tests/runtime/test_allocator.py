"""The caching allocator, called through the struct that core gets."""

from __future__ import annotations

import ctypes
import itertools
import random

import pytest

from pullback.testing.kernel_calls import pointer_of
from pullback_cpu import memory_limit, set_memory_limit
from pullback_cpu.runtime import allocator

_Self = ctypes.c_void_p


class Backend(ctypes.Structure):
    """pb_backend"""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("abi_version", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("self", _Self),
        ("device_count", ctypes.PYFUNCTYPE(ctypes.c_int, _Self)),
        ("allocate", ctypes.PYFUNCTYPE(_Self, _Self, ctypes.c_int, ctypes.c_size_t)),
        ("release", ctypes.PYFUNCTYPE(None, _Self, ctypes.c_int, _Self, ctypes.c_size_t)),
        ("copy_bytes", ctypes.c_void_p),
        ("synchronize", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
        ("stats", ctypes.PYFUNCTYPE(None, _Self, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))),
        ("empty_cache", ctypes.PYFUNCTYPE(None, _Self, ctypes.c_int)),
        ("reset_peak", ctypes.PYFUNCTYPE(None, _Self, ctypes.c_int)),
        ("mark", ctypes.c_void_p),
        ("elapsed", ctypes.c_void_p),
        ("release_mark", ctypes.c_void_p),
        ("wait_stream", ctypes.c_void_p),
        ("set_stream", ctypes.c_void_p),
        ("use_memory", ctypes.c_void_p),
        ("copy_between", ctypes.c_void_p),
        ("allocate_pinned", ctypes.c_void_p),
        ("release_pinned", ctypes.c_void_p),
        ("run_parallel", ctypes.c_void_p),
        ("compile", ctypes.c_void_p),
        ("execute", ctypes.c_void_p),
        ("release_executor", ctypes.c_void_p),
    ]


BACKEND = ctypes.cast(
    pointer_of(allocator.BACKEND, b"pb_backend"), ctypes.POINTER(Backend)
).contents
MEBIBYTE = 2**20


def allocate(nbytes: int) -> int | None:
    return BACKEND.allocate(BACKEND.self, 0, nbytes)


def release(data: int, nbytes: int) -> None:
    BACKEND.release(BACKEND.self, 0, data, nbytes)


def stats() -> tuple[int, int, int, int]:
    """Return bytes in use, peak in use, held from the system, allocations made."""
    numbers = (ctypes.c_int64 * 4)()
    BACKEND.stats(BACKEND.self, 0, numbers)
    return tuple(numbers)


@pytest.fixture(autouse=True)
def nothing_stays_in_use():
    """Every test gives back what it took."""
    before = stats()[0]
    yield
    assert stats()[0] == before
    BACKEND.empty_cache(BACKEND.self, 0)


def test_struct():
    assert BACKEND.size == ctypes.sizeof(Backend)
    assert BACKEND.abi_version == 2
    assert BACKEND.flags == 1
    assert BACKEND.device_count(BACKEND.self) == 1


@pytest.mark.parametrize("nbytes", [1, 64, 65, 4096, 4097, 5120, 5121, 8192, 10**6, 2**25 + 1])
def test_blocks_are_aligned_and_writable_to_the_end(nbytes):
    blocks = [allocate(nbytes) for _ in range(3)]
    assert len(set(blocks)) == 3
    for number, block in enumerate(blocks):
        assert block % (32 if nbytes <= 32 else 64) == 0
        ctypes.memset(block, number + 1, nbytes)
    for number, block in enumerate(blocks):
        assert ctypes.string_at(block, nbytes) == bytes([number + 1]) * nbytes
        release(block, nbytes)


@pytest.mark.parametrize("nbytes", [8, 64, 200, 1024, 1025, 4096])
def test_small_blocks_do_not_overlap_and_their_memory_goes_back(nbytes):
    held = stats()[2]
    count = 24 * MEBIBYTE // max(nbytes, 32)
    blocks = [allocate(nbytes) for _ in range(count)]
    assert stats()[2] >= held + 8 * MEBIBYTE
    starts = sorted(blocks)
    assert all(b - a >= nbytes for a, b in itertools.pairwise(starts))
    random.Random(1).shuffle(blocks)
    for block in blocks:
        release(block, nbytes)
    assert stats()[2] <= held + 10 * MEBIBYTE  # a few empty arenas stay
    BACKEND.empty_cache(BACKEND.self, 0)
    assert stats()[2] <= held + 2 * MEBIBYTE  # slabs that other tests' sizes still hold


@pytest.mark.parametrize("nbytes", [32, 4096, 100_000, 2**25])
def test_a_released_block_comes_back(nbytes):
    block = allocate(nbytes)
    release(block, nbytes)
    again = allocate(nbytes)
    assert again == block
    release(again, nbytes)


def test_stats_count_what_was_asked_for():
    in_use, _, _, count = stats()
    small, large = allocate(100), allocate(MEBIBYTE + 1)
    assert stats()[0] == in_use + 100 + MEBIBYTE + 1
    assert stats()[1] >= stats()[0]
    assert stats()[2] >= stats()[0]
    assert stats()[3] == count + 2
    release(small, 100)
    release(large, MEBIBYTE + 1)
    assert stats()[0] == in_use


def test_empty_cache_gives_memory_back():
    BACKEND.empty_cache(BACKEND.self, 0)
    held = stats()[2]
    block = allocate(32 * MEBIBYTE)
    release(block, 32 * MEBIBYTE)
    assert stats()[2] >= held + 32 * MEBIBYTE
    BACKEND.empty_cache(BACKEND.self, 0)
    assert stats()[2] == held


def test_the_peak_can_start_again():
    release(allocate(32 * MEBIBYTE), 32 * MEBIBYTE)
    assert stats()[1] >= stats()[0] + 32 * MEBIBYTE
    BACKEND.reset_peak(BACKEND.self, 0)
    assert stats()[1] == stats()[0]


def test_cached_blocks_do_not_add_to_the_peak():
    """Sizes that never repeat: what is held stays near the largest amount in use."""
    for step in range(60):
        nbytes = (2 + step) * MEBIBYTE
        release(allocate(nbytes), nbytes)
    assert stats()[2] <= 2 * 64 * MEBIBYTE


@pytest.mark.parametrize("nbytes", [2**63 - 1, 2**62 + 1, 2**61, 2**64 - 1])
def test_too_large_requests_return_null_after_emptying_the_cache(nbytes):
    block = allocate(8 * MEBIBYTE)
    release(block, 8 * MEBIBYTE)
    before = stats()
    assert allocate(nbytes) is None
    assert stats()[0] == before[0]
    assert stats()[3] == before[3]


def test_release_of_null_is_ignored():
    before = stats()
    release(None, 100)
    assert stats() == before


def test_random_use_never_overlaps():
    rng = random.Random(3)
    live: dict[int, tuple[int, bytes]] = {}
    for step in range(4000):
        if live and rng.random() < 0.5:
            block = rng.choice(list(live))
            nbytes, mark = live.pop(block)
            assert ctypes.string_at(block, 8) == mark
            assert ctypes.string_at(block + nbytes - 8, 8) == mark
            release(block, nbytes)
        else:
            nbytes = int(2 ** rng.uniform(4, 17))
            block, mark = allocate(nbytes), step.to_bytes(8, "little")
            ctypes.memmove(block, mark, 8)
            ctypes.memmove(block + nbytes - 8, mark, 8)
            live[block] = (nbytes, mark)
    for block, (nbytes, _) in live.items():
        release(block, nbytes)


@pytest.fixture
def no_limit_afterwards():
    yield
    set_memory_limit(None)


@pytest.mark.usefixtures("no_limit_afterwards")
@pytest.mark.parametrize("nbytes", [1000, 5 * MEBIBYTE])
def test_a_limit_holds_for_what_is_in_use(nbytes):
    assert memory_limit() is None
    in_use = stats()[0]
    set_memory_limit(in_use + 2 * nbytes)
    assert memory_limit() == in_use + 2 * nbytes
    first, second = allocate(nbytes), allocate(nbytes)
    assert first is not None
    assert second is not None
    assert allocate(1) is None
    set_memory_limit(in_use + nbytes)  # what is in use stays
    release(first, nbytes)
    assert allocate(1) is None
    release(second, nbytes)
    assert allocate(nbytes + 1) is None
    block = allocate(nbytes)
    assert block is not None
    release(block, nbytes)
    assert stats()[0] == in_use


@pytest.mark.usefixtures("no_limit_afterwards")
def test_a_limit_gives_cached_memory_back():
    release(allocate(20 * MEBIBYTE), 20 * MEBIBYTE)
    before = stats()[2]
    set_memory_limit(stats()[0])
    assert stats()[2] <= before - 20 * MEBIBYTE


@pytest.mark.parametrize(
    ("nbytes", "error", "message"),
    [
        (-1, ValueError, "'nbytes' must not be negative: -1"),
        (1.5, TypeError, "'nbytes' must be int or None, not float"),
        (True, TypeError, "not bool"),
        ("1G", TypeError, "not str"),
    ],
)
def test_limits_that_are_refused(nbytes, error, message):
    with pytest.raises(error, match=message):
        set_memory_limit(nbytes)
    assert memory_limit() is None


@pytest.mark.usefixtures("no_limit_afterwards")
def test_an_op_beyond_the_limit_raises_and_leaves_the_graph_usable():
    pb = pytest.importorskip("pullback")
    x = pb.ones(1000, 1000, requires_grad=True, device="cpu")
    y = x * 2
    set_memory_limit(stats()[0] + 3_000_000)
    with pytest.raises(MemoryError):
        y.exp()
    with pytest.raises(MemoryError):
        y.sum().backward(retain_graph=True)
    set_memory_limit(None)
    y.sum().backward()
    assert x.grad.sum().item() == 2e6


def test_an_unlimited_amount_is_the_largest_number():
    set_memory_limit(2**200)
    assert memory_limit() is None
