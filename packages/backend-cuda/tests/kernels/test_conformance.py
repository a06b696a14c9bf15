"""The conformance suite that core ships: every op, every check, on the device ``cuda``."""

import pytest

from pullback.testing.suite import *


@pytest.fixture(scope="session")
def pullback_device(request):
    if request.config.getoption("--pullback-device") not in (None, "cuda"):
        pytest.skip("another device was asked for")
    from on_fake import ON_DEVICE

    if not ON_DEVICE:
        request.getfixturevalue("fake_cuda")
    return "cuda"
