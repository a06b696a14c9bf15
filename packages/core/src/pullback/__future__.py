"""Switches of how modules are converted (``module.double()``) and loaded; torch.__future__.

By default a conversion keeps the parameters and replaces their memory.
"""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Set whether a conversion of a module gives it new parameters.

    >>> import pullback
    >>> pullback.__future__.set_overwrite_module_params_on_conversion(False)
    """
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Return whether a conversion of a module gives it new parameters; False by default.

    >>> import pullback
    >>> pullback.__future__.get_overwrite_module_params_on_conversion()
    False
    """
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Set whether conversions and ``load_state_dict`` swap parameters with the new tensors.

    The parameters stay the same objects, see ``pullback.utils.swap_tensors``.

    >>> import pullback
    >>> pullback.__future__.set_swap_module_params_on_conversion(False)
    """
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Return whether conversions and ``load_state_dict`` swap parameters; False by default.

    >>> import pullback
    >>> pullback.__future__.get_swap_module_params_on_conversion()
    False
    """
    return _swap
