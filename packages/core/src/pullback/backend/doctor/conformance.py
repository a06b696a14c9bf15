"""A few ops of each family, by the checks of the conformance suite."""

from __future__ import annotations

from typing import Any

import pullback as pb
from pullback.backend.doctor.findings import Finding
from pullback.ops import ENTRIES
from pullback.testing.requirements import requirements_of
from pullback.testing.runner import run_check

__all__ = ["DERIVATIVES", "FAMILIES", "examine_derivatives", "examine_values"]

FAMILIES = {
    "elementwise": ("add", "exp", "floor_divide"),
    "comparisons": ("eq",),
    "reductions": ("sum", "argmin"),
    "scans and sorting": ("cumsum", "sort"),
    "shape": ("cat", "flip"),
    "indexing": ("gather", "scatter_add"),
    "creation": ("full_like", "arange"),
    "linear algebra": ("matmul",),
    "networks": ("softmax", "layer_norm"),
}
DERIVATIVES = ("mul", "amax", "gather", "bmm", "softmax")
CHECKS = ("value", "out", "leak")


def _run(part: str, what: str, checks: Any, ops: Any, device: str) -> Finding:
    """Run some checks of some ops and sum up; equal failures are shown once."""
    requirements = requirements_of(device)
    samples, failures = 0, []
    with pb.device(device):
        for check in checks:
            for op in ops:
                if requirements.why_failing(check, op) is not None:
                    continue
                found = run_check(check, ENTRIES[op], without=requirements.without_dtypes)
                samples += found.samples
                failures += found.failures
    if not failures:
        return Finding(part, what, True, f"{samples} samples of {', '.join(ops)}")
    first = failures[0].splitlines()[0]
    return Finding(part, what, False, f"{len(failures)} of {samples} samples fail; first: {first}")


def examine_values(device: str) -> list[Finding]:
    """Check values, ``out=`` and leaks of a few ops of each family."""
    return [_run("conformance", name, CHECKS, ops, device) for name, ops in FAMILIES.items()]


def examine_derivatives(device: str) -> list[Finding]:
    """Check first derivatives of a few ops: in float32 where there is no float64."""
    narrow = "float64" in requirements_of(device).without_dtypes
    how = "float32 there, float64 on the host" if narrow else "differences in float64"
    return [_run("derivatives", f"first derivatives ({how})", ("grad",), DERIVATIVES, device)]
