"""What a backend says about itself to the conformance suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pullback._c.dispatch.fallback import permit_on_host
from pullback.ops.table.primitives import LIBRARY

__all__ = ["Requirements", "requirements_of"]


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What a device does not do. A backend's plugin returns one from ``pullback_requirements``.

    ``without_dtypes`` names dtypes that the device does not have at all, such as ``"float64"``:
    samples of them are left out. ``expected_failures`` maps ``"op"`` or ``"check:op"`` to the
    reason why it fails; the suite demands that it does fail, so a repaired op is noticed.
    ``on_host`` names primitives without a kernel that may run on the host: special functions,
    Fourier transforms and decompositions of matrices, unless it says otherwise.

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

    pb.zeros(1, device=device)  # loads the plugin
    kind = pb.device(device).type
    found = plugin_manager().hook.pullback_requirements(device=kind) or Requirements()
    permit_on_host(kind, found.on_host)
    return found
