"""CUDA tensors in collectives and messages, on the CUDA backend's fake driver.

The fake's device memory is host memory, so an MPI library that is not CUDA-aware reaches it too,
and both ways of CUDA tensors can be tested. Deferred work runs only when a call waits for it, which
shows where nothing does.
"""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pullback_distributed.abilities import CUDA_AWARE, cuda_aware_by_environment, is_cuda_aware

HERE = Path(__file__).parent
ON_FAKE = HERE.parents[1] / "backend-cuda" / "tests" / "on_fake.py"
PROGRAMS = [
    HERE / "cuda" / "streams.py",
    HERE / "programs" / "collectives.py",
    HERE / "programs" / "messages.py",
    HERE / "programs" / "differentiable.py",
    HERE / "programs" / "data_parallel.py",
    HERE / "programs" / "fully_sharded.py",
    HERE / "programs" / "sharded_optimizer.py",
    HERE / "programs" / "checkpoints.py",
]


@pytest.fixture(scope="session")
def on_fake():
    """The program that runs another one on the fake driver, with its kernels built."""
    for module in ("pycuda", "pullback_cuda"):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    for compiler in ("gcc", "g++"):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
    # Once, and not by all ranks together.
    subprocess.run([sys.executable, str(ON_FAKE), "-c", "0"], check=True, timeout=600)
    return str(ON_FAKE)


@pytest.mark.parametrize("aware", ["0", "1", None])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_succeeds(on_fake, run_ranks, program, aware):
    environment = {"FAKE_CUDA_DEFERRED": "1", CUDA_AWARE: aware or ""}
    script = [on_fake, HERE / "cuda" / "run_on_cuda.py", program]
    if aware is not None:
        script.append(0)  # warnings
    elif program.stem != "checkpoints" and not is_cuda_aware():  # whose tensors go to files only
        script.append(1)
    done = run_ranks(2, *script, timeout=300, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_environment_takes_precedence(monkeypatch):
    for value, wanted in (("", None), (" 1", True), ("0", False)):
        monkeypatch.setenv(CUDA_AWARE, value)
        assert cuda_aware_by_environment() is wanted
        is_cuda_aware.cache_clear()
        if wanted is not None:
            assert is_cuda_aware() is wanted
    is_cuda_aware.cache_clear()


def test_wrong_value_is_refused_at_once(monkeypatch):
    import pullback_distributed as dist

    monkeypatch.setenv(CUDA_AWARE, "yes")
    with pytest.raises(ValueError, match=f"{CUDA_AWARE}: expected 0 or 1, but it is 'yes'"):
        dist.init_process_group()
    assert not dist.is_initialized()
