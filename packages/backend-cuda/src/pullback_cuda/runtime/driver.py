"""Import and start of the CUDA driver, with error messages that name the cause.

Between a program and a device stand pycuda, the driver's library and the device itself. Each may be
missing, and then fails with a message that names neither the cause nor the remedy. Here each
failure becomes one sentence that does.
"""

from __future__ import annotations

import importlib
from types import ModuleType

NO_PYCUDA = (
    "the cuda device needs pycuda, which is not installed: run `pip install pullback-cuda[driver]` "
    "(pycuda is built from source, so the CUDA toolkit and a C++ compiler must be there)"
)
BROKEN_PYCUDA = (
    "the cuda device needs pycuda, which is installed but cannot be imported ({reason}): "
    "run `pip install --force-reinstall --no-binary pycuda pycuda`"
)
NO_LIBRARY = (
    "the cuda device needs the NVIDIA driver's library, which the loader cannot find ({reason}): "
    "install the NVIDIA driver, or put the folder that holds libcuda on LD_LIBRARY_PATH"
)
STUB_LIBRARY = (
    "the cuda device found a stub of the NVIDIA driver's library, which is only good for linking "
    "({reason}): install the NVIDIA driver, or take the CUDA toolkit's `stubs` folder off "
    "LD_LIBRARY_PATH"
)
NO_DEVICE = (
    "the cuda device needs an NVIDIA GPU, and the driver sees none ({reason}): check `nvidia-smi` "
    "and CUDA_VISIBLE_DEVICES, or use device='cpu'"
)
NO_START = (
    "the cuda device cannot be used because the NVIDIA driver does not start ({reason}): check "
    "`nvidia-smi`, and install a driver that is not older than pycuda's CUDA version"
)


def import_driver() -> ModuleType:
    """Return ``pycuda.driver``.

    Raises: ImportError, with one sentence that says what to install.
    """
    try:
        return importlib.import_module("pycuda.driver")
    except ModuleNotFoundError as error:
        if error.name == "pycuda":
            raise ImportError(NO_PYCUDA, name="pycuda") from error
        raise ImportError(BROKEN_PYCUDA.format(reason=error), name="pycuda") from error
    except ImportError as error:
        # The extension is linked against libcuda, so the loader's complaint arrives as this.
        sentence = NO_LIBRARY if is_about_driver_library(str(error)) else BROKEN_PYCUDA
        raise ImportError(sentence.format(reason=error), name="pycuda") from error


def is_about_driver_library(message: str) -> bool:
    """Return whether an import failed because libcuda is absent, in Linux's or Windows' words."""
    return "libcuda.so" in message or "DLL load failed" in message


def start_driver() -> ModuleType:
    """Return ``pycuda.driver`` after its ``init``, with at least one device present.

    Raises: ImportError or RuntimeError, with one sentence that says what is missing.
    """
    driver = import_driver()
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:  # pycuda's own classes: no subclasses of Python's
        raise RuntimeError(sentence_of(str(error))) from error
    if count == 0:
        raise RuntimeError(NO_DEVICE.format(reason="the driver counts 0 devices"))
    return driver


def sentence_of(message: str) -> str:
    """Return the sentence for a failure of ``cuInit``."""
    if "stub library" in message:
        return STUB_LIBRARY.format(reason=message)
    if "no CUDA-capable device" in message:
        return NO_DEVICE.format(reason=message)
    return NO_START.format(reason=message)


def why_unavailable() -> str | None:
    """Return one sentence that says what keeps CUDA from working, or None when a device is there.

    >>> import pullback_cuda
    >>> pullback_cuda.is_available() == (pullback_cuda.why_unavailable() is None)
    True
    """
    try:
        start_driver()
    except Exception as error:  # a question about this machine must have an answer on every machine
        return str(error)
    return None


def is_available() -> bool:
    """Return whether a CUDA device is there; never raises."""
    return why_unavailable() is None


def device_count() -> int:
    """Return how many CUDA devices there are, 0 where anything is missing; never raises."""
    return start_driver().Device.count() if is_available() else 0
