"""Files: ``save`` and ``load`` in torch's formats.

Both are ``pullback.save`` and ``pullback.load``. The rest is what ``torch.serialization`` has for
users: which classes a file may contain, where its storages go, and settings.
"""

from __future__ import annotations

from pullback._help import explain_names as _explain_names
from pullback.serialization.loading import get_unsafe_globals_in_checkpoint, load
from pullback.serialization.locations import (
    default_restore_location,
    location_tag,
    register_package,
)
from pullback.serialization.options import (
    MAP_LOCATION,
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from pullback.serialization.restricted import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from pullback.serialization.saving import DEFAULT_PROTOCOL, save

__all__ = [
    "DEFAULT_PROTOCOL",
    "LoadEndianness",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]


def check_module_version_greater_or_equal(module, req_version_tuple, error_if_malformed=True):
    """Return True if a module's ``__version__`` is at least the given numbers.

    Raises: RuntimeError for a version that has other parts than numbers, unless
    ``error_if_malformed`` is False: then it warns and returns True.

    >>> import pullback
    >>> pullback.serialization.check_module_version_greater_or_equal(pullback, (0, 1, 0))
    True
    """
    try:
        parts = str(module.__version__).split(".")
        wanted = tuple(req_version_tuple)
        return tuple(type(want)(part) for want, part in zip(wanted, parts)) >= wanted
    except Exception as error:
        message = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and "
            f"cannot be compared with tuple {req_version_tuple!s}"
        )
        if error_if_malformed:
            raise RuntimeError(message) from error
        import warnings

        warnings.warn(f"{message}, but continuing assuming that requirement is met", stacklevel=2)
        return True


_explain_names(globals())
