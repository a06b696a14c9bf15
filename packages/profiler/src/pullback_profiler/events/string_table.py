"""Readable names: C++ symbols demangled, steps of a loop under one name."""

from __future__ import annotations

import functools
from collections.abc import Callable

# The C++ runtimes that can demangle, where they are likely to be.
_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib", "libc++abi.dylib")


class StringTable(dict[str, str]):
    """Names by how they were recorded: C++ symbols become readable, others stay.

    Without a C++ runtime symbols stay too.

    >>> from pullback_profiler import StringTable
    >>> StringTable()["pullback::mul"]
    'pullback::mul'
    """

    def __missing__(self, key: str) -> str:
        name = demangler()(key) if key.startswith("_Z") else key
        self[key] = name
        return name


@functools.cache
def demangler() -> Callable[[str], str]:
    """Return a function from a C++ symbol to its readable name; other text stays.

    >>> demangler()("_Z")
    '_Z'
    """
    import ctypes

    for runtime in _RUNTIMES:
        try:
            demangle = ctypes.CDLL(runtime).__cxa_demangle
            free = ctypes.CDLL(None).free
        except (OSError, AttributeError, TypeError):  # TypeError: None names no library on Windows
            continue
        break
    else:
        return lambda symbol: symbol
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    free.argtypes = [ctypes.c_void_p]

    def readable(symbol: str) -> str:
        address = demangle(symbol.encode(), None, None, None)
        if not address:
            return symbol
        try:
            return ctypes.string_at(address).decode(errors="replace")
        finally:
            free(address)

    return readable


def display_name(name: str) -> str:
    """Return the name under which an event is counted: steps of a loop share one.

    >>> display_name("ProfilerStep#7"), display_name("pullback::mul")
    ('ProfilerStep*', 'pullback::mul')
    """
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name
