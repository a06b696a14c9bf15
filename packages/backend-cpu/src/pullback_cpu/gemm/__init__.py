"""Matrix products: micro-kernels for each instruction set, AMX, and the BLAS of SciPy."""
