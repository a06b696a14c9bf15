"""Discrete Fourier transforms: ``pullback.fft``. Its functions come from the op table."""


def __getattr__(name):
    from pullback._help.names import missing

    raise missing(__name__, name)
