"""pytest options and fixtures of the conformance suite, and the fixture ``pullback_device``.

pytest loads it wherever core is installed. It is beside the package, which it imports only for
tests that use its fixtures or options.
"""

from __future__ import annotations

import contextlib

import pytest


class SuiteTotals:
    """What each check of the suite ran on, for each of several devices."""

    def __init__(self, several_devices=False):
        self.several_devices = several_devices
        self.found = {}
        self.expected = {}

    def count(self, name, totals, expected, device=""):
        """Add one op's totals on a device; failures that were expected are counted apart."""
        from pullback.testing.runner import Totals

        name = f"{device} {name}" if self.several_devices else name
        if expected:
            self.expected[name] = self.expected.get(name, 0) + len(totals.failures)
            totals = Totals(totals.ops, totals.samples - len(totals.failures))
        self.found.setdefault(name, Totals()).add(totals)

    def as_plain(self):
        """Return the totals in lists and texts, which one process can send another."""
        found = {name: [t.ops, t.samples, t.failures] for name, t in self.found.items()}
        return [found, self.expected]

    def add_plain(self, plain):
        """Add what another process counted."""
        from pullback.testing.runner import Totals

        found, expected = plain
        for name, parts in found.items():
            self.found.setdefault(name, Totals()).add(Totals(*parts))
        for name, count in expected.items():
            self.expected[name] = self.expected.get(name, 0) + count


TOTALS = pytest.StashKey[SuiteTotals]()


def pytest_addoption(parser):
    group = parser.getgroup("pullback")
    group.addoption(
        "--pullback-device",
        metavar="NAMES",
        help="devices, separated by commas, that the suite of ops and tests with the fixture "
        "pullback_device run on; else the default device",
    )
    group.addoption(
        "--pullback-device-strict",
        action="store_true",
        help="fail tests on a device that cannot be used, instead of skipping them",
    )
    group.addoption(
        "--pullback-mode",
        metavar="NAME",
        default="plain",
        help="under which mode it runs: plain, anomaly, hooks, thread, no-fallback, "
        "vmap, checkpoint",
    )
    group.addoption(
        "--pullback-share",
        metavar="I/N",
        help="every N-th op, and every N-th test marked pullback_share, from number I on "
        "(0 to N-1, or auto: another one after each change of the core)",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "pullback_share: one of many alike, of which --pullback-share runs a part"
    )
    config.stash[TOTALS] = SuiteTotals(len(chosen_devices(config)) > 1)


def chosen_devices(config):
    """Return the names that ``--pullback-device`` lists, or an empty list."""
    given = config.getoption("--pullback-device") or ""
    return list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Refuse a device type that nothing provides, before tests are collected."""
    names = chosen_devices(session.config)
    if session.config.getoption("--pullback-device") is None:
        return
    from pullback import backend

    known = dict.fromkeys(["ref", "cpu", "cuda", "meta", *backend.installed()])
    known.update(dict.fromkeys(backend.device_types()))
    for name in names or [""]:
        kind, colon, index = name.partition(":")
        if kind not in known or (colon and not index.isdecimal()):
            raise pytest.UsageError(
                f"--pullback-device: expected names of devices ({', '.join(known)}), separated by "
                f"commas; got {name!r}"
            )


def pytest_generate_tests(metafunc):
    """Run a test with the fixture once for each of several devices."""
    names = chosen_devices(metafunc.config)
    if len(names) < 2 or "pullback_device" not in metafunc.fixturenames:
        return
    for mark in metafunc.definition.iter_markers("parametrize"):
        if "pullback_device" in parameters_of(mark):  # the test says itself which
            return
    metafunc.parametrize("pullback_device", names, indirect=True, scope="session")


def parameters_of(mark):
    """Return the names of the parameters that a ``parametrize`` mark sets."""
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def device_of(item):
    """Return the device that was asked for a test with the fixture, or None."""
    if "pullback_device" not in getattr(item, "fixturenames", ()):
        return None
    names = chosen_devices(item.config)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters.get("pullback_device", names[0] if len(names) == 1 else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Make the device of a test the default one while it and its fixtures run."""
    device = device_of(item)
    with contextlib.ExitStack() as stack:
        if device is not None and why_unusable(device) is None:
            import pullback

            stack.enter_context(pullback.device(device))
        return (yield)


def why_unusable(name):
    """Return the reason why a device cannot be used, or None."""
    import pullback

    try:
        pullback.zeros(1, device=name)
    except (RuntimeError, ImportError, NotImplementedError) as error:
        return f"device {name!r} cannot be used: {error}"
    return None


def pytest_collection_modifyitems(config, items):
    """Leave out the ops and the marked tests of other shares, where one is asked for."""
    share = config.getoption("--pullback-share")
    if share is None:
        return
    from pullback.ops import ENTRIES
    from pullback.testing.shares import chosen
    from pullback.testing.suite import test_op

    try:
        names = set(chosen(list(ENTRIES), share))
    except ValueError as error:
        raise pytest.UsageError(f"--pullback-share: {error}") from None
    ops = [item for item in items if getattr(item, "function", None) is test_op]
    marked = [item for item in items if item.get_closest_marker("pullback_share")]
    left_out = {item for item in ops if item.callspec.params["entry"].name not in names}
    left_out |= set(marked) - set(chosen(marked, share))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def pullback_device(request):
    """The device under test, as text: each of ``--pullback-device``, or the default device.

    It is the default device while a test runs that has this fixture among its arguments. Tests are
    skipped on a device that cannot be used, or fail with ``--pullback-device-strict``.
    """
    import pullback

    names = chosen_devices(request.config)
    name = getattr(request, "param", names[0] if names else None)
    if name is None:
        return str(pullback.get_default_device())
    reason = why_unusable(name)
    if reason is not None:
        strict = request.config.getoption("--pullback-device-strict")
        (pytest.fail if strict else pytest.skip)(reason)
    return name


@pytest.fixture(scope="session")
def pullback_mode(request):
    """The mode that every check runs under."""
    return request.config.getoption("--pullback-mode")


@pytest.fixture(scope="session")
def pullback_requirements(pullback_device):
    """What the device's plugin says it cannot do."""
    from pullback.testing.requirements import requirements_of

    return requirements_of(pullback_device)


@pytest.fixture(scope="session")
def pullback_totals(request):
    """Counts what ran; the totals are shown at the end."""
    return request.config.stash[TOTALS]


def pytest_sessionfinish(session):
    """Under pytest-xdist a worker sends its totals to the process that shows them."""
    if hasattr(session.config, "workeroutput"):
        plain = session.config.stash[TOTALS].as_plain()
        session.config.workeroutput["pullback_totals"] = plain


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    output = getattr(node, "workeroutput", {})  # a worker that crashed has none
    if "pullback_totals" in output:
        node.config.stash[TOTALS].add_plain(output["pullback_totals"])


def pytest_terminal_summary(terminalreporter, config):
    totals = config.stash.get(TOTALS, None)
    if totals is not None and totals.found:
        terminalreporter.section("conformance")
        for name, found in totals.found.items():
            expected = totals.expected.get(name)
            more = f", {expected} expected failures" if expected else ""
            terminalreporter.write_line(f"{name:>13}: {found}{more}")
