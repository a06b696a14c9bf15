"""Fourier transforms by cuFFT, on prepared memory: dense arrays whose last dims are transformed.

Addresses are of the device, whose context is current. Plans are kept by shape: to make one takes
far longer than to run it.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

from pullback_cuda.runtime import contexts, libraries

MOST_PLANS = 64
MOST_DIMS = 3  # of one plan
FORWARD, INVERSE = -1, 1
# cuFFT's numbers and functions, for single and double precision.
TYPES = {"c2c": (0x29, 0x69), "r2c": (0x2A, 0x6A), "c2r": (0x2C, 0x6C)}
FUNCTIONS = {
    "c2c": ("exec_c2c", "exec_z2z"),
    "r2c": ("exec_r2c", "exec_d2z"),
    "c2r": ("exec_c2r", "exec_z2d"),
}

_plans: OrderedDict[tuple, int] = OrderedDict()
_running = threading.Lock()  # a plan runs for one thread at a time


def _bindings():
    return libraries.load("cufft", "cuFFT", "a Fourier transform")


def _plan(where, kind, double, sizes, stride, batch) -> int:
    """Return a plan for a batch of transforms; with a stride of 1 they follow each other."""
    key = (where, kind, double, sizes, stride, batch)
    plan = _plans.get(key)
    if plan is not None:
        _plans.move_to_end(key)
        return plan
    cufft = _bindings()
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    read, written = (half if kind == "c2r" else sizes), (half if kind == "r2c" else sizes)
    apart = (1, 1) if stride > 1 else (math.prod(read), math.prod(written))
    plan = cufft.create()
    try:
        cufft.make_plan_many64(
            plan, len(sizes), list(sizes), list(read), stride, apart[0], list(written), stride,
            apart[1], TYPES[kind][double], batch)  # fmt: skip
        cufft.set_stream(plan, contexts.stream_at(*where).handle)
    except BaseException:
        cufft.destroy(plan)
        raise
    _plans[key] = plan
    if len(_plans) > MOST_PLANS:
        cufft.destroy(_plans.popitem(last=False)[1])
    return plan


def transform(where, kind, double, batch, sizes, source, target, forward) -> None:
    """Transform the last dims, of these sizes, of a dense array.

    ``where`` is (device, stream). ``kind`` is "c2c" (in place: source is target), "r2c", which goes
    forward, or "c2r", which goes back and may overwrite its source.
    """
    early, late = sizes[:-MOST_DIMS], sizes[-MOST_DIMS:]
    count = math.prod(late[:-1]) * (late[-1] if kind == "c2c" else late[-1] // 2 + 1)
    with _running:
        if kind == "c2r":
            _transform_early(where, double, batch, early, count, source, INVERSE)
        plan = _plan(where, kind, double, late, 1, batch * math.prod(early))
        run = getattr(_bindings(), FUNCTIONS[kind][double])
        direction = FORWARD if forward else INVERSE
        run(plan, source, target, *((direction,) if kind == "c2c" else ()))
        if kind != "c2r":
            _transform_early(where, double, batch, early, count, target, direction)


def _transform_early(where, double, batch, sizes, count, data, direction) -> None:
    """Transform dims before the last ones, which have ``count`` elements, in place."""
    run = getattr(_bindings(), FUNCTIONS["c2c"][double])
    for position, size in enumerate(sizes):
        behind = math.prod(sizes[position + 1 :]) * count
        plan = _plan(where, "c2c", double, (size,), behind, behind)
        for number in range(batch * math.prod(sizes[:position])):
            start = data + number * size * behind * (16 if double else 8)
            run(plan, start, start, direction)
