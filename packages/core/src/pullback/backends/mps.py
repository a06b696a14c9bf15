"""Whether Apple's GPUs is used: it is not."""

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """Return False: no kernel uses Apple's GPUs.

    >>> import pullback
    >>> pullback.backends.mps.is_available()
    False
    """
    return False


def is_built() -> bool:
    """Return False: there is no backend for Apple's GPUs.

    >>> import pullback
    >>> pullback.backends.mps.is_built()
    False
    """
    return False
