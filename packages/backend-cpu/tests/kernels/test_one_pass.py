"""Ops that take one pass over memory need no memory for intermediate results."""

from __future__ import annotations

import pytest

import pullback as pb

N = 1 << 20
BYTES = 4 * N


def numbers(**options):
    return pb.rand(N, **options)


def peak_of(run):
    """Return the bytes that a call takes beside what there was before, its result included."""
    run()  # what is set up once is not counted
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    result = run()
    found = pb.memory_stats()["allocated_bytes.all.peak"] - before
    del result
    return found


@pytest.fixture(scope="module")
def arrays():
    return tuple(numbers() for _ in range(4))


@pytest.mark.parametrize(
    ("call", "count"),
    [
        pytest.param(lambda x, y, z, out: pb.add(x, y, out=out), 0, id="out"),
        pytest.param(lambda x, y, z, out: pb.div(x, 2.5, out=out), 0, id="out-number"),
        pytest.param(lambda x, y, z, out: pb.add(x, y, alpha=0.5), 1, id="alpha"),
        pytest.param(lambda x, y, z, out: out.sub_(y, alpha=0.5), 0, id="alpha-in-place"),
        pytest.param(lambda x, y, z, out: out.addcmul_(x, y, value=2), 0, id="addcmul"),
        pytest.param(lambda x, y, z, out: out.addcdiv_(x, y + 1), 1, id="addcdiv"),
    ],
)
def test_memory_of_a_call(arrays, call, count):
    assert count * BYTES <= peak_of(lambda: call(*arrays)) < (count + 0.5) * BYTES


def test_a_product_is_added_to_grad_without_memory_for_it(arrays):
    y = arrays[1]
    w = numbers(requires_grad=True)
    (w * y).sum().backward()
    total = (w * y).sum()
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    total.backward()
    assert pb.memory_stats()["allocated_bytes.all.peak"] - before < BYTES // 2
    assert pb.equal(w.grad, 2 * y)


def test_a_second_product_is_added_to_the_first(arrays):
    _, y, z, _ = arrays
    w = numbers(requires_grad=True)
    total = (w * y + w * z).sum()
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    total.backward()
    assert pb.memory_stats()["allocated_bytes.all.peak"] - before < 1.5 * BYTES
    assert pb.allclose(w.grad, y + z)
