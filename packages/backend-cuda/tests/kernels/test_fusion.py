"""Fusion groups, simulated: threads in any order leave what the calls leave one after the other."""

import random
from math import prod

import pytest

from pullback_cuda.fused.fusion import (
    MOST_CALLS,
    MOST_OPERANDS,
    Call,
    Operand,
    Operation,
    find_groups,
)

SIZE = 48  # bytes of a block; block 0 is the arena of temporaries


def operand(number, block, offset, shape, strides):
    return Operand(number, 1, 1, False, block, offset, shape, strides, block == 0)


def random_operand(rng, number, shape, written=False):
    """Return a view of a block: contiguous, transposed, reversed, with steps or broadcast."""
    block = rng.choice([0, 0, 0, 1, 2])
    strides = contiguous = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    kind = rng.choice(["contiguous", "contiguous", "steps", "reversed", "broadcast", "transposed"])
    if kind == "steps":
        strides = tuple(2 * one for one in contiguous)
    elif kind == "reversed":
        strides = (*contiguous[:-1], -1)
    elif kind == "broadcast" and not written:
        strides = tuple(one if rng.random() < 0.5 else 0 for one in contiguous)
    elif kind == "transposed" and len(shape) == 2:
        strides = (1, shape[0])
    low = sum(min(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    high = sum(max(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    offset = rng.choice([0, 6, 12, rng.randrange(SIZE - (high - low))])
    offset = min(offset, SIZE - 1 - (high - low)) - low
    return operand(number, block, offset, shape, strides)


def random_calls(rng):
    calls, number = [], 0
    shapes = rng.choice([[(6,)], [(6,), (2, 3)], [(2, 3)]])
    for _ in range(rng.randint(2, 12)):
        shape = rng.choice(shapes)
        operands = []
        for place in range(rng.randint(2, 4)):
            earlier = [one for call in calls for one in call.operands if one.shape == shape]
            if place and earlier and rng.random() < 0.6:
                one = rng.choice(earlier)._replace(number=number)
            else:
                one = random_operand(rng, number, shape, written=place == 0)
            operands.append(one)
            number += 1
        # A call whose output overlaps its own inputs in part has no defined result.
        out = operands[0]
        if all(one.key == out.key or not one.overlaps(out) for one in operands[1:]):
            calls.append(Call(Operation("binary", "sum"), tuple(operands)))
    return calls


def elements(one):
    """Return the place of each element in the block, in the order of the operand's dims."""
    places = [one.offset]
    for size, stride in zip(one.shape, one.strides, strict=True):
        places = [place + i * stride for place in places for i in range(size)]
    return places


def combined(position, values):
    return (position + sum((k + 1) * value for k, value in enumerate(values))) % 251


def run_calls(calls, memory):
    for position, call in calls:
        columns = zip(*(elements(one) for one in call.operands), strict=True)
        results = []
        for place, *sources in columns:
            inputs = zip(call.operands[1:], sources, strict=True)
            values = [memory[one.block][source] for one, source in inputs]
            results.append((place, combined(position, values)))
        for place, value in results:
            memory[call.out.block][place] = value


def run_group(group, memory, rng):
    """Run a group's kernel: each thread loads, computes and stores one element."""
    count = len(elements(group.calls[0].out))
    places = {one.key: elements(one) for one in (*group.loaded, *group.stored)}
    for thread in rng.sample(range(count), count):
        found = {one.key: memory[one.block][places[one.key][thread]] for one in group.loaded}
        for position, call in enumerate(group.calls, group.first):
            found[call.out.key] = combined(position, [found[one.key] for one in call.operands[1:]])
        for one in group.stored:
            memory[one.block][places[one.key][thread]] = found[one.key]


@pytest.mark.parametrize("start", range(0, 3000, 500))
def test_random_programs(start):
    fused = 0
    for seed in range(start, start + 500):
        rng = random.Random(seed)
        calls = random_calls(rng)
        groups = find_groups(calls, [call.operands for call in calls])
        memory = [[rng.randrange(251) for _ in range(SIZE)] for _ in range(3)]
        expected = [list(block) for block in memory]
        run_calls(enumerate(calls), expected)
        at = 0
        for group in groups:
            run_calls(list(enumerate(calls))[at : group.first], memory)
            run_group(group, memory, rng)
            at = group.first + len(group.calls)
            fused += len(group.calls)
        run_calls(list(enumerate(calls))[at:], memory)
        assert memory[1:] == expected[1:], seed  # the arena is of no use afterwards
    assert fused > 500


def test_kernels_have_a_limit_of_calls():
    out, kept = operand(0, 0, 0, (6,), (1,)), operand(1, 1, 0, (6,), (1,))
    chain = [Call(Operation("unary", "neg"), (out, out))] * 100
    chain.append(Call(Operation("unary", "neg"), (kept, out)))
    groups = find_groups(chain, [call.operands for call in chain])
    assert [len(group.calls) for group in groups] == [MOST_CALLS, MOST_CALLS, 5]


def test_kernels_have_a_limit_of_operands():
    total = operand(0, 1, 0, (6,), (1,))
    sums = [
        Call(Operation("binary", "add"), (total, total, operand(k, 3 + k, 0, (6,), (1,))))
        for k in range(60)
    ]
    groups = find_groups(sums, [call.operands for call in sums])
    assert sum(len(group.calls) for group in groups) == 60
    assert max(len(group.loaded) + len(group.stored) for group in groups) == MOST_OPERANDS


def test_time_does_not_grow_with_the_square_of_the_calls():
    """Work is counted, not timed: how often two operands are compared."""
    compared = 0
    before = Operand.overlaps

    def overlaps(self, other):
        nonlocal compared
        compared += 1
        return before(self, other)

    out = [operand(k, 0, 6 * (k % 7), (6,), (1,)) for k in range(2000)]
    chain = [Call(Operation("unary", "neg"), (out[k + 1], out[k])) for k in range(1999)]
    Operand.overlaps = overlaps
    try:
        find_groups(chain, [call.operands for call in chain])
    finally:
        Operand.overlaps = before
    assert compared < 60 * len(chain)
