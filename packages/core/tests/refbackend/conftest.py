"""Fixtures of the reference backend's tests."""

import pytest


@pytest.fixture
def bfloat16():
    """The NumPy dtype for bfloat16."""
    return pytest.importorskip("ml_dtypes").bfloat16
