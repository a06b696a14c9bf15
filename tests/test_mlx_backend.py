"""The example backend for MLX, installed as a stranger would do it."""

import json

import pytest

pytest.importorskip("mlx.core")

SETUP = "import warnings; warnings.simplefilter('error'); import pullback as pb\n"


@pytest.fixture(scope="module")
def site(install_example):
    """A folder with the example installed."""
    return install_example("mlx_backend")


@pytest.fixture
def run(run_lines, site):
    """Run code with the example installed and the fallback forbidden; return its lines."""
    return lambda code: run_lines(site, SETUP + code, PULLBACK_FALLBACK="error")


def test_it_stays_small(root):
    files = (root / "examples/mlx_backend/src").rglob("*.py")
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert sum(map(bool, lines)) <= 300


def test_every_required_kernel_is_there(run):
    code = (
        "from pullback.ops.table.primitives import LIBRARY, PRIMITIVES\n"
        "from pullback_mlx.kernels import kernels\n"
        "needed = {name for name, p in PRIMITIVES.items() if p.required} - LIBRARY\n"
        "print(needed - {name for name, *_ in kernels()})"
    )
    assert run(code) == ["set()"]


def test_a_network_trains_on_it(run, training):
    assert run(training("mlx")) == ["True mlx:0"]


def test_dtypes_of_the_device(run):
    code = (
        "try:\n    pb.ones(2, dtype=pb.float64, device='mlx')\n"
        "except TypeError as error:\n    print(error)"
    )
    (message,) = run(code)
    assert message.startswith("Cannot make a tensor of float64 on device 'mlx'")


def test_ops_conform(run):
    """Values, strided outputs and derivatives in float32 of ops whose kernels do most."""
    code = (
        "from pullback.ops import ENTRIES\n"
        "from pullback.testing.requirements import requirements_of\n"
        "from pullback.testing.runner import run_check\n"
        "without = requirements_of('mlx').without_dtypes\n"
        "for op in 'mul sum floor_divide scatter_add sort linalg_solve index_put'.split():\n"
        "    for check in ('value', 'out', 'inplace', 'grad'):\n"
        "        found = run_check(check, ENTRIES[op], 'mlx', without)\n"
        "        assert not found.failures, found.failures\n"
        "print('ok')"
    )
    assert run(code) == ["ok"]


def test_the_doctor_finds_nothing_that_fails(run_python, site):
    done = run_python(
        "from pullback.backend.__main__ import main; raise SystemExit(main(['doctor', 'mlx', "
        "'--json']))",
        timeout=900,
        PYTHONPATH=site,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["good"]
    assert found["primitives"]["bmm"] == "kernel"
