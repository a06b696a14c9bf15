"""The devices of storages in files: their names, and how a storage goes there."""

from __future__ import annotations

import bisect

from pullback._c.device.device import device as _device
from pullback._c.interop.arrays import host_device
from pullback.storage.common import is_storage
from pullback.storage.untyped import UntypedStorage

__all__ = ["default_restore_location", "location_tag", "register_package"]

_packages: list = []  # (priority, number, tagger, deserializer), lowest priority first


def register_package(priority, tagger, deserializer):
    """Add functions that name the device of a storage, and that move a storage there.

    ``tagger(storage)`` returns a name or None, ``deserializer(storage, name)`` a storage or None.
    Those of lower ``priority`` are asked first; pullback's own have 10 and more.

    >>> import pullback
    >>> pullback.serialization.register_package(
    ...     5, lambda storage: None, lambda storage, name: storage if name == "disk" else None)
    >>> pullback.serialization.default_restore_location(pullback.UntypedStorage([7]), "disk")[0]
    7
    """
    bisect.insort(_packages, (priority, len(_packages), tagger, deserializer))


def location_tag(storage):
    """Return the name of a storage's device for files: ``cpu`` for memory of the host.

    Raises: RuntimeError where no registered function knows the device.

    >>> import pullback
    >>> pullback.serialization.location_tag(pullback.UntypedStorage(1))
    'cpu'
    """
    for _, _, tagger, _ in _packages:
        location = tagger(storage)
        if location is not None:
            return location
    raise RuntimeError(f"don't know how to determine data location of {storage.type()}")


def default_restore_location(storage, location):
    """Return a storage on the device that a name stands for.

    Raises: RuntimeError where no registered function knows the name, and for absent devices.

    >>> import pullback
    >>> pullback.serialization.default_restore_location(pullback.UntypedStorage([1]), "cpu")[0]
    1
    """
    for _, _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(
        "don't know how to restore data location of "
        f"pullback.storage.UntypedStorage (tagged with {location})"
    )


def _host_tag(storage):
    return (
        "cpu" if storage._elements().get_device() == -1 and storage.device.type != "meta" else None
    )


def _to_host(storage, location):
    if location == "cpu":
        return storage.cpu() if storage.device.type != "meta" else storage
    return None


def _device_tag(storage):
    return str(storage.device)


def _to_device(storage, location):
    kind = str(location).partition(":")[0]
    if kind == "meta":
        return UntypedStorage(storage.nbytes(), device="meta")
    if kind == "cuda":
        from pullback import cuda

        if not cuda.is_available():
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but "
                "pullback.cuda.is_available() is False. If you are running on a CPU-only machine, "
                "please use pullback.load with map_location=pullback.device('cpu') to map your "
                "storages to the CPU."
            )
    try:
        where = _device(location)
        return storage.to(device=where)
    except (RuntimeError, ValueError):
        if kind == "cuda":
            raise
        return None


register_package(10, _host_tag, _to_host)
register_package(20, _device_tag, _to_device)


def restore_function(map_location):
    """Return ``function(storage, location)`` for the argument ``map_location`` of ``load``."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(
            storage, map_location.get(location, location)
        )
    if isinstance(map_location, (str, bytes)):
        name = map_location if isinstance(map_location, str) else map_location.decode("ascii")
        return lambda storage, location: default_restore_location(storage, name)
    if isinstance(map_location, _device):
        return lambda storage, location: default_restore_location(storage, str(map_location))
    if not callable(map_location):
        raise TypeError(f"'{type(map_location).__name__}' object is not callable")

    def restore(storage, location):
        found = map_location(storage, location)
        if found is None:
            return default_restore_location(storage, location)
        if not is_storage(found):
            raise TypeError(f"map_location returned {type(found).__name__}, not a storage")
        return found.untyped()

    return restore


def new_storage(nbytes):
    """Return a storage on the host, uninitialised."""
    return UntypedStorage(nbytes, device=host_device())
