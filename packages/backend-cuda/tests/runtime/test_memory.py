"""Memory: blocks that come back, what is counted, and what happens when there is none."""

import gc
import sys
import threading

import pytest

import pullback as pb
from pullback_cuda.runtime.devices import Device

MIB = 2**20


@pytest.fixture(autouse=True)
def empty(cuda):
    gc.collect()
    pb.cuda.synchronize()
    pb.cuda.empty_cache()
    pb.cuda.reset_peak_memory_stats()
    yield
    pb.cuda.set_per_process_memory_fraction(1.0)


def test_freed_block_is_used_again():
    x = pb.empty(1000, device="cuda")
    address = x.data_ptr()
    del x
    assert pb.empty(1000, device="cuda").data_ptr() == address
    assert pb.empty(1010, device="cuda").data_ptr() == address
    big = pb.empty(MIB, device="cuda")
    address = big.data_ptr()
    del big
    assert pb.empty(MIB - 5, device="cuda").data_ptr() == address


def test_counts_are_bytes_of_tensors():
    before = pb.cuda.memory_allocated()
    x = pb.empty(100, device="cuda")
    y = pb.empty(MIB, device="cuda")
    assert pb.cuda.memory_allocated() - before == 400 + 4 * MIB
    reserved = pb.cuda.memory_reserved()
    assert reserved >= 4 * MIB
    del y
    assert pb.cuda.memory_allocated() - before == 400
    assert pb.cuda.max_memory_allocated() - before == 400 + 4 * MIB
    assert pb.cuda.memory_reserved() == reserved
    pb.cuda.empty_cache()
    assert pb.cuda.memory_reserved() < reserved
    pb.cuda.reset_peak_memory_stats()
    assert pb.cuda.max_memory_allocated() == pb.cuda.memory_allocated()
    assert "Allocated memory" in pb.cuda.memory_summary()
    stats = pb.cuda.memory_stats()
    assert stats["allocation.all.current"] >= 1
    assert pb.memory_stats("cuda")["allocated_bytes.all.current"] == pb.cuda.memory_allocated()
    del x


def test_every_small_size_has_its_own_block():
    kept = [pb.full((n,), float(n), device="cuda") for n in range(1, 3000, 37)]
    for n, x in zip(range(1, 3000, 37), kept, strict=True):
        assert x.shape == (n,)
        assert (x == n).all().item()


def test_slab_goes_back_only_when_nobody_has_a_part_of_it():
    # Of a size that nothing else has: so they are the only ones in their slab.
    first, second = pb.ones(70_000, device="cuda"), pb.ones(70_000, device="cuda")
    reserved = pb.cuda.memory_reserved()
    del first
    pb.cuda.empty_cache()
    assert pb.cuda.memory_reserved() == reserved
    assert second.sum().item() == 70_000
    del second
    pb.cuda.empty_cache()
    assert pb.cuda.memory_reserved() < reserved


def test_cached_blocks_make_room(cuda):
    part = 1 / 16  # of the device: reserved memory is overwritten, so that no test relies on zeros
    limit = int(pb.cuda.mem_get_info()[1] * part)
    pb.cuda.set_per_process_memory_fraction(part)
    before = pb.cuda.memory_stats()
    for divisor in (2, 3, 5, 2, 3):  # together more than there is, of different sizes
        x = pb.empty(limit // divisor, dtype=pb.uint8, device="cuda")
        del x
    after = pb.cuda.memory_stats()
    assert after["num_alloc_retries"] > before["num_alloc_retries"]
    assert after["num_ooms"] == before["num_ooms"]


def test_too_much_raises_and_loses_nothing():
    kept = pb.arange(1000, device="cuda")
    ooms = pb.cuda.memory_stats()["num_ooms"]
    with pytest.raises(pb.OutOfMemoryError) as caught:
        pb.empty(2**44, device="cuda")
    assert isinstance(caught.value, (MemoryError, RuntimeError))
    assert str(caught.value).startswith("CUDA out of memory: cuda:0 cannot allocate 64.00 TiB") or (
        "cannot allocate 65536.00 GiB" in str(caught.value)
    )
    for words in ("Tensors use", "pullback holds", "the driver has", "free of"):
        assert words in str(caught.value)
    assert pb.cuda.memory_stats()["num_ooms"] == ooms + 1
    assert (kept + 1).sum().item() == 500500


def test_fraction_limits_what_is_held():
    total = pb.cuda.mem_get_info()[1]
    pb.cuda.set_per_process_memory_fraction(0.25)
    with pytest.raises(pb.OutOfMemoryError, match="that it may hold"):
        pb.empty(total // 2, dtype=pb.uint8, device="cuda")
    x = pb.empty(total // 8, dtype=pb.uint8, device="cuda")
    del x
    pb.cuda.set_per_process_memory_fraction(1.0)
    pb.empty(total // 2, dtype=pb.uint8, device="cuda")


@pytest.mark.parametrize(
    ("fraction", "kind"), [("x", TypeError), (-1, ValueError), (2.0, ValueError)]
)
def test_wrong_fractions_are_refused(fraction, kind):
    with pytest.raises(kind, match="fraction"):
        pb.cuda.set_per_process_memory_fraction(fraction)


def test_graph_is_usable_after_running_out(fake_cuda):
    x = pb.ones(1000, device="cuda", requires_grad=True)
    y = (x * 2).exp()
    with pytest.raises(pb.OutOfMemoryError):
        y.expand(2**34, 1000).contiguous()
    y.sum().backward()
    assert x.grad.shape == (1000,)


def test_allocation_that_fails_is_tried_again(fake_cuda):
    cached = pb.empty(8 * MIB, device="cuda")
    del cached
    retries = pb.cuda.memory_stats()["num_alloc_retries"]
    fake_cuda.fail("cuMemAlloc", "OUT_OF_MEMORY", times=2)  # pycuda itself asks twice
    assert pb.ones(16 * MIB, device="cuda").sum().item() == 16 * MIB
    assert pb.cuda.memory_stats()["num_alloc_retries"] == retries + 1


def test_other_errors_of_the_driver_are_raised(fake_cuda):
    fake_cuda.fail("cuMemAlloc", "INVALID_VALUE", times=1)
    with pytest.raises(RuntimeError, match="cuMemAlloc"):
        pb.empty(32 * MIB, device="cuda")
    assert pb.ones(3, device="cuda").tolist() == [1, 1, 1]


OPS_WITH_WORKSPACE = {  # so much of it that it is no part of a slab
    "sort": lambda x: pb.sort(x),
    "matmul": lambda x: x.view(400, 1000)[:, ::2] @ x.view(1000, 400)[::2],
    "solve": lambda x: pb.linalg.solve(
        pb.eye(20, device="cuda").expand(1000, 20, 20), x.view(1000, 20, 20)
    ),
    "svd": lambda x: pb.linalg.svd(x[:160_000].view(100, 40, 40)),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("op", OPS_WITH_WORKSPACE.values(), ids=OPS_WITH_WORKSPACE)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, pb.OutOfMemoryError])
def test_errors_during_a_request_are_raised_unchanged(cuda, monkeypatch, op, error):
    x = pb.ones(400_000, device="cuda")
    really_allocate, calls = Device.allocate, []

    def allocate(self, nbytes):
        calls.append(nbytes)
        if len(calls) == failing:
            raise error("in between")
        return really_allocate(self, nbytes)

    monkeypatch.setattr(Device, "allocate", allocate)
    ended = 0
    for failing in range(1, 8):
        calls.clear()
        pb.cuda.empty_cache()
        try:
            op(x)
        except error as raised:
            assert type(raised) is error and str(raised).startswith("in between")
            ended += 1
        assert (len(calls) < failing) == (ended < failing)
    assert ended
    assert x.sum().item() == 400_000


def test_no_memory_of_a_training_step_is_left():
    def step():
        w = pb.ones(50, 50, device="cuda", requires_grad=True)
        for _ in range(5):
            loss = (w @ w).tanh().sum()
            loss.backward()
        return loss.item()

    step()
    gc.collect()
    before = pb.cuda.memory_allocated()
    step()
    gc.collect()
    assert pb.cuda.memory_allocated() == before


def test_nothing_is_written_outside_of_blocks(fake_cuda):
    fake_cuda.check_memory()
    x = pb.rand(257, 33, device="cuda", requires_grad=True)
    (x.softmax(1).cumsum(0).sort(1).values[::2, 3:] @ x.T[3:, :5]).sum().backward()
    pb.cuda.synchronize()
    assert not fake_cuda.check_memory()


def test_threads_share_what_may_be_held(cuda):
    """A thread in need waits until another one has given back what it holds in between."""
    part = 1 / 64
    limit = int(pb.cuda.mem_get_info()[1] * part)
    pb.cuda.set_per_process_memory_fraction(part)
    failures = []

    def run(seed):
        for i in range(250):
            try:
                pb.empty(limit // (5 + (7 * i + seed) % 20), dtype=pb.uint8, device="cuda")
            except pb.OutOfMemoryError as error:
                failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert pb.cuda.max_memory_reserved() <= limit


def test_interrupt_of_an_emptied_cache_is_one(cuda, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    pb.ones(3, device="cuda")
    with monkeypatch.context() as patch:
        patch.setattr(Device, "wait_for_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pb.empty_cache("cuda")
    pb.empty_cache("cuda")


def test_pinned_memory_that_comes_back_while_room_is_made(fake_cuda, monkeypatch):
    copied = pb.ones(5000, pin_memory=True)
    copied.cuda(non_blocking=True)
    kept = [pb.ones(100_000, pin_memory=True)]
    del copied
    really_passed = Device.passed

    def passed(self, events, wait):  # as the collector of garbage might
        kept.clear()
        return really_passed(self, events, wait)

    monkeypatch.setattr(Device, "passed", passed)
    fake_cuda.fail("cuMemHostAlloc", "OUT_OF_MEMORY", times=1)
    assert pb.ones(10**6, pin_memory=True).is_pinned()


def test_memory_used_by_streams_of_others_waits_for_everything(fake_cuda):
    x = pb.ones(5000, device="cuda")
    address = x.data_ptr()
    x.record_stream(12345)  # another library's stream: what it does is not known here
    del x
    assert pb.empty(5000, device="cuda").data_ptr() != address
    pb.cuda.empty_cache()


def test_memory_that_comes_back_while_the_driver_is_asked_is_not_lost(cuda, monkeypatch):
    before = pb.cuda.memory_reserved()
    stream = pb.cuda.Stream()
    kept = [pb.ones(MIB, device="cuda") for _ in range(4)]
    for x in kept:
        x.record_stream(stream)
    del kept[2:], x
    really_passed = Device.passed

    def passed(self, events, wait):  # as another thread would, while this one waits
        if kept:
            kept.pop()
            pb.cuda.empty_cache()
        return really_passed(self, events, wait)

    monkeypatch.setattr(Device, "passed", passed)
    pb.cuda.empty_cache()
    assert not kept
    pb.cuda.empty_cache()
    assert pb.cuda.memory_reserved() == before


def test_events_that_fail_lose_no_memory(fake_cuda):
    side = pb.cuda.Stream()
    for _ in range(3):
        x = pb.ones(MIB, device="cuda")
        x.record_stream(side)
        fake_cuda.fail("cuEventRecord", "UNKNOWN", times=1)
        del x
        fake_cuda.fail_nothing()
    pb.cuda.synchronize()
    pb.cuda.empty_cache()
    assert pb.cuda.memory_reserved() < 4 * MIB


def test_cache_is_not_given_to_others_while_the_device_uses_it(fake_cuda):
    side = pb.cuda.Stream()
    with fake_cuda.deferred():
        x = pb.ones(8 * MIB, device="cuda")
        y = x + 1
        del x
        pb.cuda.empty_cache()
        with pb.cuda.stream(side):
            z = pb.full((8 * MIB,), 5.0, device="cuda")
        assert y.sum().item() == 16 * MIB
        side.synchronize()
        del z


def test_pinned_memory_that_nobody_uses_makes_room(fake_cuda):
    from pullback_cuda.runtime import pinned

    pinned._shrink()
    kept = pb.ones(3000).pin_memory()
    del kept
    assert any(pinned._unused.values())
    fake_cuda.fail("cuMemHostAlloc", "OUT_OF_MEMORY", times=1)
    x = pb.ones(90_000).pin_memory()
    assert x.is_pinned() and x.sum().item() == 90_000
    assert not any(pinned._unused.values())
    fake_cuda.fail("cuMemHostAlloc", "OUT_OF_MEMORY", times=-1)
    with pytest.raises(MemoryError, match=r"cannot pin 2097152 bytes of host memory"):
        pb.ones(400_000).pin_memory()
