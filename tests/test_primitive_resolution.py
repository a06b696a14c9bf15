"""The device ``ref`` has the required kernels alone: everything else is decomposed into them."""

import pytest

SETUP = """
import sys, warnings
import pullback as pb
warnings.simplefilter("error")
"""


@pytest.fixture
def run_ref(run_python):
    """Run code where a kernel that is missing is an error; return the lines it printed."""

    def run(code):
        done = run_python(SETUP + code, PULLBACK_FALLBACK="error")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_every_optional_primitive_is_decomposed(run_ref):
    code = """
from pullback.ops.table.primitives import PRIMITIVES, decompositions
optional = {name for name, p in PRIMITIVES.items() if not p.required and p.inputs}
print(sorted(optional ^ set(decompositions())))
"""
    assert run_ref(code) == ["[]"]


def test_explain_names_the_decomposition(run_ref):
    found = run_ref("print(pb.backend.explain('sigmoid', 'ref'))")
    assert "decomposition into other ops for" in found[0]
    assert "float32" in found[0].partition("decomposition")[2]


def test_a_network_trains(run_ref, training):
    assert run_ref(training("ref")) == ["True ref"]


def test_lazy_conjugates_and_negatives_need_no_kernels_of_their_own(run_ref):
    code = """
x = pb.tensor([[1 + 2j, 5.0], [3j, 4]], device="ref")
for view in (x.conj(), x.mH, x.conj().imag, x.conj()._neg_view(), x._neg_view()[:, 0]):
    print(view.is_conj() or view.is_neg(), (view + 1).tolist())
x.conj()[0] = 5 - 1j
print(x.tolist(), (pb.tensor([1, 2], device="ref")._neg_view() + 0).tolist())
"""
    assert run_ref(code) == [
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
