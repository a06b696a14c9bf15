"""An element of an elementwise result has the same bits wherever it stands.

Loops run on whole vectors, on halves of them and on single elements; blocks of usual numbers take a
shorter way. Every build of the kernels is called, whichever the process uses.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from kernel_calls import DTYPES, KERNELS
from layouts import is_complex, is_floating, sample

from pullback.ops.table.primitives import PRIMITIVES
from pullback.testing.kernel_calls import KernelCall
from pullback_cpu.kernels import elementwise
from pullback_cpu.kernels.elementwise import special
from pullback_cpu.runtime.isa import available_isas, isa_of

WIDE = 811
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, 1e-40, 65504.0, 70000.0]
TRUTH = ("isnan", "isfinite", "logical_not", "eq", "ge", "gt", "le", "lt", "ne")


def kernels_of(isa: str | None) -> dict[str, tuple[int, object]]:
    """Return the elementwise kernels that are compiled for an instruction set, or once."""
    found: dict[str, tuple[int, object]] = {}
    for module in iter_modules(elementwise.__path__, f"{elementwise.__name__}."):
        if isa_of(module.name) == isa:
            found.update(import_module(module.name).KERNELS)
    return found


BUILDS = {isa: kernels_of(isa) for isa in available_isas()}
BUILDS["all"] = special.KERNELS  # an element at a time, by SciPy's functions
CASES = [(isa, primitive) for isa, kernels in BUILDS.items() for primitive in sorted(kernels)]


def operand(dtype: str, seed: int, kind: str, primitive: str) -> np.ndarray:
    """Return elements: moderate ones, or some of every size among which special ones stand."""
    values = sample(dtype, (WIDE,), seed=seed)
    if primitive in ("lshift", "rshift", "floor_divide", "fmod", "remainder", "gcd"):
        values = np.abs(values) + np.ones((), values.dtype)  # no division by zero
    if not (is_floating(values.dtype) or is_complex(values.dtype)):
        return values
    rng = np.random.default_rng(seed)
    if kind == "positive":
        return np.abs(values).astype(values.dtype)
    if kind == "special":
        sizes = np.exp(rng.uniform(-30, 30, WIDE)) * rng.choice([-1, 1], WIDE)
        with np.errstate(all="ignore"):
            values = (sizes * (1 + 0.3j) if is_complex(values.dtype) else sizes).astype(
                values.dtype
            )
            positions = rng.permutation(WIDE)[: len(SPECIAL)]
            values[positions] = np.array(SPECIAL, values.dtype)
    return values


def operands(primitive: str, dtype: str, kind: str) -> list[np.ndarray]:
    names = PRIMITIVES[primitive].inputs.split()
    inputs = [operand(dtype, seed, kind, primitive) for seed, _ in enumerate(names)]
    if primitive == "where":
        inputs[0] = sample("bool", (WIDE,))
    if primitive.startswith("addc"):  # its number stands for all elements
        inputs[3] = np.broadcast_to(np.asarray(3, DTYPES[dtype]), (WIDE,))
    if "polynomial" in primitive:
        with np.errstate(all="ignore"):
            inputs[1] = np.fmod(inputs[1], inputs[1].dtype.type(100))  # a degree
    return inputs


class Part:
    """A call that is made on parts of its operands, in turn."""

    def __init__(self, kernel, out, inputs):
        self.call = KernelCall(kernel, [out], inputs)
        self.arrays = [*self.call.outs, *self.call.ins]
        self.steps = [
            a.strides[0] * x.itemsize for a, x in zip(self.arrays, [out, *inputs], strict=True)
        ]
        self.starts = [a.data for a in self.arrays]
        self.call.call.out[0] = ctypes.pointer(self.arrays[0])
        for k, array in enumerate(self.arrays[1:]):
            self.call.call.in_[k] = ctypes.pointer(array)

    def run(self, first: int, count: int) -> None:
        for array, start, step in zip(self.arrays, self.starts, self.steps, strict=True):
            array.data = array.base = start + first * step
            array.shape[0] = count
        self.call.run()


def bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of an array's elements, with one NaN for all."""
    if is_complex(values.dtype):
        values = values.view(values.real.dtype)
    if values.dtype.kind in "biu":
        return values.copy()
    patterns = values.view(f"u{values.itemsize}").copy()
    patterns[values != values] = 2 ** (8 * values.itemsize) - 1
    return patterns


def differing(kernel, primitive: str, dtype: str, kind: str) -> list[str]:
    inputs = operands(primitive, dtype, kind)
    result = np.dtype(bool) if primitive in TRUTH else DTYPES[dtype]
    if primitive == "abs" and is_complex(result):
        result = np.empty(0, result).real.dtype
    whole, out = np.zeros(WIDE, result), np.zeros(WIDE, result)
    KernelCall(kernel, [whole], inputs).run()
    expected, found = bits(whole), []
    part = Part(kernel, out, inputs)
    for k in range(WIDE):
        part.run(k, 1)
    if (bits(out) != expected).any():
        found.append("one by one")
    width = len(expected) // WIDE
    for count in range(2, 83):
        first = count * 7 % (WIDE - count + 1)
        out[:] = 0
        part.run(first, count)
        span = slice(first * width, (first + count) * width)
        if (bits(out)[span] != expected[span]).any():
            found.append(f"{count} elements from {first} on")
    spread = np.zeros(2 * WIDE, result)[::2]
    KernelCall(kernel, [spread], [np.repeat(x, 2)[::2] for x in inputs]).run()
    if (bits(spread.copy()) != expected).any():
        found.append("with gaps")
    return found


@pytest.mark.parametrize(("isa", "primitive"), CASES)
def test_bits_do_not_depend_on_position(isa, primitive):
    mask, kernel = BUILDS[isa][primitive]
    differences = {}
    for code, dtype in enumerate(DTYPES):
        for kind in ("moderate", "positive", "special") if mask >> code & 1 else ():
            found = differing(kernel, primitive, dtype, kind)
            if found:
                differences[dtype, kind] = found
    assert not differences


def test_the_kernels_of_every_module_are_looked_at():
    elementwise = {
        name for name in KERNELS if PRIMITIVES[name].family in ("unary", "binary", "ternary")
    }
    assert elementwise - {"copy"} <= {primitive for _, primitive in CASES}
