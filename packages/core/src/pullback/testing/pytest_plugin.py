"""pytest options and fixtures of the conformance suite; pytest loads it where core is installed.

Nothing of the package is imported before a test of the suite runs.
"""

from __future__ import annotations

import pytest


class SuiteTotals:
    """What each check of the suite ran on."""

    def __init__(self):
        self.found = {}
        self.expected = {}

    def count(self, name, totals, expected):
        """Add one op's totals; failures that were expected are counted apart."""
        from pullback.testing.runner import Totals

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
        metavar="NAME",
        help="where the suite of ops runs; else on the default device",
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
    config.stash[TOTALS] = SuiteTotals()


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
    """The device under test, as text."""
    import pullback

    return request.config.getoption("--pullback-device") or str(pullback.get_default_device())


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
