"""CUDA on the CPU: see emulation.h for what it does and build.py for how it is used."""

from .build import BuildError, Kernels, image, image_of_text, images, sanitizer_environment

__all__ = ["BuildError", "Kernels", "image", "image_of_text", "images", "sanitizer_environment"]
