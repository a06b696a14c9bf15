"""torch.cpu's names: the device of host memory."""

from pullback.cpu import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "set_device", "synchronize"]


def is_available() -> bool:
    """Return True: host memory is always there.

    >>> import pullback
    >>> pullback.cpu.is_available()
    True
    """
    return True


def device_count() -> int:
    """Return 1.

    >>> import pullback
    >>> pullback.cpu.device_count()
    1
    """
    return 1


def current_device() -> str:
    """Return "cpu".

    >>> import pullback
    >>> pullback.cpu.current_device()
    'cpu'
    """
    return "cpu"


def set_device(device) -> None:
    """Do nothing: there is one device.

    >>> import pullback
    >>> pullback.cpu.set_device("cpu")
    """


def synchronize(device=None) -> None:
    """Do nothing: ops on host memory are done when they return.

    >>> import pullback
    >>> pullback.cpu.synchronize()
    """
