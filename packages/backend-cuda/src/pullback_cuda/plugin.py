"""What pullback's registry calls when a ``cuda`` device is asked for the first time."""

from __future__ import annotations

from pullback.backend import hookimpl
from pullback_cuda.driver import start_driver

NO_KERNELS = (
    "pullback-cuda 0.1.0 has no kernels yet, so the CUDA device here ({name}) cannot compute: "
    "use device='cpu', with `pip install pullback[cpu]`"
)


@hookimpl
def pullback_backend(device: str) -> None:
    """Return nothing for other devices; for ``cuda``, raise what keeps it from working.

    Raises: ImportError or RuntimeError, with one sentence that says what to do.
    """
    if str(device).partition(":")[0] != "cuda":
        return
    driver = start_driver()
    raise RuntimeError(NO_KERNELS.format(name=driver.Device(0).name()))
