"""Settings of opt_einsum's order of products, which ``einsum`` does not use.

>>> import pullback
>>> pullback.backends.opt_einsum.is_available()
False
"""

__all__ = ["get_opt_einsum", "is_available"]

enabled = False
strategy = None


def is_available() -> bool:
    """Return False: ``einsum`` orders its products by itself.

    >>> import pullback
    >>> pullback.backends.opt_einsum.is_available()
    False
    """
    return False


def get_opt_einsum() -> None:
    """Return None, as torch does without opt_einsum.

    >>> import pullback
    >>> pullback.backends.opt_einsum.get_opt_einsum()
    """
