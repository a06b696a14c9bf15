"""What the tests run on: a fake CUDA driver under the real pycuda, or a device.

Tests marked ``gpu`` need a device, and run where PULLBACK_TEST_GPU=required. All others run on any
machine. Where pycuda or a C++ compiler is missing, those that need them say so and are skipped.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import fake_driver  # noqa: E402
import on_fake  # noqa: E402
from on_fake import ON_DEVICE  # noqa: E402

# Before anything of CUDA is imported, so that the loader finds this driver library.
CONTROL = None if ON_DEVICE or fake_driver.compiler() is None else fake_driver.load()


@pytest.fixture(scope="session")
def images():
    """The folder with all families of kernels, built for the CPU."""
    if on_fake.compiler() is None:
        pytest.skip("needs a C++ compiler")
    return on_fake.build_images()


@pytest.fixture(scope="session")
def fake_cuda(request):
    """Controls the fake driver, with kernels for the device ``cuda``."""
    if ON_DEVICE:
        pytest.skip("this is about the fake driver")
    if find_spec("pycuda") is None:
        pytest.skip("needs pycuda: `python tools/pycuda_wheel.py --install` builds it anywhere")
    os.environ[on_fake.VARIABLE] = str(request.getfixturevalue("images"))
    return CONTROL


@pytest.fixture
def cuda(request):
    """The device, real or fake; tests that use it run on both."""
    if ON_DEVICE:
        return None
    control = request.getfixturevalue("fake_cuda")
    yield control
    control.fail_nothing()


@pytest.fixture
def compile_for_the_cpu(monkeypatch):
    """Where the device is fake, compile CUDA text for it; else with the real compiler."""
    monkeypatch.delenv("PULLBACK_CUDA_FUSE", raising=False)
    if ON_DEVICE:
        return
    from pullback_cuda.runtime import nvrtc

    def compile_text(text, name, capability):
        build = on_fake.emulation()
        try:
            return build.image_of_text(text, name.partition("-")[0]).read_bytes()
        except build.BuildError as error:
            raise nvrtc.CompileError(f"{name} does not compile:\n{error}") from error

    monkeypatch.setattr(nvrtc, "compile_text", compile_text)


@pytest.fixture
def run_python(request):
    """Return a function that runs Python text in a process of its own."""
    import subprocess

    program = []
    common = dict(os.environ)
    if not ON_DEVICE:
        request.getfixturevalue("fake_cuda")
        program = [str(HERE / "fake_driver" / "run_with_fake.py")]
        common[on_fake.VARIABLE] = str(request.getfixturevalue("images"))

    def run(text, **environment):
        environment = {**common, **environment}
        command = [sys.executable, *program, "-c", text]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)

    return run


class NoPycuda:
    """An import finder on whose machine pycuda is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pycuda":
            raise ModuleNotFoundError("No module named 'pycuda'", name="pycuda")


class FakeError(Exception):
    """As pycuda's errors: not a subclass of Python's error of the same name."""


class FakeLogicError(FakeError):
    pass


class FakeRuntimeError(FakeError):
    pass


def fake_driver(init_error=None, names=()):
    """Return a module that looks like pycuda.driver on a machine with these devices."""

    class Device:
        def __init__(self, number):
            self.number = number

        @staticmethod
        def count():
            return len(names)

        def name(self):
            return names[self.number]

    def init():
        if init_error is not None:
            raise init_error

    driver = ModuleType("pycuda.driver")
    driver.Error, driver.Device, driver.init = FakeError, Device, init
    return driver


@pytest.fixture
def fake_pycuda():
    """The stand-in's parts: ``driver(init_error=, names=)`` and its error classes."""
    return SimpleNamespace(
        driver=fake_driver, LogicError=FakeLogicError, RuntimeError=FakeRuntimeError
    )


@pytest.fixture
def install_pycuda(monkeypatch):
    """Return a function that makes a module importable as ``pycuda.driver``; None: no pycuda."""

    def install(driver):
        for name in [name for name in sys.modules if name.partition(".")[0] == "pycuda"]:
            monkeypatch.delitem(sys.modules, name)
        if driver is None:
            monkeypatch.setattr(sys, "meta_path", [NoPycuda(), *sys.meta_path])
            return
        package = ModuleType("pycuda")
        package.__path__ = []
        package.driver = driver
        monkeypatch.setitem(sys.modules, "pycuda", package)
        monkeypatch.setitem(sys.modules, "pycuda.driver", driver)

    return install


@pytest.fixture
def write_pycuda(tmp_path, monkeypatch):
    """Return a function that puts a package on sys.path whose pycuda/driver.py has this text."""

    def write(text):
        for name in [name for name in sys.modules if name.partition(".")[0] == "pycuda"]:
            monkeypatch.delitem(sys.modules, name)
        folder = tmp_path / "pycuda"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "driver.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "pycuda"]:
        del sys.modules[name]  # monkeypatch brings back those that were there before


def pytest_collection_modifyitems(items):
    """Skip what needs a device, unless the run is there to test just that."""
    for item in items:
        if item.get_closest_marker("gpu") and not ON_DEVICE:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: `nox -s gpu`"))
