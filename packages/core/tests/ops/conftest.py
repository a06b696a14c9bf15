"""Counts what the tests of the op table ran on, and prints it at the end."""

import pytest

from pullback.testing.runner import Totals, run_check

TOTALS = pytest.StashKey()


def pytest_configure(config):
    config.stash[TOTALS] = {}


@pytest.fixture
def run(request):
    """Run a check on all samples of an op; the test fails with the first failures listed."""
    totals = request.config.stash[TOTALS]

    def run_one(name, entry):
        found = run_check(name, entry)
        totals.setdefault(name, Totals()).add(found)
        if found.failures:
            shown = "\n\n".join(found.failures[:5])
            pytest.fail(f"{len(found.failures)} of {found.samples} samples fail\n{shown}")
        return found

    return run_one


def pytest_terminal_summary(terminalreporter, config):
    totals = config.stash.get(TOTALS, {})
    if totals:
        terminalreporter.section("op table")
        for name, found in totals.items():
            terminalreporter.write_line(f"{name:>12}: {found}")
