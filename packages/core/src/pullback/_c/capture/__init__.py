"""Recording the kernels of a function, and running them again."""
