"""Discrete Fourier transforms: ``pullback.fft``. Its functions come from the op table."""
