"""Fixtures of the tests that cross packages: the repository, its wheels, fresh interpreters."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("pullback", "pullback_cpu", "pullback_cuda", "pullback_profiler")


@pytest.fixture(scope="session")
def root():
    """The repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def compatgen(root):
    """The tool that compares public names with torch's, as a module."""
    path = root / "packages/core/tools/compatgen.py"
    spec = importlib.util.spec_from_file_location("compatgen", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["compatgen"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def wheels():
    """This Python's wheels, by distribution; tox and nox build them before the tests."""
    folder = Path(os.environ.get("PULLBACK_TEST_DIST", ROOT / "dist"))
    tags = (f"-cp{sys.version_info[0]}{sys.version_info[1]}-", "-py3-")
    found = {
        path.name.partition("-")[0]: path
        for path in sorted(folder.glob("pullback*.whl"))
        if any(tag in path.name for tag in tags)
    }
    missing = sorted(set(DISTRIBUTIONS) - set(found))
    if missing and "PULLBACK_TEST_DIST" not in os.environ:
        pytest.skip(f"no wheel of {', '.join(missing)} in dist: run `python tools/wheels.py`")
    assert not missing, f"no wheel of {missing} in {folder}"
    return found


@pytest.fixture(scope="session")
def install_example(root, tmp_path_factory):
    """Return a function that installs an example as a stranger would; it gives the folder."""

    def install(name, **environment):
        source = tmp_path_factory.mktemp("source") / name
        shutil.copytree(root / "examples" / name, source)  # a build leaves files behind
        folder = str(tmp_path_factory.mktemp("site"))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*command, "--target", folder, str(source)],
            capture_output=True,
            text=True,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return folder

    return install


@pytest.fixture
def run_lines(run_python):
    """Return a function that runs code with a folder on the path and returns what it printed."""

    def run(folder, code, **environment):
        done = run_python(code, PYTHONPATH=folder, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture(scope="session")
def training():
    """Code that trains a small network on a device; it prints ``True`` and the device."""

    def code(device):
        return (
            f"pb.set_default_device({device!r}); pb.manual_seed(0)\n"
            "w, x, labels = pb.randn(4, 3, requires_grad=True), pb.randn(8, 4), pb.arange(8) % 3\n"
            "losses = []\n"
            "for step in range(30):\n"
            "    loss = pb.nn.functional.cross_entropy(pb.tanh(x @ w), labels)\n"
            "    loss.backward()\n"
            "    losses.append(loss.item())\n"
            "    with pb.no_grad():\n"
            "        w -= w.grad; w.grad = None\n"
            "print(losses[-1] < 0.8 * losses[0], w.device)"
        )

    return code


@pytest.fixture
def run_python():
    """Return a function that runs code in a fresh interpreter and gives back the process."""

    def run(code, *arguments, options=(), timeout=120, **environment):
        if "PYTHONPATH" in environment and "PYTHONPATH" in os.environ:
            environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
        variables = {**os.environ, **environment}
        command = [sys.executable, *options, "-c", code, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=variables
        )

    return run


@pytest.fixture
def write_plugin(tmp_path):
    """Return a function that lays out an installed plugin; its result goes on PYTHONPATH."""

    def write(device, text):
        module = f"plugin_of_{device}"
        (tmp_path / f"{module}.py").write_text(text)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[pullback.backends]\n{device} = {module}\n")
        return str(tmp_path)

    return write
