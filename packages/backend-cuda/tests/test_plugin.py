"""The plugin as the core meets it: other devices go on working, ``cuda`` says what is missing."""

import importlib.metadata

import pytest

import pullback as pb
import pullback_cuda
from pullback_cuda import plugin


def test_entry_point_names_the_plugin():
    (entry,) = [
        entry
        for entry in importlib.metadata.entry_points(group="pullback.backends")
        if entry.dist.name == "pullback-cuda"
    ]
    assert entry.name == "cuda"
    assert entry.load() is plugin


def test_version_is_the_distribution_s():
    assert pullback_cuda.__version__ == importlib.metadata.version("pullback-cuda")


def test_other_devices_are_not_ours(install_pycuda):
    install_pycuda(None)
    assert plugin.pullback_backend("cpu") is None
    assert plugin.pullback_backend("cudax") is None


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_device_without_kernels_says_so(device, install_pycuda, fake_pycuda):
    install_pycuda(fake_pycuda.driver(names=["Fake 9000"]))
    with pytest.raises(RuntimeError, match=r"no kernels yet.*Fake 9000.*device='cpu'"):
        plugin.pullback_backend(device)


def test_tensor_on_missing_device_raises_our_sentence(install_pycuda):
    install_pycuda(None)
    with pytest.raises((ImportError, RuntimeError), match=r"pip install pullback-cuda\[driver\]"):
        pb.zeros(2, device="cuda")


def test_other_devices_work_after_a_failure(install_pycuda):
    install_pycuda(None)
    with pytest.raises((ImportError, RuntimeError)):
        pb.zeros(2, device="cuda")
    assert (pb.ones(2, device="ref") + 1).tolist() == [2.0, 2.0]


@pytest.mark.gpu
def test_real_device_says_that_there_are_no_kernels():
    with pytest.raises(RuntimeError, match="no kernels yet"):
        pb.zeros(2, device="cuda")
