"""Kernels of matrix products and decompositions."""
