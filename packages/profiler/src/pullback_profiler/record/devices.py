"""Waiting for the devices that are in use."""

from __future__ import annotations

from pullback.backend import device_count, plugin_manager, synchronize


def synchronize_devices(kind: str | None = None) -> None:
    """Wait until every device of a kind has finished its work.

    Without a kind: those of each backend that is loaded.
    Raises: RuntimeError when a device reports a failure of earlier work.

    >>> synchronize_devices("ref")
    """
    loaded = [name for name, _ in plugin_manager().list_name_plugin()]
    for name in loaded if kind is None else [kind]:
        for index in range(device_count(name)):
            synchronize(f"{name}:{index}")
