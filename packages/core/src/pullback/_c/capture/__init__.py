"""Recording the kernels of a function, and finding the program of a later call."""
