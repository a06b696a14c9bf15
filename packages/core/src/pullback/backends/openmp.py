"""Whether OpenMP is used: it is not."""

__all__ = ["is_available"]


def is_available() -> bool:
    """Return False: no kernel uses OpenMP.

    >>> import pullback
    >>> pullback.backends.openmp.is_available()
    False
    """
    return False
