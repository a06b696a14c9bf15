"""Device types, streams, memory, and kernels and allocators that are written in Python."""
