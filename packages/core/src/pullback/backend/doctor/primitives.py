"""Which primitives a device has kernels for, and which ops of the table need the others."""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections import Counter
from importlib import import_module
from typing import Any, NamedTuple

import pullback as pb
from pullback._c.device import device as _device
from pullback._c.device.device import explain_entry
from pullback.backend import registry
from pullback.ops import ENTRIES
from pullback.ops.table.primitives import LIBRARY, PRIMITIVE_IDS, PRIMITIVES
from pullback.testing.samples import accepts, cases_of, op_of, samples_of

__all__ = ["Coverage", "coverage", "missing", "needs", "primitives_of"]

TALLY = "tally"  # a device type of this module, with the kernels of ``ref``, which it counts
KINDS = {
    "kernel": "kernel",
    "python": "kernel",
    "kernel of another dtype": "kernel",
    "decomposition into other ops": "decomposition",
    "host fallback": "host",
    "numbers made on the host": "host",
    "cast to another dtype first": "nothing",
}
_reached: Counter[str] = Counter()


class Coverage(NamedTuple):
    """How a primitive runs: kernel, decomposition, host or nothing; dtypes without a kernel."""

    primitive: str
    how: str
    without: tuple[str, ...]
    ops: tuple[str, ...]


def _counting(primitive: str, kernel: Any) -> Any:
    def run(out, *inputs, **params):
        _reached[primitive] += 1
        return kernel(out, *inputs, **params)

    return run


@functools.cache
def _tally_device() -> str:
    """Register the device that counts: host memory, and the required kernels alone."""
    _device.install_backend(TALLY, None)
    registry.mark_loaded(TALLY)
    for primitive, (mask, kernel) in import_module(registry.REFERENCE).KERNELS.items():
        number = PRIMITIVE_IDS[primitive]
        _device.install_kernel(TALLY, number, mask, _counting(primitive, kernel))
    return TALLY


def primitives_of(name: str) -> set[str]:
    """Return the required primitives that the first samples of an op run, all others composed."""
    entry, device = ENTRIES[name], _tally_device()
    found: set[str] = set()
    for dtype in (pb.float32, pb.int64, pb.bool, pb.complex64):
        if found or not accepts(entry, dtype) or not cases_of(entry):
            continue
        for sample in itertools.islice(samples_of(entry, dtype, device=device), 2):
            _reached.clear()
            with warnings.catch_warnings(), pb.device(device), pb.no_grad():
                warnings.simplefilter("ignore")  # some ops are deprecated
                with contextlib.suppress(RuntimeError):  # of a missing library: what ran counts
                    op_of(entry)(*sample.args, **sample.kwargs)
            found |= set(_reached)
    return found


@functools.cache
def needs() -> dict[str, tuple[str, ...]]:
    """Return the ops of the table that need each required primitive, by one run of each op."""
    users: dict[str, list[str]] = {}
    for name in ENTRIES:
        for primitive in primitives_of(name):
            users.setdefault(primitive, []).append(name)
    return {primitive: tuple(names) for primitive, names in users.items()}


@functools.cache
def taken() -> dict[str, int]:
    """Return the mask of dtypes that the ops of each primitive take."""
    masks: dict[str, int] = {}
    for entry in ENTRIES.values():
        if entry.kernel is not None:
            masks[entry.kernel] = masks.get(entry.kernel, 0) | entry.dtypes
    return masks


def coverage(device: str, dtypes: list[Any]) -> list[Coverage]:
    """Return how each primitive runs on a device, in the dtypes that it has."""
    users = needs()
    found = []
    for name, primitive in PRIMITIVES.items():
        hows = {
            dtype.name: KINDS[explain_entry(device, name, dtype, primitive.decomposed)]
            for dtype in dtypes
            if taken().get(name, -1) >> dtype.code & 1
        }
        order = ("kernel", "decomposition", "host", "nothing")
        how = min(hows.values(), key=order.index, default="nothing")
        without = tuple(d for d, one in hows.items() if one == "host") if how == "kernel" else ()
        found.append(Coverage(name, how, without, users.get(name, ())))
    return found


def missing(device: str, dtypes: list[Any]) -> list[Coverage]:
    """Return the required primitives without a kernel, those that most ops need first."""
    lacking = [
        one
        for one in coverage(device, dtypes)
        if PRIMITIVES[one.primitive].required and one.how != "kernel"
    ]
    return sorted(lacking, key=lambda one: (one.primitive in LIBRARY, -len(one.ops)))


def remedy(primitive: str) -> str:
    """Return in one line what to register for a primitive."""
    known = PRIMITIVES[primitive]
    inputs, params = known.inputs.split(), [one.partition(":")[0] for one in known.params]
    if params and not any(name.startswith("*") for name in inputs):
        params.insert(0, "*")
    arguments = ", ".join(["out", *inputs, *params])
    meaning = known.doc.rstrip(".").split(". ")[0]
    return f"table.add({primitive!r}, mask, kernel) with kernel({arguments}): {meaning}"
