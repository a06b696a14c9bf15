"""What takes one pass over memory needs no memory for what lies between."""

from __future__ import annotations

import pytest

import pullback as pb

N = 1 << 20
BYTES = 4 * N


def numbers(**options):
    return pb.rand(N, **options)


def peak_of(run):
    """Return the bytes that a call takes beside what there was before, its result included."""
    run()       # what is set up once is not counted
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    result = run()
    found = pb.memory_stats()["allocated_bytes.all.peak"] - before
    del result
    return found


X, Y, Z, OUT = (numbers() for _ in range(4))


@pytest.mark.parametrize(
    ("run", "arrays"),
    [
        pytest.param(lambda: pb.add(X, Y, out=OUT), 0, id="out"),
        pytest.param(lambda: pb.div(X, 2.5, out=OUT), 0, id="out-number"),
        pytest.param(lambda: pb.add(X, Y, alpha=0.5), 1, id="alpha"),
        pytest.param(lambda: OUT.sub_(Y, alpha=0.5), 0, id="alpha-in-place"),
        pytest.param(lambda: OUT.addcmul_(X, Y, value=2), 0, id="addcmul"),
        pytest.param(lambda: OUT.addcdiv_(X, Y + 1), 1, id="addcdiv"),
    ],
)
def test_memory_of_a_call(run, arrays):
    assert arrays * BYTES <= peak_of(run) < (arrays + 0.5) * BYTES


def test_a_product_is_added_to_grad_without_memory_for_it():
    w = numbers(requires_grad=True)
    (w * Y).sum().backward()
    total = (w * Y).sum()
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    total.backward()
    assert pb.memory_stats()["allocated_bytes.all.peak"] - before < BYTES // 2
    assert pb.equal(w.grad, 2 * Y)


def test_a_second_product_is_added_to_the_first():
    w = numbers(requires_grad=True)
    total = (w * Y + w * Z).sum()
    pb.reset_peak_memory_stats()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    total.backward()
    assert pb.memory_stats()["allocated_bytes.all.peak"] - before < 1.5 * BYTES
    assert pb.allclose(w.grad, Y + Z)
