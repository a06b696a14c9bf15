"""Kernels that copy, cast and rearrange elements."""
