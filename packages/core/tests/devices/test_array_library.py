"""A device of an array library: NumPy, and one that has only what the standard says."""

import sys
import types

import numpy as np
import pytest

import pullback as pb
from pullback.backend.array_library import ArrayLibrary, functions_of
from pullback.ops import ENTRIES
from pullback.ops.table.primitives import PRIMITIVES
from pullback.testing.runner import run_check

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


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
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
