"""Kernels under the address sanitizer: no access outside of what core allocated.

``test_emulation.py`` shows that it finds one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# An op for each family of kernels and each way through it.
OPS = (
    *("add", "exp", "where", "floor_divide", "eq", "sigmoid", "digamma", "clone", "to"),
    *("arange", "linspace", "uniform_", "normal_", "randint", "sum", "amax", "argmin", "var"),
    *("any", "prod", "cumsum", "cummax", "logcumsumexp", "softmax", "log_softmax", "logsumexp"),
    *("layer_norm", "batch_norm", "group_norm", "nll_loss", "gather", "scatter", "scatter_add"),
    *("scatter_reduce", "index_put", "index_select", "nonzero", "sort", "topk", "argsort"),
    *("searchsorted", "flip", "tril", "triu", "conv1d", "conv2d", "conv_transpose2d"),
    *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "interpolate", "matmul", "svd"),
)


def run(arguments, **more):
    command = [sys.executable, str(TESTS / "on_fake.py"), "--sanitize", *arguments]
    environment = {**os.environ, **more}
    environment.pop("PULLBACK_CUDA_KERNELS", None)
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)


def test_accesses_of_every_family_stay_inside(fake_cuda):
    result = run(
        ["-m", "pullback.testing", "--device", "cuda", "--check", "value", "--quiet", "--op", *OPS]
    )
    assert "AddressSanitizer" not in result.stderr, result.stderr[-4000:]
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    totals = re.search(r"value: (\d+) ops, \d+ samples, (\d+) failures", result.stdout)
    checked, failures = totals.groups()
    assert failures == "0"
    assert int(checked) > 50  # numbers that are random have no expected value
