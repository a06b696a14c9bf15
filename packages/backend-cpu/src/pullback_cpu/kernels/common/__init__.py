"""Shared by all kernels: loops over strides, and drivers of elementwise ops and reductions."""
