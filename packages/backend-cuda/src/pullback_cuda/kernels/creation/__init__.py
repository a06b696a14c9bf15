"""Kernels that make new values: ranges and random numbers."""
