"""Kernels of elementwise ops."""
