"""Run a check over every sample call of an op, and count."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pullback as pb
from pullback.testing.checks import basic, compiled, corners, lazy, narrow, nesting
from pullback.testing.draw import LAYOUTS
from pullback.testing.modes import MODES
from pullback.testing.samples import (
    DTYPES,
    OPTIONAL_DTYPES,
    Sample,
    accepts,
    op_of,
    samples_of,
)

__all__ = ["CHECKS", "Check", "Totals", "collapsed", "iter_samples", "run_check"]

DENSE = ("contiguous", "transposed", "strided")  # layouts that name every element once
DIFFERENTIABLE = (pb.float64, pb.complex128)
SOME = (pb.bool, pb.int64, pb.float32, pb.complex64)


@dataclasses.dataclass(frozen=True)
class Check:
    """A check, and the ops, dtypes and layouts that it concerns."""

    name: str
    function: Callable[[Sample], None]
    concerns: Callable[[Any], bool]
    dtypes: tuple[Any, ...]
    layouts: tuple[str, ...]
    requires_grad: bool = False
    skipped_as: str | None = None  # a further name that cases skip it by
    accepted: bool = True  # on dtypes that the entry takes, or on the others
    first: int | None = None  # how many samples of each dtype it looks at; None: all
    narrow: Callable[[Sample], None] | None = None  # runs instead on a device without float64


@dataclasses.dataclass
class Totals:
    """What a check ran on, and what failed."""

    ops: int = 0
    samples: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Count another check's totals too."""
        self.ops += other.ops
        self.samples += other.samples
        self.failures += other.failures

    def __str__(self) -> str:
        return f"{self.ops} ops, {self.samples} samples, {len(self.failures)} failures"


def collapsed(failures: list[str]) -> list[str]:
    """Return failures of an op that differ in the sample alone as one text, which counts them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        where, _, reason = failure.partition(": ")
        groups.setdefault((where.partition(" #")[0], reason), []).append(where)
    return [
        f"{where}: {reason}" + (f"\n({len(more)} more samples fail so)" if more else "")
        for (_, reason), (where, *more) in groups.items()
    ]


def _always(entry: Any) -> bool:
    return True


def _is_public(entry: Any) -> bool:
    return bool(entry.method or entry.function)  # building blocks get checked arguments


def _has_derivative(entry: Any) -> bool:
    return bool(op_of(entry).differentiable)


CHECKS = {
    check.name: check
    for check in (
        Check("value", basic.check_value, _always, DTYPES, LAYOUTS),
        Check(
            "optional_dtypes",
            basic.check_value,
            _always,
            OPTIONAL_DTYPES,
            ("strided",),
            skipped_as="value",
            first=3,
        ),
        Check("refusal", basic.check_refusal, _is_public, DTYPES, LAYOUTS[:1], accepted=False),
        Check(
            "decomposed",
            basic.check_decomposed,
            lambda e: op_of(e).decompose is not None,
            DTYPES,
            LAYOUTS[:2],
            skipped_as="value",
        ),
        Check("meta", basic.check_meta, _always, DTYPES, LAYOUTS),
        Check("devices", basic.check_devices, _always, SOME, LAYOUTS[:1]),
        Check("inplace", basic.check_inplace, lambda e: e.inplace is True, DTYPES, DENSE),
        Check(
            "inplace_grad",
            basic.check_inplace_grad,
            lambda e: e.inplace is True and _has_derivative(e),
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            skipped_as="grad",
            narrow=narrow.check_inplace_grad,
        ),
        Check(
            "inplace_nested",
            nesting.check_inplace_nested,
            lambda e: bool(e.inplace),
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            skipped_as="grad",
        ),
        Check("alias", basic.check_alias, lambda e: e.composite is None, SOME, LAYOUTS[:1]),
        Check(
            "repeatable",
            basic.check_repeatable,
            _always,
            SOME,
            LAYOUTS[:1],
            skipped_as="value",
        ),
        Check("batch", basic.check_batch, _always, SOME, LAYOUTS[:1], skipped_as="value"),
        Check(
            "batch_grad",
            basic.check_batch_grad,
            _has_derivative,
            (pb.float64, pb.complex128),
            LAYOUTS[:1],
            True,
            skipped_as="grad",
        ),
        Check(
            "batch_of_numbers",
            corners.check_batch_of_numbers,
            _is_public,
            (pb.int64, pb.float32),
            LAYOUTS[:1],
            skipped_as="value",
        ),
        Check(
            "captured",
            compiled.check_compiled,
            _always,
            (pb.int64, pb.float32),
            LAYOUTS[:1],
            skipped_as="value",
            first=2,
        ),
        Check(
            "captured_grad",
            compiled.check_compiled_grad,
            lambda e: _has_derivative(e) and not e.name.endswith("_"),
            (pb.float64,),
            LAYOUTS[:1],
            True,
            skipped_as="grad",
            first=2,
        ),
        Check(
            "lazy",
            lazy.check_lazy,
            _always,
            SOME,
            LAYOUTS[:2],
            skipped_as="value",
        ),
        Check(
            "lazy_grad",
            lazy.check_lazy_grad,
            _has_derivative,
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            skipped_as="grad",
        ),
        Check("leak", basic.check_leak, _always, SOME, LAYOUTS[:1]),
        Check("out", basic.check_out, lambda e: e.out, DTYPES, LAYOUTS[:2]),
        Check(
            "grad",
            basic.check_grad,
            _has_derivative,
            DIFFERENTIABLE,
            DENSE,
            True,
            narrow=narrow.check_grad,
        ),
        Check(
            "gradgrad",
            basic.check_gradgrad,
            _has_derivative,
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            narrow=narrow.check_gradgrad,
        ),
        Check(
            "forward",
            basic.check_forward,
            _has_derivative,
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            skipped_as="grad",
        ),
        Check(
            "masked",
            corners.check_masked,
            _has_derivative,
            DIFFERENTIABLE,
            LAYOUTS[:1],
            True,
            skipped_as="transposed",
        ),
        Check("kept", corners.check_kept, _is_public, DIFFERENTIABLE, LAYOUTS[:1], True),
        Check("in_graph", corners.check_in_graph, _is_public, DIFFERENTIABLE, LAYOUTS[:1], True),
        Check(
            "compiled",
            basic.check_compiled,
            _has_derivative,
            (pb.float32, pb.float64, pb.complex64),
            DENSE,
            True,
        ),
    )
}


def iter_samples(
    check: Check, entry: Any, device: Any = None, without: Collection[str] = ()
) -> Iterator[Sample]:
    """Yield the sample calls of an op that a check concerns, but for the dtypes ``without``.

    Derivatives on a device without float64 are checked in float32.
    """
    if not check.concerns(entry):
        return
    narrow_only = check.requires_grad and "float64" in without
    for dtype in narrow.narrowed(check.dtypes) if narrow_only else check.dtypes:
        if accepts(entry, dtype) != check.accepted or dtype.name in without:
            continue
        # Each layout in a dtype of each kind: the others differ in width alone.
        thorough = dtype in SOME or check.requires_grad
        for layout in check.layouts if thorough else check.layouts[:1]:
            found = samples_of(
                entry,
                dtype,
                layout=layout,
                device=device,
                checks=(check.name, check.skipped_as),
                requires_grad=check.requires_grad,
                without=without,
            )
            # Only of the first case it is sure that no operand of another dtype promotes it.
            yield from itertools.islice(found, check.first if check.accepted else 1)


def run_check(
    name: str, entry: Any, device: Any = None, without: Collection[str] = (), mode: str = "plain"
) -> Totals:
    """Run one check on all its samples of one op; failures are described, not raised.

    Calls that the device refuses for a dtype ``without`` are left out.
    """
    totals = Totals()
    run, check = MODES[mode], CHECKS[name]
    function = check.function
    if check.narrow is not None and "float64" in without:
        function = check.narrow
    for sample in iter_samples(check, entry, device, without):
        totals.samples += 1
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".* is deprecated")  # some ops say so
                if sample.dtype in OPTIONAL_DTYPES:  # the host may compute them
                    warnings.filterwarnings(
                        "ignore", message=f".* no kernel for '{sample.dtype.name}'"
                    )
                run(functools.partial(function, sample))
        except Exception as error:  # a failing op must not hide the others
            if any(f"a tensor of {dtype} on device" in str(error) for dtype in without):
                totals.samples -= 1
                continue
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            totals.failures.append(f"{name} of {sample}: {reason}")
    totals.ops = int(totals.samples > 0)
    return totals
