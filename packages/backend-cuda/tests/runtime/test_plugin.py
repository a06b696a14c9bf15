"""The plugin as the core loads it: other devices keep working, ``cuda`` says what is missing."""

import importlib.metadata
import subprocess
import sys

import pytest

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


NO_PYCUDA = """
import sys

class NoPycuda:
    def find_spec(self, name, path=None, target=None):
        if name == "pycuda":
            raise ModuleNotFoundError("No module named 'pycuda'", name="pycuda")

sys.meta_path.insert(0, NoPycuda())
import pullback as pb
"""


def run_without_pycuda(text):
    """What core remembers of a failure would stay for the tests that need the device."""
    return subprocess.run([sys.executable, "-c", NO_PYCUDA + text], capture_output=True, text=True)


def test_tensor_on_missing_device_raises_our_sentence():
    result = run_without_pycuda("pb.zeros(2, device='cuda')")
    assert result.returncode == 1
    assert "RuntimeError: the plugin of device 'cuda' cannot be used: " in result.stderr
    assert "pip install pullback-cuda[driver]" in result.stderr


def test_other_devices_work_after_a_failure():
    result = run_without_pycuda(
        "try: pb.zeros(2, device='cuda')\n"
        "except RuntimeError: print((pb.ones(2, device='ref') + 1).tolist())"
    )
    assert result.stdout == "[2.0, 2.0]\n"


def test_questions_are_answered_without_a_device():
    result = run_without_pycuda("print(pb.cuda.is_available(), pb.cuda.device_count())")
    assert result.stdout == "False 0\n"


@pytest.mark.parametrize("name", ["Stream()", "current_stream()", "get_device_name()"])
def test_names_of_the_module_say_what_is_missing(name):
    result = run_without_pycuda(f"pb.cuda.{name}")
    assert "pip install pullback-cuda[driver]" in result.stderr


def test_every_primitive_has_a_kernel(cuda):
    from pullback.ops.table.primitives import PRIMITIVES
    from pullback.ops.table.special_primitives import OF_ONE, OF_TWO, SHIFTED
    from pullback_cuda.kernels import KERNELS

    # Numbers that are shuffled one after the other are made on the host; steps of these optimizers
    # are composed of other kernels.
    composed = {f"{name}_step" for name in ("adadelta", "adamax", "asgd", "nadam", "radam")}
    missing = {"permutation", *OF_ONE, *OF_TWO, *SHIFTED, *composed}
    assert set(PRIMITIVES) - set(KERNELS) == missing
