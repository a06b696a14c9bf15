"""Finds and loads backend plugins: one entry point per device type, on first use.

An entry point of the group ``pullback.backends`` is named after its device type. A plugin is not
imported before the first use of its device. A plugin that fails makes only its own device unusable,
with an error that has the reason. ``PULLBACK_PLUGINS=off`` or a comma-separated list of names
restricts the plugins that are loaded.
"""

from __future__ import annotations

import os
import threading
import warnings
from functools import partial
from importlib import import_module

from pullback._c.device import device as _device
from pullback.backend import masks
from pullback.backend.threads import requested_threads
from pullback.ops.table.primitives import PRIMITIVE_IDS, PRIMITIVES

GROUP = "pullback.backends"
_HINTS = {
    "cpu": "install it with 'pip install pullback-cpu' (or pullback[cpu]), or use device 'ref'",
    "cuda": "install it with 'pip install pullback-cuda' (or pullback[cuda])",
}
# Reading the entry points of every installed distribution takes longer than the rest of the
# import. Our own plugins are imported by name, so that only other device types need it.
_OWN = {"cpu": "pullback_cpu.plugin", "cuda": "pullback_cuda.plugin"}
_BUILT_IN = "pullback"
REFERENCE = "pullback.refbackend.plugin"
_EVERY = masks.ALL | masks.OPTIONAL
_manager = None
_loading = threading.RLock()
_loaded: set[str] = set()
_threads = None  # the number that was set; plugins that load later receive it


def set_threads(count: int) -> None:
    """Set the number of threads that one op may use, in every backend."""
    global _threads
    _threads = count
    if _manager is not None:
        _manager.hook.pullback_set_threads(count=count)


def plugin_manager():
    """Return the pluggy manager that backends are registered with.

    >>> import pullback
    >>> manager = pullback.backend.plugin_manager()
    >>> manager.project_name
    'pullback'
    """
    global _manager
    if _manager is None:
        import pluggy

        from pullback.backend import hookspecs

        _manager = pluggy.PluginManager("pullback")
        _manager.add_hookspecs(hookspecs)
    return _manager


class KernelTable:
    """The object with which a plugin registers its kernels."""

    def __init__(self, device: str, dtypes: int = _EVERY):
        self.device = device
        self.dtypes = dtypes

    def add(self, primitive: str, mask: int, kernel, *, conj: bool = False) -> None:
        """Register a kernel for the dtypes of a bit mask that the device has.

        A callable is called as ``kernel(out, *inputs, **params)``. It fills ``out``, or returns an
        array of its shape (several outputs: a tuple of arrays), which ``store(out, array)`` of the
        backend's memory writes; for host memory the core does.

        ``conj=True``: a compiled kernel supports inputs with ``PB_ARRAY_CONJ``, the conjugates of
        the values in their memory. Other kernels get copies of such operands.

        Raises: ValueError for unknown primitives or an empty mask; TypeError for a capsule of
        another name or something that cannot be called.
        """
        if "::" in primitive:  # of a plugin: see define_primitive
            _check_mask(self.device, repr(primitive), mask)
            own = import_module("pullback.backend.own_primitives")
            own.add_kernel(self.device, primitive, mask & self.dtypes, kernel)
            return
        if primitive not in PRIMITIVE_IDS:
            raise ValueError(f"backend {self.device!r}: there is no primitive named {primitive!r}")
        _check_mask(self.device, repr(primitive), mask)
        _device.install_kernel(
            self.device, PRIMITIVE_IDS[primitive], mask & self.dtypes, kernel, conj
        )


def _check_mask(device: str, what: str, mask) -> None:
    """Raise ValueError unless a plugin gave a mask of dtypes."""
    if not isinstance(mask, int) or not 0 < mask <= _EVERY:
        raise ValueError(
            f"backend {device!r}: {what} needs a mask of dtypes between 1 and {_EVERY:#X}, "
            f"got {mask!r}"
        )


def _allowed(name: str) -> bool:
    setting = os.environ.get("PULLBACK_PLUGINS")
    if setting is None or name == "ref":
        return True
    return name in [part.strip() for part in setting.split(",")]


def _own_plugin(name: str) -> str | None:
    """Return the module of our own plugin for a device type, or None if it is not installed."""
    from importlib.util import find_spec

    module = _OWN.get(name)
    if module is None:
        return None
    found = find_spec(module.partition(".")[0])
    return module if found is not None and found.origin is not None else None


def _points():
    """Return the entry points of all plugins, without those for a device type of another plugin."""
    from importlib.metadata import entry_points

    kept = []
    for point in entry_points(group=GROUP):
        owner = _BUILT_IN if point.name in ("ref", "meta") else _own_plugin(point.name)
        if owner in (None, point.value):
            kept.append(point)
        else:
            warnings.warn(
                f"the plugin {point.value!r} claims the device {point.name!r}, which "
                f"{owner!r} provides: it is ignored",
                RuntimeWarning,
                stacklevel=2,
            )
    return kept


def _entry_point(name: str):
    """Return the entry point of a device type, or None.

    Raises: RuntimeError when two distributions provide different ones.
    """
    found = {point.value: point for point in _points() if point.name == name}
    if len(found) > 1:
        raise RuntimeError(
            f"device {name!r} is provided by more than one plugin "
            f"({', '.join(sorted(found))}): uninstall all but one"
        )
    return next(iter(found.values()), None)


def installed() -> list[str]:
    """Return the device types that installed plugins provide, loaded or not.

    Without those that ``PULLBACK_PLUGINS`` excludes. The built-in ``ref`` and ``meta`` are not
    plugins.

    >>> import pullback
    >>> "ref" in pullback.backend.installed()
    False
    """
    return sorted({point.name for point in _points() if _allowed(point.name)})


def _find(name: str):
    """Return the location of a device type's plugin and the function that imports it.

    Raises: RuntimeError with the reason why there is none and what to do.
    """
    if name == "ref":
        return REFERENCE, partial(import_module, REFERENCE)
    if not _allowed(name):
        raise RuntimeError(
            f"device {name!r} is not available: PULLBACK_PLUGINS="
            f"{os.environ['PULLBACK_PLUGINS']!r} leaves its plugin out"
        )
    module = _own_plugin(name)
    if module is not None:
        return module, partial(import_module, module)
    point = _entry_point(name)
    if point is not None:
        return point.value, point.load
    hint = _HINTS.get(name)
    if hint is not None:
        raise RuntimeError(f"device {name!r} needs a plugin that is not installed: {hint}")
    raise RuntimeError(
        f"there is no device type {name!r}: no installed plugin provides it "
        f"(available: {', '.join(['ref', 'meta', *installed()])})"
    )


_LAYOUTS = {"conv": "channels_last", "matmul": "column_major"}  # by the primitive's family


def _checked_layouts(device: str, layouts: dict[str, str]) -> dict[str, str]:
    """Return what a plugin's ``pullback_layouts`` gave; raises ValueError for other layouts."""
    known = {
        name: _LAYOUTS[one.family] for name, one in PRIMITIVES.items() if one.family in _LAYOUTS
    }
    wrong = {name: layout for name, layout in dict(layouts).items() if known.get(name) != layout}
    if wrong:
        raise ValueError(
            f"backend {device!r}: pullback_layouts() returned {wrong}; layouts that can be "
            f"preferred are {known}"
        )
    return layouts


def _import_plugin(name: str):
    where, import_it = _find(name)
    try:
        return import_it()
    except Exception as error:
        raise RuntimeError(
            f"the plugin of device {name!r} ({where}) failed to import: "
            f"{type(error).__name__}: {error}{_way_out(name)}"
        ) from error


def _way_out(name: str) -> str:
    """Return advice for an error of the default device, which the program may not have named."""
    if name != "cpu":
        return ""
    return " (PULLBACK_PLUGINS=off makes 'ref' the default device)"


def _start(manager, plugin, name: str) -> None:
    """Call the hooks of one plugin, and install its backend and its kernels."""
    if not manager.is_registered(plugin):
        manager.register(plugin, name=name)
    others = [other for other in manager.get_plugins() if other is not plugin]
    capsule = None
    if name != "ref":  # its memory is the core's own
        capsule = manager.subset_hook_caller("pullback_backend", others)(device=name)
        if capsule is None:
            raise RuntimeError(f"its pullback_backend({name!r}) returned None")
    _device.install_backend(name, capsule)
    dtypes = manager.subset_hook_caller("pullback_dtypes", others)(device=name)
    if dtypes is not None:
        _check_mask(name, "pullback_dtypes()", dtypes)
        _device.install_dtypes(name, dtypes)
    layouts = manager.subset_hook_caller("pullback_layouts", others)(device=name)
    for primitive, layout in ({} if layouts is None else _checked_layouts(name, layouts)).items():
        _device.install_layout(name, PRIMITIVE_IDS[primitive], layout)
    register = manager.subset_hook_caller("pullback_register_kernels", others)
    register(table=KernelTable(name, _EVERY if dtypes is None else dtypes), device=name)
    count = requested_threads() if _threads is None else _threads
    if count is not None:
        manager.subset_hook_caller("pullback_set_threads", others)(count=count)


def load(name: str) -> None:
    """Load the plugin of a device type and fill its column of the kernel table.

    Waits for another thread that loads it. Raises: RuntimeError with the device and the reason.
    """
    with _loading:
        if name in _loaded:
            return
        plugin = _import_plugin(name)
        manager = plugin_manager()
        try:
            _start(manager, plugin, name)
        except Exception as error:
            if manager.is_registered(plugin):
                manager.unregister(plugin)
            kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            raise RuntimeError(
                f"the plugin of device {name!r} cannot be used: {kind}{error}{_way_out(name)}"
            ) from error
        _loaded.add(name)


def mark_loaded(name: str) -> None:
    """Take a device type as loaded that no plugin provides: its kernels are installed already."""
    with _loading:
        _loaded.add(name)


def choose_default() -> str:
    """Return the default device: ``cpu`` if its plugin is installed, else ``ref``."""
    return "cpu" if _allowed("cpu") and _own_plugin("cpu") is not None else "ref"


_device.bind(load, choose_default)
