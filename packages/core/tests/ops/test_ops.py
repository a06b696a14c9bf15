"""Every op of the table: values, derivatives, and the forms that must agree with each other.

The checks and the samples are those of ``pullback.testing``; an op's entry is all that they need.
"""

import pytest

from pullback.optable import ENTRIES
from pullback.testing.runner import CHECKS

CASES = [
    pytest.param(name, entry, id=f"{name}-{entry.name}")
    for name, check in CHECKS.items()
    for entry in ENTRIES.values()
    if check.concerns(entry)
]


@pytest.mark.parametrize(("name", "entry"), CASES)
def test_op(name, entry, run):
    run(name, entry)
