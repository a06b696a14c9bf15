"""Tensors from and to arrays, buffers and other libraries."""
