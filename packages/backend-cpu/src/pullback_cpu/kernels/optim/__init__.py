"""Kernels of optimizers: steps over lists of tensors."""
