"""Kernels that read and write at index arrays."""
