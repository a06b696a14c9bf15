"""Whether Intel's MKL is used: it is not."""

__all__ = ["is_available"]


def is_available() -> bool:
    """Return False: no kernel uses Intel's MKL.

    >>> import pullback
    >>> pullback.backends.mkl.is_available()
    False
    """
    return False
