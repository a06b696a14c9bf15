"""The example with a compiled kernel, built and installed as a stranger would do it."""

import os

import pytest

pytestmark = pytest.mark.slow

SETUP = "import numpy as np, pullback as pb; from pullback_native import _native\n"


@pytest.fixture(scope="module")
def site(install_example, wheels):
    """A folder with the example installed, built against the core's wheel."""
    links = f"{wheels['pullback'].parent.as_uri()} {os.environ.get('PIP_FIND_LINKS', '')}"
    return install_example("native_kernel", PIP_FIND_LINKS=links)


@pytest.fixture
def run(run_lines, site):
    """Run code with the example installed; return its lines."""
    return lambda code, **environment: run_lines(site, SETUP + code, **environment)


def test_native_kernel_adds_strided_and_broadcast_operands(run):
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
    assert run(code) == ["[2.0, 2.0]"]


def test_gradients_work_without_the_backend_knowing(run):
    code = (
        "x = pb.ones(3, device='native', requires_grad=True)\n"
        "(-(x + x)).sum().backward()\n"
        "print(x.grad.tolist(), x.grad.device.type)\n"
    )
    assert run(code) == ["[-2.0, -2.0, -2.0] native"]


def test_explain_tells_kernel_from_fallback(run):
    code = "for op in ('add', 'sin'): print(pb.backend.explain(op, 'native'))"
    add, sin = run(code)
    assert "kernel for float32, float64" in add
    assert "host fallback for bool" in add
    assert sin.startswith("sin on native: primitive 'sin': host fallback for")
    assert "kernel" not in sin


def test_missing_kernel_falls_back_with_one_warning(run):
    code = (
        "import warnings\n"
        "x = pb.ones(2, device='native')\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(x.sin().tolist() == pb.ones(2, device='ref').sin().tolist())\n"
        "    x.sin()\n"
        "print(sum('sin' in str(w.message) for w in caught))\n"
    )
    assert run(code) == ["True", "1"]


def test_fallback_can_be_forbidden(run):
    code = (
        "x = pb.empty(2, device='native')\n"
        "try:\n"
        "    x.sin()\n"
        "except RuntimeError as error:\n"
        "    print('sin' in str(error), 'native' in str(error))\n"
    )
    assert run(code, PULLBACK_FALLBACK="error") == ["True True"]


def test_memory_is_the_backend_s_and_given_back(run):
    code = (
        "before = _native.bytes_in_use()\n"
        "x = pb.ones(1000, device='native', requires_grad=True)\n"
        "print(_native.bytes_in_use() - before >= 4000)\n"
        "(x + x).sum().backward()\n"
        "del x\n"
        "print(_native.bytes_in_use() - before)\n"
    )
    assert run(code) == ["True", "0"]
