"""Results that may depend on the instruction set, computed with those of other processors.

PULLBACK_CPU_LEVEL chooses our kernels, the core type those of OpenBLAS: they add in other orders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pullback_cpu.runtime.isa import VARIABLE, available_isas

KERNELS = Path(__file__).parent.parent / "kernels"
PRODUCTS = [
    *("linalg/test_matmul.py", "linalg/test_solve.py", "linalg/test_svd.py"),
    "nn/test_convolution.py",
]
LOOPS = [
    *("elementwise/test_accuracy.py", "elementwise/test_divisions.py"),
    *("nn/test_pooling.py", "nn/test_softmax.py", "nn/test_standardize.py"),
    *("reductions/test_moments.py", "reductions/test_reduce.py"),
]
# They are about processes and threads, or choose an instruction set themselves.
SKIPPED = "not thread and not import and not load and not blas and not memory"
CONFORMANCE = "linalg or bmm or addmm or matmul or solve_batch or svd or conv2d or atan"
SETTINGS = [
    (VARIABLE, "baseline"),
    (VARIABLE, "avx2"),
    ("OPENBLAS_CORETYPE", "Nehalem"),
    ("OPENBLAS_CORETYPE", "Zen"),
]


def rerun(config: pytest.Config, setting: tuple[str, str], *arguments: object) -> None:
    name, value = setting
    if value not in ("baseline", "Nehalem") and "avx2" not in available_isas():
        pytest.skip("the processor has no AVX2")
    options = ["-q", "-x", "-c", str(config.inipath), "-p", "no:cacheprovider"]
    options += [f"-W{rule}" for rule in config.getoption("pythonwarnings") or ()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, arguments)],
        cwd=config.rootpath,
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.mark.pullback_share
@pytest.mark.parametrize("setting", SETTINGS, ids="=".join)
def test_kernels_with(setting, pytestconfig):
    files = PRODUCTS + (LOOPS if setting[0] == VARIABLE else [])
    rerun(pytestconfig, setting, "-k", SKIPPED, *(KERNELS / file for file in files))


@pytest.mark.pullback_share
@pytest.mark.parametrize("setting", SETTINGS, ids="=".join)
def test_conformance_with(setting, pytestconfig):
    rerun(
        pytestconfig,
        setting,
        "-k",
        CONFORMANCE,
        "--pyargs",
        "pullback.testing.suite",
        "--pullback-device",
        "cpu",
    )
