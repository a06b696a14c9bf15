"""Fallbacks to the host: the warning names the program's op and line, and all are counted."""

import threading
import warnings

import pytest
from library_device import load

import pullback as pb
from pullback.backend import fallbacks, reset_fallbacks
from pullback.backend.array_library import ArrayLibrary

DEVICE = "partial"


@pytest.fixture(scope="module", autouse=True)
def partial_device():
    """Load a device that cannot subtract integers or sort."""
    library = ArrayLibrary("numpy")

    class Table:
        def __init__(self, table):
            self.table = table

        def add(self, primitive, mask, kernel):
            if primitive not in ("sub", "sort"):
                self.table.add(primitive, mask, kernel)

    load(DEVICE, library, lambda table: library.register(Table(table)))


@pytest.fixture(autouse=True)
def every_fallback():
    """Warn of each one, and begin to count."""
    pb.set_warn_always(True)
    reset_fallbacks()
    yield
    pb.set_warn_always(False)


def caught(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    return found


def test_the_warning_names_the_op_and_the_line():
    x = pb.arange(4, device=DEVICE)
    (warning,) = caught(lambda: x.flip(0))
    assert str(warning.message) == (
        "'sub', a part of 'flip', has no kernel for 'int64' on device 'partial': it runs on the "
        "host in NumPy"
    )
    with open(warning.filename) as file:
        assert "caught(lambda: x.flip(0))" in file.readlines()[warning.lineno - 1]
    assert warning.filename == __file__


def test_an_op_that_needs_its_own_kernel():
    x = pb.arange(4, device=DEVICE)
    (warning,) = caught(lambda: x.sort())
    assert str(warning.message).startswith("'sort' has no kernel for 'int64'")
    assert warning.filename == __file__


def test_the_line_of_backward_is_the_programs():
    losses = []
    x = pb.ones(3, device=DEVICE, requires_grad=True)
    caught(lambda: losses.append(x.flip(0).sum()))
    found = caught(losses[0].backward)
    assert [(str(w.message)[:23], w.filename) for w in found] == [
        ("'sub', a part of 'flip'", __file__)
    ]


def test_the_error_names_the_op_too(monkeypatch):
    monkeypatch.setenv("PULLBACK_FALLBACK", "error")
    x = pb.arange(4, device=DEVICE)
    with pytest.raises(NotImplementedError, match="'sub', a part of 'flip', has no kernel"):
        x.flip(0)
    assert fallbacks() == {}


def test_another_setting_is_an_error(monkeypatch):
    monkeypatch.setenv("PULLBACK_FALLBACK", "eror")
    with pytest.raises(ValueError, match="PULLBACK_FALLBACK must be 'error', or unset, not 'eror'"):
        pb.arange(4, device=DEVICE).flip(0)


def test_calls_and_bytes_are_counted():
    x = pb.arange(4, dtype=pb.float32, device=DEVICE)
    y = pb.ones(4, device=DEVICE)
    caught(lambda: [x - y, x - y, x.sort()])
    found = fallbacks()
    assert found["sub", DEVICE] == (2, 2 * 4 * 16)  # two inputs, and the output there and back
    assert found["sort", DEVICE].calls == 1
    reset_fallbacks()
    assert fallbacks() == {}


def test_threads_are_counted_and_warn():
    x = pb.ones(4, device=DEVICE)
    thread = threading.Thread(target=lambda: x - x)
    (warning,) = caught(lambda: [thread.start(), thread.join()])
    assert warning.filename == __file__
    assert fallbacks()["sub", DEVICE].calls == 1
