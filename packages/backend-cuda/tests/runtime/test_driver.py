"""Each thing that can be missing between a program and a device, and the sentence about it."""

import subprocess
import sys

import pytest

import pullback_cuda
from pullback_cuda.runtime import driver

LOADER = "libcuda.so.1: cannot open shared object file: No such file or directory"
STUB = "cuInit failed: CUDA driver is a stub library"
EMPTY = "cuInit failed: no CUDA-capable device is detected"


def check_unavailable(kind, *fragments):
    """The failure has this type and one sentence with these fragments; queries answer quietly."""
    with pytest.raises(kind) as caught:
        driver.start_driver()
    sentence = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in sentence
    assert sentence.startswith("the cuda device ")
    for fragment in fragments:
        assert fragment in sentence
    assert pullback_cuda.why_unavailable() == sentence
    assert pullback_cuda.is_available() is False
    assert pullback_cuda.device_count() == 0


def test_no_pycuda_says_what_to_install(install_pycuda):
    install_pycuda(None)
    check_unavailable(ImportError, "not installed", "pip install pullback-cuda[driver]")


def test_no_driver_library_says_what_the_loader_missed(write_pycuda):
    write_pycuda(f"raise ImportError({LOADER!r})")
    check_unavailable(ImportError, LOADER, "install the NVIDIA driver", "LD_LIBRARY_PATH")


def test_broken_pycuda_keeps_the_reason(write_pycuda):
    write_pycuda("raise ImportError('undefined symbol: _Py_Gone')")
    check_unavailable(ImportError, "undefined symbol: _Py_Gone", "--force-reinstall")


def test_pycuda_without_its_dependency_names_it(write_pycuda):
    write_pycuda("import a_module_that_pycuda_needs")
    check_unavailable(ImportError, "a_module_that_pycuda_needs", "--force-reinstall")


def test_stub_library_is_recognized(install_pycuda, fake_pycuda):
    install_pycuda(fake_pycuda.driver(init_error=fake_pycuda.LogicError(STUB)))
    check_unavailable(RuntimeError, STUB, "only good for linking", "stubs")


def test_driver_without_a_device(install_pycuda, fake_pycuda):
    install_pycuda(fake_pycuda.driver(init_error=fake_pycuda.RuntimeError(EMPTY)))
    check_unavailable(RuntimeError, EMPTY, "nvidia-smi", "CUDA_VISIBLE_DEVICES")


def test_driver_that_counts_no_device(install_pycuda, fake_pycuda):
    install_pycuda(fake_pycuda.driver())
    check_unavailable(RuntimeError, "0 devices", "CUDA_VISIBLE_DEVICES")


def test_driver_that_does_not_start_keeps_the_reason(install_pycuda, fake_pycuda):
    error = fake_pycuda.RuntimeError("cuInit failed: system not yet initialized")
    install_pycuda(fake_pycuda.driver(init_error=error))
    check_unavailable(RuntimeError, "system not yet initialized", "nvidia-smi")


def test_queries_survive_an_error_of_no_known_kind(write_pycuda):
    write_pycuda("raise OSError('the disk is gone')")
    assert pullback_cuda.why_unavailable() == "the disk is gone"
    assert pullback_cuda.is_available() is False
    assert pullback_cuda.device_count() == 0


def test_devices_are_counted(install_pycuda, fake_pycuda):
    install_pycuda(fake_pycuda.driver(names=["First", "Second"]))
    assert pullback_cuda.why_unavailable() is None
    assert pullback_cuda.is_available() is True
    assert pullback_cuda.device_count() == 2


def test_import_loads_neither_pycuda_nor_core():
    code = (
        "import sys, pullback_cuda; "
        "print(sorted({'numpy', 'pullback', 'pycuda'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.gpu
def test_real_device_is_counted():
    assert pullback_cuda.why_unavailable() is None
    assert pullback_cuda.device_count() >= 1
