# build: small
"""Exceptions for the codes that kernels and backends return; where user code runs."""

import sys

from cpython.exc cimport PyErr_Occurred
from cpython.object cimport PyTypeObject

from pullback.abi cimport (
    PB_E_DTYPE, PB_E_INDEX, PB_E_MEMORY, PB_E_PYTHON, PB_E_RUNTIME, PB_E_VALUE)

cdef extern from *:
    """
    static int pb_go_on_raising(void) { return -1; }
    """
    int pb_go_on_raising() except -1


cdef list published = []


class OutOfMemoryError(MemoryError, RuntimeError):
    """A device has no memory for an op. All tensors that exist stay as they are.

    >>> import pullback
    >>> pullback.zeros(2**58)
    Traceback (most recent call last):
    pullback.OutOfMemoryError: ...: cannot allocate 1152921504606846976 bytes
    """

    __module__ = "pullback"


def require_bool(str function not None, str argument not None, value):
    """Return an argument that must be a bool.

    Raises: TypeError for all others.
    """
    if value is True or value is False:
        return value
    raise TypeError(f"{function}(): argument '{argument}' must be bool, not {type(value).__name__}")


def is_of_package(frame not None):
    """Return True for a frame of this package's code."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and ((<str>name).startswith("pullback.") or name == "pullback")


def user_frame():
    """Return the innermost frame that is not of this package's code; None if there is none."""
    try:
        frame = sys._getframe()
    except ValueError:                  # no Python frame at all: a thread of the engine
        return None
    while frame is not None and is_of_package(frame):
        frame = frame.f_back
    return frame


def place_of_call():
    """Return the innermost line outside of this package, as the end of a message; or nothing."""
    frame = user_frame()
    return "" if frame is None else f" (line {frame.f_lineno} of {frame.f_code.co_filename})"


def publish(*kinds):
    """Give compiled classes their public module, for errors, ``repr`` and pickles."""
    for kind in kinds:
        if not isinstance(kind, type):
            raise TypeError(f"publish(): expected classes, got {type(kind).__name__}")
        name = f"pullback.{kind.__name__}".encode()
        published.append(name)          # the class has but a pointer
        (<PyTypeObject *>kind).tp_name = name


cdef int keep_error(int code) except -1:
    """Raise the Python exception that is set, if the code is PB_E_PYTHON.

    Nothing that may clear the exception can run between the call of the backend and this one.
    """
    if code == PB_E_PYTHON and PyErr_Occurred() != NULL:
        pb_go_on_raising()
    return 0


cdef int raise_code(int code, const char *message, str kernel) except -1:
    """Raise the exception of a kernel's error code."""
    keep_error(code)
    return raise_text(code, message.decode("utf-8", "replace")
                      or f"kernel {kernel!r} failed with code {code}")


cdef int raise_failure(int code, const char *message, str what, object where) except -1:
    """Raise the exception of a backend function's error code; without a message of the backend, the
    text names the function and the device, ``where``."""
    keep_error(code)
    cdef str text = message.decode("utf-8", "replace")
    if text and (PB_E_RUNTIME < code < PB_E_PYTHON or text == "ZeroDivisionError"):
        return raise_text(code, text)           # may concern earlier work: the text stays as it is
    what = f"{what} failed" if where.type in what else f"{what} failed on {where}"
    return raise_text(code, f"{what}: {text}" if text else what)


cdef int raise_text(int code, str text) except -1:
    if code == PB_E_MEMORY:
        raise OutOfMemoryError(text)
    if code == PB_E_INDEX:
        raise IndexError(text)
    if code == PB_E_VALUE:
        raise ValueError(text)
    if code == PB_E_DTYPE:
        raise NotImplementedError(text)
    raise RuntimeError(text)
