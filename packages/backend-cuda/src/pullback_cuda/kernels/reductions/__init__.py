"""Kernels of reductions and cumulative ops."""
