"""A backend with the required kernels alone: everything else is decomposed into them."""

import pytest

PLUGIN = """
from pullback.backend import hookimpl
from pullback.ops.table.primitives import PRIMITIVES
from pullback.refbackend.plugin import KERNELS
from pullback_cpu.runtime.allocator import BACKEND

@hookimpl
def pullback_backend(device):
    return BACKEND if device == "thin" else None

@hookimpl
def pullback_register_kernels(table, device):
    if device == "thin":
        for primitive, (mask, kernel) in KERNELS.items():
            if PRIMITIVES[primitive].required:
                table.add(primitive, mask, kernel)
"""
SETUP = """
import sys, warnings
import pullback as pb
warnings.simplefilter("error")
"""


@pytest.fixture
def run_thin(run_lines, write_plugin):
    """Run code with the device ``thin`` installed; return the lines it printed."""
    path = write_plugin("thin", PLUGIN)
    return lambda code: run_lines(path, SETUP + code, PULLBACK_FALLBACK="error")


def test_every_optional_primitive_is_decomposed(run_thin):
    code = """
from pullback.ops.table.primitives import DECOMPOSITIONS
from pullback.ops.table.primitives import PRIMITIVES
optional = {name for name, p in PRIMITIVES.items() if not p.required and p.inputs}
print(sorted(optional ^ set(DECOMPOSITIONS)))
"""
    assert run_thin(code) == ["[]"]


def test_ops_give_their_values_without_fallback(run_thin):
    code = """
from pullback.ops import ENTRIES
from pullback.testing.runner import run_check
from pullback.testing.samples import op_of
OTHERS = {"int8", "int16", "int32", "float32", "bfloat16", "complex64"}   # same code, other widths
for entry in list(ENTRIES.values()):
    if op_of(entry).decompose:
        for check in ("value", "inplace", "grad"):
            found = run_check(check, entry, "thin", without=OTHERS)
            if found.failures:
                print(len(found.failures), found.failures[0])
print("end")
"""
    assert run_thin(code) == ["end"]


def test_explain_names_the_decomposition(run_thin):
    found = run_thin("print(pb.backend.explain('sigmoid', 'thin'))")
    assert "decomposition into other ops for" in found[0]
    assert "float32" in found[0].partition("decomposition")[2]


def test_a_network_trains(run_thin, training):
    assert run_thin(training("thin")) == ["True thin"]


def test_lazy_conjugates_and_negatives_need_no_kernels_of_their_own(run_thin):
    code = """
x = pb.tensor([[1 + 2j, 5.0], [3j, 4]], device="thin")
for view in (x.conj(), x.mH, x.conj().imag, x.conj()._neg_view(), x._neg_view()[:, 0]):
    print(view.is_conj() or view.is_neg(), (view + 1).tolist())
x.conj()[0] = 5 - 1j
print(x.tolist(), (pb.tensor([1, 2], device="thin")._neg_view() + 0).tolist())
"""
    assert run_thin(code) == [
        "True [[(2-2j), (6+0j)], [(1-3j), (5+0j)]]",
        "True [[(2-2j), (1-3j)], [(6+0j), (5+0j)]]",
        "True [[-1.0, 1.0], [-2.0, 1.0]]",
        "True [[2j, (-4+0j)], [(1+3j), (-3+0j)]]",
        "True [-2j, (1-3j)]",
        "[[(5+1j), (5+1j)], [3j, (4+0j)]] [-1, -2]",
    ]


def test_a_kernel_that_promises_to_conjugate_and_does_not_fails_the_check(run_lines, write_plugin):
    """The suite's checks of lazy operands notice one kernel that reads memory as it is."""
    plugin = """
from pullback.backend import hookimpl
from pullback_cpu.runtime.allocator import BACKEND
from pullback_cpu.kernels import KERNELS

@hookimpl
def pullback_backend(device):
    return BACKEND if device == "hasty" else None

@hookimpl
def pullback_register_kernels(table, device):
    if device == "hasty":
        for primitive, (mask, kernel) in KERNELS.items():
            table.add(primitive, mask, kernel, conj=primitive in ("bmm", "exp"))
"""
    code = """
from pullback.ops import ENTRIES
from pullback.testing.runner import run_check
for op in ("sin", "exp", "mm"):
    for check in ("lazy", "lazy_grad"):
        found = run_check(check, ENTRIES[op], "hasty")
        print(op, check, found.samples > 0, bool(found.failures))
"""
    assert run_lines(write_plugin("hasty", plugin), SETUP + code) == [
        "sin lazy True False",
        "sin lazy_grad True False",
        "exp lazy True True",
        "exp lazy_grad True True",
        "mm lazy True False",
        "mm lazy_grad True False",
    ]
