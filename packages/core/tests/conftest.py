"""Fixtures and markers shared by the tests of the core package."""

import gc
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pullback as pb
from pullback.testing.shares import chosen

WHOLE = ("test_conformance.py",)  # of which --pullback-share takes ops


def pytest_addoption(parser):
    parser.addoption(
        "--module-share",
        metavar="I/N",
        help="every N-th module of the core's tests, from number I on (0 to N-1, or auto: others "
        "after each change of the core)",
    )
    parser.addoption(
        "--other-modules",
        metavar="I/N",
        help="the modules that --module-share leaves out; all of them if that is 0/1",
    )


def pytest_collection_modifyitems(config, items):
    share, others = config.getoption("--module-share"), config.getoption("--other-modules")
    if share is None and others is None:
        return
    folder = Path(__file__).parent
    modules = {item.path for item in items if folder in item.path.parents}
    shared = sorted(path for path in modules if path.name not in WHOLE)
    left_out = set(shared) - set(chosen(shared, share or others))
    if others is not None:
        left_out = set(shared) - left_out if left_out else set()
    config.hook.pytest_deselected(items=[item for item in items if item.path in left_out])
    items[:] = [item for item in items if item.path not in left_out]


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "beyond_torch: behaviour that is deliberately better than torch's; "
        "deselect it to run the behaviour tests against torch",
    )
    if "error" not in config.getini("filterwarnings"):
        config.addinivalue_line("filterwarnings", "error")
    # Shown once per process, so any test may trigger it.
    config.addinivalue_line(
        "filterwarnings", r"ignore:Using backward\(\) with create_graph=True:UserWarning"
    )
    # The op table's samples call it; a test of its own expects the warning.
    config.addinivalue_line(
        "filterwarnings", r"ignore:pullback\.chain_matmul is deprecated:UserWarning"
    )


@pytest.fixture(autouse=True)
def fixed_seed():
    """Make random numbers the same in every test, independent of earlier ones."""
    pb.manual_seed(1234)


@pytest.fixture(autouse=True)
def default_modes():
    """Fail the test that leaves a thread-local mode changed."""
    yield
    enabled = pb.is_grad_enabled()
    pb.set_grad_enabled(True)
    assert enabled, "the test left grad mode off"


@pytest.fixture
def no_gc():
    """Switch the cyclic collector off, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def run_script(request):
    """Run a file of the ``scripts`` folder in a fresh interpreter and return what it printed.

    The test fails when the script does, by an exception or by a crash, or does not end.
    """
    folder = request.path.parent / "scripts"

    def run(name, *arguments, timeout=120, **options):
        command = [sys.executable, folder / f"{name}.py", *map(str, arguments)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, **options
            )
        except subprocess.TimeoutExpired as late:
            printed = (late.stdout or b"").decode().splitlines()
            pytest.fail(f"{name} did not end in {timeout} s; it last printed {printed[-1:]}")
        if done.returncode:
            pytest.fail(f"{name} ended with {done.returncode}\n{done.stderr[-3000:]}")
        return done.stdout.strip()

    return run


@pytest.fixture
def interrupted():
    """Return what repeats a call until a timer's signal ends it, and that a number of times."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("interrupts by a timer")

    class Stop(Exception):
        pass

    def interrupt(*args):
        raise Stop

    def run(call, times, first, step):
        """The signals come after ``first`` seconds, then ``step`` later each time."""
        before = signal.signal(signal.SIGALRM, interrupt)
        hook = sys.unraisablehook  # a signal may come in a finalizer, or in a callback of gc
        sys.unraisablehook = lambda found: None if found.exc_type is Stop else hook(found)
        try:
            for number in range(times):
                try:
                    # Again after a while: Python drops what a handler raises in a finalizer.
                    signal.setitimer(signal.ITIMER_REAL, first + number * step, 0.2)
                    while True:
                        call()
                except Stop:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook

    return run
