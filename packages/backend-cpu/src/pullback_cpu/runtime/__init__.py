"""Memory, threads, the libraries that are loaded, and the instruction sets of this processor."""
