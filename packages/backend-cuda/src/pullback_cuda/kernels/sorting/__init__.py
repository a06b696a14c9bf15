"""Kernels that sort, and that search in sorted rows."""
