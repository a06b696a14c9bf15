"""A stand-in for pycuda whose failures are those of the real one, word for word."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest


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
        del sys.modules[name]


def pytest_collection_modifyitems(items):
    """Skip what needs a device where there is none, unless the run is there to test just that."""
    import pullback_cuda

    reason = pullback_cuda.why_unavailable()
    if reason is None or os.environ.get("PULLBACK_TEST_GPU") == "required":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
