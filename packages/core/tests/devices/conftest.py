"""A device with streams, which the helper module beside the tests makes."""

import sys
from pathlib import Path

import pytest

import pullback as pb

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def installed_device(tmp_path_factory):
    """Install the device."""
    import async_device

    async_device.install(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(autouse=True)
def default_streams(installed_device):
    """Begin with empty queues; fail the test that leaves a stream current."""
    from async_device import DEVICES, MEMORY, address, current, forget

    forget()
    MEMORY.free.clear()
    pb.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    yield
    assert [current(d) for d in range(DEVICES)] == [address(d, 0) for d in range(DEVICES)]
    MEMORY.failure = None
    forget()
