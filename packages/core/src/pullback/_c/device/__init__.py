"""Device types and their kernel tables, streams, memory, kernels and allocators in Python."""
