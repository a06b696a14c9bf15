"""Functions of single numbers: complex and special functions. Headers of the kernels."""
