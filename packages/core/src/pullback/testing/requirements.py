"""What a backend says about itself to the conformance suite."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping

from pullback._c.dispatch.fallback import permit_on_host
from pullback.ops.table.primitives import LIBRARY

__all__ = ["Requirements", "exit_without", "requirements_of"]


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What a device does not do. A backend's plugin returns one from ``pullback_requirements``.

    ``without_dtypes`` names dtypes whose samples are left out, such as ``"float64"``, beside those
    that the device does not have by its ``pullback_dtypes``. ``expected_failures`` maps ``"op"`` or
    ``"check:op"`` to the reason why it fails; the suite demands that it does fail, so a repaired op
    is noticed. ``on_host`` names primitives without a kernel that may run on the host: special
    functions, Fourier transforms and decompositions of matrices, unless it says otherwise.

    >>> from pullback.testing import Requirements
    >>> mine = Requirements(without_dtypes={"complex128"}, expected_failures={"grad:sort": "ties"})
    >>> mine.why_failing("grad", "sort")
    'ties'
    """

    without_dtypes: frozenset[str] | set[str] = frozenset()
    expected_failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    on_host: frozenset[str] | set[str] = LIBRARY

    def why_failing(self, check: str, op: str) -> str | None:
        """Return the reason why a check of an op is expected to fail, or None."""
        return self.expected_failures.get(f"{check}:{op}", self.expected_failures.get(op))


def requirements_of(device: str) -> Requirements:
    """Return what the plugin of a device type says; nothing is missing if it says nothing.

    From then on the primitives of ``on_host`` run on the host without a warning.
    """
    import pullback as pb
    from pullback.backend import plugin_manager

    kind = pb.device(device).type
    pb.backend.device_count(kind)  # loads the plugin
    hooks = plugin_manager().hook
    found = hooks.pullback_requirements(device=kind) or Requirements()
    dtypes = hooks.pullback_dtypes(device=kind)
    if dtypes is not None:
        missing = {dtype.name for dtype in pb._dtypes() if not dtypes >> dtype.code & 1}
        found = dataclasses.replace(found, without_dtypes=missing | found.without_dtypes)
    permit_on_host(kind, found.on_host)
    return found


def exit_without(parser: argparse.ArgumentParser, *devices: str) -> None:
    """End the program with one line unless all devices can be used."""
    import pullback as pb

    for device in devices:
        try:
            pb.backend.device_count(pb.device(device).type)
        except RuntimeError as error:
            parser.exit(2, f"{parser.prog}: error: {error}\n")
