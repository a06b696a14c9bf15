"""torch.functional's names, which are those of ``pullback`` itself.

>>> import pullback
>>> pullback.functional.einsum is pullback.einsum
True
"""

import pullback


def __getattr__(name):
    value = None if name.startswith("_") else getattr(pullback, name)
    if not callable(value):
        raise AttributeError(f"module 'pullback.functional' has no attribute {name!r}")
    return value
