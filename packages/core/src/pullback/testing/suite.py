"""The conformance suite: every op of the table, every check, on one device.

    pytest --pyargs pullback.testing.suite --pullback-device NAME[,NAME...]

or, in a backend's own tests, one line: ``from pullback.testing.suite import *``. What the device
cannot do is said by its plugin (see ``pullback.testing.Requirements``).
"""

from __future__ import annotations

import pytest

import pullback as pb
from pullback.ops import ENTRIES
from pullback.testing.runner import CHECKS, collapsed, run_check

__all__ = ["test_op"]

CASES = [
    pytest.param(name, entry, id=f"{name}-{entry.name}")
    for name, check in CHECKS.items()
    for entry in ENTRIES.values()
    if check.concerns(entry)
]


@pytest.mark.parametrize(("name", "entry"), CASES)
def test_op(name, entry, pullback_device, pullback_mode, pullback_requirements, pullback_totals):
    """One check on all samples of one op; shows the first failures."""
    reason = pullback_requirements.why_failing(name, entry.name)
    with pb.device(pullback_device):
        found = run_check(
            name, entry, without=pullback_requirements.without_dtypes, mode=pullback_mode
        )
    pullback_totals.count(name, found, reason is not None, pullback_device)
    if reason is not None:
        assert found.failures, f"expected to fail ({reason}), but every sample passes"
        pytest.xfail(reason)
    if found.failures:
        shown = "\n\n".join(collapsed(found.failures)[:5])
        pytest.fail(f"{len(found.failures)} of {found.samples} samples fail\n{shown}")
