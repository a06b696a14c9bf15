"""A stand-in for the observer of ops: the test says what runs."""

from __future__ import annotations

import types
from contextlib import contextmanager

OP, NODE, RANGE, EVALUATION = range(4)


class FakeTap(types.ModuleType):
    """What ``pullback_profiler.record._tap`` offers, and ``run``, which makes an op happen."""

    def __init__(self) -> None:
        super().__init__("pullback_profiler.record._tap")
        self.observers = {}
        self.log = []

    def attach(self, begin, end, record_shapes, threads="all"):
        token = object()
        self.observers[token] = (begin, end, record_shapes)
        self.log.append(("attach", record_shapes, threads))
        return token

    def detach(self, token):
        del self.observers[token]
        self.log.append(("detach",))

    @contextmanager
    def run(self, kind, name, sequence=-1, sizes=None, forward_thread=0):
        observers = list(self.observers.values())
        for begin, _, record_shapes in observers:
            begin(kind, name, sequence, forward_thread, sizes if record_shapes else None)
        try:
            yield
        finally:
            for _, end, _ in observers:
                end()


def training_step(tap: FakeTap) -> None:
    """Run the forward and the backward of a product, in a range of the user's."""
    with tap.run(RANGE, "step"):
        with tap.run(OP, "matmul", 6, [[8, 16], [16, 4]]):
            with tap.run(OP, "mm", 6, [[8, 16], [16, 4]]):
                pass
        with tap.run(EVALUATION, "MmBackward0", 6, [[8, 4]], forward_thread=1):
            with tap.run(NODE, "MmBackward0", 6, [[8, 4]], forward_thread=1):
                with tap.run(OP, "mm", 0, [[8, 4], [4, 16]]):
                    pass
        with tap.run(EVALUATION, "AccumulateGrad"), tap.run(NODE, "AccumulateGrad"):
            pass
