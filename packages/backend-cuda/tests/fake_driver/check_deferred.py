"""The fake CUDA driver: work that runs late, calls that fail, and threads."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
try:
    from fake_driver import fixtures
    from fake_driver.fixtures import from_device, pack, to_device
finally:
    del sys.path[0]

clean = fixtures.clean
context = fixtures.context
control = fixtures.control
cuda = fixtures.cuda
functions = fixtures.functions
image = fixtures.image

pytestmark = pytest.mark.usefixtures("clean")


# -- deferred work ---------------------------------------------------------------------------------


def test_a_missing_wait_shows(cuda, context, control, functions):
    scale, count = functions("scale"), 100
    producer, consumer = cuda.Stream(1), cuda.Stream(1)
    source = to_device(cuda, np.ones(count, "f4"))
    middle, target = cuda.mem_alloc(4 * count), cuda.mem_alloc(4 * count)
    event = cuda.Event()

    def run(wait):
        for memory in (middle, target):
            cuda.memset_d32(memory, 0, count)
        cuda.Context.synchronize()
        scale._launch_kernel((1,), (128,), pack(source, middle, count), 0, producer)
        event.record(producer)
        if wait:
            consumer.wait_for_event(event)
        scale._launch_kernel((1,), (128,), pack(middle, target, count, 3.0), 0, consumer)
        consumer.synchronize()
        return from_device(cuda, target, count)[0]

    assert run(wait=False) == run(wait=True) == 6
    with control.deferred():
        assert run(wait=False) == 0
        assert control.pending() == 2  # the producer's launch and record
        assert run(wait=True) == 6
        assert control.pending() == 0


def test_when_deferred_work_runs(cuda, context, control):
    memory, stream = cuda.mem_alloc(4), cuda.Stream(1)
    cuda.memset_d32(memory, 0, 1)
    host = np.empty(1, "i4")

    def value():
        """What is there, by a copy that waits for the default stream alone."""
        cuda.memcpy_dtoh(host, memory)
        return host[0]

    control.set_deferred(1)
    forces = [
        stream.synchronize,
        cuda.Context.synchronize,
        control.run_all,
        lambda: cuda.mem_alloc(1).free(),
        lambda: cuda.memcpy_dtoh_async(host, memory, stream),
        lambda: control.set_deferred(0),
    ]
    for number, force in enumerate(forces):
        cuda.memset_d32_async(memory, number + 1, 1, stream)
        assert value() == number
        force()
        assert value() == number + 1
    control.set_deferred(1)
    event = cuda.Event()
    cuda.memset_d32_async(memory, 100, 1, stream)
    event.record(stream)
    cuda.memset_d32_async(memory, 200, 1, stream)
    assert not event.query() and value() == 100  # asked once, it has run up to there
    assert event.query() and not stream.is_done() and value() == 200
    assert stream.is_done()


def test_sources_of_deferred_copies(cuda, context, control):
    stream, memory = cuda.Stream(1), cuda.mem_alloc(16)
    plain, pinned = np.full(4, 1, "i4"), cuda.pagelocked_empty(4, "i4")
    with control.deferred():
        cuda.memcpy_htod_async(memory, plain, stream)
        plain[:] = 2  # read at the call
        stream.synchronize()
        assert (from_device(cuda, memory, 4, "i4") == 1).all()
        pinned[:] = 3
        cuda.memcpy_htod_async(memory, pinned, stream)
        pinned[:] = 4  # too early: the copy reads this
        stream.synchronize()
        assert (from_device(cuda, memory, 4, "i4") == 4).all()
        pinned[:] = 5
        cuda.memcpy_dtoh_async(pinned, memory, stream)
        assert (pinned == 5).all()
        stream.synchronize()
        assert (pinned == 4).all()
    with control.deferred(2):
        plain[:] = 0
        cuda.memcpy_dtoh_async(plain, memory, stream)
        assert (plain == 0).all()
        stream.synchronize()
        assert (plain == 4).all()


def test_the_default_stream_waits_for_blocking_ones_and_they_for_it(cuda, context, control):
    memory = cuda.mem_alloc(4)
    blocking, free = cuda.Stream(0), cuda.Stream(1)
    with control.deferred():
        cuda.memset_d32(memory, 1, 1)
        cuda.memset_d32_async(memory, 2, 1, blocking)
        assert from_device(cuda, memory, 1, "i4") == 2  # a blocking copy, on the default stream
        cuda.memset_d32(memory, 3, 1)
        free.synchronize()
        assert control.pending() == 1
        blocking.synchronize()
        assert control.pending() == 1  # it had nothing to do
        cuda.memset_d32_async(memory, 4, 1, blocking)
        blocking.synchronize()
        assert control.pending() == 0
        assert from_device(cuda, memory, 1, "i4") == 4


def test_a_wait_is_for_the_record_before_it(cuda, context, control):
    memory = cuda.mem_alloc(8)
    first, second, event = cuda.Stream(1), cuda.Stream(1), cuda.Event()
    with control.deferred():
        event.record(first)
        second.wait_for_event(event)
        cuda.memset_d32_async(memory, 1, 1, first)
        event.record(first)
        second.synchronize()
        assert control.pending() == 2
        del first  # its work goes on
        assert control.pending() == 2
        event.synchronize()
        assert control.pending() == 0


def test_long_chains_between_streams(cuda, context, control):
    streams, events = [cuda.Stream(1), cuda.Stream(1)], [cuda.Event(), cuda.Event()]
    memory = cuda.mem_alloc(4)
    with control.deferred():
        for i in range(20000):
            here, there = i % 2, 1 - i % 2
            streams[here].wait_for_event(events[there])
            cuda.memset_d32_async(memory, i, 1, streams[here])
            events[here].record(streams[here])
        assert control.pending() >= 40000
        streams[1].synchronize()
        assert control.pending() == 0
        assert from_device(cuda, memory, 1, "i4") == 19999


# -- failures on request ---------------------------------------------------------------------------


def test_calls_fail_on_request(cuda, context, control):
    # Out of memory: pycuda collects garbage, and tries once more.
    with control.failing("cuMemAlloc", "OUT_OF_MEMORY", nth=2, times=2):
        blocks = [cuda.mem_alloc(8)]
        with pytest.raises(cuda.MemoryError, match="cuMemAlloc failed: out of memory"):
            cuda.mem_alloc(8)
        blocks.append(cuda.mem_alloc(8))
    assert control.calls("cuMemAlloc") == 4
    control.fail("cuStreamCreate", "UNKNOWN", times=-1)
    for _ in range(3):
        with pytest.raises(cuda.Error, match="unknown error"):
            cuda.Stream()
    control.fail_nothing()
    cuda.Stream()
    with pytest.raises(ValueError, match="nth"):
        control.fail("cuInit", 1, nth=0)
    with pytest.raises(ValueError, match="no counter 'nonsense'; there are allocations, "):
        control.counter("nonsense")


def test_a_broken_device_fails_until_it_is_mended(cuda, context, control):
    memory, event = cuda.mem_alloc(8), cuda.Event()
    event.record()
    control.break_device("ILLEGAL_ADDRESS", 1)
    for call in (
        cuda.Context.synchronize,
        event.synchronize,
        event.query,
        lambda: cuda.mem_alloc(8),
        lambda: cuda.memset_d8(memory, 0, 8),
    ):
        with pytest.raises(cuda.Error, match="an illegal memory access was encountered"):
            call()
    control.mend_device(1)
    cuda.Context.synchronize()


def test_threads_may_call_at_the_same_time(cuda, context, control):
    problems = []

    def work(seed):
        context.push()
        try:
            random, stream = np.random.default_rng(seed), cuda.Stream(1)
            for _ in range(100):
                values = random.integers(0, 255, random.integers(1, 5000), dtype="u1")
                memory = cuda.mem_alloc(values.nbytes)
                cuda.memcpy_htod_async(memory, values, stream)
                back = np.empty_like(values)
                cuda.memcpy_dtoh_async(back, memory, stream)
                if not (back == values).all():
                    problems.append(seed)
                memory.free()
            del stream
        except Exception as error:
            problems.append(error)
        finally:
            cuda.Context.pop()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert control.check_memory() == 0
