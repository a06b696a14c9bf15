"""Shared by all kernels: launches, element types, drivers of elementwise ops and reductions."""
