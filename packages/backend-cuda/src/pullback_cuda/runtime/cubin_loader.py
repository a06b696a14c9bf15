"""The compiled kernels: an image for each family, from the wheel or compiled on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from pullback_cuda.runtime import nvrtc

VARIABLE = "PULLBACK_CUDA_KERNELS"

USER_TEXTS: dict[str, str] = {}  # CUDA text of families that users wrote


def load_image(family: str, device) -> bytes:
    """Return the image of a family of kernels.

    ``PULLBACK_CUDA_KERNELS`` names a folder whose images are taken instead of the wheel's.
    Raises: RuntimeError that says how to get one where there is none.
    """
    if family in USER_TEXTS:
        capability = device.device.compute_capability()
        return nvrtc.compile_text(USER_TEXTS[family], f"{family}.cu", capability)
    folder = Path(os.environ.get(VARIABLE) or nvrtc.KERNELS)
    path = folder / f"{family}.fatbin"
    if path.is_file():
        return path.read_bytes()
    if os.environ.get(VARIABLE):
        raise RuntimeError(f"{VARIABLE}={str(folder)!r} has no {path.name}")
    return nvrtc.compile_family(family, device)
