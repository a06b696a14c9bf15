"""Kernels of neural networks: convolution, pooling, normalization, softmax, losses."""
