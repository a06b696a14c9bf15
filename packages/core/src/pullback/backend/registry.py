"""Finds and loads backend plugins: one entry point per device type, on first use.

An entry point of the group ``pullback.backends`` is named after its device type. Nothing is
imported before somebody asks for that device. A plugin that fails makes its own device unusable,
with a message that says why, and nothing else. ``PULLBACK_PLUGINS=off`` or a comma-separated list
of names restricts what may be loaded.
"""

from __future__ import annotations

import os

from pullback._c import device as _device
from pullback.optable.slots import SLOT_IDS

GROUP = "pullback.backends"
_HINTS = {
    "cpu": "install it with 'pip install pullback-cpu' (or pullback[cpu]), or use device 'ref'",
    "cuda": "install it with 'pip install pullback-cuda' (or pullback[cuda])",
}
_manager = None


def plugin_manager():
    """Return the pluggy manager that backends are registered with."""
    global _manager
    if _manager is None:
        import pluggy

        from pullback.backend import hookspecs

        _manager = pluggy.PluginManager("pullback")
        _manager.add_hookspecs(hookspecs)
    return _manager


class KernelTable:
    """What a plugin registers its kernels with."""

    def __init__(self, device: str):
        self.device = device

    def add(self, slot: str, mask: int, kernel) -> None:
        """Register a kernel for the dtypes of a bit mask.

        Raises: ValueError for unknown slots or an empty mask; TypeError for a capsule of another
        name or something that cannot be called.
        """
        if slot not in SLOT_IDS:
            raise ValueError(f"backend {self.device!r}: there is no kernel slot named {slot!r}")
        if not isinstance(mask, int) or not 0 < mask <= 0xFFF:
            raise ValueError(f"backend {self.device!r}: {slot!r} needs a mask of dtypes between 1 "
                             f"and 0xFFF, got {mask!r}")
        _device.install_kernel(self.device, SLOT_IDS[slot], mask, kernel)


def _allowed(name: str) -> bool:
    setting = os.environ.get("PULLBACK_PLUGINS")
    if setting is None or name == "ref":
        return True
    return name in [part.strip() for part in setting.split(",")]


def _entry_point(name: str):
    from importlib.metadata import entry_points

    found = list(entry_points(group=GROUP, name=name))
    return found[0] if found else None


def installed() -> list[str]:
    """Return the device types that installed plugins provide, loaded or not."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=GROUP) if _allowed(point.name)})


def _plugin_of(name: str):
    if name == "ref":
        from pullback.refbackend import plugin
        return plugin
    if not _allowed(name):
        raise RuntimeError(f"device {name!r} is not available: PULLBACK_PLUGINS="
                           f"{os.environ['PULLBACK_PLUGINS']!r} leaves its plugin out")
    point = _entry_point(name)
    if point is None:
        hint = _HINTS.get(name)
        if hint is None:
            raise RuntimeError(f"there is no device type {name!r}: no installed plugin provides it "
                               f"(available: {', '.join(['ref', 'meta', *installed()])})")
        raise RuntimeError(f"device {name!r} needs a plugin that is not installed: {hint}")
    try:
        return point.load()
    except Exception as error:
        raise RuntimeError(f"the plugin of device {name!r} ({point.value}) failed to import: "
                           f"{type(error).__name__}: {error}") from error


def load(name: str) -> None:
    """Load the plugin of a device type and fill its column of the kernel table.

    Raises: RuntimeError naming the device and the reason.
    """
    plugin = _plugin_of(name)
    manager = plugin_manager()
    if not manager.is_registered(plugin):
        manager.register(plugin, name=name)
    try:
        capsule = None if name == "ref" else manager.hook.pullback_backend(device=name)
        if capsule is None and name != "ref":
            raise RuntimeError(f"its pullback_backend({name!r}) returned None")
        _device.install_backend(name, capsule)
        manager.hook.pullback_register_kernels(table=KernelTable(name), device=name)
    except Exception as error:
        manager.unregister(plugin)
        raise RuntimeError(f"the plugin of device {name!r} cannot be used: {error}") from error


def choose_default() -> str:
    """Return the device of tensors made without one: ``cpu`` if its plugin is there, else ``ref``."""
    if _allowed("cpu") and _has_cpu():
        return "cpu"
    return "ref"


def _has_cpu() -> bool:
    from importlib.util import find_spec

    return find_spec("pullback_cpu") is not None and _entry_point("cpu") is not None


_device.bind(load, choose_default)
