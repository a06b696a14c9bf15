"""A device of an array library: NumPy, and one that has only what the standard says."""

import functools
import operator
import sys
import types

import numpy as np
import pytest

import pullback as pb
from pullback.backend import masks
from pullback.backend.array_library import ArrayLibrary, functions_of
from pullback.ops import ENTRIES
from pullback.ops.table.primitives import PRIMITIVES
from pullback.testing.runner import run_check

# Once for a primitive in a process, so any of these tests may be the first.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")

LIBRARIES = {"ofnumpy": "numpy", "ofstrict": "array_api_strict"}


@pytest.fixture(scope="module", params=LIBRARIES)
def device(request):
    """The name of a device of an array library, loaded as an installed plugin's would be."""
    from library_device import load

    name, library = request.param, LIBRARIES[request.param]
    pytest.importorskip(library)
    return load(name, ArrayLibrary(library))


# Ops whose kernels are the library's, some with other dtypes on the host.
OPS = ("amax", "argmin", "bitwise_not", "bmm", "div", "gather", "index", "mul", "pow", "sum")


@pytest.mark.parametrize("name", OPS)
def test_ops_conform(name, device):
    for check in ("value", "refusal", "inplace"):
        found = run_check(check, ENTRIES[name], device)
        assert found.failures == [], check


def test_kernels_are_the_libraries_own(device, monkeypatch):
    monkeypatch.setenv("PULLBACK_FALLBACK", "error")
    x = pb.tensor(np.arange(6.0).reshape(2, 3), device=device, requires_grad=True)
    y = (x.t().exp() * x[:, 1:].sum()).clamp(max=99.0)
    y.amax(0).sum().backward()
    host = x.detach().cpu().requires_grad_()
    (host.t().exp() * host[:, 1:].sum()).clamp(max=99.0).amax(0).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), host.grad.numpy())
    assert "exp" in pb.backend.explain("exp", device)


def test_casts_and_copies_between_layouts(device):
    numbers = [-1.5, 0.0, 300.0]
    x = pb.tensor(numbers, device=device)
    for dtype in (pb.float16, pb.bfloat16, pb.uint8, pb.int64, pb.bool, pb.complex64):
        expected = pb.tensor(numbers).to(dtype)
        assert x.to(dtype).cpu().tolist() == expected.tolist()
        assert x.to(dtype).float().cpu().tolist() == expected.float().tolist()
    square = pb.arange(9, device=device).reshape(3, 3)
    square.t()[1:] = square[:2].clone()
    assert square.cpu().tolist() == [[0, 0, 3], [3, 1, 4], [6, 2, 5]]


def test_memory_is_given_back():
    library = ArrayLibrary("numpy")
    handle = library.allocate(0, 8)
    library.write(0, handle, 0, memoryview(bytes(range(8))))
    library.copy(0, handle, 4, handle, 0, 4)
    target = bytearray(8)
    library.read(0, handle, 0, memoryview(target))
    assert list(target) == [0, 1, 2, 3, 0, 1, 2, 3]
    library.release(0, handle, 8)
    assert library.blocks == {}


def test_only_primitives_are_registered():
    assert {name for name, _, _ in functions_of(np)} <= PRIMITIVES.keys()


def test_a_library_that_is_not_there():
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        ArrayLibrary("no_such_library")
    sys.modules["half_a_library"] = types.ModuleType("half_a_library")
    try:
        with pytest.raises(AttributeError, match="empty"):
            ArrayLibrary("half_a_library")
    finally:
        del sys.modules["half_a_library"]


# -- what kernel() makes of functions --------------------------------------------------------------

GIVEN = {}  # the function that a kernel calls


@pytest.fixture(scope="module")
def made():
    """A device whose kernels call what a test gives, and functions without code of Python."""
    from library_device import load

    library = ArrayLibrary("numpy")

    def register(table):
        library.register(table)
        table.add("exp", masks.F32, library.kernel(lambda x: GIVEN["result"](x)))
        table.add("sin", masks.F32, library.kernel(np.sin))
        table.add("cos", masks.F32, library.kernel(functools.partial(np.add, 1)))
        table.add("mul", masks.F32, library.kernel(operator.mul))

    return load("ofgiven", library, register)


def test_kernels_of_functions_of_any_kind(made):
    x = pb.tensor([1.0, 2.0], device=made)
    assert x.sin().tolist() == np.sin(np.float32([1, 2])).tolist()
    assert x.cos().tolist() == [2.0, 3.0]
    assert (x * x).tolist() == [1.0, 4.0]
    with pytest.raises(TypeError, match="takes a function of arrays, got int"):
        ArrayLibrary("numpy").kernel(3)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x[:1], r"it returned shape \(1,\) for an output of shape \(3,\)"),
        (lambda x: np.ones((2, 3)), r"it returned shape \(2, 3\) for an output of shape \(3,\)"),
        (lambda x: x.astype(np.int32), "it returned int32 for an output of float32"),
        (lambda x: x > 0, "it returned bool for an output of float32"),
        (lambda x: x + 1j, "it returned complex64 for an output of float32"),
        (lambda x: None, "it returned NoneType"),
        (lambda x: x.tolist(), "it returned list"),
    ],
)
def test_a_result_that_does_not_fit_is_refused(made, result, message):
    GIVEN["result"] = result
    with pytest.raises(RuntimeError, match=f"the kernel 'exp' of the backend 'ofgiven'.*{message}"):
        pb.ones(3, device=made).exp()


def test_a_result_of_another_width_is_cast(made):
    GIVEN["result"] = lambda x: x.astype(np.float64) * 2
    assert pb.ones(3, device=made).exp().tolist() == [2.0, 2.0, 2.0]
