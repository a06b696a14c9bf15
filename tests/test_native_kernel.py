"""The example with a compiled kernel, built and installed as a stranger would do it."""

import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(root, wheels, tmp_path_factory):
    """A folder with the example installed, built against the core's wheel."""
    folder = tmp_path_factory.mktemp("site")
    links = f"{wheels['pullback'].parent.as_uri()} {os.environ.get('PIP_FIND_LINKS', '')}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder),
    ]
    source = tmp_path_factory.mktemp("source") / "native_kernel"
    shutil.copytree(root / "examples/native_kernel", source)  # the build leaves files behind
    result = subprocess.run(
        [*command, str(source)],
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_FIND_LINKS": links, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return str(folder)


def run(run_python, site, code, **environment):
    head = "import numpy as np, pullback as pb; from pullback_native import _native\n"
    process = run_python(head + code, PYTHONPATH=site, **environment)
    assert process.returncode == 0, process.stderr
    return process.stdout.split("\n")[:-1]


def test_native_kernel_adds_strided_and_broadcast_operands(run_python, site):
    code = (
        "for dtype in (np.float32, np.float64):\n"
        "    a = np.arange(24, dtype=dtype).reshape(2, 3, 4)\n"
        "    b = np.arange(12, dtype=dtype).reshape(4, 3)\n"
        "    x, y = (pb.from_numpy(v).to('native') for v in (a, b))\n"
        "    for p, q in ((x, y.t()), (x[:, ::2], x[:, 0:1]), (x[:0], x[:0]), (x[0, 0, 0], x)):\n"
        "        expected = p.cpu().numpy() + q.cpu().numpy()\n"
        "        assert np.array_equal((p + q).cpu().numpy(), expected)\n"
        "print((pb.ones(2, device='native') + 1).tolist())\n"
    )
    assert run(run_python, site, code) == ["[2.0, 2.0]"]


def test_gradients_work_without_the_backend_knowing(run_python, site):
    code = (
        "x = pb.ones(3, device='native', requires_grad=True)\n"
        "(-(x + x)).sum().backward()\n"
        "print(x.grad.tolist(), x.grad.device.type)\n"
    )
    assert run(run_python, site, code) == ["[-2.0, -2.0, -2.0] native"]


def test_explain_tells_kernel_from_fallback(run_python, site):
    code = (
        "print(pb.backend.explain('add', 'native')); print(pb.backend.explain('sin', 'native'))"
    )
    output = "\n".join(run(run_python, site, code)).lower()
    assert "fallback" in output
    assert "kernel" in output


def test_missing_kernel_falls_back_with_one_warning(run_python, site):
    code = (
        "import warnings\n"
        "x = pb.ones(2, device='native')\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(x.sin().tolist() == pb.ones(2, device='ref').sin().tolist())\n"
        "    x.sin()\n"
        "print(sum('sin' in str(w.message) for w in caught))\n"
    )
    assert run(run_python, site, code) == ["True", "1"]


def test_fallback_can_be_forbidden(run_python, site):
    code = (
        "x = pb.empty(2, device='native')\n"
        "try:\n"
        "    x.sin()\n"
        "except RuntimeError as error:\n"
        "    print('sin' in str(error), 'native' in str(error))\n"
    )
    assert run(run_python, site, code, PULLBACK_FALLBACK="error") == ["True True"]


def test_memory_is_the_backend_s_and_given_back(run_python, site):
    code = (
        "before = _native.bytes_in_use()\n"
        "x = pb.ones(1000, device='native', requires_grad=True)\n"
        "print(_native.bytes_in_use() - before >= 4000)\n"
        "(x + x).sum().backward()\n"
        "del x\n"
        "print(_native.bytes_in_use() - before)\n"
    )
    assert run(run_python, site, code) == ["True", "0"]
