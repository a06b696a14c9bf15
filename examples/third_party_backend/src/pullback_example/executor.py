"""Executors of compiled programs: consecutive kernels, with products fused into sums.

``pullback.compile`` offers kernel calls that follow each other (``Memory.compile``). A device with
a compiler would make one kernel of them; this one saves the way from the core into each kernel,
and the memory of a product that the next call adds to something.
"""

import numpy as np

from pullback_example.kernels import FUNCTIONS
from pullback_example.memory import dtype_of, view


def place(array):
    """Return what two operands with the same elements have in common."""
    return array.base, array.offset, array.shape, array.strides, array.dtype


def reach(array):
    """Return where an operand's elements lie: its block, and the first and last in elements."""
    steps = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
    first = array.offset + sum(min(step, 0) for step in steps)
    return array.base, first, first + sum(map(abs, steps))


def overlap(one, other):
    """Tell whether two operands may share memory; temporaries share a block, the arena."""
    if one.host or other.host:
        return False
    (base, first, last), (other_base, other_first, other_last) = reach(one), reach(other)
    size, other_size = dtype_of(one).itemsize, dtype_of(other).itemsize
    return (
        base == other_base
        and first * size < (other_last + 1) * other_size
        and other_first * other_size < (last + 1) * size
    )


def is_summand(calls, number):
    """Tell whether a call is a product that the next call adds, and nothing else reads."""
    product, *later = calls[number:]
    out = product.outs[0]
    if product.primitive != "mul" or not product.inner[0] or not later:
        return False
    if later[0].primitive != "add" or place(out) not in map(place, later[0].ins):
        return False
    if any(overlap(one, out) and place(one) != place(out) for one in later[0].ins):
        return False
    for call in later:  # `inner`: no call outside of the part reads it
        if call is not later[0] and any(overlap(one, out) for one in call.ins):
            return False
        if place(out) in map(place, call.outs):  # written again, as a whole
            return True
    return True


class Executor:
    """Runs the calls of one part."""

    def __init__(self, calls):
        self.summands = {number for number in range(len(calls)) if is_summand(calls, number)}

    def __call__(self, calls):
        """Run the kernels of all calls, in order."""
        with np.errstate(all="ignore"):
            kept = {}  # the summand's place and its values
            for number, call in enumerate(calls):
                inputs = [kept[place(one)] if place(one) in kept else view(one) for one in call.ins]
                out = call.outs[0]
                if number in self.summands:
                    outs = np.empty(out.shape, dtype_of(out))
                    kept = {place(out): outs}
                else:
                    outs = view(out) if len(call.outs) == 1 else tuple(map(view, call.outs))
                    kept = {}
                FUNCTIONS[call.primitive](outs, *inputs, **call.params)
