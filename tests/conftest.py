"""Fixtures of the tests that cross packages: the repository, its wheels, fresh interpreters."""

import os
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
