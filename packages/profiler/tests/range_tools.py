"""Tools that read ranges, compiled from C and loaded into a fresh interpreter.

A test takes the fixture ``nvtx_tool`` or ``itt_tool`` and gives it a program; what comes back are
the events that the tool received, in order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
NVTX_SETTINGS = {"NVTX_INJECTION64_PATH": "{}"}
ITT_SETTINGS = {"INTEL_LIBITTNOTIFY64": "{}", "INTEL_ITTNOTIFY_GROUPS": "all"}
LOADERS = {*NVTX_SETTINGS, *ITT_SETTINGS}


class NvtxEvent(NamedTuple):
    """A call that the tool received from NVTX; threads are numbered by their first event."""

    kind: str
    thread: int
    domain: str
    depth: int
    payload: str
    name: str

    @classmethod
    def from_line(cls, line: str) -> NvtxEvent:
        kind, thread, domain, depth, payload, name = line.split("\t")
        return cls(kind, int(thread), domain, int(depth), payload, name)


class IttEvent(NamedTuple):
    """A call that the collector received from ITT."""

    kind: str
    domain: str
    name: str

    @classmethod
    def from_line(cls, line: str) -> IttEvent:
        return cls(*line.split("\t"))


class RangeTool:
    """A compiled tool: the variables that load it, and the one that names its log."""

    def __init__(self, settings: dict[str, str], log: str, event: type) -> None:
        self.settings = settings
        self.log = log
        self.event = event

    def run(self, program: str, folder: Path) -> list:
        """Return the events that a program caused; it may import the modules beside this one.

        The test fails with the program's output if the program fails.
        """
        path = folder / "events"
        run_program(program, {**self.settings, self.log: str(path)})
        return [self.event.from_line(line) for line in path.read_text().splitlines()]


def run_program(program: str, settings: dict[str, str] | None = None) -> None:
    """Run a program in a fresh interpreter, without any tool but those of the settings."""
    environment = {key: os.environ[key] for key in os.environ if key not in LOADERS}
    path = [str(HERE), *filter(None, sys.path)]
    environment |= {"PYTHONPATH": os.pathsep.join(path), **(settings or {})}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr


def compile_tool(source: str, folder: Path) -> Path:
    """Compile a C file beside this one into a shared library; skip where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        pytest.skip("no C compiler to build the tool with")
    library = folder / f"{Path(source).stem}.so"
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", library, HERE / source], check=True)
    return library


def make_tool(
    source: str, package: str, folder: Path, settings: dict[str, str], log: str, event: type
) -> RangeTool:
    """Compile a tool; ``{}`` in the settings is replaced by the library."""
    if find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")
    library = str(compile_tool(source, folder))
    settings = {name: value.format(library) for name, value in settings.items()}
    return RangeTool(settings, log, event)


@pytest.fixture(scope="session")
def nvtx_tool(tmp_path_factory):
    """A tool that NVTX loads."""
    folder = tmp_path_factory.mktemp("nvtx")
    return make_tool("nvtx_injection.c", "nvtx", folder, NVTX_SETTINGS, "NVTX_LOG", NvtxEvent)


@pytest.fixture(scope="session")
def itt_tool(tmp_path_factory):
    """A collector that ITT loads."""
    folder = tmp_path_factory.mktemp("itt")
    return make_tool("itt_collector.c", "ittapi", folder, ITT_SETTINGS, "ITT_LOG", IttEvent)
