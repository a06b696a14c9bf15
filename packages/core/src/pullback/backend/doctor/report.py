"""Run all examinations of a device and show what they find."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from typing import Any

import pullback as pb
from pullback.backend.doctor.conformance import examine_derivatives, examine_values
from pullback.backend.doctor.findings import Finding
from pullback.backend.doctor.memory import (
    examine_copies,
    examine_errors,
    examine_memory,
    examine_streams,
)
from pullback.backend.doctor.primitives import Coverage, coverage, missing, remedy
from pullback.backend.doctor.speed import measure
from pullback.ops.table.primitives import LIBRARY, PRIMITIVES
from pullback.testing.requirements import requirements_of

__all__ = ["Report", "examine", "main"]


@dataclasses.dataclass
class Report:
    """What was found of a device."""

    device: str
    dtypes: list[str]
    findings: list[Finding]
    coverage: list[Coverage]
    missing: list[Coverage]
    speed: dict[str, float]

    @property
    def good(self) -> bool:
        """Whether nothing failed. A primitive that is missing is no failure."""
        return all(finding.good is not False for finding in self.findings)

    def as_plain(self) -> dict[str, Any]:
        """Return everything as dicts, lists, texts and numbers, for JSON."""
        return {
            "device": self.device,
            "version": pb.__version__,
            "good": self.good,
            "dtypes": self.dtypes,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "primitives": {one.primitive: one.how for one in self.coverage},
            "missing": [
                {
                    "primitive": one.primitive,
                    "runs": one.how,
                    "ops": len(one.ops),
                    "remedy": remedy(one.primitive),
                }
                for one in self.missing
            ],
            "speed": self.speed,
        }

    def __str__(self) -> str:
        lines = [f"device {self.device}: {', '.join(self.dtypes)}"]
        part = ""
        for finding in self.findings:
            if finding.part != part:
                part = finding.part
                lines += ["", part]
            lines.append(f"  {finding}")
        lines += ["", "primitives", *(f"  {line}" for line in self._coverage_lines())]
        lines += ["", "speed", *(f"  {line}" for line in self._speed_lines())]
        lines += ["", *self._missing_lines()]
        failed = sum(finding.good is False for finding in self.findings)
        lines += ["", f"{failed} failed" if failed else "nothing failed"]
        return "\n".join(lines)

    def _coverage_lines(self) -> list[str]:
        kinds: dict[str, list[str]] = {
            "required of every device": [],
            "required, but left to the host by most devices": [],
            "others, composed or made on the host": [],
        }
        for one in self.coverage:
            place = one.primitive in LIBRARY if PRIMITIVES[one.primitive].required else 2
            list(kinds.values())[place].append(one.how)
        lines = []
        for what, hows in kinds.items():
            counts = {
                how: hows.count(how) for how in ("kernel", "decomposition", "host", "nothing")
            }
            words = "; ".join(f"{how} {count}" for how, count in counts.items() if count)
            lines.append(f"{len(hows)} {what}: {words}")
        partial = [one for one in self.coverage if one.without]
        lines += [
            f"{one.primitive} runs on the host for {', '.join(one.without)}" for one in partial
        ]
        return lines

    def _speed_lines(self) -> list[str]:
        return [
            f"add of 8 elements: {self.speed['launch_us']:g} us",
            f"copies: to the device {self.speed['to_device_gb_s']:g} GB/s, "
            f"to the host {self.speed['to_host_gb_s']:g} GB/s, "
            f"inside {self.speed['inside_gb_s']:g} GB/s",
        ]

    def _missing_lines(self) -> list[str]:
        urgent = [one for one in self.missing if one.primitive not in LIBRARY]
        rest = [one for one in self.missing if one.primitive in LIBRARY]
        lines = []
        if urgent:
            lines.append("required primitives without a kernel, those that most ops need first")
            lines += [
                f"  {len(one.ops):>4} ops  {one.primitive}: {remedy(one.primitive)}"
                for one in urgent
            ]
        else:
            lines.append("every primitive that is required of every device has a kernel")
        if rest:
            lines.append(
                "on the host, as for most devices: " + ", ".join(c.primitive for c in rest)
            )
        return lines


def examine(device: str) -> Report:
    """Examine a device and return what was found.

    Takes half a minute where a launch takes microseconds.

    Raises: RuntimeError for a device that is not installed or cannot be used, and for ``meta``.
    """
    kind = pb.device(device).type
    if kind == "meta":
        raise RuntimeError("the device 'meta' has no memory and no kernels: nothing to examine")
    pb.backend.device_count(kind)
    without = requirements_of(device).without_dtypes
    dtypes = [dtype for dtype in pb._dtypes() if dtype.name not in without]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*it runs on the host", category=RuntimeWarning)
        findings = [
            *examine_memory(device, dtypes),
            *examine_copies(device, dtypes),
            *examine_streams(device),
            *examine_errors(device),
            *examine_values(device),
            *examine_derivatives(device),
        ]
    return Report(
        device,
        [dtype.name for dtype in dtypes],
        findings,
        coverage(kind, dtypes),
        missing(kind, dtypes),
        measure(device),
    )


def main(device: str, as_json: bool) -> int:
    """Print the report of a device; return 0 if nothing failed, else 1."""
    report = examine(device)
    print(json.dumps(report.as_plain(), indent=2) if as_json else report)
    sys.stdout.flush()
    return 0 if report.good else 1
