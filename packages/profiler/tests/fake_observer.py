"""A fake of the module ``python_observer``: the test says what runs."""

from __future__ import annotations

import types
from contextlib import contextmanager

OP, NODE, RANGE, EVALUATION = range(4)


class FakeObserver(types.ModuleType):
    """The functions of ``python_observer``, and ``run``, which makes an op happen."""

    def __init__(self) -> None:
        super().__init__("pullback_profiler.record.python_observer")
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


def training_step(observer: FakeObserver) -> None:
    """Run the forward and the backward of a product, in a range of the user's."""
    with observer.run(RANGE, "step"):
        with observer.run(OP, "matmul", 6, [[8, 16], [16, 4]]):
            with observer.run(OP, "mm", 6, [[8, 16], [16, 4]]):
                pass
        with observer.run(EVALUATION, "MmBackward0", 6, [[8, 4]], forward_thread=1):
            with observer.run(NODE, "MmBackward0", 6, [[8, 4]], forward_thread=1):
                with observer.run(OP, "mm", 0, [[8, 4], [4, 16]]):
                    pass
        with observer.run(EVALUATION, "AccumulateGrad"), observer.run(NODE, "AccumulateGrad"):
            pass
