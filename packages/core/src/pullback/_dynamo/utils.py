"""What programs ask of the compiler's private tools."""

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: object) -> bool:
    """Return False: no device has a compiler that traces bytecode.

    >>> from pullback._dynamo.utils import is_compile_supported
    >>> is_compile_supported("cpu")
    False
    """
    return False
