"""What a launch costs and how fast copies are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pullback as pb

__all__ = ["measure"]

CALLS, ROUNDS = 200, 5
NBYTES = 1 << 24


def _seconds(device: str, run: Callable[[], object], calls: int) -> float:
    """Return the median time of a call, of several rounds; the device finishes each round."""
    run()
    rounds = []
    for _ in range(ROUNDS):
        pb.synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            run()
        pb.synchronize(device)
        rounds.append((time.perf_counter() - start) / calls)
    return statistics.median(rounds)


def measure(device: str) -> dict[str, float]:
    """Return microseconds of an ``add`` of 8 float32 elements, and gigabytes a second of copies."""
    x = pb.ones(8, device=device)
    big = pb.ones(NBYTES // 4, device=device)
    other, host = pb.empty_like(big), pb.ones(NBYTES // 4, device="ref")
    with pb.no_grad():
        found = {"launch_us": 1e6 * _seconds(device, lambda: x + x, CALLS)}
        for name, run in (
            ("to_device_gb_s", lambda: other.copy_(host)),
            ("to_host_gb_s", lambda: host.copy_(big)),
            ("inside_gb_s", lambda: other.copy_(big)),
        ):
            found[name] = 1e-9 * NBYTES / _seconds(device, run, 3)
    return {name: float(f"{value:.3g}") for name, value in found.items()}
