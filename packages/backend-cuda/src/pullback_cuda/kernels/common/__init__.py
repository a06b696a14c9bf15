"""What kernels share: launches, element types, drivers of elementwise ops and reductions."""
