"""What kernels share: loops over strides, and drivers of elementwise ops and reductions."""
