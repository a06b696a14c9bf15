"""Fixtures of the tests that run on the fake driver: pycuda, a context, and kernels to launch.

The driver is loaded when the first test asks for it, so that collecting tests changes nothing.
"""

import gc
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from . import load

HERE = Path(__file__).resolve().parent
KERNELS = r"""
#include "kernels/common/kernel.cuh"

struct arguments { void *from; void *to; int64_t size; float factor; int32_t unused; };

KERNEL(scale, arguments) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < args.size)
        ((float *)args.to)[i] = ((const float *)args.from)[i] * args.factor;
}

KERNEL(shared_sum, arguments) {
    DYNAMIC_SHARED(float, part);
    part[threadIdx.x] = ((const float *)args.from)[threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x; i++)
        sum += part[i];
    ((float *)args.to)[threadIdx.x] = sum;
}

extern "C" { __attribute__((visibility("default"))) float table[4] = {1, 2, 3, 4}; }
"""


@pytest.fixture(scope="session")
def control():
    """What steers the fake driver; skips where it cannot be, or would stand before a real one."""
    if os.environ.get("PULLBACK_TEST_GPU") == "required":
        pytest.skip("this run is for a device, and in one process there is one driver")
    try:
        return load()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cuda(control):
    """The real ``pycuda.driver``."""
    pytest.importorskip("pycuda")
    driver = pytest.importorskip("pycuda.driver")
    driver.init()
    return driver


@pytest.fixture
def clean(control):
    """The fake driver as it is at first, before and after the test."""
    control.reset()
    yield
    control.reset()
    for device in range(2):
        control.set_memory(1 << 32, device)


@pytest.fixture
def context(cuda):
    """A fresh primary context of device 1, current in this thread."""
    context = cuda.Device(1).retain_primary_context()
    context.push()
    yield context
    gc.collect()
    context.detach()


@pytest.fixture(scope="session")
def image(control):
    """The kernels above, built for the CPU, as the bytes of a module."""
    sys.path.insert(0, str(HERE.parent))
    try:
        import emulation
    finally:
        del sys.path[0]
    return Path(emulation.image_of_text(KERNELS)).read_bytes()


@pytest.fixture
def functions(cuda, context, image):
    """Return pycuda's Function of a kernel by its name."""
    module = cuda.module_from_buffer(image)
    yield module.get_function
    del module


def pack(source, target, size, factor=2.0):
    """Return the arguments of these kernels as they are given to a launch."""
    return struct.pack("PPqfi", int(source), int(target), size, factor, 0)


def to_device(cuda, array):
    """Return new memory with what an array holds."""
    memory = cuda.mem_alloc(array.nbytes)
    cuda.memcpy_htod(memory, array)
    return memory


def from_device(cuda, memory, shape, dtype="f4"):
    """Return what memory holds as an array."""
    array = np.empty(shape, dtype)
    cuda.memcpy_dtoh(array, int(memory))
    return array
