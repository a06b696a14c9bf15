"""Settings of the process, and the small functions of numbers and tensors beside them."""

import decimal
import os
import subprocess
import sys

import pytest

import pullback as pb


@pytest.fixture(autouse=True)
def _defaults():
    yield
    pb.use_deterministic_algorithms(False)
    pb.set_float32_matmul_precision("highest")
    pb.set_warn_always(False)
    pb.set_default_dtype(pb.float32)


# ---- determinism ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "warn_only", "debug_mode"),
    [
        (True, False, 2),
        (True, True, 1),
        (False, True, 0),
        (False, False, 0),
    ],
)
def test_deterministic_algorithms(mode, warn_only, debug_mode):
    pb.use_deterministic_algorithms(mode, warn_only=warn_only)
    assert pb.are_deterministic_algorithms_enabled() is mode
    assert pb.is_deterministic_algorithms_warn_only_enabled() is warn_only
    assert pb.get_deterministic_debug_mode() == debug_mode


@pytest.mark.parametrize(
    "dtype", [pb.float32, pb.bfloat16, pb.complex64, pb.bool, pb.uint8, pb.int16]
)
def test_uninitialized_memory_is_filled(dtype):
    wanted = {"b": True, "u": 255, "i": 2**15 - 1}.get(dtype.kind)
    like = pb.zeros(2, dtype=dtype)
    pb.use_deterministic_algorithms(True)
    try:
        for made in (
            pb.empty(2, dtype=dtype),
            pb.empty_like(like),
            like.new_empty(2),
            pb.empty_strided((2,), (3,), dtype=dtype),
            pb.empty_permuted((2,), (0,), dtype=dtype),
        ):
            values = made.isnan().tolist() if wanted is None else made.tolist()
            assert values == [True if wanted is None else wanted] * 2
        pb.utils.deterministic.fill_uninitialized_memory = False
        pb.empty(2, dtype=dtype)
        assert pb.utils.deterministic.fill_uninitialized_memory is False
        with pytest.raises(RuntimeError, match="expected a bool, but got <class 'int'>"):
            pb.utils.deterministic.fill_uninitialized_memory = 1
    finally:
        pb.utils.deterministic.fill_uninitialized_memory = True
        pb.use_deterministic_algorithms(False)


def test_flush_denormal_takes_small_numbers_for_zero():
    with pytest.raises(RuntimeError, match="flush_denormal expects a bool, but got str"):
        pb.set_flush_denormal("x")
    small = pb.tensor([1e-40])
    if pb.set_flush_denormal(True):
        try:
            assert (small * 1).tolist() == [0.0]
        finally:
            pb.set_flush_denormal(False)
    assert (small * 1).item() > 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("error", 2),
        ("warn", 1),
        ("default", 0),
        (2, 2),
        (1, 1),
        (0, 0),
        (True, 1),
    ],
)
def test_debug_mode(given, kept):
    pb.set_deterministic_debug_mode(given)
    assert pb.get_deterministic_debug_mode() == kept


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.use_deterministic_algorithms(1), TypeError, "'mode' must be bool, not int"),
        (lambda: pb.use_deterministic_algorithms(True, warn_only=1), TypeError, "'warn_only'"),
        (lambda: pb.use_deterministic_algorithms(True, True), TypeError, "positional"),
        (lambda: pb.set_deterministic_debug_mode("foo"), RuntimeError, "one of `default`"),
        (lambda: pb.set_deterministic_debug_mode(3), RuntimeError, "expected 0, 1, or 2"),
        (lambda: pb.set_deterministic_debug_mode(1.5), TypeError, "must be str or int"),
        (lambda: pb.set_float32_matmul_precision(1), RuntimeError, "expects a str"),
        (lambda: pb.set_num_threads(0), RuntimeError, "positive integer"),
        (lambda: pb.set_num_threads(True), RuntimeError, "expects an int, but got bool"),
        (lambda: pb.set_num_threads(1.5), RuntimeError, "expects an int, but got float"),
        (lambda: pb.set_num_threads(2**40), ValueError, "Overflow"),
        (lambda: pb.set_num_interop_threads(-1), RuntimeError, "positive integer"),
        (lambda: pb.set_warn_always(1), RuntimeError, "expects a bool, but got int"),
    ],
)
def test_settings_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not pb.are_deterministic_algorithms_enabled()


def test_matmul_precision():
    assert pb.get_float32_matmul_precision() == "highest"
    pb.set_float32_matmul_precision("medium")
    with pytest.warns(UserWarning, match="foo is not one of"):
        pb.set_float32_matmul_precision("foo")
    assert pb.get_float32_matmul_precision() == "medium"


# ---- threads -------------------------------------------------------------------------------------

THREADS = """
import pullback as pb
assert pb.get_num_threads() >= 1
pb.set_num_threads({before})
{call}
import sys
blas = sys.modules.get("pullback_cpu.gemm.blas")
found = [blas.thread_count()] if blas else []
pb.set_num_threads(2)
assert pb.get_num_threads() == 2
if blas:
    found.append(blas.thread_count())
pb.set_num_interop_threads(3)
assert pb.get_num_interop_threads() == 3
try:
    pb.set_num_interop_threads(3)
except RuntimeError as error:
    assert "cannot set number of interop threads" in str(error)
else:
    raise AssertionError("a second call was let through")
print(found)
"""
ONES = "pb.ones(300, 300, dtype=pb.complex64)"  # what is certain to be done by BLAS or LAPACK
PRODUCT = f"assert ({ONES} @ {ONES})[0, 0].item() == 300"
SYSTEM = f"assert pb.linalg.solve(pb.eye(300) + 0 * {ONES}, {ONES})[0, 0].item() == 1"


@pytest.mark.parametrize("call", [PRODUCT, SYSTEM], ids=["product", "system"])
def test_threads_are_told_to_the_backend(call):
    code = THREADS.format(before=1, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if str(pb.get_default_device()) == "cpu":
        assert done.stdout.strip() in ("[1, 2]", "[None, None]")


def test_warn_always_is_kept():
    pb.set_warn_always(True)
    assert pb.is_warn_always_enabled() is True


# ---- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("torch.DoubleTensor", "float64"),
        ("pullback.HalfTensor", "float16"),
        ("torch.BFloat16Tensor", "bfloat16"),
        ("torch.FloatTensor", "float32"),
    ],
)
def test_default_tensor_type(name, dtype):
    pb.set_default_tensor_type(name)
    assert pb.get_default_dtype().name == dtype
    assert pb.ones(1).dtype.name == dtype


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("foo", ModuleNotFoundError),
        ("numpy.FloatTensor", ModuleNotFoundError),
        ("torch.IntTensor", TypeError),
        ("torch.ComplexFloatTensor", AttributeError),
        ("torch.nowhere.FloatTensor", TypeError),
        (pb.float32, TypeError),
        (5, TypeError),
        (pb.Tensor, TypeError),
    ],
)
def test_default_tensor_type_refuses(given, error):
    with pytest.raises(error):
        pb.set_default_tensor_type(given)
    assert pb.get_default_dtype() == pb.float32


# ---- the package ---------------------------------------------------------------------------------


def test_file_path_and_build():
    package = os.path.dirname(os.path.dirname(os.path.abspath(pb.__file__)))
    assert pb.get_file_path() == package
    assert pb.get_file_path("a", "b") == os.path.join(package, "a", "b")
    assert pb.compiled_with_cxx11_abi() is True


def test_device_module():
    with pytest.raises(RuntimeError, match="'meta' does not have a corresponding module"):
        pb.get_device_module("meta")
    with pytest.raises(RuntimeError, match="Invalid value of device '1'"):
        pb.get_device_module(1)


def test_device_module_is_that_of_the_package(monkeypatch):
    monkeypatch.setattr(pb, "meta", os, raising=False)
    assert pb.get_device_module("meta") is os
    assert pb.get_device_module(pb.device("meta")) is os


# ---- numbers and questions -----------------------------------------------------------------------


def test_symbolic_functions_of_numbers():
    assert pb.sym_float(1) == 1.0
    assert isinstance(pb.sym_float(1), float)
    assert pb.sym_int(-1.7) == -1
    assert pb.sym_not(0) is True
    assert pb.sym_max(1, 2) == 2
    assert isinstance(pb.sym_min(1, 2.5), float)
    assert pb.sym_sum([1, 2]) == pb.sym_sum(1, 2) == 3
    assert pb.sym_sqrt(4) == 2.0
    assert pb.sym_ite(True, 1, 2) == 1
    assert pb.sym_int(pb.tensor(3.7)) == 3


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pb.sym_float("a"), ValueError),
        (lambda: pb.sym_int(None), TypeError),
        (lambda: pb.sym_max("a", 2), AssertionError),
        (lambda: pb.sym_sqrt(-1), ValueError),
        (lambda: pb.sym_ite(1, 1, 2), AssertionError),
        (lambda: pb.sym_ite(True, 1, 2.0), AssertionError),
        (lambda: pb.is_signed(1), TypeError),
        (lambda: pb.is_same_size(pb.ones(1), 1), TypeError),
    ],
)
def test_small_functions_refuse(call, error):
    with pytest.raises(error):
        call()


def test_questions_about_tensors():
    x = pb.ones(2)
    assert pb.is_signed(x) is True
    assert pb.is_signed(pb.tensor([True])) is False
    assert pb.is_inference(x) is False
    assert pb.is_same_size(x, pb.tensor([1, 2])) is True
    assert pb.is_conj(x) is pb.is_neg(x) is False
    assert pb.resolve_conj(x) is pb.resolve_neg(x) is x
    assert pb.typename(1) == "int"
    assert pb.typename(decimal.Decimal) == "decimal.Decimal"
    assert pb.typename(x) == x.type()
