"""``expect``: a test of a program fails when it runs, allocates or falls back more than it may."""

import asyncio
import re

import pytest

import pullback as pb
from pullback.profiler import expect, profile


@pytest.fixture
def x():
    return pb.ones(8, 8, requires_grad=True)


def test_a_block_within_its_limits_passes_and_tells_what_it_did(x):
    with expect(max_ops=2, max_bytes=260, max_peak=260, no_fallback=True) as ran:
        x.exp().sum()
    assert (ran.ops, ran.nbytes, ran.peak, ran.fallbacks) == (2, 260, 260, {})


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (dict(max_ops=1), "ran 2 ops, which is more than max_ops=1"),
        (dict(max_bytes=511), "allocated 512 bytes in total, which is more than max_bytes=511"),
        (dict(max_peak=0), "took 512 bytes at its peak, which is more than max_peak=0"),
    ],
)
def test_each_limit_has_its_message(x, limit, message):
    with pytest.raises(AssertionError, match=re.escape(f"expect(): {message}")):
        with expect(**limit):
            kept = x.exp(), x.exp()
    assert len(kept) == 2


def test_memory_that_is_given_back_counts_in_total_only(x):
    with expect() as ran:
        for _ in range(5):
            x.exp()
    assert (ran.nbytes, ran.peak) == (5 * 256, 256)


def test_the_table_begins_with_the_largest(x):
    def block():
        pb.zeros(100, 100)
        for _ in range(3):
            x.exp()

    for limit, first in (
        (dict(max_ops=1), "pullback::exp"),
        (dict(max_bytes=1), "pullback::zeros"),
    ):
        with pytest.raises(AssertionError) as caught, expect(**limit):
            block()
        _, head, row, *_ = str(caught.value).splitlines()
        assert head.split() == ["Name", "#", "of", "Calls", "Allocated"]
        assert row.split()[0] == first


def test_ops_inside_ops_are_not_counted_but_those_of_nodes_are(x):
    class Twice(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp() * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    with expect() as ran:
        y = pb.nn.functional.softmax(x, -1)
    assert ran.ops == 1
    with expect() as ran:
        y = Twice.apply(x)
    assert ran.ops == 2
    with expect() as ran:
        y.backward(pb.ones(8, 8))
    assert {row.name: row.calls for row in ran.rows} == {"pullback::ones": 1, "pullback::mul": 1}


def test_a_decorated_function_is_limited_in_each_call(x):
    @expect(max_ops=2)
    def program(count):
        return [x + 1 for _ in range(count)]

    assert len(program(2)) == len(program(2)) == 2
    with pytest.raises(AssertionError, match="ran 3 ops"):
        program(3)
    assert len(program(1)) == 1


def test_a_decorated_coroutine_is_limited_until_it_is_done(x):
    @expect(max_ops=2)
    async def program(count):
        for _ in range(count):
            await asyncio.sleep(0)
            x + 1
        return count

    assert asyncio.run(program(2)) == 2
    with pytest.raises(AssertionError, match="ran 3 ops"):
        asyncio.run(program(3))


def test_generators_are_not_decorated():
    def plain():
        yield

    async def asynchronous():
        yield

    for function in (plain, asynchronous):
        with pytest.raises(TypeError, match=f"the generator function {function.__name__}"):
            expect(max_ops=1)(function)


def test_the_blocks_own_exception_passes(x):
    with pytest.raises(LookupError), expect(max_ops=0):
        x.exp()
        raise LookupError


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
def test_fallbacks_are_forbidden_on_demand(timed_device):
    x = pb.ones(4, device="timed")
    message = "'sub' on timed ran on the host 2 times and copied 128 bytes, with no_fallback=True"
    with pytest.raises(AssertionError, match=message), expect(no_fallback=True):
        kept = x - x, x - x, x + x
    assert len(kept) == 3
    with expect(no_fallback=True):
        x + x


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
def test_fallbacks_are_rows_of_the_table(timed_device):
    x = pb.ones(4, device="timed")
    with profile() as p:
        x - x, x - x, x + x
    rows = {row.key: row.count for row in p.key_averages() if "fallback" in row.key}
    assert rows == {"host fallback: sub on timed": 2}
    (event, _) = (event for event in p.events() if "fallback" in event.name)
    assert event.cpu_parent.name == "pullback::sub"


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
def test_a_second_block_begins_with_no_fallbacks(timed_device):
    x, limits = pb.ones(4, device="timed"), expect(no_fallback=True)
    with pytest.raises(AssertionError, match="'sub' on timed ran on the host"), limits:
        x - x
    with limits:
        x + x
    assert limits.fallbacks == {}


def test_kernels_of_a_device_are_limited(timed_device):
    x = pb.ones(4, device="timed")
    with expect(max_kernels=2, device="timed") as ran:
        x + x
        x * x
    assert ran.kernels == 2
    with pytest.raises(AssertionError, match="launched 2 kernels"):
        with expect(max_kernels=1, device="timed"):
            x + x
            x * x


def test_kernels_of_a_device_that_is_not_there():
    for device, why in (("nonsense", "The 'nonsense' is not"), ("cpu", "the CPU launches no")):
        with pytest.raises(RuntimeError, match=f"max_kernels cannot be used: {why}"):
            with expect(max_kernels=1, device=device):
                pass


@pytest.mark.parametrize("name", ["max_ops", "max_bytes", "max_peak", "max_kernels"])
def test_limits_are_numbers(name):
    with pytest.raises(TypeError, match=f"argument '{name}' must be int or None, not float"):
        expect(**{name: 1.5})
    with pytest.raises(ValueError, match=f"argument '{name}' must be at least 0, got -1"):
        expect(**{name: -1})


def test_one_profiler_records_at_a_time(x):
    with profile(), pytest.raises(RuntimeError):
        expect().__enter__()
    with expect() as ran:
        x.exp()
    assert ran.ops == 1
