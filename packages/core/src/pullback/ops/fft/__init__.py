"""Discrete Fourier transforms, their frequencies, and short-time transforms."""
